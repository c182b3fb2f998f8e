/* test_nvidia_device.c - convolutions with this machine's cuDNN and cuBLASLt, and davy's kernels around them, compared with the plain
 * reference. Without a GPU or a library the test passes and does nothing. The folder DAVY_TEST_NVIDIA is searched first for the
 * libraries. DAVY_TEST_TIMES prints their times and those of davy's own kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cuda/conv_nvidia.h"
#include "core/base/error.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "tests/lib/check.h"

enum { GROUPS = 8, CHUNKS = 6 };

typedef struct conv_case {
    int32_t k, stride;
    int64_t h, w, c_in, c_out;
    dvk_dtype dtype;
    dvk_act act;
    bool bias, residual, prologue, stats, slice;
} conv_case;

static const conv_case cases[] = {
    {3, 1, 24, 20, 64, 128, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {3, 1, 24, 20, 64, 64, DVK_F16, DVK_ACT_NONE, false, false, false, false, false},
    {3, 1, 17, 31, 72, 40, DVK_F16, DVK_ACT_RELU, true, false, false, false, false},
    {3, 1, 24, 20, 64, 64, DVK_F16, DVK_ACT_PRELU, true, false, false, false, false},
    {3, 1, 24, 20, 128, 64, DVK_BF16, DVK_ACT_NONE, true, true, true, true, false},
    {3, 2, 24, 20, 64, 128, DVK_BF16, DVK_ACT_NONE, true, false, false, true, false},
    {3, 1, 16, 16, 64, 64, DVK_BF16, DVK_ACT_LRELU, true, false, false, false, true},
    {1, 1, 24, 20, 64, 128, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {1, 1, 24, 20, 64, 128, DVK_F16, DVK_ACT_RELU, true, false, false, false, true},
    {1, 1, 17, 31, 72, 40, DVK_BF16, DVK_ACT_NONE, false, false, false, false, false},
    {1, 1, 24, 20, 128, 128, DVK_BF16, DVK_ACT_SILU, true, true, true, false, false},
};

static const conv_case large[] = {
    {3, 1, 512, 512, 128, 128, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {3, 1, 512, 512, 256, 256, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {3, 1, 512, 512, 256, 256, DVK_BF16, DVK_ACT_NONE, true, true, true, true, false},
    {3, 1, 128, 128, 512, 512, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {3, 1, 540, 960, 64, 64, DVK_F16, DVK_ACT_NONE, true, false, false, false, false},
    {1, 1, 256, 256, 512, 512, DVK_BF16, DVK_ACT_NONE, true, false, false, false, false},
    {1, 1, 256, 256, 512, 512, DVK_BF16, DVK_ACT_NONE, true, true, false, false, false},
};

static dv_gpu *gpu;
static dv_gpu_queue *queue;
static uint32_t seed = 1;

static float number(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / 8388608.0f - 1.0f;
}

/* ---- memory of both sides ---- */

typedef struct block { /* f32 for the reference, any type on the device */
    float *host;
    void *device;
    uint64_t bytes;
    int64_t n;
} block;

static block make(int64_t n, dvk_dtype dtype, float scale) {
    block b = {.host = calloc((size_t)n, sizeof(float)), .bytes = (uint64_t)n * dvk_dtype_size(dtype), .n = n};
    void *packed = malloc((size_t)b.bytes);
    for (int64_t i = 0; i < n; i++) {
        dvk_store(packed, dtype, i, scale * number());
        b.host[i] = dvk_load(packed, dtype, i);
    }
    CHECK(dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, b.bytes, "test", &b.device) == DAVY_OK);
    CHECK(dv_gpu_upload(queue, b.device, packed, b.bytes) == DAVY_OK);
    free(packed);
    return b;
}

static void drop(block *b) {
    if (b->device != NULL) {
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, b->device, b->bytes);
    }
    free(b->host);
}

static dvk_view view_of(int64_t h, int64_t w, int64_t c, int64_t pixel) {
    return (dvk_view){
        .dtype = DVK_F32, .n = 1, .h = h, .w = w, .c = c, .sn = h * w * pixel, .sh = w * pixel, .sw = pixel};
}

typedef struct data {
    block x, y, res, weights, bias, slopes, scale, shift, stats;
    dvk_conv2d_args ref, args; /* in host memory, f32; in device memory, w not set */
} data;

static void fill(const conv_case *c, data *d) {
    const int64_t out_h = c->h / c->stride;
    const int64_t out_w = c->w / c->stride;
    const int64_t x_pixel = c->c_in + (c->slice ? 16 : 0);
    const int64_t y_pixel = c->c_out + (c->slice ? 24 : 0);
    const int32_t pad = c->stride == 1 ? c->k / 2 : 0;
    *d = (data){.x = make(c->h * c->w * x_pixel, c->dtype, 1.0f)};
    d->y = make(out_h * out_w * y_pixel, c->dtype, 0.0f);
    d->res = make(out_h * out_w * c->c_out, c->dtype, 1.0f);
    d->bias = make(c->c_out, DVK_F32, 1.0f);
    d->slopes = make(c->c_out, DVK_F32, 0.3f);
    d->scale = make(c->c_in, DVK_F32, 1.0f);
    d->shift = make(c->c_in, DVK_F32, 1.0f);
    d->stats = make(CHUNKS * GROUPS * 3, DVK_F32, 0.0f);
    d->weights = make(c->c_out * c->c_in * c->k * c->k, c->dtype, 1.7f / sqrtf((float)(c->c_in * c->k * c->k)));
    d->ref = (dvk_conv2d_args){.x = view_of(c->h, c->w, c->c_in, x_pixel),
                               .y = view_of(out_h, out_w, c->c_out, y_pixel),
                               .epi = {.alpha = 1.0f, .act = c->act, .slope = 0.1f, .n_res = c->residual ? 1 : 0},
                               .kh = c->k,
                               .kw = c->k,
                               .stride = c->stride,
                               .pad_top = pad,
                               .pad_left = pad,
                               .upsample = 1,
                               .compute = DVK_F32};
    d->ref.epi.res[0] = view_of(out_h, out_w, c->c_out, c->c_out);
    d->ref.epi.beta[0] = 1.0f;
    d->args = d->ref;
    d->args.compute = d->args.x.dtype = d->args.y.dtype = d->args.epi.res[0].dtype = c->dtype;
    dvk_conv2d_args *const both[2] = {&d->ref, &d->args};
    for (int i = 0; i < 2; i++) {
#define AT(block) (i == 0 ? (void *)d->block.host : d->block.device)
        dvk_conv2d_args *a = both[i];
        a->x.data = AT(x);
        a->y.data = AT(y);
        a->epi.res[0].data = AT(res);
        a->epi.bias = c->bias ? AT(bias) : NULL;
        a->epi.slopes = c->act == DVK_ACT_PRELU ? AT(slopes) : NULL;
        a->pro.scale = c->prologue ? AT(scale) : NULL;
        a->pro.shift = c->prologue ? AT(shift) : NULL;
        a->pro.act = c->prologue ? DVK_ACT_SILU : DVK_ACT_NONE;
#undef AT
    }
    d->args.epi.stats = c->stats ? d->stats.device : NULL;
    d->args.epi.stats_groups = c->stats ? GROUPS : 0;
}

static void drop_all(data *d) {
    block *const all[] = {&d->x, &d->y, &d->res, &d->weights, &d->bias, &d->slopes, &d->scale, &d->shift, &d->stats};
    for (size_t i = 0; i < DV_ARRAY_LEN(all); i++) {
        drop(all[i]);
    }
}

/* ---- running ---- */

static void run_reference(const data *d) {
    const dvk_kernel *k = dvk_find("conv2d", "ref");
    dvk_conv2d_args a = d->ref;
    void *w = malloc(k->packed_bytes(&a));
    void *scratch = aligned_alloc(64, (k->scratch_bytes != NULL ? k->scratch_bytes(&a) + 127 : 127) & ~(size_t)63);
    k->pack(&a, d->weights.host, w, 0, k->pack_units(&a));
    a.w = w;
    k->run(&a, 0, k->units(&a), scratch);
    free(w);
    free(scratch);
}

/* Runs it once, then `runs` times. Returns the microseconds of one run; negative: failed. */
static double run_on_device(const dvk_cuda_kernel *k, const data *d, int runs) {
    dvk_conv2d_args a = d->args;
    const uint64_t scratch_bytes = k->scratch_bytes != NULL ? k->scratch_bytes(&a, dv_gpu_caps(gpu)) + 256 : 256;
    const uint64_t packed_bytes = k->packed_bytes(&a);
    void *packed = calloc(1, (size_t)packed_bytes);
    void *w = NULL;
    void *scratch = NULL;
    dv_gpu_event *e[2] = {NULL, NULL};
    float ms = 0.0f;
    k->pack(&a, d->weights.host, packed, 0, k->pack_units(&a));
    davy_result r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, packed_bytes, "weights", &w);
    r = r == DAVY_OK ? dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, scratch_bytes, "scratch", &scratch) : r;
    r = r == DAVY_OK ? dv_gpu_upload(queue, w, packed, packed_bytes) : r;
    r = r == DAVY_OK ? dv_gpu_event_create(gpu, true, &e[0]) : r;
    r = r == DAVY_OK ? dv_gpu_event_create(gpu, true, &e[1]) : r;
    a.w = w;
    for (int i = 0; i <= runs && r == DAVY_OK; i++) {
        r = i == 1 ? dv_gpu_event_record(e[0], queue) : r;
        r = r == DAVY_OK ? dv_gpu_check(gpu, k->enqueue(&a, scratch, &queue->base), k->variant) : r;
    }
    if (runs > 0) {
        r = r == DAVY_OK ? dv_gpu_event_record(e[1], queue) : r;
    }
    const davy_result waited = dv_gpu_queue_wait(queue, NULL, NULL);
    r = r == DAVY_OK ? waited : r;
    if (runs > 0) {
        r = r == DAVY_OK ? dv_gpu_event_ms(e[0], e[1], &ms) : r;
    }
    davy_error_info error = {.struct_size = sizeof error};
    dv_error_get(&error);
    CHECKF(r == DAVY_OK, "%s", error.message);
    dv_gpu_event_release(e[0]);
    dv_gpu_event_release(e[1]);
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, w, packed_bytes);
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, scratch, scratch_bytes);
    free(packed);
    return r == DAVY_OK ? (double)ms * 1e3 / (runs > 0 ? runs : 1) : -1.0;
}

/* The library's kernel with a plan for these arguments. NULL: none; a message reports it. */
static const dvk_cuda_kernel *planned(const char *what, const data *d) {
    int library = 0;
    const dvk_cuda_kernel *k = dv_conv_nvidia(&d->args, dv_gpu_caps(gpu), &library);
    nv_conv *c = k != NULL ? nv_conv_find(gpu, library, &d->args, true) : NULL;
    if (c == NULL) {
        printf("%s: not offered\n", what);
        return NULL;
    }
    atomic_store(&c->chunks, CHUNKS);
    printf("%s: %s%s\n", what, k->variant, c->fused ? ", fused" : "");
    return k;
}

/* ---- comparing ---- */

static void compare(const char *what, const conv_case *c, const data *d) {
    unsigned char *got = malloc((size_t)d->y.bytes);
    double wrong = 0.0;
    double all = 0.0;
    CHECK(dv_gpu_download(queue, got, d->y.device, d->y.bytes) == DAVY_OK);
    const dvk_view *y = &d->ref.y;
    for (int64_t i = 0; i < y->h * y->w * y->c; i++) {
        const int64_t at = i / y->c * y->sw + i % y->c;
        const double e = (double)dvk_load(got, c->dtype, at) - (double)d->y.host[at];
        wrong += e * e;
        all += (double)d->y.host[at] * (double)d->y.host[at];
    }
    const double l2 = sqrt(wrong / all);
    const double bound = c->dtype == DVK_BF16 ? 8e-3 : 1e-3;
    CHECKF(l2 < bound, "%s: differs by %g", what, l2);
    printf("%s: differs by %.2g\n", what, l2);
    for (int64_t i = 0; i < y->h * y->w * y->sw; i++) { /* nothing is written between the pixels */
        if (i % y->sw >= y->c && dvk_load(got, c->dtype, i) != 0.0f) {
            CHECKF(false, "%s: writes between pixels", what);
            break;
        }
    }
    if (c->stats) { /* of the first group: number of values and mean */
        float partial[CHUNKS * GROUPS * 3];
        const int64_t width = y->c / GROUPS;
        double count = 0.0;
        double sum = 0.0;
        double mean = 0.0;
        CHECK(dv_gpu_download(queue, partial, d->stats.device, sizeof partial) == DAVY_OK);
        for (int k = 0; k < CHUNKS; k++) {
            const float *p = &partial[k * GROUPS * 3];
            count += (double)p[0];
            sum += (double)p[0] * (double)p[1];
        }
        for (int64_t i = 0; i < y->h * y->w * width; i++) {
            mean += (double)d->y.host[i / width * y->sw + i % width] / (double)(y->h * y->w * width);
        }
        CHECKF(count == (double)(y->h * y->w * width) && fabs(sum / count - mean) < 0.01,
               "%s: %g values, mean %g, not %g", what, count, sum / count, mean);
    }
    free(got);
}

static void name_case(const conv_case *c, char *out, size_t bytes) {
    snprintf(out, bytes, "%dx%d/%d %lldx%lld %lld->%lld %s act %d%s%s%s%s%s", (int)c->k, (int)c->k, (int)c->stride,
             (long long)c->w, (long long)c->h, (long long)c->c_in, (long long)c->c_out,
             c->dtype == DVK_BF16 ? "bf16" : "f16", (int)c->act, c->bias ? " bias" : "", c->residual ? " residual" : "",
             c->prologue ? " prologue" : "", c->stats ? " statistics" : "", c->slice ? " slice" : "");
}

static void check_case(const conv_case *c) {
    char what[128];
    data d;
    name_case(c, what, sizeof what);
    fill(c, &d);
    const dvk_cuda_kernel *k = planned(what, &d);
    if (k != NULL && run_on_device(k, &d, 0) >= 0.0) {
        run_reference(&d);
        compare(what, c, &d);
    }
    drop_all(&d);
}

static void time_case(const conv_case *c) {
    char what[128];
    data d;
    name_case(c, what, sizeof what);
    fill(c, &d);
    const dvk_cuda_kernel *theirs = planned(what, &d);
    const double flops = 2.0 * (double)(c->h * c->w * c->c_in * c->c_out * c->k * c->k);
    const double us = theirs != NULL ? run_on_device(theirs, &d, 20) : 0.0;
    d.args.epi.stats = NULL;
    const dvk_cuda_kernel *ours = dvk_cuda_choose("conv2d", &d.args, dv_gpu_caps(gpu),
                                                  c->dtype == DVK_BF16 ? DVK_COMPUTES_BF16 : DVK_COMPUTES_F16);
    const double ours_us = run_on_device(ours, &d, 20);
    printf("  theirs %.1f us (%.0f TFLOP/s), %s without statistics %.1f us (%.0f TFLOP/s)\n", us, flops / us * 1e-6,
           ours->variant, ours_us, flops / ours_us * 1e-6);
    drop_all(&d);
}

static void DAVY_CALL tell(void *user, davy_log_level level, const char *text) {
    (void)user;
    (void)level;
    printf("%s\n", text);
}

int main(void) {
    static const dv_log log = {.fn = tell, .level = DAVY_LOG_INFO};
    dv_heap *heap = dv_heap_create(NULL, 0);
    const dv_gpu_desc desc = {.library_dir = getenv("DAVY_TEST_NVIDIA"), .log = &log, .heap = heap, .nvidia = true};
    if (dv_gpu_count(NULL, NULL, 0) == 0 || dv_gpu_open(&desc, &gpu) != DAVY_OK) {
        printf("no GPU: nothing to test\n");
    } else if (dv_gpu_queue_take(gpu, NULL, &queue) == DAVY_OK) {
        for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
            check_case(&cases[i]);
        }
        for (size_t i = 0; i < DV_ARRAY_LEN(large) && getenv("DAVY_TEST_TIMES") != NULL; i++) {
            time_case(&large[i]);
        }
        dv_gpu_queue_give(queue);
    }
    dv_gpu_release(gpu);
    dv_heap_release(heap);
    return check_done();
}
