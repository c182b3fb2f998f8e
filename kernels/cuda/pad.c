/* pad.c - "pad" on CUDA. */
#include "kernels/cuda/pad.h"

#include "kernels/cuda/elem_host.h"

extern const dvk_cuda_kernel dvk_pad_cuda;

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pad_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pad_args *a = args;
    (void)caps;
    return a->y.n * a->y.h < INT32_MAX / 2 && a->y.w * a->y.c < INT32_MAX / 2;
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
                        .c = (int32_t)a->y.c,
                        .chunks = (int32_t)((a->y.c + DVK_ELEM_LANES - 1) / DVK_ELEM_LANES),
                        .reflect = a->mode == DVK_PAD_REFLECT};
    return dvk_elem_launch_rows(q, "pad", "pad", (int64_t)p.w * p.chunks, p.rows, &p);
}

const dvk_cuda_kernel dvk_pad_cuda = {.op = "pad",
                                      .variant = "cuda",
                                      .sm_min = 75,
                                      .computes = DVK_COMPUTES_ANY,
                                      .supports = supports,
                                      .cost = cost,
                                      .enqueue = enqueue};
