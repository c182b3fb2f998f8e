/* convert.c - "load" and "store" on CUDA. */
#include "kernels/cuda/pixels/convert.h"

#include <stdio.h>

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_convert_args *a = args;
    const double image = (double)dvk_elem_count(&a->view) * (double)dvk_dtype_size(a->image.dtype);
    return dvk_elem_cost(image + dvk_elem_bytes(&a->view), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_convert_args *a = args;
    (void)caps;
    return a->view.n * a->view.h < INT32_MAX / 2 && (a->view.w + 4) * (a->view.c + 4) < INT32_MAX / 2;
}

/* 1 if rows, pictures and, for planes, channels all begin at a multiple of `bytes`. */
static int begin_at(const dvk_image *im, int64_t bytes, int planes) {
    return (int64_t)((uintptr_t)im->data % (uintptr_t)bytes) == 0 && (im->h == 1 || im->sh % bytes == 0) &&
           (im->n == 1 || im->sn % bytes == 0) && (!planes || im->channels == 1 || im->sc % bytes == 0);
}

/* 1 if the map has each of `channels` channels exactly once, so that whole words may be written. */
static int permutes(const dvk_image *im, int32_t channels) {
    int32_t seen = 0;
    for (int32_t c = 0; c < im->channels && c < 4; c++) {
        seen |= 1 << (im->identity_map ? c : im->map[c]);
    }
    return im->channels == channels && seen == (1 << channels) - 1;
}

static int mode_of(const dvk_image *im, int store) {
    const int64_t size = (int64_t)dvk_dtype_size(im->dtype);
    if (im->sw == size && begin_at(im, 4 * size, 1)) {
        return DVK_CONVERT_PLANAR;
    }
    for (int32_t packed = 3; packed <= 4; packed++) {
        if (im->sc == size && im->sw == packed * size && begin_at(im, 4 * size, 0) &&
            (store ? permutes(im, packed) : im->channels <= 4)) {
            return packed;
        }
    }
    return DVK_CONVERT_ANY;
}

/* 1 for f32 with three channels and no gaps within a row, if rows and every fourth pixel are 16-byte aligned. */
static int has_threes(const dvk_view *v) {
    return v->dtype == DVK_F32 && v->c == 3 && v->sw == 3 && (uintptr_t)v->data % 16 == 0 &&
           (v->h == 1 || v->sh % 4 == 0) && (v->n == 1 || v->sn % 4 == 0);
}

dvk_convert_params dvk_convert_of(const dvk_convert_args *a, int store) {
    const dvk_image *im = &a->image;
    const int64_t size = (int64_t)dvk_dtype_size(im->dtype);
    dvk_convert_params p = {.image = im->data,
                            .dtype = im->dtype,
                            .sn = im->sn,
                            .sh = im->sh,
                            .sw = im->sw,
                            .sc = im->sc,
                            .view = dvk_elem_of(&a->view),
                            .mode = mode_of(im, store),
                            .threes = has_threes(&a->view),
                            .whole = dvk_elem_whole(&a->view) && a->view.c <= 4 && a->view.sw == DVK_ELEM_LANES,
                            .aligned = begin_at(im, size, 1) && im->sw % size == 0,
                            .map = {im->map[0], im->map[1], im->map[2], im->map[3]},
                            .identity = im->identity_map,
                            .rows = (int32_t)(a->view.n * a->view.h),
                            .h = (int32_t)a->view.h,
                            .w = (int32_t)a->view.w,
                            .c = (int32_t)a->view.c,
                            .blocks = (int32_t)((a->view.c + 3) / 4),
                            .clamp = a->clamp,
                            .mul = a->mul,
                            .add = a->add,
                            .lo = a->lo,
                            .hi = a->hi};
    if (im->dtype == DVK_U8 || im->dtype == DVK_U16) { /* integers are always clamped to their type */
        const float top = im->dtype == DVK_U8 ? 255.0f : 65535.0f;
        p.lo = a->clamp && a->lo > 0.0f ? a->lo : 0.0f;
        p.hi = a->clamp && a->hi < top ? a->hi : top;
    }
    return p;
}

static int run(const dvk_convert_args *a, int store, dvk_queue *q) {
    static const char *const types[] = {
        [DVK_F32] = "f32", [DVK_F16] = "f16", [DVK_BF16] = "bf16", [DVK_U8] = "u8", [DVK_U16] = "u16"};
    dvk_convert_params p = dvk_convert_of(a, store);
    char name[16];
    /* pixels per thread; neighbouring threads write vectors of a view better */
    const int64_t pixels = p.mode == DVK_CONVERT_ANY || (!store && !p.threes) ? 1 : 4;
    snprintf(name, sizeof name, "%s%s_%s", store ? "store" : "load", pixels == 4 ? "4" : "", types[a->image.dtype]);
    return dvk_elem_launch_rows(q, "convert", name, (p.w + pixels - 1) / pixels * p.blocks, p.rows, &p);
}

static int load_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return run(args, 0, q);
}

static int store_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return run(args, 1, q);
}

DVK_ELEM_KERNEL(dvk_load_cuda, "load", supports, cost, load_enqueue);
DVK_ELEM_KERNEL(dvk_store_cuda, "store", supports, cost, store_enqueue);
