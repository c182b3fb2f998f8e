/* dictionary.c - references of the ops of kernels/dictionary.h. Sums are in double. One unit is a pixel of the result;
 * for "order" a whole picture, for "refine" one token. The unit index runs through all pictures. */
#include "kernels/dictionary.h"

#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

/* Element of channel 0 of a pixel, in reading order. */
static int64_t pixel_at(const dvk_view *v, int64_t i) {
    return dvk_at(v, 0, i / v->w, i % v->w);
}

static double value(const dvk_view *v, int64_t i, int64_t c) {
    return (double)dvk_load(v->data, v->dtype, pixel_at(v, i) + c);
}

static void put(const dvk_view *v, int64_t i, int64_t c, double x) {
    dvk_store(v->data, v->dtype, pixel_at(v, i) + c, (float)x);
}

static int64_t pixels(const dvk_view *v) {
    return v->h * v->w;
}

static int64_t pixels_of_all(const dvk_view *v) {
    return v->n * pixels(v);
}

/* --- similarity --- */

static int64_t similarity_units(const void *args) {
    return pixels_of_all(&((const dvk_similarity_args *)args)->y);
}

static double length_of(const dvk_view *v, int64_t i) {
    double sum = 0.0;
    for (int64_t c = 0; c < v->c; c++) {
        sum += value(v, i, c) * value(v, i, c);
    }
    return fmax(sqrt(sum), 1e-12);
}

static double logit(const dvk_similarity_args *a, int64_t p, int64_t i) {
    double dot = 0.0;
    for (int64_t c = 0; c < a->q.c; c++) {
        dot += value(&a->q, p, c) * value(&a->k, i, c);
    }
    return (double)a->factor[i] * dot / (length_of(&a->q, p) * length_of(&a->k, i));
}

static void similarity_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_similarity_args *all = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / pixels(&all->y), p = unit % pixels(&all->y);
        const dvk_similarity_args a = {.q = dvk_picture_of(all->q, n),
                                       .k = dvk_picture_of(all->k, n),
                                       .y = dvk_picture_of(all->y, n),
                                       .factor = all->factor};
        double sum = 0.0;
        for (int64_t i = 0; i < a.y.c; i++) {
            sum += exp(logit(&a, p, i));
        }
        for (int64_t i = 0; i < a.y.c; i++) {
            put(&a.y, p, i, exp(logit(&a, p, i)) / sum);
        }
    }
}

/* --- mix --- */

static int64_t mix_units(const void *args) {
    return pixels_of_all(&((const dvk_mix_args *)args)->y);
}

static void mix_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_mix_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / pixels(&a->y), p = unit % pixels(&a->y);
        const dvk_view s = dvk_picture_of(a->s, n), v = dvk_picture_of(a->v, n), y = dvk_picture_of(a->y, n);
        for (int64_t c = 0; c < y.c; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < s.c; i++) {
                sum += value(&s, p, i) * value(&v, i, c);
            }
            put(&y, p, c, sum);
        }
    }
}

/* --- order: a counting sort: pixels per channel, offsets, then all pixels in order --- */

static int64_t order_units(const void *args) {
    return ((const dvk_order_args *)args)->y.n;
}

static size_t order_scratch(const void *args) {
    return (size_t)(((const dvk_order_args *)args)->s.c + 1) * sizeof(int64_t);
}

static int64_t greatest(const dvk_view *s, int64_t p) {
    int64_t best = 0;
    for (int64_t i = 1; i < s->c; i++) {
        best = value(s, p, i) > value(s, p, best) ? i : best;
    }
    return best;
}

static void order_one(const dvk_view *s, const dvk_view *y, int64_t *next) {
    const int64_t count = pixels(s);
    for (int64_t i = 0; i <= s->c; i++) {
        next[i] = 0;
    }
    for (int64_t p = 0; p < count; p++) {
        next[greatest(s, p) + 1]++;
    }
    for (int64_t i = 0; i < s->c; i++) {
        next[i + 1] += next[i];
    }
    for (int64_t p = 0; p < count; p++) {
        put(y, next[greatest(s, p)]++, 0, (double)p);
    }
    for (int64_t t = count; t < pixels(y); t++) {
        put(y, t, 0, value(y, 2 * count - 1 - t, 0));
    }
}

static void order_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_order_args *a = args;
    for (int64_t n = first; n < last; n++) {
        const dvk_view s = dvk_picture_of(a->s, n), y = dvk_picture_of(a->y, n);
        order_one(&s, &y, scratch);
    }
}

/* --- gather, scatter --- */

static int64_t gather_units(const void *args) {
    return pixels_of_all(&((const dvk_gather_args *)args)->y);
}

static void move(const dvk_gather_args *a, int64_t from, int64_t to) {
    for (int64_t c = 0; c < a->y.c; c++) {
        const float x = (float)value(&a->x, from, c);
        put(&a->y, to, c, (double)(a->scale != NULL ? x * a->scale[c] : x));
    }
}

static dvk_gather_args gather_of(const dvk_gather_args *a, int64_t n) {
    return (dvk_gather_args){.x = dvk_picture_of(a->x, n),
                             .order = dvk_picture_of(a->order, n),
                             .y = dvk_picture_of(a->y, n),
                             .scale = a->scale};
}

static void gather_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_gather_args *all = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t t = unit % pixels(&all->y);
        const dvk_gather_args a = gather_of(all, unit / pixels(&all->y));
        move(&a, (int64_t)value(&a.order, t, 0), t);
    }
}

static void scatter_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_gather_args *all = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t t = unit % pixels(&all->y);
        const dvk_gather_args a = gather_of(all, unit / pixels(&all->y));
        move(&a, t, (int64_t)value(&a.order, t, 0));
    }
}

/* --- refine --- */

static int64_t refine_units(const void *args) {
    return pixels_of_all(&((const dvk_refine_args *)args)->y);
}

static size_t refine_scratch(const void *args) {
    return (size_t)((const dvk_refine_args *)args)->y.c * sizeof(double);
}

/* gamma / sqrt(var + eps), and the greatest product of it and a value. */
static double steepness(const dvk_refine_args *a, int64_t i, double *top) {
    const double count = (double)pixels(&a->s);
    double mean = 0.0;
    double var = 0.0;
    for (int64_t p = 0; p < pixels(&a->s); p++) {
        mean += value(&a->s, p, i) / count;
    }
    for (int64_t p = 0; p < pixels(&a->s); p++) {
        var += (value(&a->s, p, i) - mean) * (value(&a->s, p, i) - mean) / count;
    }
    const double steep = (double)a->gamma[i] / sqrt(var + (double)a->eps);
    *top = -INFINITY;
    for (int64_t p = 0; p < pixels(&a->s); p++) {
        *top = fmax(*top, steep * value(&a->s, p, i));
    }
    return steep;
}

static void refine_one(const dvk_refine_args *a, int64_t i, double *sums) {
    double top = 0.0;
    double total = 0.0;
    const double steep = steepness(a, i, &top);
    const double gate = dvk_sigmoid(a->sigma[i]);
    for (int64_t c = 0; c < a->y.c; c++) {
        sums[c] = 0.0;
    }
    for (int64_t p = 0; p < pixels(&a->s); p++) {
        const double w = exp(steep * value(&a->s, p, i) - top);
        total += w;
        for (int64_t c = 0; c < a->y.c; c++) {
            sums[c] += w * value(&a->x, p, c);
        }
    }
    for (int64_t c = 0; c < a->y.c; c++) {
        put(&a->y, i, c, gate * value(&a->t, i, c) + (1.0 - gate) * sums[c] / total);
    }
}

static void refine_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_refine_args *all = args;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / pixels(&all->y);
        dvk_refine_args a = *all;
        a.t = dvk_picture_of(all->t, n);
        a.s = dvk_picture_of(all->s, n);
        a.x = dvk_picture_of(all->x, n);
        a.y = dvk_picture_of(all->y, n);
        refine_one(&a, unit % pixels(&all->y), scratch);
    }
}

const dvk_kernel dvk_similarity_ref = {
    .op = "similarity", .variant = "ref", .compute = DVK_F32, .units = similarity_units, .run = similarity_run};

const dvk_kernel dvk_mix_ref = {.op = "mix", .variant = "ref", .compute = DVK_F32, .units = mix_units, .run = mix_run};

const dvk_kernel dvk_order_ref = {.op = "order",
                                  .variant = "ref",
                                  .compute = DVK_F32,
                                  .units = order_units,
                                  .scratch_bytes = order_scratch,
                                  .run = order_run};

const dvk_kernel dvk_gather_ref = {
    .op = "gather", .variant = "ref", .compute = DVK_F32, .units = gather_units, .run = gather_run};

const dvk_kernel dvk_scatter_ref = {
    .op = "scatter", .variant = "ref", .compute = DVK_F32, .units = gather_units, .run = scatter_run};

const dvk_kernel dvk_refine_ref = {.op = "refine",
                                   .variant = "ref",
                                   .compute = DVK_F32,
                                   .units = refine_units,
                                   .scratch_bytes = refine_scratch,
                                   .run = refine_run};
