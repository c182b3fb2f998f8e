/* blend.c - "blend" on CUDA. */
#include "kernels/cuda/blend.h"

#include "kernels/cuda/elem_host.h"

extern const dvk_cuda_kernel dvk_blend_cuda;

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_blend_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + 2.0 * dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_blend_args *a = args;
    (void)caps;
    return a->y.n * a->y.h < INT32_MAX / 2 && a->y.w * a->y.c < INT32_MAX / 2;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_blend_args *a = args;
    (void)scratch;
    dvk_blend_params p = {.x = dvk_elem_of(&a->x),
                          .y = dvk_elem_of(&a->y),
                          .wy = a->wy,
                          .wx = a->wx,
                          .rows = (int32_t)(a->y.n * a->y.h),
                          .h = (int32_t)a->y.h,
                          .w = (int32_t)a->y.w,
                          .c = (int32_t)a->y.c,
                          .chunks = (int32_t)((a->y.c + DVK_ELEM_LANES - 1) / DVK_ELEM_LANES)};
    return dvk_elem_launch_rows(q, "blend", "blend", (int64_t)p.w * p.chunks, p.rows, &p);
}

const dvk_cuda_kernel dvk_blend_cuda = {.op = "blend",
                                        .variant = "cuda",
                                        .sm_min = 75,
                                        .computes = DVK_COMPUTES_ANY,
                                        .supports = supports,
                                        .cost = cost,
                                        .enqueue = enqueue};
