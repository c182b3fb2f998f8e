/* dysample.c - "dysample" on CUDA. */
#include "kernels/cuda/pixels/dysample.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_dysample_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->offset) + dvk_elem_bytes(&a->y), caps);
}

/* 1 if y sums the samples of all groups. */
static int is_summed(const dvk_dysample_args *a) {
    return a->groups > 1 && a->y.c * a->groups == a->x.c;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_dysample_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->y) && a->y.w * a->x.c < INT32_MAX / 2 && (is_summed(a) || a->y.c == a->x.c);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_dysample_args *a = args;
    (void)scratch;
    dvk_dysample_params p = {.x = dvk_elem_of(&a->x),
                             .offset = dvk_elem_of(&a->offset),
                             .y = dvk_elem_of(&a->y),
                             .rows = (int32_t)(a->y.n * a->y.h),
                             .h = (int32_t)a->y.h,
                             .w = (int32_t)a->y.w,
                             .xh = (int32_t)a->x.h,
                             .xw = (int32_t)a->x.w,
                             .width = (int32_t)(a->x.c / a->groups),
                             .groups = (int32_t)a->groups,
                             .r = (int32_t)a->r,
                             .parts = is_summed(a) ? 1 : (int32_t)a->groups};
    p.chunks = (p.width + 3) / 4;
    return dvk_elem_launch_rows(q, "dysample", "dysample", (int64_t)p.w * p.parts * p.chunks, p.rows, &p);
}

DVK_ELEM_KERNEL(dvk_dysample_cuda, "dysample", supports, cost, enqueue);
