/* compare.c - compares the output of a kernel with the reference's, and holds the bounds. A bound has the form of
 * dvk_bound. Its `abs` is in units of the output: the root mean square of the reference unless the case sets another.
 * One table therefore serves inputs of any magnitude. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/kcheck.h"

/* Additional error of a dtype: a result on the other side of a rounding boundary. */
static const dvk_bound rounding[] = {
    [DVK_F32] = {.l2 = 0.0, .abs = 0.0, .rel = 1.2e-7},
    [DVK_F16] = {.l2 = 3e-4, .abs = 1e-7, .rel = 1.0 / 1024},
    [DVK_BF16] = {.l2 = 2.5e-3, .abs = 1e-7, .rel = 1.0 / 128},
    [DVK_U8] = {.l2 = 0.0, .abs = 0.0, .rel = 0.0}, /* bytes are equal */
};

static const struct {
    kc_class error_class;
    dvk_dtype compute;
    const char *variant; /* part of the kernel's name, "": any */
    dvk_bound bound;
} bounds[] = {
    /* One or two roundings, and activations whose relative error is below 1e-6. */
    {KC_POINTWISE, DVK_F32, "", {.l2 = 1e-6, .abs = 1e-6, .rel = 2e-6}},
    /* Sums of up to 4608 products in a different order from the reference's. */
    {KC_SUMS, DVK_F32, "winograd", {.l2 = 2e-5, .abs = 2e-4, .rel = 2e-5}},
    {KC_SUMS, DVK_F32, "", {.l2 = 2e-6, .abs = 2e-5, .rel = 4e-6}},
    /* Factors rounded to bf16 (2^-9 each), sums in f32. */
    {KC_SUMS, DVK_BF16, "", {.l2 = 6e-3, .abs = 4e-2, .rel = 8e-3}},
    /* The same with three more bits. */
    {KC_SUMS, DVK_F16, "", {.l2 = 8e-4, .abs = 5e-3, .rel = 1e-3}},
    /* As many bits as f16; the hardware may truncate instead of rounding. */
    {KC_SUMS, DVK_TF32, "", {.l2 = 1.6e-3, .abs = 1e-2, .rel = 2e-3}},
    /* E4M3 has three bits: up to 2^-4 for each factor, 2.6e-2 on average, 3.8e-2 for a sum of products of two. */
    {KC_SUMS, DVK_FP8, "", {.l2 = 6e-2, .abs = 4e-1, .rel = 8e-2}},
    /* Steps of a 254th of the range of the values around a pixel: 1.2e-2 for normal ones, up to three times that if a
     * few are much larger than the others. */
    {KC_SUMS, DVK_INT8, "ref/int8", {.l2 = 3e-2, .abs = 2e-1, .rel = 4e-2}},
    /* Against the INT8 reference: sums are exact. Only pixels near a half differ, behind a prologue of the same type. */
    {KC_SUMS, DVK_INT8, "cpu/", {.l2 = 2e-4, .abs = 2e-3, .rel = 1e-4}},
    {KC_SUMS, DVK_INT8, "", {.l2 = 1e-2, .abs = 8e-2, .rel = 1e-2}},
    {KC_SOFTMAX, DVK_F32, "", {.l2 = 2e-6, .abs = 2e-5, .rel = 4e-6}},
    /* Twice the roundings of a sum: queries, keys, exponentials and values. */
    {KC_SOFTMAX, DVK_BF16, "", {.l2 = 1.2e-2, .abs = 8e-2, .rel = 1.6e-2}},
    {KC_SOFTMAX, DVK_F16, "", {.l2 = 1.6e-3, .abs = 1e-2, .rel = 2e-3}},
    {KC_SOFTMAX, DVK_TF32, "", {.l2 = 3.2e-3, .abs = 2e-2, .rel = 4e-3}},
    {KC_SMALL_SUMS, DVK_F32, "", {.l2 = 3e-6, .abs = 3e-6, .rel = 1e-5}},
    /* Each value is off by up to 2^-12, at random; squares and products of two sums double that. */
    {KC_SCALED_SUMS, DVK_F32, "", {.l2 = 8e-4, .abs = 6e-3, .rel = 2e-3}},
    {KC_SCALED_SUMS, DVK_F16, "", {.l2 = 1.6e-3, .abs = 1e-2, .rel = 3e-3}},
    {KC_SCALED_SUMS, DVK_BF16, "", {.l2 = 6e-3, .abs = 4e-2, .rel = 8e-3}},
};

typedef struct kc_limits {
    dvk_bound bound;
    /* The error of flushed denormals: in a result, or in every factor, as the bf16 dot products of x86 do by
     * definition. */
    double flushed;
} kc_limits;

static dvk_bound bound_of(const kc_problem *p, dvk_dtype compute, const char *variant, dvk_dtype stored) {
    dvk_bound sum = rounding[stored];
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (bounds[i].error_class == p->error_class && bounds[i].compute == compute &&
            strstr(variant, bounds[i].variant) != NULL) {
            sum.l2 += bounds[i].bound.l2;
            sum.abs += bounds[i].bound.abs;
            sum.rel += bounds[i].bound.rel;
            return sum;
        }
    }
    return (dvk_bound){0};
}

/* The macros of some C libraries for these are not clean under -Wconversion. */
static int is_nan(double v) {
    return v != v;
}

static int is_finite(double v) {
    return fabs(v) <= 1.7e308;
}

static double read_at(const unsigned char *p, dvk_dtype t) {
    if (t == DVK_U8) {
        return *p;
    }
    uint16_t u = 0;
    if (t == DVK_U16) {
        memcpy(&u, p, sizeof u);
        return u;
    }
    float f = 0.0f;
    memcpy(&f, p, dvk_dtype_size(t));
    return (double)dvk_load(&f, t, 0);
}

static int64_t element_offset(const kc_output *o, int64_t i) {
    const int64_t c = i % o->size[3];
    const int64_t q = i / o->size[3];
    return o->data - o->buffer->start + q / (o->size[1] * o->size[2]) * o->stride[0] +
           q / o->size[2] % o->size[1] * o->stride[1] + q % o->size[2] * o->stride[2] +
           (o->map != NULL ? o->map[c] : c) * o->stride[3];
}

static double root_mean_square(const kc_output *o, int64_t count) {
    double sum = 0.0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = read_at(o->buffer->after_ref + element_offset(o, i), o->dtype);
        if (is_finite(v)) {
            sum += v * v;
            finite++;
        }
    }
    return finite > 0 ? sqrt(sum / (double)finite) : 0.0;
}

static void fail_at(kc_result *r, const kc_output *o, int64_t i, const double *got_want_limit) {
    if (r->failed) {
        return;
    }
    r->failed = 1;
    const int64_t q = i / o->size[3];
    snprintf(r->why, sizeof r->why, "at n %lld y %lld x %lld c %lld: got %.9g, reference %.9g, allowed difference %.3g",
             (long long)(q / (o->size[1] * o->size[2])), (long long)(q / o->size[2] % o->size[1]),
             (long long)(q % o->size[2]), (long long)(i % o->size[3]), got_want_limit[0], got_want_limit[1],
             got_want_limit[2]);
}

static void compare_output(const kc_problem *p, const kc_output *o, const kc_limits *limits, kc_result *r) {
    const dvk_bound *bound = &limits->bound;
    const int64_t count = o->size[0] * o->size[1] * o->size[2] * o->size[3];
    const double unit = o->unit > 0.0 ? o->unit : root_mean_square(o, count);
    double error = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = element_offset(o, i);
        const double got = read_at(o->buffer->start + at, o->dtype);
        const double want = read_at(o->buffer->after_ref + at, o->dtype);
        r->non_finite += !is_finite(got);
        if (p->no_compare || (p->only_nan_positions && !is_nan(want) && is_nan(got))) {
            continue;
        }
        if (!is_finite(want) || !is_finite(got)) {
            const int same = is_nan(want) ? is_nan(got) : want == got;
            if (!same) {
                fail_at(r, o, i, (double[]){got, want, 0.0});
            }
            continue;
        }
        const double difference = fabs(got - want);
        const double limit = bound->abs * unit + bound->rel * fabs(want);
        if (difference > limit && difference > limits->flushed) {
            fail_at(r, o, i, (double[]){got, want, limit});
        }
        r->max_abs = difference > r->max_abs ? difference : r->max_abs;
        error += difference * difference;
        norm += want * want;
    }
    const double l2 = norm > 0.0 ? sqrt(error / norm) : 0.0;
    r->l2 = l2 > r->l2 ? l2 : r->l2;
    if (l2 > bound->l2 && o->unit <= 0.0 && sqrt(norm) > 1e-30 && !r->failed) {
        r->failed = 1;
        snprintf(r->why, sizeof r->why, "relative error %.3g of the whole output, allowed %.3g", l2, bound->l2);
    }
}

void kc_keep_reference(kc_problem *p) {
    for (int i = 0; i < p->n_outputs; i++) {
        kc_buffer *b = p->outputs[i].buffer;
        memcpy(b->after_ref, b->start, b->bytes);
    }
}

void kc_compare(const kc_problem *p, dvk_dtype compute, const char *variant, kc_result *result) {
    for (int i = 0; i < p->n_outputs; i++) {
        const kc_output *o = &p->outputs[i];
        kc_limits limits = {.flushed = 0.0};
        if (p->error_class != KC_EXACT) {
            limits.bound = bound_of(p, compute, variant, o->dtype);
            limits.flushed = compute == DVK_F32 ? 1.2e-38 : 1e-36;
        }
        compare_output(p, o, &limits, result);
    }
}
