/* resample.c - "upsample", "pixel_shuffle" and "pixel_unshuffle" on CUDA. */
#include "kernels/cuda/pixels/resample.h"

#include <stdio.h>

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_resample_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y) + dvk_elem_bytes(&a->res), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_resample_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->x) && dvk_elem_rows_fit(&a->y);
}

static dvk_resample_params params_of(const dvk_resample_args *a, const dvk_view *small, int64_t channels) {
    dvk_resample_params p = {.x = dvk_elem_of(&a->x),
                             .y = dvk_elem_of(&a->y),
                             .rows = (int32_t)(small->n * small->h),
                             .h = (int32_t)small->h,
                             .w = (int32_t)small->w,
                             .c = (int32_t)channels,
                             .chunks = dvk_elem_chunks(channels),
                             .r = (int32_t)a->r};
    if (a->res.data != NULL) {
        p.res = dvk_elem_of(&a->res);
    }
    return p;
}

static int upsample_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_resample_args *a = args;
    (void)scratch;
    dvk_resample_params p = params_of(a, &a->x, a->x.c);
    if (a->x.dtype == DVK_F32 && a->y.dtype == DVK_F32) {
        p.chunks = (p.c + 3) / 4;
        return dvk_elem_launch_rows(q, "resample", "upsample_f32", (int64_t)p.w * p.chunks, p.rows, &p);
    }
    return dvk_elem_launch_rows(q, "resample", "upsample", (int64_t)p.w * p.chunks, p.rows, &p);
}

/* The kernels that permute r * r pixels in registers write too short runs if there are few channels. */
static int turns(const dvk_resample_args *a, int64_t channels) {
    return a->r >= 2 && a->r <= 4 && a->x.dtype == a->y.dtype && channels > 4;
}

static int turn(const char *op, dvk_dtype type, dvk_resample_params *p, dvk_queue *q) {
    char name[32];
    snprintf(name, sizeof name, "%s%d_%d", op, (int)p->r, (int)dvk_dtype_size(type) * 8);
    if (p->r == 4) { /* four channels per thread */
        p->chunks = (p->c + 3) / 4;
    }
    return dvk_elem_launch_rows(q, "resample", name, (int64_t)p->w * p->chunks, p->rows, p);
}

static int shuffle_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_resample_args *a = args;
    (void)scratch;
    dvk_resample_params p = params_of(a, &a->x, a->y.c);
    if (turns(a, a->y.c)) {
        return turn("pixel_shuffle", a->y.dtype, &p, q);
    }
    p.chunks = (p.c + 3) / 4;
    return dvk_elem_launch_rows(q, "resample", "pixel_shuffle_any", a->y.w * p.chunks, a->y.n * a->y.h, &p);
}

/* Three channels of 16 bits, pairs of which are words. */
static int is_rgb(const dvk_resample_args *a, const dvk_resample_params *p) {
    return a->r == 2 && a->x.c == 3 && a->x.dtype == a->y.dtype && a->x.dtype != DVK_F32 && p->x.vector && p->y.vector;
}

static int unshuffle_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_resample_args *a = args;
    (void)scratch;
    dvk_resample_params p = params_of(a, &a->y, a->x.c);
    if (turns(a, a->x.c)) {
        return turn("pixel_unshuffle", a->y.dtype, &p, q);
    }
    if (is_rgb(a, &p)) {
        return dvk_elem_launch_rows(q, "resample", "pixel_unshuffle_rgb", p.w, p.rows, &p);
    }
    p.chunks = dvk_elem_chunks(a->y.c);
    return dvk_elem_launch_rows(q, "resample", "pixel_unshuffle_any", (int64_t)p.w * p.chunks, p.rows, &p);
}

DVK_ELEM_KERNEL(dvk_upsample_cuda, "upsample", supports, cost, upsample_enqueue);
DVK_ELEM_KERNEL(dvk_pixel_shuffle_cuda, "pixel_shuffle", supports, cost, shuffle_enqueue);
DVK_ELEM_KERNEL(dvk_pixel_unshuffle_cuda, "pixel_unshuffle", supports, cost, unshuffle_enqueue);
