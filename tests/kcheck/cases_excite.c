/* cases_excite.c - problems for "excite": few rows of sums and as many as a GPU's warpgroups write, weights of one
 * block and of several, padded with zeros. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

typedef struct excite_spec {
    int64_t rows, c, hidden, count;
    int biases;
} excite_spec;

static void make(kc_problem *p, const excite_spec *s, dvk_dtype t) {
    const int64_t pixels = 1000 * s->rows;
    dvk_excite_args *a = &p->args.excite;
    dvk_view w, channel, scaled;
    *a = (dvk_excite_args){
        .rows = s->rows, .c = s->c, .hidden = s->hidden, .pixels = pixels, .count = s->count, .dtype = t};
    a->sums = kc_floats(p, s->rows * s->c, -1000.0f, 2000.0f);
    a->w_in = kc_floats(p, s->hidden * s->c, -0.5f, 0.5f);
    a->w_out = kc_floats(p, s->c * s->hidden, -2.0f, 2.0f);
    if (s->biases) {
        a->b_in = kc_floats(p, s->hidden, -0.2f, 0.5f);
        a->b_out = kc_floats(p, s->c, -1.0f, 1.0f);
    }
    a->scale = kc_floats(p, s->c, 0.0f, 0.0f);
    const kc_shape shape = {1, 1, 1, s->count};
    kc_view(p, &w, t, shape, 0);
    kc_view(p, &channel, t, shape, 0);
    kc_view(p, &scaled, t, shape, 0);
    kc_fill_view(p, &w, KC_UNIFORM);
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t c = i / 8 * 8 % (s->c + 8) + i % 8; /* whole octets, and some zeros */
        dvk_store(channel.data, t, i, c < s->c ? (float)c : 0.0f);
        if (c >= s->c) {
            dvk_store(w.data, t, i, 0.0f);
        }
    }
    a->w = w.data;
    a->channel = channel.data;
    a->scaled = scaled.data;
    kc_output_floats(p, a->scale, s->c, 1);
    kc_output_view(p, &scaled);
    p->error_class = KC_SMALL_SUMS;
    p->bytes = 4.0 * (double)(s->rows * s->c + 2 * s->hidden * s->c) + 6.0 * (double)s->count;
    snprintf(p->text, sizeof p->text, "%lld rows of %lld, hidden %lld, %lld weights %s, biases %d", (long long)s->rows,
             (long long)s->c, (long long)s->hidden, (long long)s->count, kc_dtype_name(t), s->biases);
}

static const excite_spec specs[] = {
    {1, 8, 1, 64, 1},       {5, 24, 3, 1024, 0},   {132, 128, 16, 65536, 1},  {264, 64, 8, 16384, 1},
    {19, 256, 16, 8000, 1}, {40, 64, 64, 8000, 0}, {131, 100, 12, 600000, 0}, {7, 1, 1, 8, 0},
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static int count(void) {
    return 2 * N_SPECS;
}

static void build(kc_problem *p, int i) {
    make(p, &specs[i / 2], i % 2 ? DVK_BF16 : DVK_F16);
}

/* Real-CUGAN: the convolutions of half and of quarter size. */
static const excite_spec benches[] = {{264, 64, 8, 16384, 1}, {132, 128, 16, 65536, 1}};

static int bench_count(void) {
    return (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    make(p, &benches[i], DVK_F16);
}

const kc_suite kc_suite_excite = {"excite", count, build, bench_count, bench_build, 1, 63};
