/* yuv.c - "load_yuv" and "store_yuv" on CUDA. */
#include "kernels/cuda/pixels/yuv.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_yuv_args *a = args;
    const double planes = (double)(a->view.h * a->view.w) * (a->bits == 8 ? 1.5 : 3.0);
    return dvk_elem_cost(planes + dvk_elem_bytes(&a->view), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_yuv_args *a = args;
    (void)caps;
    const uintptr_t odd =
        (uintptr_t)a->luma | (uintptr_t)a->chroma | (uintptr_t)a->luma_stride | (uintptr_t)a->chroma_stride;
    return a->view.n == 1 && a->view.c == 3 && a->view.h < INT32_MAX / 2 && a->view.w < INT32_MAX / 8 &&
           (a->bits == 8 || odd % 2 == 0);
}

static int run(const dvk_yuv_args *a, const char *narrow, const char *wide, dvk_queue *q) {
    const uintptr_t all =
        (uintptr_t)a->luma | (uintptr_t)a->chroma | (uintptr_t)a->luma_stride | (uintptr_t)a->chroma_stride;
    dvk_yuv_params p = {.luma = a->luma,
                        .chroma = a->chroma,
                        .luma_stride = a->luma_stride,
                        .chroma_stride = a->chroma_stride,
                        .view = dvk_elem_of(&a->view),
                        .numbers = dvk_yuv_of(a),
                        .h = (int32_t)a->view.h,
                        .w = (int32_t)a->view.w,
                        .shift = a->bits == 8 ? 0 : 16 - a->bits,
                        .pairs = all % (a->bits == 8 ? 2 : 4) == 0,
                        .mul = a->mul,
                        .add = a->add};
    return dvk_elem_launch_rows(q, "yuv", a->bits == 8 ? narrow : wide, (p.w + 1) / 2, (p.h + 1) / 2, &p);
}

static int load_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return run(args, "load_yuv_8", "load_yuv_16", q);
}

static int store_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return run(args, "store_yuv_8", "store_yuv_16", q);
}

DVK_ELEM_KERNEL(dvk_load_yuv_cuda, "load_yuv", supports, cost, load_enqueue);
DVK_ELEM_KERNEL(dvk_store_yuv_cuda, "store_yuv", supports, cost, store_enqueue);
