/* misuse_pictures.c - invalid tensors, outputs of the wrong shape, invalid runs, pixels that are NaN or infinite. */
#include <math.h>
#include <string.h>

#include "tests/hosts/calls/misuse_host.h"

/* One member of a tensor, overwritten. */
typedef struct spoiler {
    const char *what;
    size_t offset;
    enum { SET32, SET64, ADD64 } how;
    int64_t value;
    davy_result want, also;
    int input_only; /* as an output it requests a buffer */
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

/* The picture's tensor with explicit strides, so that a test can change one of them. */
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
    onto.data = src.data; /* the result would overwrite the input */
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

/* NaN and infinity pass through or are refused. They cause no crash, and spread only within the network's reach. */
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
    if (misuse_begin()) {
        tensors();
        outputs_and_runs();
        not_numbers();
    }
    return misuse_end();
}
