/* pool.c - "mean", "max_pool" and "resize" on CUDA. */
#include "kernels/cuda/pixels/pool.h"

#include <stdio.h>

#include "kernels/cuda/common/elem_host.h"

static int64_t pieces(int64_t total, int64_t size) {
    return (total + size - 1) / size;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pool_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pool_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->y) && dvk_elem_rows_fit(&a->x);
}

/* Selects the function for the common type of both views, or that for any two types. */
static void name_of(const dvk_pool_args *a, const char *what, char (*name)[24]) {
    const char *type = a->x.dtype != a->y.dtype ? "any"
                       : a->x.dtype == DVK_F16  ? "f16"
                       : a->x.dtype == DVK_BF16 ? "bf16"
                                                : "any";
    snprintf(*name, sizeof *name, "%s_%s", what, type);
}

/* ---- mean ---- */

static int64_t mean_chunks(const dvk_pool_args *a) {
    return least(pieces(a->x.h * a->x.w, DVK_MEAN_PIXELS), DVK_MEAN_CHUNKS);
}

static int mean_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pool_args *a = args;
    (void)caps;
    return a->x.h * a->x.w < INT32_MAX && a->x.n < 65536 && a->x.c < INT32_MAX / 8;
}

static size_t mean_scratch(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pool_args *a = args;
    (void)caps;
    return (size_t)(a->x.n * mean_chunks(a) * a->x.c) * sizeof(float);
}

static int mean_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_pool_args *a = args;
    dvk_mean_params p = {.x = dvk_elem_of(&a->x),
                         .y = dvk_elem_of(&a->y),
                         .partial = scratch,
                         .pixels = a->x.h * a->x.w,
                         .chunks = (int32_t)mean_chunks(a),
                         .w = dvk_elem_even(&a->x) ? 0 : (int32_t)a->x.w,
                         .c = (int32_t)a->x.c,
                         .octets = dvk_elem_chunks(a->x.c)};
    p.per_chunk = pieces(p.pixels, p.chunks);
    const int r = dvk_elem_launch(q, "pool", "mean_chunks", (uint32_t)p.chunks, a->x.n, &p);
    if (r != 0) {
        return r;
    }
    return dvk_elem_launch(q, "pool", "mean_finish", (uint32_t)pieces(p.c, DVK_MEAN_FINISH_C), a->x.n, &p);
}

/* ---- max_pool, resize ---- */

static int rows_enqueue(const dvk_pool_args *a, const char *what, dvk_queue *q) {
    char name[24];
    name_of(a, what, &name);
    dvk_pool_params p = {.x = dvk_elem_of(&a->x),
                         .y = dvk_elem_of(&a->y),
                         .rows = (int32_t)(a->y.n * a->y.h),
                         .h = (int32_t)a->y.h,
                         .w = (int32_t)a->y.w,
                         .xh = (int32_t)a->x.h,
                         .xw = (int32_t)a->x.w,
                         .c = (int32_t)a->y.c,
                         .chunks = dvk_elem_chunks(a->y.c),
                         .k = a->k,
                         .stride = a->stride};
    return dvk_elem_launch_rows(q, "pool", name, (int64_t)p.w * p.chunks, p.rows, &p);
}

static int max_pool_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return rows_enqueue(args, "max_pool", q);
}

static int resize_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return rows_enqueue(args, "resize", q);
}

extern const dvk_cuda_kernel dvk_mean_cuda;
const dvk_cuda_kernel dvk_mean_cuda = {.op = "mean",
                                       .variant = "cuda",
                                       .sm_min = 75,
                                       .computes = DVK_COMPUTES_ANY,
                                       .supports = mean_supports,
                                       .cost = cost,
                                       .scratch_bytes = mean_scratch,
                                       .enqueue = mean_enqueue};
DVK_ELEM_KERNEL(dvk_max_pool_cuda, "max_pool", supports, cost, max_pool_enqueue);
DVK_ELEM_KERNEL(dvk_resize_cuda, "resize", supports, cost, resize_enqueue);
