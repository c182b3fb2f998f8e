/* misuse.c - a host that does everything wrong: NULL wherever a pointer goes, structs of the wrong size, numbers that
 * mean nothing, shapes that cannot be. Each call must answer the right error with a sentence, touch no output, and
 * leave the context as useful as before, which is tried after each group. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/host.h"

enum { WIDTH = 24, HEIGHT = 16 };

static const davy_api *api;
static davy_context *ctx;
static davy_model *model;
static picture in, out;

/* An error of this code, with a message that was written for it. */
#define FAILS(call, want)                                                                                              \
    do {                                                                                                               \
        IS(call, want);                                                                                                \
        davy_error_info failed = {.struct_size = sizeof failed};                                                       \
        api->last_error(&failed);                                                                                      \
        CHECKF(failed.code == (want) && strlen(failed.message) >= 8, "%s: no sentence: \"%s\"", #call,                 \
               failed.message);                                                                                        \
    } while (0)

static void still_useful(const char *after) {
    picture got = {0};
    const davy_result r = host_upscale(api, model, &in, NULL, &got);
    CHECKF(r == DAVY_OK && got.v != NULL && picture_max_error(&got, &out) == 0, "after %s upscaling gives %s", after,
           r == DAVY_OK ? "another picture" : host_error(api));
    picture_free(&got);
}

static void null_pointers(void) {
    const davy_model_desc no_sources = {.struct_size = sizeof no_sources};
    davy_tensor t = host_tensor(&in), u = {.struct_size = sizeof u};
    davy_model_info mi = {.struct_size = sizeof mi};
    davy_device_info di = {.struct_size = sizeof di};
    davy_memory_info me = {.struct_size = sizeof me};
    davy_plan_info pi = {.struct_size = sizeof pi};
    davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_UPSCALE};
    davy_job_info ji = {.struct_size = sizeof ji};
    davy_error_info ei = {.struct_size = sizeof ei};
    davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION};
    davy_context *c = NULL;
    davy_model *m = NULL;
    davy_buffer *b = NULL;
    const char *utf8 = NULL;
    uint64_t bytes = 0;
    IS(api->last_error(NULL), DAVY_E_INVALID);
    CHECK(api->get_extension(NULL) == NULL);
    FAILS(api->device_count(NULL, NULL), DAVY_E_INVALID);
    FAILS(api->device_info(NULL, 0, NULL), DAVY_E_INVALID);
    FAILS(api->device_info(NULL, -1, &di), DAVY_E_NOT_FOUND);
    FAILS(api->device_info(NULL, 1000, &di), DAVY_E_NOT_FOUND);
    FAILS(api->context_create(NULL, &c), DAVY_E_INVALID);
    FAILS(api->context_create(&cd, NULL), DAVY_E_INVALID);
    FAILS(api->context_memory(NULL, &me), DAVY_E_INVALID);
    FAILS(api->context_memory(ctx, NULL), DAVY_E_INVALID);
    FAILS(api->context_budget(NULL, 0, 0), DAVY_E_INVALID);
    FAILS(api->context_trim(NULL, 0, 0), DAVY_E_INVALID);
    FAILS(api->model_open(NULL, &no_sources, &m), DAVY_E_INVALID);
    FAILS(api->model_open(ctx, NULL, &m), DAVY_E_INVALID);
    FAILS(api->model_open(ctx, &no_sources, &m), DAVY_E_INVALID);
    FAILS(api->model_open(ctx, &no_sources, NULL), DAVY_E_INVALID);
    FAILS(api->model_info(NULL, &mi), DAVY_E_INVALID);
    FAILS(api->model_info(model, NULL), DAVY_E_INVALID);
    FAILS(api->model_load(NULL, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->model_unload(NULL, 0), DAVY_E_INVALID);
    FAILS(api->plan_query(NULL, &q, &pi), DAVY_E_INVALID);
    FAILS(api->plan_query(model, NULL, &pi), DAVY_E_INVALID);
    FAILS(api->plan_query(model, &q, &pi), DAVY_E_INVALID); /* no input */
    q.input = &t;
    FAILS(api->plan_query(model, &q, NULL), DAVY_E_INVALID);
    FAILS(api->upscale(NULL, &t, &u, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->upscale(model, NULL, &u, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->upscale(model, &t, NULL, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->vae_encode(NULL, &t, &u, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->vae_decode(model, NULL, &u, NULL, NULL), DAVY_E_INVALID);
    FAILS(api->text_get(NULL, &utf8, &bytes), DAVY_E_INVALID);
    FAILS(api->job_wait(NULL, 0), DAVY_E_INVALID);
    FAILS(api->job_info(NULL, &ji), DAVY_E_INVALID);
    FAILS(api->job_cancel(NULL), DAVY_E_INVALID);
    FAILS(api->job_error(NULL, &ei), DAVY_E_INVALID);
    FAILS(api->buffer_alloc(NULL, DAVY_MEMORY_HOST, 16, &b), DAVY_E_INVALID);
    FAILS(api->buffer_alloc(ctx, DAVY_MEMORY_HOST, 16, NULL), DAVY_E_INVALID);
    FAILS(api->buffer_tensor(NULL, &u), DAVY_E_INVALID);
    CHECK(c == NULL && m == NULL && b == NULL && u.data == 0 && u.buffer == NULL);
    api->context_release(NULL);
    api->model_release(NULL);
    api->text_release(NULL);
    api->job_release(NULL);
    api->buffer_release(NULL);
    still_useful("NULL pointers");
}

/* Structs of callers older and newer than the library. */
static void struct_sizes(void) {
    struct {
        davy_tensor t;
        uint64_t later[2];
    } big;
    memset(&big, 0, sizeof big);
    big.t = host_tensor(&in);
    davy_tensor u = {.struct_size = sizeof u};
    big.t.struct_size = sizeof big;
    IS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_OK);
    api->buffer_release(u.buffer);
    u = (davy_tensor){.struct_size = sizeof u};
    big.later[1] = 1;
    FAILS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_E_STRUCT);
    big.t.struct_size = sizeof(davy_tensor); /* the tail is not the library's business now */
    IS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_OK);
    api->buffer_release(u.buffer);
    u = (davy_tensor){.struct_size = sizeof u};
    for (uint32_t size = 0; size < sizeof(davy_tensor); size += 4) {
        big.t.struct_size = size;
        FAILS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_E_STRUCT);
    }
    big.t.struct_size = UINT32_MAX; /* absurd, and must not be read that far */
    FAILS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_E_STRUCT);
    CHECK(u.data == 0 && u.buffer == NULL);

    struct {
        davy_model_info i;
        unsigned char guard[16];
    } info;
    memset(&info, 0x5a, sizeof info);
    info.i.struct_size = sizeof info.i;
    IS(api->model_info(model, &info.i), DAVY_OK);
    CHECK(info.i.struct_size == sizeof info.i && info.guard[0] == 0x5a && info.i.scale_num == 2);
    info.i.struct_size = sizeof info.i - 4;
    FAILS(api->model_info(model, &info.i), DAVY_E_STRUCT);
    memset(&info, 0, sizeof info);
    info.i.struct_size = sizeof info;
    IS(api->model_info(model, &info.i), DAVY_OK);
    CHECK(info.i.struct_size == sizeof info && info.guard[0] == 0);

    const davy_run small_run = {.struct_size = 8};
    FAILS(api->upscale(model, &(davy_tensor){.struct_size = sizeof u}, &u, &small_run, NULL), DAVY_E_STRUCT);
    davy_context *c = NULL;
    davy_context_desc cd = {.struct_size = sizeof cd - 8, .abi_version = DAVY_ABI_VERSION};
    FAILS(api->context_create(&cd, &c), DAVY_E_STRUCT);
    cd.struct_size = sizeof cd;
    const davy_host host = {.struct_size = 4};
    cd.host = &host;
    FAILS(api->context_create(&cd, &c), DAVY_E_STRUCT);
    davy_error_info e = {.struct_size = 12};
    IS(api->last_error(&e), DAVY_E_STRUCT);
    CHECK(c == NULL);
    still_useful("structs of wrong sizes");
}

static void contexts(void) {
    static const davy_option unknown = {"no_such_option", "1"}, nameless = {NULL, "1"};
    static const struct {
        davy_context_desc desc;
        davy_result want;
    } cases[] = {
        {{.device = "no such device"}, DAVY_E_INVALID},
        {{.device = "cuda:999"}, DAVY_E_DEVICE},
        {{.n_threads = -3}, DAVY_E_INVALID},
        {{.n_threads = 1000000}, DAVY_E_INVALID},
        {{.flags = 0x80000000u}, DAVY_E_INVALID},
        {{.reserved0 = 1}, DAVY_E_INVALID},
        {{.abi_version = 0x00020000}, DAVY_E_INVALID},
        {{.n_options = 1}, DAVY_E_INVALID},
        {{.options = &unknown, .n_options = 1}, DAVY_E_OPTION},
        {{.options = &nameless, .n_options = 1}, DAVY_E_OPTION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        davy_context_desc d = cases[i].desc;
        davy_context *c = NULL;
        d.struct_size = sizeof d;
        d.abi_version = d.abi_version != 0 ? d.abi_version : DAVY_ABI_VERSION;
        const davy_result r = api->context_create(&d, &c);
        CHECKF(r == cases[i].want && c == NULL, "context %zu: %s, expected %s (%s)", i, api->result_name(r),
               api->result_name(cases[i].want), host_error(api));
        if (r == DAVY_OK) {
            api->context_release(c);
        }
    }
    davy_host half = {.struct_size = sizeof half};
    host_state state;
    host_state_init(&state);
    half = host_callbacks(&state);
    half.free = NULL; /* both or neither */
    const davy_context_desc d = {.struct_size = sizeof d, .abi_version = DAVY_ABI_VERSION, .host = &half};
    davy_context *c = NULL;
    FAILS(api->context_create(&d, &c), DAVY_E_INVALID);
    still_useful("wrong contexts");
}

static void sources(void) {
    static const char byte = 0;
    static const struct {
        davy_source source;
        davy_result want;
    } cases[] = {
        {{.path = ""}, DAVY_E_NOT_FOUND},
        {{.path = "/", .data = &byte, .data_bytes = 1}, DAVY_E_INVALID}, /* two of path, data, read */
        {{.name = "no-such-shipped-model"}, DAVY_E_NOT_FOUND},
        {{.name = "../../etc/passwd"}, DAVY_E_NOT_FOUND},
        {{.data = &byte, .data_bytes = 1, .name = "one byte"}, DAVY_E_FORMAT},
        {{.data = &byte, .data_bytes = 0, .name = "empty"}, DAVY_E_FORMAT},
        {{.role = 77, .data = &byte, .data_bytes = 1}, DAVY_E_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        davy_source s = cases[i].source;
        s.struct_size = sizeof s;
        const davy_model_desc d = {.struct_size = sizeof d, .sources = &s, .n_sources = 1};
        davy_model *m = NULL;
        const davy_result r = api->model_open(ctx, &d, &m);
        CHECKF(r == cases[i].want && m == NULL, "source %zu: %s, expected %s (%s)", i, api->result_name(r),
               api->result_name(cases[i].want), host_error(api));
    }
    synth_file f = synth_compact(8, 1, 2, 3);
    davy_source s = {.struct_size = sizeof s, .data = f.data, .data_bytes = f.bytes, .name = "compact"};
    davy_model_desc d = {.struct_size = sizeof d, .sources = &s, .n_sources = 1, .arch = "no such architecture"};
    davy_model *m = NULL;
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_ARCH);
    d.arch = NULL;
    d.task = DAVY_TASK_VAE; /* an upscaler's weights */
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_ARCH);
    d.task = 99;
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_INVALID);
    d.task = 0;
    d.compute = 99;
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_INVALID);
    d.compute = DAVY_DTYPE_INT4;
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_UNSUPPORTED);
    d.compute = 0;
    static const char *const splits[] = {"8x16", /* of a network that is no DAT */ "8", "8x", "x8", "0x8", "900x8", ""};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        const davy_option split = {"split", splits[i]};
        d.options = &split;
        d.n_options = 1;
        FAILS(api->model_open(ctx, &d, &m), DAVY_E_OPTION);
    }
    static const char *const blends[] = {"0.5", /* of one file */ "2", "-1", "half", ""};
    for (size_t i = 0; i < sizeof blends / sizeof blends[0]; i++) {
        const davy_option blend = {"blend", blends[i]};
        d.options = &blend;
        d.n_options = 1;
        FAILS(api->model_open(ctx, &d, &m), DAVY_E_OPTION);
    }
    d.options = NULL;
    d.n_options = 0;
    d.source_stride = 8;
    FAILS(api->model_open(ctx, &d, &m), DAVY_E_STRUCT);
    CHECK(m == NULL);
    free(f.data);
    still_useful("wrong sources");
}

/* One member of a tensor, overwritten. */
typedef struct spoiler {
    const char *what;
    size_t offset;
    enum { SET32, SET64, ADD64 } how;
    int64_t value;
    davy_result want, also;
    int input_only; /* as an output this is a wish for a buffer */
} spoiler;

#define SET32_OF(member) offsetof(davy_tensor, member), SET32
#define SET64_OF(member) offsetof(davy_tensor, member), SET64
#define ADD64_OF(member) offsetof(davy_tensor, member), ADD64

static const spoiler spoilers[] = {
    {"dtype", SET32_OF(dtype), 99, DAVY_E_INVALID, 0, 0},
    {"dtype of weights", SET32_OF(dtype), DAVY_DTYPE_INT4, DAVY_E_INVALID, DAVY_E_UNSUPPORTED, 0},
    {"layout", SET32_OF(layout), -1, DAVY_E_INVALID, 0, 0},
    {"channels", SET32_OF(channels), 42, DAVY_E_INVALID, 0, 0},
    {"range", SET32_OF(range), 5, DAVY_E_INVALID, 0, 0},
    {"memory", SET32_OF(memory), 9, DAVY_E_INVALID, 0, 0},
    {"memory of a device", SET32_OF(memory), DAVY_MEMORY_CUDA, DAVY_E_UNSUPPORTED, DAVY_E_INVALID, 0},
    {"buffer that is not there", SET32_OF(memory), DAVY_MEMORY_BUFFER, DAVY_E_INVALID, 0, 0},
    {"ndim", SET32_OF(ndim), 3, DAVY_E_SHAPE, DAVY_E_INVALID, 0},
    {"ndim, huge", SET32_OF(ndim), 1 << 30, DAVY_E_SHAPE, DAVY_E_INVALID, 0},
    {"ndim, negative", SET32_OF(ndim), -4, DAVY_E_SHAPE, DAVY_E_INVALID, 0},
    {"height of nothing", SET64_OF(shape[1]), 0, DAVY_E_SHAPE, 0, 0},
    {"width below nothing", SET64_OF(shape[2]), -WIDTH, DAVY_E_SHAPE, 0, 0},
    {"huge height", SET64_OF(shape[1]), INT64_MAX / 2, DAVY_E_SHAPE, 0, 0},
    {"huge batch", SET64_OF(shape[0]), INT64_MAX, DAVY_E_SHAPE, 0, 0},
    {"five channels", SET64_OF(shape[3]), 5, DAVY_E_SHAPE, 0, 0},
    {"alpha that is not there", SET32_OF(channels), DAVY_CHANNELS_RGBA, DAVY_E_SHAPE, 0, 0},
    {"latent for a picture", SET32_OF(channels), DAVY_CHANNELS_LATENT, DAVY_E_INVALID, 0, 0},
    {"no data", SET64_OF(data), 0, DAVY_E_INVALID, 0, 1},
    {"data beyond the address space", SET64_OF(data), -8, DAVY_E_INVALID, 0, 0},
    {"misaligned data", ADD64_OF(data), 1, DAVY_E_INVALID, 0, 0},
    {"misaligned offset", SET64_OF(byte_offset), 2, DAVY_E_INVALID, 0, 0},
    {"misaligned stride", SET64_OF(stride_bytes[2]), 13, DAVY_E_INVALID, 0, 0},
    {"huge stride", SET64_OF(stride_bytes[1]), INT64_MAX - 3, DAVY_E_INVALID, DAVY_E_SHAPE, 0},
    {"huge negative stride", SET64_OF(stride_bytes[1]), INT64_MIN, DAVY_E_INVALID, DAVY_E_SHAPE, 0},
};

/* The picture's tensor with its strides written out, so that one of them can be spoiled. */
static davy_tensor spoiled(const picture *p, const spoiler *s) {
    davy_tensor t = host_tensor(p);
    t.stride_bytes[3] = 4;
    for (int i = 2; i >= 0; i--) {
        t.stride_bytes[i] = t.stride_bytes[i + 1] * t.shape[i + 1];
    }
    const int32_t narrow = (int32_t)s->value;
    int64_t wide = s->value;
    if (s->how == ADD64) {
        memcpy(&wide, (char *)&t + s->offset, sizeof wide);
        wide += s->value;
    }
    memcpy((char *)&t + s->offset, s->how == SET32 ? (const void *)&narrow : (const void *)&wide,
           s->how == SET32 ? 4 : 8);
    return t;
}

static void tensors(void) {
    for (size_t i = 0; i < sizeof spoilers / sizeof spoilers[0]; i++) {
        const spoiler *s = &spoilers[i];
        const davy_tensor bad = spoiled(&in, s);
        davy_tensor u = {.struct_size = sizeof u};
        const davy_result r = api->upscale(model, &bad, &u, NULL, NULL);
        CHECKF(r < 0 && (r == s->want || r == s->also), "input, %s: %s (%s)", s->what, api->result_name(r),
               host_error(api));
        CHECKF(u.buffer == NULL && u.data == 0, "input, %s: the output was touched", s->what);
        if (s->input_only) {
            continue;
        }
        const davy_tensor src = host_tensor(&in), before = spoiled(&out, s);
        davy_tensor dst = before;
        const davy_result q = api->upscale(model, &src, &dst, NULL, NULL);
        CHECKF(q < 0, "output, %s: %s", s->what, api->result_name(q));
        CHECKF(memcmp(&before, &dst, sizeof dst) == 0, "output, %s: it was changed", s->what);
    }
    const davy_tensor src = host_tensor(&in);
    davy_tensor onto = host_tensor(&out);
    onto.data = src.data; /* results would be read as input */
    FAILS(api->upscale(model, &src, &onto, NULL, NULL), DAVY_E_INVALID);
    still_useful("wrong tensors");
}

static void outputs_and_runs(void) {
    davy_tensor src = host_tensor(&in), dst = host_tensor(&out);
    for (int i = 0; i < 4; i++) { /* the shape must be exactly plan_query's */
        dst = host_tensor(&out);
        dst.shape[i]++;
        FAILS(api->upscale(model, &src, &dst, NULL, NULL), DAVY_E_SHAPE);
    }
    dst = host_tensor(&out);
    FAILS(api->vae_decode(model, &src, &dst, NULL, NULL), DAVY_E_UNSUPPORTED);
    FAILS(api->vae_encode(model, &src, &dst, NULL, NULL), DAVY_E_UNSUPPORTED);
    static const davy_run runs[] = {
        {.flags = 0x40000000u}, {.tile_width = -7}, {.tile_overlap = -1},
        {.reserved0 = 1},       {.reserved1 = 1},   {.n_options = 3},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        davy_run run = runs[i];
        run.struct_size = sizeof run;
        const davy_result r = api->upscale(model, &src, &dst, &run, NULL);
        CHECKF(r == DAVY_E_INVALID, "run %zu: %s (%s)", i, api->result_name(r), host_error(api));
    }
    davy_run run = {.struct_size = sizeof run, .options = &(const davy_option){"no_such_option", "1"}, .n_options = 1};
    FAILS(api->upscale(model, &src, &dst, &run, NULL), DAVY_E_OPTION);
    davy_query q = {.struct_size = sizeof q, .op = 17, .input = &src};
    davy_plan_info plan = {.struct_size = sizeof plan};
    FAILS(api->plan_query(model, &q, &plan), DAVY_E_INVALID);
    davy_buffer *b = NULL;
    FAILS(api->buffer_alloc(ctx, 99, 16, &b), DAVY_E_INVALID);
    FAILS(api->buffer_alloc(ctx, DAVY_MEMORY_CUDA, 16, &b), DAVY_E_UNSUPPORTED);
    const davy_result r = api->buffer_alloc(ctx, DAVY_MEMORY_HOST, UINT64_MAX - 3, &b);
    CHECKF((r == DAVY_E_BUDGET || r == DAVY_E_NOMEM_HOST || r == DAVY_E_INVALID) && b == NULL, "2^64 bytes: %s",
           api->result_name(r));
    still_useful("wrong outputs and runs");
}

/* What is not a number goes through or is refused; it crashes nothing and stays where the network's reach takes it. */
static void not_numbers(void) {
    picture p = picture_new(1, HEIGHT, WIDTH, 3), got = {0};
    for (int64_t i = 0; i < picture_count(&p); i++) {
        p.v[i] = i % 7 == 0 ? (float)NAN : i % 11 == 0 ? (float)INFINITY : i % 13 == 0 ? -3e38f : 0.5f;
    }
    const davy_result r = host_upscale(api, model, &p, NULL, &got);
    CHECKF(r == DAVY_OK || r == DAVY_E_INVALID, "NaN pixels: %s", api->result_name(r));
    picture_free(&got);
    const davy_tensor src = host_tensor(&p);
    davy_tensor whole = {.struct_size = sizeof whole, .dtype = DAVY_DTYPE_U8};
    const davy_result w = api->upscale(model, &src, &whole, NULL, NULL);
    CHECKF(w == DAVY_OK || w == DAVY_E_INVALID, "NaN pixels to bytes: %s", api->result_name(w));
    api->buffer_release(whole.buffer);
    picture_free(&p);
    still_useful("NaN pixels");
}

int main(void) {
    api = host_load();
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    in = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&in, 4);
    if (model == NULL || host_upscale(api, model, &in, NULL, &out) != DAVY_OK) {
        CHECKF(0, "nothing to misuse: %s", host_error(api));
        return check_done();
    }
    null_pointers();
    struct_sizes();
    contexts();
    sources();
    tensors();
    outputs_and_runs();
    not_numbers();
    api->model_release(model);
    api->context_release(ctx);
    picture_free(&in);
    picture_free(&out);
    return check_done();
}
