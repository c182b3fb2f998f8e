/* fold.c - "fold" and "unfold" on CUDA. */
#include "kernels/cuda/pixels/fold.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_fold_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_fold_args *a = args;
    (void)caps;
    return dvk_elem_rows_fit(&a->x) && dvk_elem_rows_fit(&a->y);
}

static dvk_fold_params params_of(const dvk_fold_args *a) {
    return (dvk_fold_params){.x = dvk_elem_of(&a->x),
                             .y = dvk_elem_of(&a->y),
                             .rows = (int32_t)(a->y.n * a->y.h),
                             .h = (int32_t)a->y.h,
                             .w = (int32_t)a->y.w,
                             .c = (int32_t)a->y.c,
                             .chunks = dvk_elem_chunks(a->y.c),
                             .r = (int32_t)a->r,
                             .top = a->top,
                             .left = a->left,
                             .in_h = (int32_t)a->x.h,
                             .in_w = (int32_t)a->x.w,
                             .in_c = (int32_t)a->x.c,
                             .dim = (int32_t)(a->r * a->r * a->x.c / a->heads),
                             .padded = (int32_t)(a->y.c / a->heads)};
}

static int fold_enqueue(const void *args, void *scratch, dvk_queue *q) {
    dvk_fold_params p = params_of(args);
    (void)scratch;
    p.whole = p.in_c % 8 == 0 && p.dim % 8 == 0 && p.padded % 8 == 0;
    return dvk_elem_launch_rows(q, "fold", "fold", (int64_t)p.w * p.chunks, p.rows, &p);
}

static int unfold_enqueue(const void *args, void *scratch, dvk_queue *q) {
    dvk_fold_params p = params_of(args);
    (void)scratch;
    p.x.vector = p.x.vector && p.c % 8 == 0; /* a pixel's channels begin at a multiple of y's vector */
    return dvk_elem_launch_rows(q, "fold", "unfold", (int64_t)p.w * p.chunks, p.rows, &p);
}

DVK_ELEM_KERNEL(dvk_fold_cuda, "fold", supports, cost, fold_enqueue);
DVK_ELEM_KERNEL(dvk_unfold_cuda, "unfold", supports, cost, unfold_enqueue);
