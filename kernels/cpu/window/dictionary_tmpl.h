/* dictionary_tmpl.h - "similarity", "mix" and "refine" of kernels/dictionary.h, compiled once for each instruction set.
 * The loops over channels are plain C that compilers vectorise. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/dictionary.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"

enum { PIXELS = 64, TOKENS = 8 }; /* of a unit */
enum { STRETCH = 512, FOUR = 4 }; /* pixels that are summed in f32; rows per addition */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t pixels(const dvk_view *v) {
    return v->h * v->w;
}

static int64_t at(const dvk_view *v, int64_t i) {
    return i / v->w * v->sh + i % v->w * v->sw;
}

static const float *row(const dvk_view *v, int64_t i) { /* for f32 views */
    return (const float *)v->data + at(v, i);
}

static void read_row(const dvk_view *v, int64_t i, float *to) {
    const int64_t from = at(v, i);
    for (int64_t c = 0; c < v->c; c++) {
        to[c] = dvk_load(v->data, v->dtype, from + c);
    }
}

static void write_row(const dvk_view *v, int64_t i, const float *from) {
    const int64_t to = at(v, i);
    for (int64_t c = 0; c < v->c; c++) {
        dvk_store(v->data, v->dtype, to + c, from[c]);
    }
}

/* Of a picture. */
static int64_t units_of(const dvk_view *v, int64_t size) {
    return (pixels(v) + size - 1) / size;
}

typedef struct share { /* one picture's part of a range of units, for OF_PICTURES */
    int64_t n, first, last;
} share;

static share share_of(int64_t unit, int64_t last, int64_t each) {
    const int64_t n = unit / each;
    return (share){n, unit - n * each, least(last - n * each, each)};
}

/* Loops over the pictures of units [first, last); each picture has `each` units. */
#define OF_PICTURES(S, FIRST, LAST, EACH)                                                                              \
    for (share S = share_of(FIRST, LAST, EACH); S.n * (EACH) < (LAST); S = share_of((S.n + 1) * (EACH), LAST, EACH))

/* sum += first factor * first row + ..., over FOUR rows */
static void add_four(float *restrict sum, const float *const rows[FOUR], const float factors[FOUR], int64_t count) {
    const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    for (int64_t i = 0; i < count; i++) {
        sum[i] += factors[0] * a[i] + factors[1] * b[i] + (factors[2] * c[i] + factors[3] * d[i]);
    }
}

/* sum += factor * v */
static void add_scaled(float *restrict sum, const float *v, int64_t count, float factor) {
    for (int64_t c = 0; c < count; c++) {
        sum[c] += factor * v[c];
    }
}

/* --- similarity: normalised tokens times their factors, [channel][token] --- */

static int similarity_supports(const void *args) {
    const dvk_similarity_args *a = args;
    return a->q.dtype == DVK_F32 && a->k.dtype == DVK_F32 && a->y.dtype == DVK_F32;
}

static int64_t similarity_units(const void *args) {
    const dvk_similarity_args *a = args;
    return a->y.n * units_of(&a->y, PIXELS);
}

static size_t similarity_scratch(const void *args) {
    const dvk_similarity_args *a = args;
    return (size_t)(a->q.c * a->y.c) * sizeof(float);
}

static double similarity_cost(const void *args) {
    const dvk_similarity_args *a = args;
    return (double)(a->y.n * pixels(&a->y)) * (double)a->y.c *
           (CPU_COST(similarity, channel) * (double)a->q.c + CPU_COST(similarity, element));
}

static float over_length(const float *v, int64_t count) {
    float sum = 0.0f;
    for (int64_t c = 0; c < count; c++) {
        sum += v[c] * v[c];
    }
    return 1.0f / fmaxf(sqrtf(sum), 1e-12f);
}

static void similar(const dvk_similarity_args *a, int64_t p, const float *tokens) {
    const int64_t count = a->y.c;
    const float *q = row(&a->q, p);
    const float scale = over_length(q, a->q.c);
    float *y = (float *)a->y.data + at(&a->y, p);
    float sum = 0.0f;
    memset(y, 0, (size_t)count * sizeof *y);
    for (int64_t c = 0; c < a->q.c; c++) {
        add_scaled(y, tokens + c * count, count, q[c] * scale);
    }
    for (int64_t i = 0; i < count; i++) {
        y[i] = expf(y[i]);
        sum += y[i];
    }
    for (int64_t i = 0; i < count; i++) {
        y[i] /= sum;
    }
}

static void similarity_some(const dvk_similarity_args *a, int64_t first, int64_t last, float *tokens) {
    for (int64_t i = 0; i < a->y.c; i++) {
        const float *k = row(&a->k, i);
        const float scale = a->factor[i] * over_length(k, a->k.c);
        for (int64_t c = 0; c < a->k.c; c++) {
            tokens[c * a->y.c + i] = k[c] * scale;
        }
    }
    for (int64_t p = first * PIXELS; p < least(last * PIXELS, pixels(&a->y)); p++) {
        similar(a, p, tokens);
    }
}

static void similarity_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_similarity_args *a = args;
    OF_PICTURES(s, first, last, units_of(&a->y, PIXELS)) {
        const dvk_similarity_args one = {.q = dvk_picture_of(a->q, s.n),
                                         .k = dvk_picture_of(a->k, s.n),
                                         .y = dvk_picture_of(a->y, s.n),
                                         .factor = a->factor};
        similarity_some(&one, s.first, s.last, scratch);
    }
}

/* --- mix --- */

static int mix_supports(const void *args) {
    const dvk_mix_args *a = args;
    return a->s.dtype == DVK_F32 && a->v.dtype == DVK_F32;
}

static int64_t mix_units(const void *args) {
    const dvk_mix_args *a = args;
    return a->y.n * units_of(&a->y, PIXELS);
}

static size_t mix_scratch(const void *args) {
    return (size_t)((const dvk_mix_args *)args)->y.c * sizeof(float);
}

static double mix_cost(const void *args) {
    const dvk_mix_args *a = args;
    return CPU_COST(mix, product) * (double)(a->y.n * pixels(&a->y)) * (double)a->y.c * (double)a->s.c;
}

static void mix_some(const dvk_mix_args *a, int64_t first, int64_t last, float *sum) {
    for (int64_t p = first * PIXELS; p < least(last * PIXELS, pixels(&a->y)); p++) {
        const float *s = row(&a->s, p);
        memset(sum, 0, (size_t)a->y.c * sizeof *sum);
        int64_t i = 0;
        for (; i + FOUR <= a->s.c; i += FOUR) {
            const float *const rows[FOUR] = {row(&a->v, i), row(&a->v, i + 1), row(&a->v, i + 2), row(&a->v, i + 3)};
            add_four(sum, rows, s + i, a->y.c);
        }
        for (; i < a->s.c; i++) {
            add_scaled(sum, row(&a->v, i), a->y.c, s[i]);
        }
        write_row(&a->y, p, sum);
    }
}

static void mix_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_mix_args *a = args;
    OF_PICTURES(s, first, last, units_of(&a->y, PIXELS)) {
        const dvk_mix_args one = {
            .s = dvk_picture_of(a->s, s.n), .v = dvk_picture_of(a->v, s.n), .y = dvk_picture_of(a->y, s.n)};
        mix_some(&one, s.first, s.last, scratch);
    }
}

/* --- refine: a few tokens at a time, which share each read of a pixel --- */

static int refine_supports(const void *args) {
    const dvk_refine_args *a = args;
    return a->t.dtype == DVK_F32 && a->s.dtype == DVK_F32 && a->y.dtype == DVK_F32;
}

static int64_t refine_units(const void *args) {
    const dvk_refine_args *a = args;
    return a->y.n * units_of(&a->y, TOKENS);
}

static size_t refine_scratch(const void *args) {
    return (size_t)(((const dvk_refine_args *)args)->y.c * (TOKENS * 3 + FOUR + 1)) * sizeof(float);
}

static double refine_cost(const void *args) {
    const dvk_refine_args *a = args;
    return CPU_COST(refine, product) * (double)(a->s.n * pixels(&a->s)) * (double)a->y.c * (double)a->s.c;
}

/* The factor of a token's similarities in the exponent, and the greatest exponent. */
static void curve_of(const dvk_refine_args *a, int64_t i, float *steep, float *top) {
    const int64_t count = pixels(&a->s);
    double mean = 0.0;
    double squares = 0.0;
    float low = INFINITY;
    float high = -INFINITY;
    for (int64_t p = 0; p < count; p++) {
        const float v = row(&a->s, p)[i];
        mean += (double)v;
        low = fminf(low, v);
        high = fmaxf(high, v);
    }
    mean /= (double)count;
    for (int64_t p = 0; p < count; p++) {
        const double d = (double)row(&a->s, p)[i] - mean;
        squares += d * d;
    }
    *steep = a->gamma[i] / (float)sqrt(squares / (double)count + (double)a->eps);
    *top = fmaxf(*steep * low, *steep * high);
}

/* Weights of up to four pixels from p on for a token; missing pixels have weight zero. */
static double weigh(const dvk_refine_args *a, int64_t p, int64_t token, const float curve[2], float weights[FOUR]) {
    double total = 0.0;
    for (int64_t k = 0; k < FOUR; k++) {
        const bool real = p + k < pixels(&a->s);
        weights[k] = real ? expf(curve[0] * row(&a->s, p + k)[token] - curve[1]) : 0.0f;
        total += (double)weights[k];
    }
    return total;
}

static void refine_some(const dvk_refine_args *a, int64_t first, int64_t count, double *all, float *picture) {
    float curves[TOKENS][2];
    double total[TOKENS] = {0};
    float *sums = picture + FOUR * a->y.c;
    const float *const rows[FOUR] = {picture, picture + a->y.c, picture + 2 * a->y.c, picture + 3 * a->y.c};
    for (int64_t i = 0; i < count; i++) {
        curve_of(a, first + i, &curves[i][0], &curves[i][1]);
    }
    memset(all, 0, (size_t)(count * a->y.c) * sizeof *all);
    memset(sums, 0, (size_t)(count * a->y.c) * sizeof *sums);
    memset(picture, 0, (size_t)(FOUR * a->y.c) * sizeof *picture);
    for (int64_t p = 0; p < pixels(&a->s); p += FOUR) {
        for (int64_t k = 0; k < least(FOUR, pixels(&a->s) - p); k++) {
            read_row(&a->x, p + k, picture + k * a->y.c);
        }
        for (int64_t i = 0; i < count; i++) {
            float weights[FOUR];
            total[i] += weigh(a, p, first + i, curves[i], weights);
            add_four(sums + i * a->y.c, rows, weights, a->y.c);
        }
        const bool ends = p % STRETCH == STRETCH - FOUR || p + FOUR >= pixels(&a->s);
        for (int64_t k = 0; k < count * a->y.c && ends; k++) {
            all[k] += (double)sums[k];
            sums[k] = 0.0f;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const float gate = 1.0f / (1.0f + expf(-a->sigma[first + i]));
        const float *t = row(&a->t, first + i);
        float *y = (float *)a->y.data + at(&a->y, first + i);
        for (int64_t c = 0; c < a->y.c; c++) {
            y[c] = gate * t[c] + (1.0f - gate) * (float)(all[i * a->y.c + c] / total[i]);
        }
    }
}

static void refine_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_refine_args *a = args;
    const int64_t each = units_of(&a->y, TOKENS);
    float *picture = (float *)((double *)scratch + TOKENS * a->y.c);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / each, token = unit % each * TOKENS;
        dvk_refine_args one = *a;
        one.t = dvk_picture_of(a->t, n);
        one.s = dvk_picture_of(a->s, n);
        one.x = dvk_picture_of(a->x, n);
        one.y = dvk_picture_of(a->y, n);
        refine_some(&one, token, least(TOKENS, pixels(&a->y) - token), scratch, picture);
    }
}

#define DICTIONARY(NAME, SUFFIX, VARIANT, CPU)                                                                         \
    const dvk_kernel dvk_##NAME##_##SUFFIX = {.op = #NAME,                                                             \
                                              .variant = VARIANT,                                                      \
                                              .cpu = CPU,                                                              \
                                              .compute = DVK_F32,                                                      \
                                              .supports = NAME##_supports,                                             \
                                              .cost = NAME##_cost,                                                     \
                                              .units = NAME##_units,                                                   \
                                              .scratch_bytes = NAME##_scratch,                                         \
                                              .run = NAME##_run}
