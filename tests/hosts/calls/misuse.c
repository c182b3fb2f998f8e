/* misuse.c - NULL for each pointer, structs of the wrong size, invalid contexts and models. */
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/calls/misuse_host.h"

static void null_contexts_and_models(void) {
    const davy_model_desc no_sources = {.struct_size = sizeof no_sources};
    davy_model_info mi = {.struct_size = sizeof mi};
    davy_device_info di = {.struct_size = sizeof di};
    davy_memory_info me = {.struct_size = sizeof me};
    davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION};
    davy_context *c = NULL;
    davy_model *m = NULL;
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
    CHECK(c == NULL && m == NULL);
    api->context_release(NULL);
    api->model_release(NULL);
    still_useful("NULL contexts and models");
}

static void null_pointers(void) {
    davy_tensor t = host_tensor(&in), u = {.struct_size = sizeof u};
    davy_plan_info pi = {.struct_size = sizeof pi};
    davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_UPSCALE};
    davy_job_info ji = {.struct_size = sizeof ji};
    davy_error_info ei = {.struct_size = sizeof ei};
    davy_buffer *b = NULL;
    const char *utf8 = NULL;
    uint64_t bytes = 0;
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
    CHECK(b == NULL && u.data == 0 && u.buffer == NULL);
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
    big.t.struct_size = sizeof(davy_tensor); /* the library must ignore the tail now */
    IS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_OK);
    api->buffer_release(u.buffer);
    u = (davy_tensor){.struct_size = sizeof u};
    for (uint32_t size = 0; size < sizeof(davy_tensor); size += 4) {
        big.t.struct_size = size;
        FAILS(api->upscale(model, &big.t, &u, NULL, NULL), DAVY_E_STRUCT);
    }
    big.t.struct_size = UINT32_MAX; /* the library must not read that far */
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
    static const char *const splits[] = {"8x16", /* the network is not DAT */ "8", "8x", "x8", "0x8", "900x8", ""};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        const davy_option split = {"split", splits[i]};
        d.options = &split;
        d.n_options = 1;
        FAILS(api->model_open(ctx, &d, &m), DAVY_E_OPTION);
    }
    static const char *const blends[] = {"0.5", /* with one file */ "2", "-1", "half", ""};
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

int main(void) {
    if (misuse_begin()) {
        null_contexts_and_models();
        null_pointers();
        struct_sizes();
        contexts();
        sources();
    }
    return misuse_end();
}
