/* pad.c - "pad" on CUDA. */
#include "kernels/cuda/pixels/pad.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pad_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pad_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->y);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_pad_args *a = args;
    (void)scratch;
    dvk_pad_params p = {.x = dvk_elem_of(&a->x),
                        .y = dvk_elem_of(&a->y),
                        .rows = (int32_t)(a->y.n * a->y.h),
                        .h = (int32_t)a->y.h,
                        .w = (int32_t)a->y.w,
                        .xh = (int32_t)a->x.h,
                        .xw = (int32_t)a->x.w,
                        .top = a->top,
                        .left = a->left,
                        .c = (int32_t)a->y.c,
                        .chunks = dvk_elem_chunks(a->y.c),
                        .mode = a->mode,
                        .whole = dvk_elem_whole(&a->x) && dvk_elem_whole(&a->y)};
    return dvk_elem_launch_rows(q, "pad", "pad", (int64_t)p.w * p.chunks, p.rows, &p);
}

DVK_ELEM_KERNEL(dvk_pad_cuda, "pad", supports, cost, enqueue);
