/* blend.c - "blend" on CUDA. */
#include "kernels/cuda/pixels/blend.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_blend_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + 2.0 * dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_blend_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->y);
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
                          .chunks = dvk_elem_chunks(a->y.c)};
    return dvk_elem_launch_rows(q, "blend", "blend", (int64_t)p.w * p.chunks, p.rows, &p);
}

DVK_ELEM_KERNEL(dvk_blend_cuda, "blend", supports, cost, enqueue);
