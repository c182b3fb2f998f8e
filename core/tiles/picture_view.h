/* picture_view.h - selects parts of images and views, and fills the arguments of the conversions between them. */
#ifndef DV_PICTURE_VIEW_H
#define DV_PICTURE_VIEW_H

#include "core/tiles/engine.h"
#include "kernels/dtype.h"
#include "kernels/op.h"

static inline dvk_image dv_image_part(const dvk_image *image, int64_t picture, int64_t y, int64_t x, int64_t h,
                                      int64_t w) {
    dvk_image part = *image;
    part.data = (char *)image->data + picture * image->sn + y * image->sh + x * image->sw;
    part.n = 1;
    part.h = h;
    part.w = w;
    return part;
}

/* Pictures [first, first + n) of a view. */
static inline dvk_view dv_view_pictures(const dvk_view *v, int64_t first, int64_t n) {
    dvk_view some = *v;
    some.data = (char *)v->data + first * v->sn * (int64_t)dvk_dtype_size(v->dtype);
    some.n = n;
    return some;
}

/* Bytes from a view's first element to the end of its last picture, padding included. */
static inline uint64_t dv_view_span(const dvk_view *v) {
    return (uint64_t)(v->n * v->sn) * dvk_dtype_size(v->dtype);
}

static inline dvk_view dv_view_part(const dvk_view *v, int64_t y, int64_t x, int64_t h, int64_t w, int64_t c) {
    dvk_view part = *v;
    part.data = (char *)v->data + (y * v->sh + x * v->sw) * (int64_t)dvk_dtype_size(v->dtype);
    part.h = h;
    part.w = w;
    part.c = c;
    return part;
}

static inline dvk_convert_args dv_load_args(const dv_work *w, const dvk_image *image, const dvk_view *view) {
    return (dvk_convert_args){.image = *image, .view = *view, .mul = w->in_mul, .add = w->in_add};
}

static inline dvk_convert_args dv_store_args(const dv_work *w, const dvk_image *image, const dvk_view *view) {
    return (dvk_convert_args){.image = *image,
                              .view = *view,
                              .mul = w->out_mul,
                              .add = w->out_add,
                              .lo = w->out_lo,
                              .hi = w->out_hi,
                              .clamp = w->out_clamp};
}

#endif
