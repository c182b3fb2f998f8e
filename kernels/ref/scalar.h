/* scalar.h - the formulas of op.h for one element, shared by the references. Transcendentals are computed in double. A
 * reference is therefore correctly rounded to float in almost all cases. */
#ifndef DVK_REF_SCALAR_H
#define DVK_REF_SCALAR_H

#include <math.h>

#include "kernels/dtype.h"

/* Index of pixel (n, y, x) of a view, in elements. */
static inline int64_t dvk_at(const dvk_view *v, int64_t n, int64_t y, int64_t x) {
    return n * v->sn + y * v->sh + x * v->sw;
}

/* Elements at .. at + count - 1: a pointer into f32 data; other types are converted into `room`. */
static inline const float *dvk_floats(const void *data, dvk_dtype t, int64_t at, int64_t count, float *room) {
    if (t == DVK_F32) {
        return (const float *)data + at;
    }
    for (int64_t i = 0; i < count; i++) {
        room[i] = dvk_load(data, t, at + i);
    }
    return room;
}

static inline double dvk_sigmoid(float x) {
    return 1.0 / (1.0 + exp(-(double)x));
}

static inline float dvk_activate(dvk_act act, float x, float slope) {
    switch (act) {
    case DVK_ACT_RELU:
        return x < 0.0f ? 0.0f : x;
    case DVK_ACT_LRELU:
    case DVK_ACT_PRELU:
        return x >= 0.0f ? x : slope * x;
    case DVK_ACT_SILU:
        return (float)((double)x * dvk_sigmoid(x));
    case DVK_ACT_CLAMP3:
        return (float)(3.0 * tanh((double)x / 3.0));
    case DVK_ACT_GELU:
        return (float)(0.5 * (double)x * erfc(-(double)x * 0.70710678118654752440));
    case DVK_ACT_SIGMOID:
        return (float)dvk_sigmoid(x);
    case DVK_ACT_TANH:
        return (float)tanh((double)x);
    case DVK_ACT_MISH: /* ln(1 + e^x) without overflow */
        return (float)((double)x * tanh(log1p(exp(-fabs((double)x))) + fmax((double)x, 0.0)));
    case DVK_ACT_NONE:
        break;
    }
    return x;
}

/* x is the stored value; n and c index the picture and the channel of `channels`. */
static inline float dvk_prologue_at(const dvk_prologue *pro, float x, int64_t n, int64_t c, int64_t channels) {
    if (pro->scale != NULL) {
        x = x * pro->scale[n * channels + c] + pro->shift[n * channels + c];
    }
    return dvk_activate(pro->act, x, 0.0f);
}

/* v is the op's result, before the epilogue, for channel c of pixel (n, y, x) of its output. */
static inline float dvk_epilogue_at(const dvk_epilogue *epi, float v, int64_t n, int64_t y, int64_t x, int64_t c) {
    float t = epi->bias != NULL ? v + epi->bias[c] : v;
    float res[2] = {0.0f, 0.0f};
    for (int32_t i = 0; i < epi->n_res; i++) {
        res[i] = dvk_load(epi->res[i].data, epi->res[i].dtype, dvk_at(&epi->res[i], n, y, x) + c);
    }
    if (epi->gate == 2) {
        return dvk_activate(epi->act, t, 0.0f) *
               (epi->beta[0] * res[0] + (epi->n_res > 1 ? epi->beta[1] * res[1] : 0.0f));
    }
    if (epi->gate) {
        return (float)(((double)t + (double)res[0]) * (0.5 * tanh(0.5 * (double)t)));
    }
    const float slope = epi->act == DVK_ACT_PRELU ? epi->slopes[c] : epi->slope;
    if (!epi->act_last) {
        t = dvk_activate(epi->act, t, slope);
    }
    t = epi->alpha * t;
    for (int32_t i = 0; i < epi->n_res; i++) {
        t += epi->beta[i] * res[i];
    }
    return epi->act_last ? dvk_activate(epi->act, t, slope) : t;
}

#endif
