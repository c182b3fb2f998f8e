/* conv.c - reference of the convolutions: one output element after the other, exactly as kernels/op.h defines it, sums
 * in double. All fast kernels are compared with it, so the code is simple. The input around a pixel is gathered once.
 * The sums of four outputs of four pixels run side by side. One unit is up to 16 pixels of a row. */
#include <math.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/winograd_band.h"

enum { RUN = 16, ABREAST = 4 }; /* pixels of a unit, and of a group */

/* A sum, or a factor, of each pixel of a group. A vector stays in registers; sanitizers would check every access to an
 * array. */
typedef double abreast __attribute__((vector_size(ABREAST * sizeof(double)), aligned(sizeof(double))));

/* Up to ABREAST pixels of a row of the result. They are `step` apart, so that they share the same weights. */
typedef struct group {
    int64_t n, oy, ox, step, count;
} group;

static double activate(double x, dvk_act act, double slope) {
    switch (act) {
    case DVK_ACT_RELU:
        return x < 0 ? 0 : x;
    case DVK_ACT_LRELU:
    case DVK_ACT_PRELU:
        return x >= 0 ? x : slope * x;
    case DVK_ACT_SILU:
        return x / (1 + exp(-x));
    case DVK_ACT_CLAMP3:
        return 3 * tanh(x / 3);
    case DVK_ACT_GELU:
        return x / 2 * erfc(-x * 0.70710678118654752440);
    case DVK_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case DVK_ACT_TANH:
        return tanh(x);
    case DVK_ACT_MISH:
        return x * tanh(log1p(exp(-fabs(x))) + fmax(x, 0));
    default:
        return x;
    }
}

/* All channels of pixel (uy, ux) of the upsampled, prologued input, `step` apart; zeros outside of it. */
static void input_at(const dvk_conv2d_args *a, int64_t n, int64_t uy, int64_t ux, double *to, int64_t step) {
    const int outside = uy < 0 || ux < 0 || uy >= a->x.h * a->upsample || ux >= a->x.w * a->upsample;
    const int64_t at = outside ? 0 : n * a->x.sn + uy / a->upsample * a->x.sh + ux / a->upsample * a->x.sw;
    for (int64_t i = 0; i < a->x.c; i++, to += step) {
        double v = outside ? 0 : (double)dvk_load(a->x.data, a->x.dtype, at + i);
        if (a->pro.scale && !outside) {
            v = v * (double)a->pro.scale[n * a->x.c + i] + (double)a->pro.shift[n * a->x.c + i];
        }
        *to = outside || a->pro.act == DVK_ACT_NONE ? v : activate(v, a->pro.act, 0);
    }
}

/* Gathers the inputs of the group's pixels in the order of the weights: [term][pixel of the group]. */
static void gather(const dvk_conv2d_args *a, const group *g, double *patch) {
    const int64_t up = a->phased ? a->upsample : 1; /* phased: x itself, without upsampling */
    const int64_t taps = a->kh * a->kw;
    for (int64_t k = 0; k < g->count; k++) {
        const int64_t oy = a->phased ? (g->oy + 1) / 2 : g->oy;
        const int64_t ox = a->phased ? (g->ox + k * g->step + 1) / 2 : g->ox + k * g->step;
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t iy = oy * a->stride + tap / a->kw - a->pad_top,
                          ix = ox * a->stride + tap % a->kw - a->pad_left;
            input_at(a, g->n, iy * up, ix * up, patch + tap * ABREAST + k, taps * ABREAST);
        }
    }
}

/* The inverse transform (op.h) of a quad's lines v: its six pixels. */
static void pixels_of_quad(const double *v, double *d) {
    const double even1 = v[1] + v[2], odd1 = v[1] - v[2]; /* 2 (d[4] - 9/4 d[2]), 3/2 (d[3] - 9/4 d[1]) */
    const double even2 = v[3] + v[4], odd2 = v[3] - v[4]; /* 2 (d[4] - 9/16 d[2]), 3 (d[3] - 9/16 d[1]) */
    d[1] = (odd2 - 2 * odd1) * 16 / 81;
    d[2] = (even2 - even1) * 8 / 27;
    d[3] = (4 * odd2 - 2 * odd1) / 9;
    d[4] = (4 * even2 - even1) / 6;
    d[0] = (v[0] + d[2] * 45 / 16 - d[4]) * 64 / 81;
    d[5] = v[5] - d[1] * 81 / 64 + d[3] * 45 / 16;
}

/* The same for a transformed picture. */
static void gather_transformed(const dvk_conv2d_args *a, const group *g, double *patch) {
    for (int64_t i = 0; i < a->x.c; i++) {
        for (int64_t iy = g->oy - 1; iy <= g->oy + 1; iy++, patch += 3 * ABREAST) {
            double v[DVK_WINOGRAD_LINES], d[DVK_WINOGRAD_LINES];
            for (int64_t k = 0, known = -1; k < g->count; k++) {
                const int64_t ox = g->ox + k * g->step, quad = ox / DVK_WINOGRAD_PIXELS;
                for (int64_t f = 0; f < DVK_WINOGRAD_LINES && quad != known; f++) {
                    const int64_t at = g->n * a->x.sn + (DVK_WINOGRAD_LINES * iy + f) * a->x.sh + quad * a->x.sw + i;
                    v[f] = iy < 0 || iy >= a->y.h ? 0 : (double)dvk_load(a->x.data, a->x.dtype, at);
                }
                if (quad != known) {
                    pixels_of_quad(v, d);
                    known = quad;
                }
                for (int64_t kx = 0; kx < 3; kx++) {
                    patch[kx * ABREAST + k] = d[ox % DVK_WINOGRAD_PIXELS + kx];
                }
            }
        }
    }
}

/* sums[k], k < count: the sum of output channel first + k * step. */
static void sum_all(const dvk_conv2d_args *a, const abreast *patch, int64_t first, int64_t step, int64_t count,
                    abreast *sums) {
    const int64_t terms = a->x.c * a->kh * a->kw;
    const float *w = (const float *)a->w + first * terms;
    const int64_t pitch = step * terms;
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, w += 4 * pitch) {
        abreast s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        for (int64_t i = 0; i < terms; i++) {
            const abreast x = patch[i];
            s0 += x * (double)w[i];
            s1 += x * (double)w[pitch + i];
            s2 += x * (double)w[2 * pitch + i];
            s3 += x * (double)w[3 * pitch + i];
        }
        sums[k] = s0;
        sums[k + 1] = s1;
        sums[k + 2] = s2;
        sums[k + 3] = s3;
    }
    for (; k < count; k++, w += pitch) {
        abreast s = {0};
        for (int64_t i = 0; i < terms; i++) {
            s += patch[i] * (double)w[i];
        }
        sums[k] = s;
    }
}

static double residual_at(const dvk_view *r, int64_t n, int64_t oy, int64_t ox, int64_t o) {
    return (double)dvk_load(r->data, r->dtype, n * r->sn + oy * r->sh + ox * r->sw + o);
}

static double epilogue(const dvk_epilogue *e, double v, int64_t n, int64_t oy, int64_t ox, int64_t o) {
    double t = v + (e->bias ? (double)e->bias[o] : 0);
    if (e->gate == 2) {
        double times = 0.0;
        for (int32_t i = 0; i < e->n_res; i++) {
            times += (double)e->beta[i] * residual_at(&e->res[i], n, oy, ox, o);
        }
        return activate(t, e->act, 0.0) * times;
    }
    if (e->gate) {
        return (t + residual_at(&e->res[0], n, oy, ox, o)) * (1 / (1 + exp(-t)) - 0.5);
    }
    const double slope = e->act == DVK_ACT_PRELU ? (double)e->slopes[o] : (double)e->slope;
    if (!e->act_last) {
        t = activate(t, e->act, slope);
    }
    t *= (double)e->alpha;
    for (int32_t i = 0; i < e->n_res; i++) {
        t += (double)e->beta[i] * residual_at(&e->res[i], n, oy, ox, o);
    }
    return e->act_last ? activate(t, e->act, slope) : t;
}

/* Gate 3 of one pixel, whose sums are ABREAST apart. The residual may alias the result. */
static void gate_pixel(const dvk_conv2d_args *a, double *sums, int64_t n, int64_t oy, int64_t ox) {
    const dvk_epilogue *e = &a->epi;
    for (int64_t o = 0; o < a->y.c; o++) {
        float stored = 0.0f;
        dvk_store(&stored, a->y.dtype, 0, (float)(sums[o * ABREAST] + (e->bias ? (double)e->bias[o] : 0)));
        sums[o * ABREAST] = (double)dvk_load(&stored, a->y.dtype, 0);
    }
    for (int64_t o = 0; o < a->y.c; o++) {
        double u = e->gate_bias ? (double)e->gate_bias[o] : 0;
        for (int64_t k = 0; k < a->y.c; k++) {
            u += (double)e->gate_w[o * a->y.c + k] * sums[k * ABREAST];
        }
        const double sum =
            (double)e->alpha * sums[o * ABREAST] + (double)e->beta[0] * residual_at(&e->res[0], n, oy, ox, o);
        dvk_store(a->y.data, a->y.dtype, n * a->y.sn + oy * a->y.sh + ox * a->y.sw + o,
                  (float)(activate(u, e->act, 0.0) * sum));
    }
}

/* With epi.shuffle: an element of the shuffled result. The residual, a picture of the shuffled or the unshuffled size,
 * is added after the shuffle. */
static double shuffled(const dvk_conv2d_args *a, double sum, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t r = a->epi.shuffle;
    dvk_epilogue e = a->epi;
    e.n_res = 0;
    const double v = epilogue(&e, sum, n, y / r, x / r, c * r * r + y % r * r + x % r);
    const int behind = a->epi.n_res > 0 && a->epi.res[0].h == a->y.h;
    if (behind) {
        const double scale = a->epi.res_scale != NULL ? (double)a->epi.res_scale[c] : 1.0;
        return v + (double)a->epi.beta[0] * scale * residual_at(&a->epi.res[0], n, y, x, c);
    }
    return a->epi.n_res > 0 ? v + residual_at(&a->epi.res[0], n, y / r, x / r, c) : v;
}

static int64_t runs_per_row(const dvk_conv2d_args *a) {
    return (a->y.w + RUN - 1) / RUN;
}

static int64_t conv_units(const void *args) {
    const dvk_conv2d_args *a = args;
    return a->y.n * a->y.h * runs_per_row(a);
}

static size_t conv_scratch_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)(a->x.c * a->kh * a->kw + a->y.c) * sizeof(abreast);
}

typedef void gatherer(const dvk_conv2d_args *a, const group *g, double *patch);

/* g: a group of the result. */
static void conv_group(const dvk_conv2d_args *a, const group *g, gatherer *from, abreast *patch) {
    const int64_t r = a->epi.shuffle > 1 ? a->epi.shuffle : 1;
    const int64_t terms = a->x.c * a->kh * a->kw;
    abreast *sums = patch + terms;
    const group before = {.n = g->n, .oy = g->oy / r, .ox = g->ox / r, .step = g->step / r, .count = g->count};
    if (g->count < ABREAST) {
        memset(patch, 0, (size_t)terms * sizeof *patch);
    }
    from(a, &before, (double *)patch);
    sum_all(a, patch, a->phased ? (g->oy % 2 * 2 + g->ox % 2) * a->y.c : g->oy % r * r + g->ox % r, r * r, a->y.c,
            sums);
    for (int64_t k = 0; k < g->count; k++) {
        const int64_t oy = g->oy, ox = g->ox + k * g->step;
        double *own = (double *)sums + k;
        for (int64_t o = 0; o < a->y.c && a->epi.gate != 3; o++) {
            const double sum = own[o * ABREAST];
            const double v = r > 1 ? shuffled(a, sum, g->n, oy, ox, o) : epilogue(&a->epi, sum, g->n, oy, ox, o);
            dvk_store(a->y.data, a->y.dtype, g->n * a->y.sn + oy * a->y.sh + ox * a->y.sw + o, (float)v);
        }
        if (a->epi.gate == 3) {
            gate_pixel(a, own, g->n, oy, ox);
        }
    }
}

static void conv_units_of(const dvk_conv2d_args *a, int64_t first, int64_t last, gatherer *from, void *scratch) {
    const int64_t runs = runs_per_row(a);
    const int64_t step = a->epi.shuffle > 1 ? a->epi.shuffle : a->phased ? 2 : 1;
    for (int64_t u = first; u < last; u++) {
        const int64_t ox0 = u % runs * RUN;
        const int64_t ox1 = ox0 + RUN < a->y.w ? ox0 + RUN : a->y.w;
        for (int64_t phase = ox0; phase < ox0 + step; phase++) {
            for (int64_t ox = phase; ox < ox1; ox += ABREAST * step) {
                const int64_t left = (ox1 - ox + step - 1) / step;
                const group g = {.n = u / (runs * a->y.h),
                                 .oy = u / runs % a->y.h,
                                 .ox = ox,
                                 .step = step,
                                 .count = left < ABREAST ? left : ABREAST};
                conv_group(a, &g, from, scratch);
            }
        }
    }
}

static void conv_run(const void *args, int64_t first, int64_t last, void *scratch) {
    conv_units_of(args, first, last, gather, scratch);
}

static void winograd_run(const void *args, int64_t first, int64_t last, void *scratch) {
    conv_units_of(args, first, last, gather_transformed, scratch);
}

/* ---- a band ---- */

static int64_t band_units(const void *args) {
    const dvk_winograd_band_args *a = args;
    return a->conv.y.n * a->rows * runs_per_row(&a->conv);
}

/* Processes rows as if all transformed rows existed; it reads only those of the band. */
static void band_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_winograd_band_args *a = args;
    const int64_t row = runs_per_row(&a->conv);
    const int64_t missing = DVK_WINOGRAD_LINES * dvk_band_from(a) * a->conv.x.sh;
    dvk_conv2d_args whole = a->conv;
    whole.x.data = (char *)whole.x.data - missing * (int64_t)dvk_dtype_size(whole.x.dtype);
    for (int64_t u = first; u < last; u++) {
        const int64_t n = u / (row * a->rows), of_n = u % (row * a->rows);
        const int64_t unit = (n * a->conv.y.h + a->first) * row + of_n;
        conv_units_of(&whole, unit, unit + 1, gather_transformed, scratch);
    }
}

/* Output channels before a shuffle, of all phases. */
static int64_t outputs(const dvk_conv2d_args *a) {
    return a->phased ? 4 * a->y.c : a->epi.shuffle > 1 ? a->y.c * a->epi.shuffle * a->epi.shuffle : a->y.c;
}

static size_t conv_packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)(outputs(a) * a->x.c * a->kh * a->kw) * sizeof(float);
}

static int64_t conv_pack_units(const void *args) {
    return outputs(args);
}

static void conv_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t per = a->x.c * a->kh * a->kw;
    memcpy((float *)dst + first * per, w + first * per, (size_t)((last - first) * per) * sizeof(float));
}

const dvk_kernel dvk_conv2d_ref = {
    .op = "conv2d",
    .variant = "ref",
    .compute = DVK_F32,
    .units = conv_units,
    .scratch_bytes = conv_scratch_bytes,
    .run = conv_run,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};

const dvk_kernel dvk_conv2d_winograd_ref = {
    .op = "conv2d_winograd",
    .variant = "ref",
    .compute = DVK_F32,
    .units = conv_units,
    .scratch_bytes = conv_scratch_bytes,
    .run = winograd_run,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};

const dvk_kernel dvk_conv2d_winograd_band_ref = {
    .op = "conv2d_winograd_band",
    .variant = "ref",
    .compute = DVK_F32,
    .units = band_units,
    .scratch_bytes = conv_scratch_bytes,
    .run = band_run,
    .packed_bytes = conv_packed_bytes,
    .pack_units = conv_pack_units,
    .pack = conv_pack,
};
