/* resample_tmpl.h - the ops that rearrange pixels, for a file that has included a conv_vec_*.h. Elements are moved as
 * bytes. Their type matters only for a residual, or if the types of input and output differ. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"

enum { RS_UNIT = 131072 }; /* approximate elements of a unit */

static unsigned char *rs_at(const dvk_view *v, int64_t n, int64_t y, int64_t x) {
    return (unsigned char *)v->data + (n * v->sn + y * v->sh + x * v->sw) * (int64_t)dvk_dtype_size(v->dtype);
}

/* Rows per unit, counted in the view with fewer rows. */
static int64_t rs_rows(const dvk_view *large, int64_t r) {
    return conv_max(1, conv_min(large->h / r, RS_UNIT / (large->w * large->c * r)));
}

typedef struct rs_range { /* rows [y0, y1) of picture n */
    int64_t n, y0, y1;
} rs_range;

static int64_t rs_count(const dvk_view *v, int64_t rows) {
    return v->n * conv_ceil_div(v->h, rows);
}

static rs_range rs_unit(const dvk_view *v, int64_t rows, int64_t unit) {
    const int64_t per_picture = conv_ceil_div(v->h, rows);
    const int64_t y0 = unit % per_picture * rows;
    return (rs_range){unit / per_picture, y0, conv_min(y0 + rows, v->h)};
}

static double rs_cost(const void *args) {
    const dvk_resample_args *a = args;
    return (double)(a->y.n * a->y.h * a->y.w * a->y.c) * CPU_COST(resample, element);
}

static int rs_same_type(const void *args) {
    const dvk_resample_args *a = args;
    return a->x.dtype == a->y.dtype;
}

/* --- upsample: builds the first of r equal rows and copies it --- */

static int64_t up_units(const void *args) {
    const dvk_resample_args *a = args;
    return rs_count(&a->x, rs_rows(&a->y, a->r));
}

CONV_INLINE void up_pixels(unsigned char *to, int64_t to_step, const unsigned char *from, int64_t from_step, int64_t w,
                           int64_t r, size_t bytes) {
    for (int64_t x = 0; x < w; x++) {
        for (int64_t j = 0; j < r; j++) {
            memcpy(to, from + x * from_step, bytes);
            to += to_step;
        }
    }
}

static void up_row(const dvk_resample_args *a, unsigned char *to, const unsigned char *from) {
    const int64_t size = (int64_t)dvk_dtype_size(a->x.dtype);
    const int64_t to_step = a->y.sw * size;
    const int64_t from_step = a->x.sw * size;
    const int64_t bytes = a->x.c * size;
    if (bytes == 12) {
        up_pixels(to, to_step, from, from_step, a->x.w, a->r, 12);
    } else if (bytes == 6) {
        up_pixels(to, to_step, from, from_step, a->x.w, a->r, 6);
    } else {
        up_pixels(to, to_step, from, from_step, a->x.w, a->r, (size_t)bytes);
    }
}

static void up_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    const size_t row_bytes = (size_t)(a->y.w * a->y.c) * dvk_dtype_size(a->y.dtype);
    const int copies = a->y.sw == a->y.c;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const rs_range u = rs_unit(&a->x, rs_rows(&a->y, a->r), unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            const unsigned char *row = rs_at(&a->y, u.n, y * a->r, 0);
            for (int64_t i = 0; i < a->r; i++) {
                unsigned char *to = rs_at(&a->y, u.n, y * a->r + i, 0);
                if (i > 0 && copies) {
                    memcpy(to, row, row_bytes);
                } else {
                    up_row(a, to, rs_at(&a->x, u.n, y, 0));
                }
            }
        }
    }
}

/* --- pixel_shuffle: gathers a row of pixels in the input's type; then, if needed, conversion and residual --- */

static int64_t ps_units(const void *args) {
    const dvk_resample_args *a = args;
    return rs_count(&a->x, rs_rows(&a->y, a->r));
}

static size_t ps_scratch_bytes(const void *args) {
    const dvk_resample_args *a = args;
    return (size_t)(2 * conv_ceil_div(a->y.w * a->y.c, 16) * 16) * sizeof(float); /* a row, and the residual's */
}

/* Row i of r: to[x * r + j][c] = from[x][c * r * r + i * r + j]; `from` already points at i * r. */
CONV_INLINE void ps_gather(unsigned char *to, const unsigned char *from, int64_t from_step, int64_t w, int64_t c,
                           int64_t r, size_t size) {
    for (int64_t x = 0; x < w; x++, from += from_step) {
        for (int64_t j = 0; j < r; j++) {
            for (int64_t k = 0; k < c; k++) {
                memcpy(to, from + (k * r * r + j) * (int64_t)size, size);
                to += size;
            }
        }
    }
}

CONV_INLINE void ps_gather_sized(unsigned char *to, const unsigned char *from, const dvk_resample_args *a,
                                 size_t size) {
    const int64_t step = a->x.sw * (int64_t)size;
    if (a->y.c == 3 && a->r == 2) {
        ps_gather(to, from, step, a->x.w, 3, 2, size);
    } else if (a->y.c == 3 && a->r == 3) {
        ps_gather(to, from, step, a->x.w, 3, 3, size);
    } else if (a->y.c == 3 && a->r == 4) {
        ps_gather(to, from, step, a->x.w, 3, 4, size);
    } else {
        ps_gather(to, from, step, a->x.w, a->y.c, a->r, size);
    }
}

/* The residual's row as floats, with each pixel r times. */
static void ps_residual(const dvk_resample_args *a, int64_t n, int64_t y, float *to) {
    const dvk_view *v = &a->res;
    for (int64_t x = 0; x < v->w; x++) {
        const int64_t at = n * v->sn + y * v->sh + x * v->sw;
        for (int64_t c = 0; c < v->c; c++) {
            const float f = dvk_load(v->data, v->dtype, at + c);
            for (int64_t j = 0; j < a->r; j++) {
                to[(x * a->r + j) * v->c + c] = f;
            }
        }
    }
}

/* Writes count elements from index `from` of the gathered row to y's element index `at`. */
static void ps_finish(const dvk_resample_args *a, const void *row, const float *residual, int64_t from, int64_t at,
                      int64_t count) {
    for (int64_t i = 0; i < count; i += CONV_VW) {
        const int64_t lanes = conv_min(CONV_VW, count - i);
        conv_vec v = cv_get(row, a->x.dtype, from + i, lanes);
        if (residual != NULL) {
            v = cv_add(v, cv_get(residual, DVK_F32, from + i, lanes));
        }
        cv_put(a->y.data, a->y.dtype, at + i, lanes, v);
    }
}

static void ps_row(const dvk_resample_args *a, int64_t n, int64_t y, int64_t i, void *row, const float *residual) {
    const size_t size = dvk_dtype_size(a->x.dtype);
    const int direct = residual == NULL && a->x.dtype == a->y.dtype && a->y.sw == a->y.c;
    unsigned char *to = direct ? rs_at(&a->y, n, y * a->r + i, 0) : row;
    const unsigned char *from = rs_at(&a->x, n, y, 0) + i * a->r * (int64_t)size;
    if (size == 4) {
        ps_gather_sized(to, from, a, 4);
    } else {
        ps_gather_sized(to, from, a, 2);
    }
    if (direct) {
        return;
    }
    const int64_t at = n * a->y.sn + (y * a->r + i) * a->y.sh;
    if (a->y.sw == a->y.c) {
        ps_finish(a, row, residual, 0, at, a->y.w * a->y.c);
        return;
    }
    for (int64_t x = 0; x < a->y.w; x++) {
        ps_finish(a, row, residual, x * a->y.c, at + x * a->y.sw, a->y.c);
    }
}

static void ps_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    float *residual = (float *)scratch + conv_ceil_div(a->y.w * a->y.c, 16) * 16;
    for (int64_t unit = first; unit < last; unit++) {
        const rs_range u = rs_unit(&a->x, rs_rows(&a->y, a->r), unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            if (a->res.data != NULL) {
                ps_residual(a, u.n, y, residual);
            }
            for (int64_t i = 0; i < a->r; i++) {
                ps_row(a, u.n, y, i, scratch, a->res.data != NULL ? residual : NULL);
            }
        }
    }
}

/* --- pixel_unshuffle --- */

static int64_t pu_units(const void *args) {
    const dvk_resample_args *a = args;
    return rs_count(&a->y, rs_rows(&a->x, a->r));
}

/* Row i of r of the input: to[x][c * r * r + i * r + j] = from[x * r + j][c]; `to` already points at i * r. */
CONV_INLINE void pu_scatter(unsigned char *to, const unsigned char *from, const dvk_resample_args *a, int64_t c,
                            int64_t r, size_t size) {
    const int64_t bytes = (int64_t)size;
    for (int64_t x = 0; x < a->y.w; x++, to += a->y.sw * bytes) {
        for (int64_t j = 0; j < r; j++, from += a->x.sw * bytes) {
            for (int64_t k = 0; k < c; k++) {
                memcpy(to + (k * r * r + j) * bytes, from + k * bytes, size);
            }
        }
    }
}

static void pu_row(const dvk_resample_args *a, unsigned char *to, const unsigned char *from) {
    const int common = a->x.c == 3 && a->r == 2;
    if (dvk_dtype_size(a->x.dtype) == 4) {
        if (common) {
            pu_scatter(to, from, a, 3, 2, 4);
        } else {
            pu_scatter(to, from, a, a->x.c, a->r, 4);
        }
    } else {
        if (common) {
            pu_scatter(to, from, a, 3, 2, 2);
        } else {
            pu_scatter(to, from, a, a->x.c, a->r, 2);
        }
    }
}

static void pu_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const rs_range u = rs_unit(&a->y, rs_rows(&a->x, a->r), unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            for (int64_t i = 0; i < a->r; i++) {
                unsigned char *to = rs_at(&a->y, u.n, y, 0) + i * a->r * (int64_t)dvk_dtype_size(a->y.dtype);
                pu_row(a, to, rs_at(&a->x, u.n, y * a->r + i, 0));
            }
        }
    }
}

/* --- pad --- */

static int64_t pad_rows(const dvk_pad_args *a) {
    return rs_rows(&a->y, 1);
}

static int64_t pad_units(const void *args) {
    const dvk_pad_args *a = args;
    return rs_count(&a->y, pad_rows(a));
}

static double pad_cost(const void *args) {
    const dvk_pad_args *a = args;
    return (double)(a->y.n * a->y.h * a->y.w * a->y.c) * CPU_COST(pad, element);
}

static int pad_same_type(const void *args) {
    const dvk_pad_args *a = args;
    return a->x.dtype == a->y.dtype;
}

/* Index of the sample at position i of an axis of `size` samples that is extended at both ends: by reflection, then by
 * the opposite edge's sample; or by the nearest sample. */
static int64_t pad_extended(int64_t i, int64_t size, dvk_pad_mode mode) {
    if (mode == DVK_PAD_EDGE) {
        return conv_min(conv_max(i, 0), size - 1);
    }
    return i < 0 ? conv_min(-i, size - 1) : i < size ? i : conv_max(0, 2 * size - 2 - i);
}

static void pad_row(const dvk_pad_args *a, int64_t n, int64_t y) {
    const int64_t size = (int64_t)dvk_dtype_size(a->x.dtype);
    const size_t pixel = (size_t)(a->y.c * size);
    const int64_t row = y - a->top;
    unsigned char *to = rs_at(&a->y, n, y, 0);
    const int zero = a->mode == DVK_PAD_ZERO;
    const int empty = zero && (row < 0 || row >= a->x.h);
    const unsigned char *from = rs_at(&a->x, n, pad_extended(row, a->x.h, a->mode), 0);
    const int whole = !empty && a->x.sw == a->x.c && a->y.sw == a->y.c;
    if (whole) {
        memcpy(to + (size_t)a->left * pixel, from, (size_t)a->x.w * pixel);
    }
    for (int64_t x = 0; x < a->y.w; x++) {
        const int64_t column = x - a->left;
        const int outside = column < 0 || column >= a->x.w;
        if (empty || (zero && outside)) {
            memset(to + x * a->y.sw * size, 0, pixel);
        } else if (!whole || outside) {
            memcpy(to + x * a->y.sw * size, from + pad_extended(column, a->x.w, a->mode) * a->x.sw * size, pixel);
        } else {
            x += a->x.w - 1; /* skips the pixels that were copied at once */
        }
    }
}

static void pad_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pad_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const rs_range u = rs_unit(&a->y, pad_rows(a), unit);
        for (int64_t y = u.y0; y < u.y1; y++) {
            pad_row(a, u.n, y);
        }
    }
}
