/* convert_tmpl.h - "load" and "store" on vectors, compiled once for each instruction set by a file that has included a
 * simd_int_*.h. If a row of the picture and a row of the view have the same order of elements, the row is one run.
 * Otherwise strips of pixels go through scratch: plane by plane on the picture's side, pixel by pixel on the view's. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"

enum { CT_STRIP = 256, CT_UNIT = 65536 }; /* pixels of a strip; approximate elements of a unit */

typedef struct ct_range { /* of a store: v * mul + add, then clamp to [lo, hi] */
    float mul, add, lo, hi;
    int integers; /* NaN becomes lo; floats keep it */
    int clamp;
} ct_range;

typedef struct ct_memory {
    float *pixels; /* [CT_STRIP][c] */
    float *planes; /* [c][CT_STRIP] */
    void *raw;     /* [CT_STRIP] elements of the picture's type */
} ct_memory;

static int64_t ct_rows(const dvk_convert_args *a) {
    return conv_min(a->view.h, 1 + CT_UNIT / (a->view.w * a->view.c));
}

static int64_t ct_units(const void *args) {
    const dvk_convert_args *a = args;
    return a->view.n * conv_ceil_div(a->view.h, ct_rows(a));
}

static size_t ct_scratch_bytes(const void *args) {
    const dvk_convert_args *a = args;
    return (size_t)(CT_STRIP * (2 * a->view.c + 1)) * sizeof(float);
}

static double ct_cost(const void *args) {
    const dvk_convert_args *a = args;
    return (double)(a->view.n * a->view.h * a->view.w * a->view.c) * CPU_COST(convert, element);
}

static int64_t ct_channel(const dvk_image *im, int64_t c) {
    return im->identity_map ? c : im->map[c];
}

/* 1 if a row of the picture has the same order of elements as a row of the view. */
static int ct_same_order(const dvk_convert_args *a) {
    const int64_t size = (int64_t)dvk_dtype_size(a->image.dtype);
    if (a->view.sw != a->view.c || a->image.sw != a->view.c * size || (a->view.c > 1 && a->image.sc != size)) {
        return 0;
    }
    for (int64_t c = 0; c < a->view.c; c++) {
        if (ct_channel(&a->image, c) != c) {
            return 0;
        }
    }
    return 1;
}

CONV_INLINE conv_vec ct_get_integers(const void *p, dvk_dtype t) {
    return t == DVK_U8 ? ci_load_u8(p) : ci_load_u16(p);
}

CONV_INLINE void ct_put_integers(void *p, dvk_dtype t, conv_vec v) {
    if (t == DVK_U8) {
        ci_store_u8(p, v);
    } else {
        ci_store_u16(p, v);
    }
}

/* n elements of any type at p; integers that do not fill a vector go through a buffer. */
CONV_INLINE conv_vec ct_get(const unsigned char *p, dvk_dtype t, int64_t n) {
    if (t != DVK_U8 && t != DVK_U16) {
        return cv_get(p, t, 0, n);
    }
    if (n == CONV_VW) {
        return ct_get_integers(p, t);
    }
    unsigned char tail[CONV_VW * 2] = {0};
    memcpy(tail, p, (size_t)n * dvk_dtype_size(t));
    return ct_get_integers(tail, t);
}

CONV_INLINE void ct_put(unsigned char *p, dvk_dtype t, int64_t n, conv_vec v) {
    if (t != DVK_U8 && t != DVK_U16) {
        cv_put(p, t, 0, n, v);
        return;
    }
    if (n == CONV_VW) {
        ct_put_integers(p, t, v);
        return;
    }
    unsigned char tail[CONV_VW * 2];
    ct_put_integers(tail, t, v);
    memcpy(p, tail, (size_t)n * dvk_dtype_size(t));
}

/* Multiplication and addition are two roundings, as in the reference. */
CONV_INLINE conv_vec ct_apply(const ct_range *r, conv_vec v) {
    v = cv_add(cv_mul(v, cv_set1(r->mul)), cv_set1(r->add));
    if (r->integers) {
        return cv_min(cv_set1(r->hi), cv_max(v, cv_set1(r->lo)));
    }
    return r->clamp ? cv_min(cv_set1(r->hi), cv_max(cv_set1(r->lo), v)) : v;
}

/* Converts count consecutive elements from type `from` to type `to`. */
CONV_INLINE void ct_run_typed(const unsigned char *src, dvk_dtype from, unsigned char *dst, dvk_dtype to, int64_t count,
                              const ct_range *r) {
    const int64_t in = (int64_t)dvk_dtype_size(from);
    const int64_t out = (int64_t)dvk_dtype_size(to);
    int64_t i = 0;
    for (; i + CONV_VW <= count; i += CONV_VW) {
        ct_put(dst + i * out, to, CONV_VW, ct_apply(r, ct_get(src + i * in, from, CONV_VW)));
    }
    if (i < count) {
        ct_put(dst + i * out, to, count - i, ct_apply(r, ct_get(src + i * in, from, count - i)));
    }
}

static void ct_run(const void *src, dvk_dtype from, void *dst, dvk_dtype to, int64_t count, const ct_range *r) {
    if (from == DVK_U8 && to == DVK_F32) {
        ct_run_typed(src, DVK_U8, dst, DVK_F32, count, r);
    } else if (from == DVK_F32 && to == DVK_U8) {
        ct_run_typed(src, DVK_F32, dst, DVK_U8, count, r);
    } else {
        ct_run_typed(src, from, dst, to, count, r);
    }
}

/* Moves elements of `size` bytes between strided and contiguous places. */
CONV_INLINE void ct_strided(unsigned char *dst, int64_t dst_step, const unsigned char *src, int64_t src_step,
                            int64_t count, size_t size) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(dst + i * dst_step, src + i * src_step, size);
    }
}

static void ct_pick(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t count, size_t size) {
    if (size == 1) {
        ct_strided(dst, dst_step, src, src_step, count, 1);
    } else if (size == 2) {
        ct_strided(dst, dst_step, src, src_step, count, 2);
    } else {
        ct_strided(dst, dst_step, src, src_step, count, 4);
    }
}

/* Interleaves planes into pixels; the compiler turns the loop for three channels into shuffles. */
static void ct_zip(const ct_memory *m, int64_t c, int64_t count) {
    if (c != 3) {
        for (int64_t k = 0; k < c; k++) {
            ct_strided((unsigned char *)(m->pixels + k), c * 4, (unsigned char *)(m->planes + k * CT_STRIP), 4, count,
                       4);
        }
        return;
    }
    const float *restrict planes = m->planes;
    float *restrict pixels = m->pixels;
    for (int64_t i = 0; i < count; i++) {
        pixels[3 * i] = planes[i];
        pixels[3 * i + 1] = planes[CT_STRIP + i];
        pixels[3 * i + 2] = planes[2 * CT_STRIP + i];
    }
}

static void ct_unzip(const ct_memory *m, int64_t c, int64_t count) {
    if (c != 3) {
        for (int64_t k = 0; k < c; k++) {
            ct_strided((unsigned char *)(m->planes + k * CT_STRIP), 4, (unsigned char *)(m->pixels + k), c * 4, count,
                       4);
        }
        return;
    }
    const float *restrict pixels = m->pixels;
    float *restrict planes = m->planes;
    for (int64_t i = 0; i < count; i++) {
        planes[i] = pixels[3 * i];
        planes[CT_STRIP + i] = pixels[3 * i + 1];
        planes[2 * CT_STRIP + i] = pixels[3 * i + 2];
    }
}

static ct_memory ct_lay_out(const dvk_convert_args *a, void *scratch) {
    ct_memory m = {.pixels = scratch};
    m.planes = m.pixels + CT_STRIP * a->view.c;
    m.raw = m.planes + CT_STRIP * a->view.c;
    return m;
}

static void *ct_view_at(const dvk_view *v, int64_t n, int64_t y, int64_t x) {
    return (unsigned char *)v->data + (n * v->sn + y * v->sh + x * v->sw) * (int64_t)dvk_dtype_size(v->dtype);
}

static unsigned char *ct_image_at(const dvk_image *im, int64_t n, int64_t y, int64_t x, int64_t c) {
    return (unsigned char *)im->data + n * im->sn + y * im->sh + x * im->sw + ct_channel(im, c) * im->sc;
}

/* Copies [pixel][c] floats to a strip of the view. */
static void ct_strip_to_view(const dvk_convert_args *a, void *at, const float *pixels, int64_t count,
                             const ct_range *r) {
    const dvk_view *v = &a->view;
    if (v->sw == v->c) {
        ct_run(pixels, DVK_F32, at, v->dtype, count * v->c, r);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        unsigned char *to = (unsigned char *)at + i * v->sw * (int64_t)dvk_dtype_size(v->dtype);
        ct_run(pixels + i * v->c, DVK_F32, to, v->dtype, v->c, r);
    }
}

static void ct_strip_from_view(const dvk_convert_args *a, const void *at, float *pixels, int64_t count,
                               const ct_range *r) {
    const dvk_view *v = &a->view;
    if (v->sw == v->c) {
        ct_run(at, v->dtype, pixels, DVK_F32, count * v->c, r);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *from = (const unsigned char *)at + i * v->sw * (int64_t)dvk_dtype_size(v->dtype);
        ct_run(from, v->dtype, pixels + i * v->c, DVK_F32, v->c, r);
    }
}

static void ct_load_strip(const dvk_convert_args *a, const ct_memory *m, int64_t n, int64_t y, int64_t x,
                          int64_t count) {
    static const ct_range as_it_is = {.mul = 1.0f};
    const ct_range range = {.mul = a->mul, .add = a->add};
    const dvk_image *im = &a->image;
    const size_t size = dvk_dtype_size(im->dtype);
    for (int64_t c = 0; c < a->view.c; c++) {
        const void *from = ct_image_at(im, n, y, x, c);
        if (im->sw != (int64_t)size) {
            ct_pick(m->raw, (int64_t)size, from, im->sw, count, size);
            from = m->raw;
        }
        ct_run(from, im->dtype, m->planes + c * CT_STRIP, DVK_F32, count, &as_it_is);
    }
    ct_zip(m, a->view.c, count);
    ct_strip_to_view(a, ct_view_at(&a->view, n, y, x), m->pixels, count, &range);
}

static ct_range ct_store_range(const dvk_convert_args *a) {
    ct_range r = {.mul = a->mul, .add = a->add, .lo = a->lo, .hi = a->hi, .clamp = a->clamp};
    r.integers = a->image.dtype == DVK_U8 || a->image.dtype == DVK_U16;
    if (r.integers) {
        const float top = a->image.dtype == DVK_U8 ? 255.0f : 65535.0f;
        r.lo = a->clamp && a->lo > 0.0f ? a->lo : 0.0f;
        r.hi = a->clamp && a->hi < top ? a->hi : top;
    }
    return r;
}

static void ct_store_strip(const dvk_convert_args *a, const ct_memory *m, int64_t n, int64_t y, int64_t x,
                           int64_t count) {
    static const ct_range as_it_is = {.mul = 1.0f};
    const ct_range range = ct_store_range(a);
    const dvk_image *im = &a->image;
    const size_t size = dvk_dtype_size(im->dtype);
    ct_strip_from_view(a, ct_view_at(&a->view, n, y, x), m->pixels, count, &range);
    ct_unzip(m, a->view.c, count);
    for (int64_t c = 0; c < a->view.c; c++) {
        const float *plane = m->planes + c * CT_STRIP;
        void *to = ct_image_at(im, n, y, x, c);
        if (im->sw == (int64_t)size) {
            ct_run(plane, DVK_F32, to, im->dtype, count, &as_it_is);
        } else {
            ct_run(plane, DVK_F32, m->raw, im->dtype, count, &as_it_is);
            ct_pick(to, im->sw, m->raw, (int64_t)size, count, size);
        }
    }
}

typedef struct ct_rows_range {
    int64_t n, y0, y1;
} ct_rows_range;

static ct_rows_range ct_unit(const dvk_convert_args *a, int64_t unit) {
    const int64_t rows = ct_rows(a);
    const int64_t per_picture = conv_ceil_div(a->view.h, rows);
    const int64_t y0 = unit % per_picture * rows;
    return (ct_rows_range){unit / per_picture, y0, conv_min(y0 + rows, a->view.h)};
}

static void ct_load(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_convert_args *a = args;
    const ct_memory m = ct_lay_out(a, scratch);
    const ct_range range = {.mul = a->mul, .add = a->add};
    const int same = ct_same_order(a);
    for (int64_t unit = first; unit < last; unit++) {
        const ct_rows_range u = ct_unit(a, unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            if (same) {
                ct_run(ct_image_at(&a->image, u.n, y, 0, 0), a->image.dtype, ct_view_at(&a->view, u.n, y, 0),
                       a->view.dtype, a->view.w * a->view.c, &range);
                continue;
            }
            for (int64_t x = 0; x < a->view.w; x += CT_STRIP) {
                ct_load_strip(a, &m, u.n, y, x, conv_min(CT_STRIP, a->view.w - x));
            }
        }
    }
}

static void ct_store(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_convert_args *a = args;
    const ct_memory m = ct_lay_out(a, scratch);
    const ct_range range = ct_store_range(a);
    const int same = ct_same_order(a);
    for (int64_t unit = first; unit < last; unit++) {
        const ct_rows_range u = ct_unit(a, unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            if (same) {
                ct_run(ct_view_at(&a->view, u.n, y, 0), a->view.dtype, ct_image_at(&a->image, u.n, y, 0, 0),
                       a->image.dtype, a->view.w * a->view.c, &range);
                continue;
            }
            for (int64_t x = 0; x < a->view.w; x += CT_STRIP) {
                ct_store_strip(a, &m, u.n, y, x, conv_min(CT_STRIP, a->view.w - x));
            }
        }
    }
}
