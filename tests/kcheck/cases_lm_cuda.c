/* cases_lm_cuda.c - problems for GPUs only: linear with 16-bit rows of W's type and in sizes that fill tiles, and times
 * at the sizes of SmolVLM-256M and Qwen2.5-VL-3B. */
#include <stddef.h>

#include "tests/kcheck/cases_lm.h"

static const int64_t sizes[][3] = {
    {1, 256, 2048},  {1, 2700, 1000},  {2, 96, 2056},   {4, 130, 11008}, {8, 64, 11000}, {8, 1030, 576},
    {16, 72, 1024},  {6, 200, 4096},   {12, 40, 777},   {3, 2048, 192},  {65, 1000, 64}, {128, 256, 256},
    {200, 136, 520}, {300, 192, 576},  {513, 129, 328}, {64, 704, 1280}, {33, 96, 3420}, {1, 5003, 96},
    {7, 576, 1536},  {1024, 80, 1152}, {17, 512, 288},  {1, 9001, 256},  {1, 520, 4400}, {1, 2048, 11008},
};

static const struct {
    dvk_wtype type;
    dvk_form form;
} kinds[] = {
    {DVK_W_BF16, DVK_ROWS_F32},  {DVK_W_BF16, DVK_ROWS_BF16}, {DVK_W_F16, DVK_ROWS_F16},   {DVK_W_F16, DVK_ROWS_F32},
    {DVK_W_F32, DVK_ROWS_F32},   {DVK_W_Q8_0, DVK_ROWS_Q8},   {DVK_W_Q4_0, DVK_ROWS_Q8},   {DVK_W_Q4_K, DVK_ROWS_Q8},
    {DVK_W_Q6_K, DVK_ROWS_Q8},   {DVK_W_Q5_1, DVK_ROWS_Q8},   {DVK_W_Q4_0, DVK_ROWS_BF16}, {DVK_W_Q4_K, DVK_ROWS_BF16},
    {DVK_W_Q8_0, DVK_ROWS_BF16}, {DVK_W_Q6_K, DVK_ROWS_BF16},
};

enum {
    N_SIZES = (int)(sizeof sizes / sizeof sizes[0]),
    N_KINDS = (int)(sizeof kinds / sizeof kinds[0]),
    N_FULL = 2, /* more tiles than a device has multiprocessors, twice: of kinds 1 and 2 */
    N_GATES = DVK_GATE_RELU2 + 1
};

static int linear_count(void) {
    return N_SIZES * N_KINDS + N_FULL;
}

static void linear_build(kc_problem *p, int i) {
    static const dvk_dtype outs[] = {DVK_F32, DVK_BF16, DVK_F32, DVK_F16};
    static const int64_t full[] = {1900, 2300, 72};
    const int more = i - N_SIZES * N_KINDS;
    const int64_t *size = more < 0 ? sizes[i % N_SIZES] : full;
    const int kind = more < 0 ? i / N_SIZES : 1 + more;
    const int variety = i * 7 + kind;
    kc_linear_spec s = {.m = size[0], .n = size[1], .k = size[2], .type = kinds[kind].type, .form = kinds[kind].form};
    s.glu = variety % 3 == 1;
    s.act = s.glu ? DVK_GATE_SILU : variety % 2 ? (dvk_gate)(variety / 2 % N_GATES) : DVK_GATE_NONE;
    s.bias = variety % 5 < 2;
    s.res = variety / 3 % 3;
    s.y = outs[variety / 5 % 4];
    kc_build_linear(p, &s, variety / 3 % 2, i % 19 == 18 ? KC_NAN : KC_NORMAL);
}

/* Rows that the kernel normalises or quantises. */
static const struct {
    dvk_wtype type;
    int norm, rounded;
} changes[] = {
    {DVK_W_BF16, 1, 0}, {DVK_W_F16, 1, 0},  {DVK_W_F32, 1, 0},  {DVK_W_Q8_0, 0, 1}, {DVK_W_Q8_0, 1, 1},
    {DVK_W_Q4_0, 1, 1}, {DVK_W_Q4_0, 0, 1}, {DVK_W_Q4_K, 1, 1}, {DVK_W_Q6_K, 1, 1}, {DVK_W_Q5_1, 0, 1},
};
static const int64_t changed_sizes[][3] = {
    {1, 33, 32},    {1, 960, 576},  {1, 2560, 2048}, {2, 96, 2056},  {4, 130, 3584}, {8, 64, 2048},
    {8, 1030, 576}, {16, 72, 1024}, {3, 2048, 192},  {1, 5003, 96},  {7, 576, 1536}, {1, 300, 4096},
    {5, 31, 260},   {1, 64, 11008}, {6, 40, 11000},  {2, 4100, 768}, {1, 9001, 256},
};
enum {
    N_CHANGES = (int)(sizeof changes / sizeof changes[0]),
    N_CHANGED = (int)(sizeof changed_sizes / sizeof changed_sizes[0]),
    N_SUMS = 3 * N_CHANGES /* x is the sum of rows */
};

static int changed_count(void) {
    return N_CHANGED * N_CHANGES + N_SUMS;
}

static void sums_build(kc_problem *p, int i) {
    static const int64_t of[3][2] = {{3072, 576}, {100, 2048}, {11008, 2048}};
    const int kind = i / 3;
    kc_linear_spec s = {
        .m = 1, .n = of[i % 3][0], .k = of[i % 3][1], .type = changes[kind].type, .form = DVK_ROWS_F32, .y = DVK_F32};
    s.norm = 1;
    s.rounded = changes[kind].rounded;
    s.glu = i % 2;
    s.more = 1 + i * 3 % DVK_MORE;
    kc_build_linear(p, &s, 0, KC_NORMAL);
}

static void changed_build(kc_problem *p, int i) {
    if (i >= N_CHANGED * N_CHANGES) {
        sums_build(p, i - N_CHANGED * N_CHANGES);
        return;
    }
    const int64_t *size = changed_sizes[i % N_CHANGED];
    const int kind = i / N_CHANGED;
    const int variety = i * 7 + kind;
    kc_linear_spec s = {.m = size[0], .n = size[1], .k = size[2], .type = changes[kind].type, .form = DVK_ROWS_F32};
    s.norm = changes[kind].norm;
    s.rounded = changes[kind].rounded;
    s.glu = variety % 3 == 1;
    s.act = s.glu ? DVK_GATE_SILU : DVK_GATE_NONE;
    s.bias = variety % 5 < 2;
    s.res = variety / 3 % 3;
    s.y = variety % 4 == 3 ? DVK_BF16 : DVK_F32;
    kc_build_linear(p, &s, variety / 3 % 2, i % 19 == 18 && !s.rounded ? KC_NAN : KC_NORMAL);
}

/* ---- times ---- */

typedef struct matrix {
    int64_t n, k;
    int glu, head; /* head: for few rows only */
} matrix;

static const matrix matrices[] = {
    /* SmolVLM-256M */
    {960, 576, 0, 0},
    {576, 576, 0, 0},
    {1536, 576, 1, 0},
    {576, 1536, 0, 0},
    {49280, 576, 0, 1},
    /* Qwen2.5-VL-3B */
    {2560, 2048, 0, 0},
    {2048, 2048, 0, 0},
    {11008, 2048, 1, 0},
    {2048, 11008, 0, 0},
    {151936, 2048, 0, 1},
};

static const int64_t tower[][3] = {
    /* Qwen2.5-VL's vision tower, 1288 x 728: n, k, glu */
    {3840, 1280, 0},
    {1280, 1280, 0},
    {3420, 1280, 1},
    {1280, 3420, 0},
};

enum {
    N_MATRICES = (int)(sizeof matrices / sizeof matrices[0]),
    N_TOWER = (int)(sizeof tower / sizeof tower[0]),
    N_FEW = 3,
    N_FEW_KINDS = 4,
    N_MANY = 2,
    N_MANY_KINDS = 3
};

static kc_linear_spec spec_of(const matrix *w, int64_t m) {
    return (kc_linear_spec){.m = m,
                            .n = w->n,
                            .k = w->k,
                            .glu = w->glu,
                            .act = w->glu ? DVK_GATE_SILU : DVK_GATE_NONE,
                            .res = w->n == 576 || w->n == 2048 ? 2 : 0,
                            .y = DVK_F32};
}

static int linear_bench_count(void) {
    return N_MATRICES * (N_FEW * N_FEW_KINDS + N_MANY * N_MANY_KINDS) + N_TOWER;
}

static void linear_bench_build(kc_problem *p, int i) {
    static const int64_t few[N_FEW] = {1, 4, 8};
    static const int64_t many[N_MANY] = {512, 2048};
    static const struct {
        dvk_wtype type;
        dvk_form form;
    } of_few[N_FEW_KINDS] = {{DVK_W_BF16, DVK_ROWS_F32},
                             {DVK_W_Q8_0, DVK_ROWS_Q8},
                             {DVK_W_Q4_0, DVK_ROWS_Q8},
                             {DVK_W_Q4_K, DVK_ROWS_Q8}},
      of_many[N_MANY_KINDS] = {{DVK_W_BF16, DVK_ROWS_BF16}, {DVK_W_F16, DVK_ROWS_F16}, {DVK_W_Q4_0, DVK_ROWS_BF16}};
    kc_linear_spec s;
    if (i < N_MATRICES * N_FEW * N_FEW_KINDS) {
        s = spec_of(&matrices[i / N_FEW_KINDS / N_FEW], few[i / N_FEW_KINDS % N_FEW]);
        s.type = of_few[i % N_FEW_KINDS].type;
        s.form = of_few[i % N_FEW_KINDS].form;
    } else if ((i -= N_MATRICES * N_FEW * N_FEW_KINDS) < N_MATRICES * N_MANY * N_MANY_KINDS) {
        const matrix *w = &matrices[i / N_MANY_KINDS / N_MANY];
        s = spec_of(w, w->head ? 16 * many[i / N_MANY_KINDS % N_MANY] / 512 : many[i / N_MANY_KINDS % N_MANY]);
        s.type = of_many[i % N_MANY_KINDS].type;
        s.form = of_many[i % N_MANY_KINDS].form;
        s.y = w->glu ? (dvk_dtype)s.form : DVK_F32; /* in the form of the next matrix's input */
    } else {
        const int64_t *of = tower[i - N_MATRICES * N_MANY * N_MANY_KINDS];
        s = spec_of(&(matrix){.n = of[0], .k = of[1], .glu = (int)of[2]}, 4784);
        s.bias = 1;
        s.type = DVK_W_BF16;
        s.form = DVK_ROWS_BF16;
        s.y = s.glu ? DVK_BF16 : DVK_F32;
    }
    kc_build_linear(p, &s, 0, KC_UNIFORM);
}

/* The matrices of a token: the first, third and last of a model read normalised rows. */
static int changed_bench_count(void) {
    return 3 * N_MATRICES;
}

static void changed_bench_build(kc_problem *p, int i) {
    static const dvk_wtype types[3] = {DVK_W_BF16, DVK_W_Q8_0, DVK_W_Q4_0};
    kc_linear_spec s = spec_of(&matrices[i % N_MATRICES], 1);
    s.type = types[i / N_MATRICES];
    s.form = DVK_ROWS_F32;
    s.norm = i % N_MATRICES % 5 % 2 == 0;
    s.rounded = s.type != DVK_W_BF16;
    kc_build_linear(p, &s, 0, KC_UNIFORM);
}

static int none(void) {
    return 0;
}

static const kc_kv_spec kvs[] = {
    {1, 1023, 16, 2, 128, 0, 1, 0},   {1, 8191, 16, 2, 128, 0, 1, 0}, {1, 8191, 9, 3, 64, 0, 1, 0},
    {8, 2047, 16, 2, 128, 0, 1, 0},   {2048, 0, 16, 2, 128, 0, 1, 0}, {2048, 0, 9, 3, 64, 0, 1, 0},
    {512, 1536, 16, 2, 128, 0, 1, 0}, {4784, 0, 16, 16, 80, 0, 0, 0}, {4784, 0, 16, 16, 80, 0, 0, 75},
    {1024, 0, 12, 12, 64, 0, 0, 0},
};
enum { N_KVS = (int)(sizeof kvs / sizeof kvs[0]) };

static int kv_bench_count(void) {
    return N_KVS;
}

static void kv_bench_build(kc_problem *p, int i) {
    const kc_kv_spec *s = &kvs[i];
    const int few = s->m <= 8;
    kc_build_kv(p, s, few ? DVK_F32 : DVK_F16, DVK_F16, 0);
    p->bytes = (double)((s->past + s->m) * s->kv_heads * s->dim) * 4.0;
    for (int32_t j = 0; j + 1 < p->args.attention_kv.n_bounds; j++) { /* the number of products of the windows */
        const int32_t *b = p->args.attention_kv.bounds;
        const double keys = (double)(b[j + 1] - b[j]);
        p->flops = (j == 0 ? 0.0 : p->flops) + 4.0 * (double)(s->heads * s->dim) * keys * keys;
    }
}

const kc_suite kc_suite_cuda_linear = {"linear", linear_count, linear_build, linear_bench_count, linear_bench_build, 1,
                                       45};
const kc_suite kc_suite_cuda_linear_changed = {
    "linear", changed_count, changed_build, changed_bench_count, changed_bench_build, 1, 46};
const kc_suite kc_suite_cuda_attention_kv = {"attention_kv", none, NULL, kv_bench_count, kv_bench_build, 1, 47};
