/* attention_amx.c - "attention" on AMX tiles: bf16 products, f32 sums and softmax. As in attention_tmpl.h, queries are
 * in the lanes: S = K * Q and O += V * P. Keys are multiplied in their memory layout, and P leaves the softmax in tile
 * order. Only values are transposed, once per unit and block.
 *
 * Each of the two tiles of queries of a panel keeps two tiles of sums. The running maximum of a query rises only if the
 * scores exceed it by more than AT_SLACK. Exponentials of that size are equally exact, and the sums are rarely
 * rescaled. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/simd/simd_amx.h"

enum {
    AT_Q = 32,     /* queries of a panel */
    AT_STEP = 32,  /* bf16 numbers in the row of a tile */
    AT_TILE = 512, /* in a tile */
    AT_KEYS = 256, /* of a block */
    AT_PANELS = 8, /* of a unit */
    AT_SLACK = 8
};

typedef struct at_size { /* of one head */
    int64_t queries, keys, dim, v_dim;
    int64_t steps;   /* of 32 values, through dim */
    int64_t v_tiles; /* of 16 channels, an even number */
    int64_t panels, units_per_head;
} at_size;

typedef struct at_memory {
    uint16_t *q;        /* [panel][step][2][16 pairs of channels][16 queries][2] */
    uint16_t *k;        /* [key][steps * 32] */
    uint16_t *v;        /* [tile][32 keys each][16 channels][32 keys] */
    uint16_t *p;        /* [32 keys each][2][16 pairs of keys][16 queries][2] */
    float *scores;      /* [key][AT_Q] */
    float *sums;        /* [panel][channel][AT_Q] */
    float *top, *total; /* [panel][AT_Q] */
} at_memory;

static at_size at_sizes(const dvk_attention_args *a) {
    at_size s = {
        .queries = a->q.h * a->q.w, .keys = a->k.h * a->k.w, .dim = a->q.c / a->heads, .v_dim = a->v.c / a->heads};
    const int64_t panels = conv_ceil_div(s.queries, AT_Q);
    s.steps = conv_ceil_div(s.dim, AT_STEP);
    s.v_tiles = 2 * conv_ceil_div(s.v_dim, 32);
    s.panels = conv_min(AT_PANELS, panels);
    s.units_per_head = conv_ceil_div(panels, s.panels);
    return s;
}

static int64_t at_units(const void *args) {
    const dvk_attention_args *a = args;
    return a->q.n * a->heads * at_sizes(a).units_per_head;
}

static void *at_take(unsigned char *base, size_t *used, int64_t bytes) {
    void *p = base != NULL ? base + *used : NULL;
    *used += (size_t)conv_ceil_div(bytes, 64) * 64;
    return p;
}

/* Computes the layout of the scratch; base may be NULL to compute only the size. */
static size_t at_lay_out(const dvk_attention_args *a, unsigned char *base, at_memory *m) {
    const at_size s = at_sizes(a);
    size_t used = 0;
    m->q = at_take(base, &used, s.panels * s.steps * 2 * AT_TILE * 2);
    m->k = at_take(base, &used, AT_KEYS * s.steps * AT_STEP * 2);
    m->v = at_take(base, &used, s.v_tiles * AT_KEYS * 16 * 2);
    m->p = at_take(base, &used, AT_KEYS * AT_Q * 2);
    m->scores = at_take(base, &used, AT_KEYS * AT_Q * 4);
    m->sums = at_take(base, &used, s.panels * s.v_tiles * 16 * AT_Q * 4);
    m->top = at_take(base, &used, s.panels * AT_Q * 4);
    m->total = at_take(base, &used, s.panels * AT_Q * 4);
    return used;
}

static size_t at_scratch_bytes(const void *args) {
    at_memory m;
    return at_lay_out(args, NULL, &m);
}

static double at_cost(const void *args) {
    const dvk_attention_args *a = args;
    const at_size s = at_sizes(a);
    const double products = (double)(s.steps * AT_STEP + s.v_tiles * 16);
    return (double)(a->q.n * a->heads * conv_ceil_div(s.queries, AT_Q) * AT_Q) *
           (double)(conv_ceil_div(s.keys, AT_STEP) * AT_STEP) *
           (products * 2.0 / CPU_COST(attention, products) + CPU_COST(attention, score));
}

static int64_t at_token(const dvk_view *v, int64_t n, int64_t token) {
    return n * v->sn + token / v->w * v->sh + token % v->w * v->sw;
}

/* 16 values as bf16, zeros behind the first `count`. */
static __m256i at_read16(const dvk_view *v, int64_t at, int64_t count) {
    const int64_t lanes = conv_max(0, conv_min(16, count));
    if (v->dtype == DVK_BF16) {
        return _mm256_maskz_loadu_epi16(cv_mask(lanes), (const uint16_t *)v->data + at);
    }
    return cv_to_bf16(cv_get(v->data, v->dtype, at, lanes));
}

static __m512i at_read32(const dvk_view *v, int64_t at, int64_t count) {
    const __m512i low = _mm512_castsi256_si512(at_read16(v, at, count));
    return _mm512_inserti64x4(low, count > 16 ? at_read16(v, at + 16, count - 16) : _mm256_setzero_si256(), 1);
}

static void at_write_tile(uint16_t *to, __m512i r[16]) {
    transpose16(r);
    for (int i = 0; i < 16; i++) {
        _mm512_storeu_si512(to + i * AT_STEP, r[i]);
    }
}

/* Loads up to AT_Q queries from number `first` into panel `panel`. */
static void at_load_panel(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t panel,
                          const at_memory *m) {
    const at_size s = at_sizes(a);
    for (int64_t step = 0; step < s.steps; step++) {
        for (int64_t t = 0; t < 2; t++) {
            __m512i r[16];
            for (int64_t j = 0; j < 16; j++) {
                const int64_t query = first + t * 16 + j;
                const int64_t c = step * AT_STEP;
                r[j] = query < s.queries ? at_read32(&a->q, at_token(&a->q, n, query) + head * s.dim + c, s.dim - c)
                                         : _mm512_setzero_si512();
            }
            at_write_tile(m->q + ((panel * s.steps + step) * 2 + t) * AT_TILE, r);
        }
    }
    memset(m->sums + panel * s.v_tiles * 16 * AT_Q, 0, (size_t)(s.v_tiles * 16 * AT_Q) * sizeof(float));
    for (int64_t j = 0; j < AT_Q; j++) {
        m->top[panel * AT_Q + j] = -3.0e38f;
        m->total[panel * AT_Q + j] = 0.0f;
    }
}

/* Loads keys [first, first + keys) into m->k, with zeros up to a multiple of 32. */
static void at_load_keys(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t keys,
                         const at_memory *m) {
    const at_size s = at_sizes(a);
    for (int64_t i = 0; i < conv_ceil_div(keys, 32) * 32; i++) {
        uint16_t *to = m->k + i * s.steps * AT_STEP;
        const int64_t from = i < keys ? at_token(&a->k, n, first + i) + head * s.dim : 0;
        for (int64_t c = 0; c < s.steps * AT_STEP; c += AT_STEP) {
            _mm512_storeu_si512(to + c, i < keys ? at_read32(&a->k, from + c, s.dim - c) : _mm512_setzero_si512());
        }
    }
}

/* Transposes the values of 32 keys into tiles, with pairs of keys side by side. */
static void at_load_values(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t keys,
                           const at_memory *m) {
    const at_size s = at_sizes(a);
    for (int64_t block = 0; block < conv_ceil_div(keys, 32); block++) {
        int64_t at[32];
        for (int64_t i = 0; i < 32; i++) {
            const int64_t key = block * 32 + i;
            at[i] = key < keys ? at_token(&a->v, n, first + key) + head * s.v_dim : 0;
        }
        for (int64_t tile = 0; tile < s.v_tiles; tile++) {
            const int64_t c = tile * 16;
            __m512i r[16];
            for (int64_t i = 0; i < 16; i++) {
                const int64_t key = block * 32 + 2 * i;
                const __m256i even = at_read16(&a->v, at[2 * i] + c, key < keys ? s.v_dim - c : 0);
                const __m256i odd = at_read16(&a->v, at[2 * i + 1] + c, key + 1 < keys ? s.v_dim - c : 0);
                r[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
            }
            at_write_tile(m->v + (tile * (AT_KEYS / 32) + block) * AT_TILE, r);
        }
    }
}

static void at_scores(const at_size *s, int64_t keys, const uint16_t *q, const at_memory *m) {
    const int64_t pitch = s->steps * AT_STEP;
    for (int64_t key = 0; key < keys; key += 32) {
        const uint16_t *k = m->k + key * pitch;
        float *to = m->scores + key * AT_Q;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t step = 0; step < s->steps; step++) {
            tile_load(4, k + step * AT_STEP, pitch * 2);
            tile_load(6, q + step * 2 * AT_TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            tile_load(7, q + (step * 2 + 1) * AT_TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
            tile_load(5, k + 16 * pitch + step * AT_STEP, pitch * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        tile_store(0, to, AT_Q * 4);
        tile_store(1, to + 16, AT_Q * 4);
        tile_store(2, to + 16 * AT_Q, AT_Q * 4);
        tile_store(3, to + 16 * AT_Q + 16, AT_Q * 4);
    }
}

/* Raises the running maximum of 16 queries if their scores exceed it by more than AT_SLACK. */
static conv_vec at_raise(const at_size *s, conv_vec most, float *top, float *total, float *sums) {
    const conv_vec before = cv_load(top);
    if (_mm512_cmp_ps_mask(most, cv_add(before, cv_set1((float)AT_SLACK)), _CMP_GT_OQ) == 0) {
        return before;
    }
    const conv_vec after = cv_max(before, most);
    const conv_vec change = conv_exp(cv_sub(before, after));
    cv_store(top, after);
    cv_store(total, cv_mul(cv_load(total), change));
    for (int64_t c = 0; c < s->v_tiles * 16; c++) {
        cv_store(sums + c * AT_Q, cv_mul(cv_load(sums + c * AT_Q), change));
    }
    return after;
}

/* Converts the scores of 16 queries (half 0 or 1 of the panel) to exponentials in m->p. */
static void at_softmax(const at_size *s, float scale, int64_t keys, int64_t panel, int64_t half, const at_memory *m) {
    static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i pairs = _mm512_loadu_si512(order);
    const float *scores = m->scores + half * 16;
    const int64_t lane = panel * AT_Q + half * 16;
    const conv_vec factor = cv_set1(scale);
    conv_vec most = cv_mul(cv_load(scores), factor);
    for (int64_t i = 1; i < keys; i++) {
        most = cv_max(most, cv_mul(cv_load(scores + i * AT_Q), factor));
    }
    const conv_vec top =
        at_raise(s, most, m->top + lane, m->total + lane, m->sums + panel * s->v_tiles * 16 * AT_Q + half * 16);
    conv_vec sum = cv_set1(0.0f);
    for (int64_t i = 0; i < conv_ceil_div(keys, 32) * 32; i += 2) {
        const float *from = scores + i * AT_Q;
        const conv_vec zero = cv_set1(0.0f);
        const conv_vec e0 = i < keys ? conv_exp(cv_sub(cv_mul(cv_load(from), factor), top)) : zero;
        const conv_vec e1 = i + 1 < keys ? conv_exp(cv_sub(cv_mul(cv_load(from + AT_Q), factor), top)) : zero;
        sum = cv_add(sum, cv_add(e0, e1));
        const __m512bh both = _mm512_cvtne2ps_pbh(e1, e0);
        __m512i bits;
        memcpy(&bits, &both, sizeof bits);
        uint16_t *to = m->p + (i / 32 * 2 + half) * AT_TILE + i % 32 / 2 * AT_STEP;
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(pairs, bits));
    }
    cv_store(m->total + lane, cv_add(cv_load(m->total + lane), sum));
}

static void at_add_values(const at_size *s, int64_t keys, float *sums, const at_memory *m) {
    for (int64_t tile = 0; tile < s->v_tiles; tile += 2) {
        float *c = sums + tile * 16 * AT_Q;
        const uint16_t *v = m->v + tile * (AT_KEYS / 32) * AT_TILE;
        tile_load(0, c, AT_Q * 4);
        tile_load(1, c + 16, AT_Q * 4);
        tile_load(2, c + 16 * AT_Q, AT_Q * 4);
        tile_load(3, c + 16 * AT_Q + 16, AT_Q * 4);
        for (int64_t block = 0; block < conv_ceil_div(keys, 32); block++) {
            tile_load(4, v + block * AT_TILE, 64);
            tile_load(6, m->p + block * 2 * AT_TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            tile_load(7, m->p + (block * 2 + 1) * AT_TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
            tile_load(5, v + (AT_KEYS / 32 + block) * AT_TILE, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        tile_store(0, c, AT_Q * 4);
        tile_store(1, c + 16, AT_Q * 4);
        tile_store(2, c + 16 * AT_Q, AT_Q * 4);
        tile_store(3, c + 16 * AT_Q + 16, AT_Q * 4);
    }
}

static void at_store_panel(const dvk_attention_args *a, int64_t n, int64_t head, int64_t first, int64_t panel,
                           const at_memory *m) {
    const at_size s = at_sizes(a);
    const float *sums = m->sums + panel * s.v_tiles * 16 * AT_Q;
    for (int64_t t = 0; t < 2; t++) {
        const int64_t count = conv_min(16, s.queries - first - t * 16);
        for (int64_t c = 0; c < s.v_dim && count > 0; c += 16) {
            __m512i r[16];
            for (int64_t i = 0; i < 16; i++) {
                r[i] = _mm512_loadu_si512(sums + (c + i) * AT_Q + t * 16);
            }
            transpose16(r);
            for (int64_t j = 0; j < count; j++) {
                const conv_vec inverse = cv_set1(1.0f / m->total[panel * AT_Q + t * 16 + j]);
                cv_put(a->y.data, a->y.dtype, at_token(&a->y, n, first + t * 16 + j) + head * s.v_dim + c,
                       conv_min(16, s.v_dim - c), cv_mul(_mm512_castsi512_ps(r[j]), inverse));
            }
        }
    }
}

static void at_unit(const dvk_attention_args *a, int64_t unit, const at_memory *m) {
    const at_size s = at_sizes(a);
    const int64_t head = unit / s.units_per_head % a->heads;
    const int64_t n = unit / s.units_per_head / a->heads;
    const int64_t query0 = unit % s.units_per_head * s.panels * AT_Q;
    const int64_t panels = conv_min(s.panels, conv_ceil_div(s.queries - query0, AT_Q));
    for (int64_t p = 0; p < panels; p++) {
        at_load_panel(a, n, head, query0 + p * AT_Q, p, m);
    }
    for (int64_t key = 0; key < s.keys; key += AT_KEYS) {
        const int64_t keys = conv_min(AT_KEYS, s.keys - key);
        at_load_keys(a, n, head, key, keys, m);
        at_load_values(a, n, head, key, keys, m);
        for (int64_t p = 0; p < panels; p++) {
            at_scores(&s, keys, m->q + p * s.steps * 2 * AT_TILE, m);
            at_softmax(&s, a->scale, keys, p, 0, m);
            at_softmax(&s, a->scale, keys, p, 1, m);
            at_add_values(&s, keys, m->sums + p * s.v_tiles * 16 * AT_Q, m);
        }
    }
    for (int64_t p = 0; p < panels; p++) {
        at_store_panel(a, n, head, query0 + p * AT_Q, p, m);
    }
}

static void at_run(const void *args, int64_t first, int64_t last, void *scratch) {
    at_memory m;
    at_lay_out(args, scratch, &m);
    tile_begin();
    for (int64_t unit = first; unit < last; unit++) {
        at_unit(args, unit, &m);
    }
    tile_end();
}

const dvk_kernel dvk_attention_amx = {
    .op = "attention",
    .variant = "cpu/amx",
    .cpu = DVK_CPU_AMX,
    .compute = DVK_BF16,
    .cost = at_cost,
    .units = at_units,
    .scratch_bytes = at_scratch_bytes,
    .run = at_run,
};
