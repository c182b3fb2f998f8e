/* channel_attention.c - reference of "channel_attention". Sums are in double; one unit is one head of one group. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"
#include "kernels/window.h"

typedef dvk_channel_group group;

static int64_t element(const group *g, const dvk_view *v, int64_t pixel, int64_t c) {
    return dvk_channel_pixel(g, v, pixel) + c;
}

static double value(const group *g, const dvk_view *v, int64_t pixel, int64_t c) {
    return (double)dvk_load(v->data, v->dtype, element(g, v, pixel, c));
}

static double length_of(const group *g, const dvk_view *v, int64_t c, double eps) {
    double sum = 0.0;
    for (int64_t t = 0; t < g->h * g->w; t++) {
        sum += value(g, v, t, c) * value(g, v, t, c);
    }
    return fmax(sqrt(sum), eps);
}

/* weights[e] of channel d: the softmax over the channels of the keys. */
static void weigh(const dvk_channel_attention_args *a, const group *g, int64_t d, double *weights) {
    const double q_length = length_of(g, &a->q, d, (double)a->eps);
    double top = -INFINITY;
    double sum = 0.0;
    for (int64_t e = 0; e < a->dim; e++) {
        double dot = 0.0;
        for (int64_t t = 0; t < g->h * g->w; t++) {
            dot += value(g, &a->q, t, d) * value(g, &a->k, t, e);
        }
        weights[e] = dot / q_length / length_of(g, &a->k, e, (double)a->eps) * (double)a->temperature[g->head];
        top = weights[e] > top ? weights[e] : top;
    }
    for (int64_t e = 0; e < a->dim; e++) {
        weights[e] = exp(weights[e] - top);
        sum += weights[e];
    }
    for (int64_t e = 0; e < a->dim; e++) {
        weights[e] /= sum;
    }
}

/* Clears channels that pad a head. */
static void clear(const dvk_channel_attention_args *a, const group *g, int64_t d) {
    for (int64_t t = 0; t < g->h * g->w; t++) {
        dvk_store(a->y.data, a->y.dtype, element(g, &a->y, t, d), 0.0f);
    }
}

static int64_t units(const void *args) {
    const dvk_channel_attention_args *a = args;
    return a->q.n * dvk_channel_groups(a) * a->heads;
}

static size_t scratch_bytes(const void *args) {
    const dvk_channel_attention_args *a = args;
    return (size_t)(a->q.c / a->heads) * sizeof(double);
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_channel_attention_args *a = args;
    double *weights = scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const group g = dvk_channel_group_at(a, unit);
        for (int64_t d = 0; d < a->q.c / a->heads; d++) {
            if (d >= a->dim) {
                clear(a, &g, d);
                continue;
            }
            weigh(a, &g, d, weights);
            for (int64_t t = 0; t < g.h * g.w; t++) {
                double sum = 0.0;
                for (int64_t e = 0; e < a->dim; e++) {
                    sum += weights[e] * value(&g, &a->v, t, e);
                }
                dvk_store(a->y.data, a->y.dtype, element(&g, &a->y, t, d), (float)sum);
            }
        }
    }
}

const dvk_kernel dvk_channel_attention_ref = {.op = "channel_attention",
                                              .variant = "ref",
                                              .compute = DVK_F32,
                                              .units = units,
                                              .scratch_bytes = scratch_bytes,
                                              .run = run};
