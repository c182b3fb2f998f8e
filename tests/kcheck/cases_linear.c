/* cases_linear.c - problems for linear and embed: every type of weights, every form of activations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/rows.h"
#include "tests/kcheck/cases_lm.h"

const dvk_wtype kc_wtypes[11] = {DVK_W_F32,  DVK_W_F16,  DVK_W_BF16, DVK_W_Q8_0, DVK_W_Q4_0, DVK_W_Q4_1,
                                 DVK_W_Q5_0, DVK_W_Q5_1, DVK_W_Q4_K, DVK_W_Q5_K, DVK_W_Q6_K};
enum { N_TYPES = (int)(sizeof kc_wtypes / sizeof kc_wtypes[0]), ALIKE = 64 };

const char *kc_wtype_name(dvk_wtype t) {
    static const char *const names[N_TYPES] = {"f32",  "f16",  "bf16", "q8_0", "q4_0", "q4_1",
                                               "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};
    for (int i = 0; i < N_TYPES; i++) {
        if (kc_wtypes[i] == t) {
            return names[i];
        }
    }
    return "?";
}

dvk_view kc_rows(kc_problem *p, dvk_rows *rows, dvk_dtype t, kc_rows_shape shape, int slab, kc_fill fill) {
    dvk_view v;
    kc_view(p, &v, t, (kc_shape){1, shape.m, shape.heads, shape.dim}, slab);
    kc_fill_view(p, &v, fill);
    *rows = (dvk_rows){.data = v.data, .form = (dvk_form)t, .row = v.sh, .head = v.sw};
    return v;
}

void kc_rows_q8(kc_problem *p, dvk_rows *rows, int64_t m, int64_t k) {
    const int64_t blocks = (k + DVK_Q8_ELEMENTS - 1) / DVK_Q8_ELEMENTS;
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)(m * blocks) * sizeof(dvk_q8), &data);
    *rows = (dvk_rows){.data = data, .form = DVK_ROWS_Q8, .row = blocks};
    for (int64_t i = 0; i < m * blocks; i++) {
        float x[DVK_Q8_ELEMENTS];
        const int64_t left = k - i % blocks * DVK_Q8_ELEMENTS;
        const int64_t n = left < DVK_Q8_ELEMENTS ? left : DVK_Q8_ELEMENTS;
        for (int64_t j = 0; j < n; j++) {
            x[j] = kc_uniform(&p->rng);
        }
        dvk_q8 block;
        dvk_q8_block(x, n, &block);
        memcpy(data + (size_t)i * sizeof block, &block, sizeof block);
    }
}

static void put_half(unsigned char *at, float v) {
    const uint16_t h = dvk_f32_to_f16(v);
    memcpy(at, &h, sizeof h);
}

static void random_block(kc_rng *rng, dvk_wtype t, unsigned char *b) {
    const int bytes = dvk_block_bytes(t);
    for (int i = 0; i < bytes; i++) {
        b[i] = (unsigned char)kc_below(rng, 256);
    }
    const float scale = dvk_block_elements(t) == 256 ? 5e-4f : 0.02f;
    put_half(b + (t == DVK_W_Q6_K ? 208 : 0), scale * kc_uniform(rng));
    if (t == DVK_W_Q4_1 || t == DVK_W_Q5_1 || t == DVK_W_Q4_K || t == DVK_W_Q5_K) {
        put_half(b + 2, 7.0f * scale * kc_uniform(rng));
    }
}

const void *kc_weights(kc_problem *p, dvk_wtype t, int64_t n, int64_t k) {
    const int64_t bytes = dvk_row_bytes(t, k);
    unsigned char *data = NULL;
    float *x = malloc((size_t)k * sizeof *x);
    if (x == NULL) {
        exit(2);
    }
    kc_alloc(p, (size_t)(n * bytes), &data)->host_only = 1;
    for (int64_t r = 0; r < n; r++) {
        unsigned char *row = data + r * bytes;
        if (p->unfilled && r >= ALIKE) { /* times only */
            memcpy(row, row - ALIKE * bytes, (size_t)bytes);
            continue;
        }
        for (int64_t i = 0; i < k; i++) {
            x[i] = kc_uniform(&p->rng) * 0.25f;
        }
        if (t == DVK_W_F32 || t == DVK_W_F16 || t == DVK_W_BF16) {
            const dvk_dtype same = t == DVK_W_F32 ? DVK_F32 : t == DVK_W_F16 ? DVK_F16 : DVK_BF16;
            for (int64_t i = 0; i < k; i++) {
                dvk_store(row, same, i, x[i]);
            }
        } else if (t == DVK_W_Q8_0) {
            dvk_quant_q8_0(x, row, k);
        } else if (t == DVK_W_Q4_0) {
            dvk_quant_q4_0(x, row, k);
        } else {
            for (int64_t at = 0; at < bytes; at += dvk_block_bytes(t)) {
                random_block(&p->rng, t, row + at);
            }
        }
    }
    free(x);
    return data;
}

/* --- linear --- */

/* Moves values of x away from halves if they are rounded to integers. A different order of factors from the reference
 * would round some of them the other way. With 576 values, that can be 1e-3 of a result. */
static void clear_of_halves(const dvk_linear_args *a) {
    for (int64_t at = 0; at < a->m * a->k; at++) {
        const int64_t j = at % a->k;
        float *row = (float *)a->x.data + at / a->k * a->x.row;
        double value[DVK_Q8_ELEMENTS];
        double top = 0.0;
        const int64_t first = j / DVK_Q8_ELEMENTS * DVK_Q8_ELEMENTS;
        for (int64_t i = 0; i < DVK_Q8_ELEMENTS && first + i < a->k; i++) {
            value[i] = (double)row[first + i];
            for (int32_t r = 0; r < a->n_more; r++) {
                value[i] += (double)a->more[r * a->k + first + i];
            }
            value[i] *= a->norm != NULL ? (double)a->norm[first + i] : 1.0;
            top = fmax(top, fabs(value[i]));
        }
        const double number = value[j - first] / top * 127.0;
        if (fabs(fabs(number - trunc(number)) - 0.5) < 1e-3) { /* f32 is off by 3e-5 */
            const double to_zero = number > 0.0 ? -4e-3 : 4e-3;
            row[j] += (float)(to_zero * top / 127.0 / (a->norm != NULL ? (double)a->norm[j] : 1.0));
        }
    }
}

void kc_build_linear(kc_problem *p, const kc_linear_spec *s, int slab, kc_fill fill) {
    dvk_linear_args *a = &p->args.linear;
    const int64_t rows = s->n * (s->glu ? 2 : 1);
    *a = (dvk_linear_args){
        .m = s->m, .n = s->n, .k = s->k, .type = s->type, .act = s->act, .glu = (int32_t)(s->glu != 0)};
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %s x %s -> %s act %d glu %d bias %d res %d slab %d%s%s more %d",
             (long long)s->m, (long long)s->n, (long long)s->k, kc_wtype_name(s->type),
             s->form == DVK_ROWS_Q8 ? "q8" : kc_dtype_name((dvk_dtype)s->form), kc_dtype_name(s->y), (int)s->act,
             s->glu, s->bias, s->res, slab, s->norm ? " norm" : "", s->rounded ? " rounded" : "", s->more);
    if (p->only != NULL && strstr(p->text, p->only) == NULL) {
        return;
    }
    if (s->form == DVK_ROWS_Q8) {
        kc_rows_q8(p, &a->x, s->m, s->k);
    } else {
        kc_rows(p, &a->x, (dvk_dtype)s->form, (kc_rows_shape){s->m, 1, s->k}, slab, fill);
    }
    const dvk_view y = kc_rows(p, &a->y, s->y, (kc_rows_shape){s->m, 1, s->n}, slab, KC_UNIFORM);
    a->bias = s->bias ? kc_floats(p, rows, -1.0f, 1.0f) : NULL;
    a->norm = s->norm ? kc_floats(p, s->k, 0.5f, 1.5f) : NULL;
    a->norm_eps = 1e-5f;
    a->rounded = s->rounded;
    if (s->res == 1) {
        kc_rows(p, &a->res, s->y, (kc_rows_shape){s->m, 1, s->n}, slab, KC_UNIFORM);
    } else if (s->res == 2) {
        a->res = a->y;
    }
    p->w_source = kc_weights(p, s->type, rows, s->k);
    p->w_slot = &a->w;
    kc_output_view(p, &y);
    if (s->more > 0) {
        a->n_more = s->more;
        a->more = kc_floats(p, s->more * s->k, -1.0f, 1.0f);
        a->sum = kc_floats(p, s->k, -1.0f, 1.0f);
        kc_output_floats(p, a->sum, s->k, 1);
    }
    if (s->rounded && !p->unfilled) {
        clear_of_halves(a);
    }
    p->error_class = KC_SUMS;
    p->flops = 2.0 * (double)(s->m * rows) * (double)s->k;
    p->bytes = (double)(rows * dvk_row_bytes(s->type, s->k));
}

static const int64_t sizes[][3] = {
    {1, 1, 1},    {1, 32, 32},  {1, 17, 31},  {2, 33, 64},   {3, 64, 33},   {1, 192, 576}, {4, 48, 96},
    {5, 31, 257}, {7, 16, 100}, {9, 80, 256}, {13, 40, 512}, {29, 65, 320}, {261, 33, 96}, {1, 70, 1536},
};
enum { N_SIZES = (int)(sizeof sizes / sizeof sizes[0]), N_FORMS = 3, N_GATES = DVK_GATE_RELU2 + 1 };

static int linear_count(void) {
    return N_SIZES * N_TYPES * N_FORMS;
}

static void linear_build(kc_problem *p, int i) {
    static const dvk_form forms[N_FORMS] = {DVK_ROWS_F32, DVK_ROWS_BF16, DVK_ROWS_Q8};
    static const dvk_dtype outs[] = {DVK_F32, DVK_BF16, DVK_F32, DVK_F16};
    const int64_t *size = sizes[i % N_SIZES];
    kc_linear_spec s = {.m = size[0], .n = size[1], .k = size[2], .type = kc_wtypes[i / N_SIZES % N_TYPES]};
    s.form = forms[i / N_SIZES / N_TYPES];
    if (s.form == DVK_ROWS_Q8 && dvk_block_elements(s.type) == 1) {
        s.form = DVK_ROWS_F32;
    }
    const int variety = i * 5 + i / N_SIZES * 3;
    s.act = variety % 3 == 0 ? DVK_GATE_NONE : (dvk_gate)(variety / 3 % N_GATES);
    s.glu = variety % 4 == 1;
    s.bias = variety % 5 < 2;
    s.res = variety / 2 % 3;
    s.y = outs[variety / 7 % 4];
    kc_build_linear(p, &s, variety / 3 % 2, variety % 11 == 0 ? KC_NAN : variety % 2 ? KC_NORMAL : KC_UNIFORM);
}

static const struct {
    int64_t m, n, k;
    int glu;
} nets[] = {{1, 960, 576, 0},   {1, 1536, 576, 1},   {1, 576, 1536, 0},
            {1, 49280, 576, 0}, {512, 1536, 576, 1}, {8, 576, 1536, 0}};

static const struct {
    dvk_wtype type;
    dvk_form form;
} pairs[] = {{DVK_W_F16, DVK_ROWS_F32}, {DVK_W_BF16, DVK_ROWS_F32}, {DVK_W_F16, DVK_ROWS_BF16},
             {DVK_W_Q8_0, DVK_ROWS_Q8}, {DVK_W_Q4_0, DVK_ROWS_Q8},  {DVK_W_Q4_K, DVK_ROWS_Q8},
             {DVK_W_Q6_K, DVK_ROWS_Q8}, {DVK_W_Q4_0, DVK_ROWS_BF16}};

enum { N_NETS = (int)(sizeof nets / sizeof nets[0]), N_PAIRS = (int)(sizeof pairs / sizeof pairs[0]) };

static int linear_bench_count(void) {
    return N_NETS * N_PAIRS;
}

static void linear_bench_build(kc_problem *p, int i) {
    kc_linear_spec s = {.m = nets[i / N_PAIRS].m, .n = nets[i / N_PAIRS].n, .k = nets[i / N_PAIRS].k, .y = DVK_F32};
    s.glu = nets[i / N_PAIRS].glu;
    s.act = s.glu ? DVK_GATE_SILU : DVK_GATE_NONE;
    s.type = pairs[i % N_PAIRS].type;
    s.form = pairs[i % N_PAIRS].form;
    kc_build_linear(p, &s, 0, KC_UNIFORM);
}

/* --- embed --- */

static int embed_count(void) {
    return 3 * N_TYPES;
}

static void embed_build(kc_problem *p, int i) {
    static const int64_t ks[] = {576, 33, 257};
    dvk_embed_args *a = &p->args.embed;
    *a = (dvk_embed_args){.m = 5 + i % 3, .n = 70, .k = ks[i / N_TYPES], .type = kc_wtypes[i % N_TYPES]};
    unsigned char *ids = NULL;
    kc_alloc(p, (size_t)a->m * sizeof(int32_t), &ids);
    for (int64_t j = 0; j < a->m; j++) {
        const int32_t id = j == 0 ? 69 : (int32_t)kc_below(&p->rng, a->n);
        memcpy(ids + 4 * j, &id, sizeof id);
    }
    a->ids = (const int32_t *)(void *)ids;
    const dvk_view y =
        kc_rows(p, &a->y, i % 4 == 3 ? DVK_BF16 : DVK_F32, (kc_rows_shape){a->m, 1, a->k}, i % 2, KC_UNIFORM);
    p->w_source = kc_weights(p, a->type, a->n, a->k);
    p->w_slot = &a->w;
    kc_output_view(p, &y);
    p->error_class = KC_SUMS;
    p->bytes = (double)(a->m * a->k) * 4.0;
    snprintf(p->text, sizeof p->text, "%lld of %lld rows of %lld %s", (long long)a->m, (long long)a->n, (long long)a->k,
             kc_wtype_name(a->type));
}

const kc_suite kc_suite_linear = {"linear", linear_count, linear_build, linear_bench_count, linear_bench_build, 0, 22};
const kc_suite kc_suite_embed = {"embed", embed_count, embed_build, embed_count, embed_build, 0, 23};
