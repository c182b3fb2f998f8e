/* gate_tmpl.h - "depthwise", "multiply", "mean" and "resize" on vectors of channels, compiled once for each instruction
 * set by a file that has included a conv_vec_*.h. The first two write a strip of pixels to scratch as f32 and run the
 * epilogue of a convolution on it. All operands of multiply have been read by then, so y may alias them. */
#include <math.h>

#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/conv/conv_epi_tmpl.h"

enum { GT_STRIP = 32, GT_UNIT = 32768, GT_MEAN = 16 }; /* pixels; approximate elements of a unit; channels */

static int64_t gt_rows(const dvk_view *y) {
    return conv_min(y->h, 1 + GT_UNIT / (y->w * y->c));
}

static int64_t gt_count(const dvk_view *y) {
    return y->n * conv_ceil_div(y->h, gt_rows(y));
}

static int64_t gt_pitch(const dvk_view *y) {
    return conv_ceil_div(y->c, CONV_VW) * CONV_VW;
}

static size_t gt_strip_bytes(const dvk_view *y) {
    return (size_t)(GT_STRIP * gt_pitch(y)) * sizeof(float);
}

static double gt_elements(const dvk_view *y) {
    return (double)(y->n * y->h * y->w) * (double)gt_pitch(y);
}

/* Computes `pixels` pixels of a row, from x on, into sums. */
typedef void (*gt_strip)(const void *args, int64_t n, int64_t y, int64_t x, int64_t pixels, float *sums);

static void gt_strips(const void *args, const dvk_view *y, const dvk_epilogue *epi, gt_strip strip, int64_t first,
                      int64_t last, float *sums) {
    const dvk_conv2d_args end = {.y = *y, .epi = *epi};
    const int64_t rows = gt_rows(y);
    const int64_t per_picture = conv_ceil_div(y->h, rows);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / per_picture;
        const int64_t y0 = unit % per_picture * rows;
        for (int64_t row = y0; row < conv_min(y0 + rows, y->h); row++) {
            for (int64_t x = 0; x < y->w; x += GT_STRIP) {
                const conv_span s = {.sums = sums,
                                     .pitch = gt_pitch(y),
                                     .n = n,
                                     .y = row,
                                     .x = x,
                                     .pixels = conv_min(GT_STRIP, y->w - x),
                                     .count = y->c};
                strip(args, n, row, x, s.pixels, sums);
                conv_epilogue(&end, &s);
            }
        }
    }
}

/* --- depthwise --- */

static int64_t dw_units(const void *args) {
    return gt_count(&((const dvk_depthwise_args *)args)->y);
}

static size_t dw_scratch_bytes(const void *args) {
    return gt_strip_bytes(&((const dvk_depthwise_args *)args)->y);
}

static double dw_cost(const void *args) {
    const dvk_depthwise_args *a = args;
    return gt_elements(&a->y) * (CPU_COST(depthwise, element) + CPU_COST(depthwise, tap) * (double)(a->kh * a->kw));
}

static int dw_supports(const void *args) {
    const dvk_depthwise_args *a = args;
    return a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE;
}

/* One vector of one pixel: the taps inside the picture. */
CONV_INLINE conv_vec dw_pixel(const dvk_depthwise_args *a, const int64_t at[3], int64_t c, int64_t lanes,
                              dvk_dtype type) {
    const int64_t stride = conv_max(1, a->stride);
    const int64_t top = at[1] * stride - a->pad_top, left = at[2] * stride - a->pad_left;
    conv_vec sum = cv_set1(0.0f);
    for (int64_t ky = conv_max(0, -top); ky < conv_min(a->kh, a->x.h - top); ky++) {
        const int64_t row = at[0] * a->x.sn + (top + ky) * a->x.sh + c;
        for (int64_t kx = conv_max(0, -left); kx < conv_min(a->kw, a->x.w - left); kx++) {
            const conv_vec w = cv_get(a->w, DVK_F32, (ky * a->kw + kx) * a->y.c + c, lanes);
            sum = cv_fma(w, cv_get(a->x.data, type, row + (left + kx) * a->x.sw, lanes), sum);
        }
    }
    return sum;
}

/* Whole vectors of `pixels` pixels with all 3 x 3 taps inside the picture; the weights stay in registers. */
CONV_INLINE void dw_inside(const dvk_depthwise_args *a, int64_t from, int64_t c, int64_t pixels, dvk_dtype type,
                           float *to, int64_t pitch) {
    conv_vec w[9];
    for (int64_t k = 0; k < 9; k++) {
        w[k] = cv_load(a->w + k * a->y.c + c);
    }
    const int64_t row = a->x.sh, pixel = a->x.sw;
    for (int64_t p = 0; p < pixels; p++, from += pixel, to += pitch) {
        conv_vec sum[3];
        for (int64_t ky = 0; ky < 3; ky++) {
            const int64_t at = from + ky * row;
            sum[ky] = cv_mul(w[ky * 3], cv_get(a->x.data, type, at, CONV_VW));
            sum[ky] = cv_fma(w[ky * 3 + 1], cv_get(a->x.data, type, at + pixel, CONV_VW), sum[ky]);
            sum[ky] = cv_fma(w[ky * 3 + 2], cv_get(a->x.data, type, at + 2 * pixel, CONV_VW), sum[ky]);
        }
        cv_store(to, cv_add(cv_add(sum[0], sum[1]), sum[2]));
    }
}

CONV_INLINE void dw_strip_of(const dvk_depthwise_args *a, int64_t n, int64_t y, int64_t x, int64_t pixels, float *sums,
                             dvk_dtype type) {
    const int64_t pitch = gt_pitch(&a->y);
    const int64_t top = y - a->pad_top;
    const int three = a->kh == 3 && a->kw == 3 && a->stride <= 1 && top >= 0 && top + 3 <= a->x.h;
    /* pixels [first, last) of the strip need no padding at their sides */
    const int64_t first = three ? conv_min(pixels, conv_max(0, a->pad_left - x)) : pixels;
    const int64_t last = three ? conv_max(first, conv_min(pixels, a->x.w - 2 + a->pad_left - x)) : pixels;
    for (int64_t c = 0; c < a->y.c; c += CONV_VW) {
        const int64_t lanes = conv_min(CONV_VW, a->y.c - c);
        const int whole = lanes == CONV_VW;
        for (int64_t p = 0; p < pixels; p++) {
            if (whole && p == first && last > first) {
                const int64_t from = n * a->x.sn + top * a->x.sh + (x + p - a->pad_left) * a->x.sw + c;
                dw_inside(a, from, c, last - first, type, sums + p * pitch + c, pitch);
                p = last - 1;
            } else {
                const int64_t at[3] = {n, y, x + p};
                cv_store(sums + p * pitch + c, dw_pixel(a, at, c, lanes, type));
            }
        }
    }
}

static void dw_strip(const void *args, int64_t n, int64_t y, int64_t x, int64_t pixels, float *sums) {
    const dvk_depthwise_args *a = args;
    if (a->x.dtype == DVK_F32) {
        dw_strip_of(a, n, y, x, pixels, sums, DVK_F32);
    } else if (a->x.dtype == DVK_BF16) {
        dw_strip_of(a, n, y, x, pixels, sums, DVK_BF16);
    } else {
        dw_strip_of(a, n, y, x, pixels, sums, DVK_F16);
    }
}

static void dw_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_depthwise_args *a = args;
    gt_strips(args, &a->y, &a->epi, dw_strip, first, last, scratch);
}

/* --- multiply --- */

static int64_t mu_units(const void *args) {
    return gt_count(&((const dvk_multiply_args *)args)->y);
}

static size_t mu_scratch_bytes(const void *args) {
    return gt_strip_bytes(&((const dvk_multiply_args *)args)->y);
}

static double mu_cost(const void *args) {
    const dvk_multiply_args *a = args;
    return gt_elements(&a->y) *
           (a->act != DVK_ACT_NONE ? CPU_COST(multiply, element_act) : CPU_COST(multiply, element));
}

CONV_INLINE void mu_strip_of(const dvk_multiply_args *a, int64_t n, int64_t y, int64_t x, int64_t pixels, float *sums,
                             dvk_act act) {
    const int64_t pitch = gt_pitch(&a->y);
    const int64_t step = a->g.w > 1 ? a->g.sw : 0;
    const int64_t from = n * a->x.sn + y * a->x.sh + x * a->x.sw;
    const int64_t gate = n * a->g.sn + (a->g.h > 1 ? y * a->g.sh : 0) + x * step;
    const int one_channel = a->g.c < a->x.c;
    for (int64_t p = 0; p < pixels; p++) {
        const int64_t at = gate + p * step;
        const conv_vec all =
            conv_act(act, cv_set1(one_channel ? dvk_load(a->g.data, a->g.dtype, at) : 0.0f), cv_set1(0.0f));
        for (int64_t c = 0; c < a->y.c; c += CONV_VW) {
            const int64_t lanes = conv_min(CONV_VW, a->y.c - c);
            const conv_vec g =
                one_channel ? all : conv_act(act, cv_get(a->g.data, a->g.dtype, at + c, lanes), cv_set1(0.0f));
            cv_store(sums + p * pitch + c, cv_mul(cv_get(a->x.data, a->x.dtype, from + p * a->x.sw + c, lanes), g));
        }
    }
}

static void mu_strip(const void *args, int64_t n, int64_t y, int64_t x, int64_t pixels, float *sums) {
    const dvk_multiply_args *a = args;
    if (a->act == DVK_ACT_SIGMOID) {
        mu_strip_of(a, n, y, x, pixels, sums, DVK_ACT_SIGMOID);
    } else if (a->act == DVK_ACT_GELU) {
        mu_strip_of(a, n, y, x, pixels, sums, DVK_ACT_GELU);
    } else if (a->act == DVK_ACT_NONE) {
        mu_strip_of(a, n, y, x, pixels, sums, DVK_ACT_NONE);
    } else {
        mu_strip_of(a, n, y, x, pixels, sums, a->act);
    }
}

static void mu_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_multiply_args *a = args;
    gt_strips(args, &a->y, &a->epi, mu_strip, first, last, scratch);
}

/* --- mean: a unit is a few channels of a picture; rows are summed in f32, their sums in double --- */

static int64_t me_blocks(const dvk_pool_args *a) {
    return conv_ceil_div(a->x.c, GT_MEAN);
}

static int64_t me_units(const void *args) {
    const dvk_pool_args *a = args;
    return a->x.n * me_blocks(a);
}

static double me_cost(const void *args) {
    const dvk_pool_args *a = args;
    return (double)(a->x.n * a->x.h * a->x.w * a->x.c) * CPU_COST(mean, element);
}

CONV_INLINE conv_vec me_row(const dvk_pool_args *a, int64_t at, int64_t lanes) {
    conv_vec sum[4] = {cv_set1(0.0f), cv_set1(0.0f), cv_set1(0.0f), cv_set1(0.0f)};
    for (int64_t x = 0; x < a->x.w; x++, at += a->x.sw) {
        sum[x % 4] = cv_add(sum[x % 4], cv_get(a->x.data, a->x.dtype, at, lanes));
    }
    return cv_add(cv_add(sum[0], sum[1]), cv_add(sum[2], sum[3]));
}

static void me_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pool_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / me_blocks(a);
        const int64_t c0 = unit % me_blocks(a) * GT_MEAN;
        for (int64_t c = c0; c < conv_min(c0 + GT_MEAN, a->x.c); c += CONV_VW) {
            const int64_t lanes = conv_min(CONV_VW, conv_min(c0 + GT_MEAN, a->x.c) - c);
            double total[CONV_VW] = {0};
            for (int64_t y = 0; y < a->x.h; y++) {
                float row[CONV_VW];
                cv_store(row, me_row(a, n * a->x.sn + y * a->x.sh + c, lanes));
                for (int64_t i = 0; i < lanes; i++) {
                    total[i] += (double)row[i];
                }
            }
            for (int64_t i = 0; i < lanes; i++) {
                dvk_store(a->y.data, a->y.dtype, n * a->y.sn + c + i, (float)(total[i] / (double)(a->x.h * a->x.w)));
            }
        }
    }
}

/* --- resize --- */

typedef struct rz_at { /* the first sample, the distance to the second, and its weight */
    int64_t i, step;
    float t;
} rz_at;

static int64_t rz_units(const void *args) {
    return gt_count(&((const dvk_pool_args *)args)->y);
}

static size_t rz_scratch_bytes(const void *args) {
    return (size_t)((const dvk_pool_args *)args)->y.w * sizeof(rz_at);
}

static double rz_cost(const void *args) {
    return gt_elements(&((const dvk_pool_args *)args)->y) * CPU_COST(resize, element);
}

static rz_at rz_place(int64_t out, int64_t from, int64_t to) {
    const double at = fmax(((double)out + 0.5) * (double)from / (double)to - 0.5, 0.0);
    const int64_t i = conv_min((int64_t)at, from - 1);
    return (rz_at){i, i < from - 1, (float)(at - (double)i)};
}

static conv_vec rz_mix(conv_vec a, conv_vec b, float t) {
    return cv_fma(cv_set1(t), b, cv_mul(cv_set1(1.0f - t), a));
}

static void rz_row(const dvk_pool_args *a, int64_t n, int64_t y, const rz_at *across) {
    const dvk_view *v = &a->x;
    const rz_at down = rz_place(y, v->h, a->y.h);
    const int64_t top = n * v->sn + down.i * v->sh, low = top + down.step * v->sh;
    for (int64_t x = 0; x < a->y.w; x++) {
        const rz_at at = across[x];
        const int64_t left = at.i * v->sw, right = left + at.step * v->sw;
        for (int64_t c = 0; c < v->c; c += CONV_VW) {
            const int64_t lanes = conv_min(CONV_VW, v->c - c);
            const conv_vec upper = rz_mix(cv_get(v->data, v->dtype, top + left + c, lanes),
                                          cv_get(v->data, v->dtype, top + right + c, lanes), at.t);
            const conv_vec lower = rz_mix(cv_get(v->data, v->dtype, low + left + c, lanes),
                                          cv_get(v->data, v->dtype, low + right + c, lanes), at.t);
            cv_put(a->y.data, a->y.dtype, n * a->y.sn + y * a->y.sh + x * a->y.sw + c, lanes,
                   rz_mix(upper, lower, down.t));
        }
    }
}

static void rz_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pool_args *a = args;
    rz_at *across = scratch;
    const int64_t rows = gt_rows(&a->y);
    const int64_t per_picture = conv_ceil_div(a->y.h, rows);
    for (int64_t x = 0; x < a->y.w; x++) {
        across[x] = rz_place(x, a->x.w, a->y.w);
    }
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t y0 = unit % per_picture * rows;
        for (int64_t y = y0; y < conv_min(y0 + rows, a->y.h); y++) {
            rz_row(a, unit / per_picture, y, across);
        }
    }
}
