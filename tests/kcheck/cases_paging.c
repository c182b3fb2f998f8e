/* cases_paging.c - problems for rows of sequences with paged caches: rope and rope_qkv write them, attention_kv reads
 * them. One call has sequences of several tokens and of one, as in continuous batching. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/cases_lm.h"

enum { MAX_SEQUENCES = 8 };

typedef struct paged_spec {
    int sequences;
    int64_t tokens[MAX_SEQUENCES]; /* of each in this call */
    int64_t past[MAX_SEQUENCES];
    int64_t page;
    int plain; /* no table: one sequence, position p is row p */
} paged_spec;

static const paged_spec specs[] = {
    {.sequences = 1, .tokens = {1}, .past = {0}, .page = 64},
    {.sequences = 1, .tokens = {1}, .past = {150}, .plain = 1},
    {.sequences = 1, .tokens = {7}, .past = {60}, .page = 64},
    {.sequences = 1, .tokens = {33}, .past = {200}, .plain = 1},
    {.sequences = 3, .tokens = {1, 1, 1}, .past = {5, 191, 64}, .page = 64},
    {.sequences = 4, .tokens = {1, 5, 1, 2}, .past = {127, 0, 300, 63}, .page = 128},
    {.sequences = 8, .tokens = {1, 1, 1, 1, 1, 1, 1, 1}, .past = {0, 1, 31, 32, 500, 63, 64, 65}, .page = 64},
    {.sequences = 2, .tokens = {40, 1}, .past = {30, 700}, .page = 64},
    {.sequences = 3, .tokens = {150, 1, 70}, .past = {70, 300, 0}, .page = 64},
};
enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static int64_t tokens_of(const paged_spec *s) {
    int64_t m = 0;
    for (int i = 0; i < s->sequences; i++) {
        m += s->tokens[i];
    }
    return m;
}

/* Maximum number of positions of a sequence. */
static int64_t positions_of(const paged_spec *s) {
    int64_t most = 0;
    for (int i = 0; i < s->sequences; i++) {
        const int64_t end = s->past[i] + s->tokens[i];
        most = end > most ? end : most;
    }
    return s->plain ? most + 13 : (most + s->page - 1) / s->page * s->page;
}

static int64_t cache_rows(const paged_spec *s) {
    return s->plain ? positions_of(s) : (s->sequences * positions_of(s) / s->page + 3) * s->page;
}

static int32_t *integers(kc_problem *p, int64_t count) {
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)count * sizeof(int32_t), &data);
    return (int32_t *)(void *)data;
}

/* Pages in random order; entries behind a sequence's last page are invalid. */
static void page_table(kc_problem *p, const paged_spec *s, dvk_paging *to) {
    const int64_t pages = cache_rows(s) / s->page;
    to->each = positions_of(s) / s->page;
    to->page = s->page;
    int32_t *order = integers(p, pages);
    int32_t *table = integers(p, s->sequences * to->each);
    for (int32_t i = 0; i < pages; i++) {
        const int64_t j = kc_below(&p->rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    int64_t next = 0;
    for (int i = 0; i < s->sequences; i++) {
        const int64_t used = (s->past[i] + s->tokens[i] + s->page - 1) / s->page;
        for (int64_t j = 0; j < to->each; j++) {
            table[i * to->each + j] = j < used ? order[next++] : INT32_MIN;
        }
    }
    to->table = table;
}

static dvk_paging paging_of(kc_problem *p, const paged_spec *s) {
    dvk_paging to = {0};
    const int64_t m = tokens_of(s);
    int32_t *position = integers(p, m);
    int32_t *sequence = s->sequences > 1 ? integers(p, m) : NULL;
    for (int32_t i = 0, row = 0; i < s->sequences; i++) {
        for (int32_t j = 0; j < s->tokens[i]; j++, row++) {
            position[row] = (int32_t)s->past[i] + j;
            if (sequence != NULL) {
                sequence[row] = i;
            }
        }
    }
    to.position = position;
    to.sequence = sequence;
    if (!s->plain) {
        page_table(p, s, &to);
    }
    return to;
}

static void describe(kc_problem *p, const paged_spec *s, const char *what) {
    const size_t used = strlen(p->text);
    snprintf(p->text + used, sizeof p->text - used, "%s %lld rows of %d sequences, the first at %lld, pages of %lld",
             what, (long long)tokens_of(s), s->sequences, (long long)s->past[0], (long long)s->page);
}

/* A cache, heads or positions first. */
static dvk_view cache(kc_problem *p, dvk_rows *rows, dvk_dtype t, int64_t positions, kc_rows_shape shape, int slab) {
    const int heads_first = slab % 2 == 0;
    const kc_rows_shape lies = {heads_first ? shape.heads : positions, heads_first ? positions : shape.heads,
                                shape.dim};
    const dvk_view v = kc_rows(p, rows, t, lies, slab, KC_NORMAL);
    if (heads_first) {
        *rows = (dvk_rows){.data = rows->data, .form = rows->form, .row = rows->head, .head = rows->row};
    }
    return v;
}

static const dvk_dtype dtypes[3] = {DVK_F16, DVK_F32, DVK_BF16};

static const struct { int64_t heads, kv_heads, dim; } heads[] = {{9, 3, 64}, {16, 2, 128}, {4, 4, 80}, {2, 1, 40}};
enum { N_HEADS = (int)(sizeof heads / sizeof heads[0]) };

static int rope_count(void) {
    return N_SPECS * N_HEADS;
}

static void rope_build(kc_problem *p, int i) {
    const paged_spec *s = &specs[i % N_SPECS];
    const int variety = i / N_SPECS;
    dvk_rope_args *a = &p->args.rope;
    const kc_rows_shape shape = {tokens_of(s), heads[variety].kv_heads, heads[variety].dim};
    *a = (dvk_rope_args){.m = shape.m, .heads = shape.heads, .dim = shape.dim};
    a->pairs = variety == 3 ? 0 : shape.dim / 2;
    a->interleaved = variety == 2;
    a->to = paging_of(p, s);
    a->cs = kc_turns(p, a->m, a->pairs);
    kc_rows(p, &a->x, DVK_F32, shape, i % 2, KC_NORMAL);
    const dvk_view y = cache(p, &a->y, dtypes[(variety + i) % 3], cache_rows(s), shape, i / 2);
    kc_output_view(p, &y);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(shape.m * shape.heads * shape.dim) * 6.0;
    describe(p, s, "paged,");
}

static void rope_qkv_build(kc_problem *p, int i) {
    const paged_spec *s = &specs[i % N_SPECS];
    const int variety = i / N_SPECS;
    dvk_rope_qkv_args *a = &p->args.rope_qkv;
    const int64_t m = tokens_of(s);
    const int64_t dim = heads[variety].dim;
    const kc_rows_shape all = {m, heads[variety].heads + 2 * heads[variety].kv_heads, dim};
    *a = (dvk_rope_qkv_args){
        .m = m, .heads = heads[variety].heads, .kv_heads = heads[variety].kv_heads, .dim = dim, .pairs = dim / 2};
    a->interleaved = variety == 2;
    a->to = paging_of(p, s);
    a->cs = kc_turns(p, m, a->pairs);
    kc_rows(p, &a->q, i % 3 == 2 ? DVK_BF16 : DVK_F32, all, i % 2, KC_NORMAL);
    const int64_t size = (int64_t)dvk_dtype_size((dvk_dtype)a->q.form);
    a->k = a->v = a->q;
    a->k.data = (unsigned char *)a->q.data + a->heads * a->q.head * size;
    a->v.data = (unsigned char *)a->k.data + a->kv_heads * a->q.head * size;
    const dvk_view q =
        kc_rows(p, &a->q_to, i % 4 == 1 ? DVK_F16 : DVK_F32, (kc_rows_shape){m, a->heads, dim}, i % 2, KC_UNIFORM);
    const kc_rows_shape shape = {m, a->kv_heads, dim};
    const dvk_dtype stored = dtypes[(variety + i) % 3];
    const dvk_view k = cache(p, &a->k_to, stored, cache_rows(s), shape, i / 2);
    const dvk_view v = cache(p, &a->v_to, stored, cache_rows(s), shape, i / 2);
    kc_output_view(p, &q);
    kc_output_view(p, &k);
    kc_output_view(p, &v);
    p->error_class = KC_POINTWISE;
    p->bytes = (double)(m * all.heads * dim) * 6.0;
    describe(p, s, "paged,");
}

static int kv_count(void) {
    return N_SPECS * N_HEADS * 2;
}

static void kv_build(kc_problem *p, int i) {
    const paged_spec *s = &specs[i % N_SPECS];
    const int variety = i / N_SPECS;
    dvk_attention_kv_args *a = &p->args.attention_kv;
    const int64_t m = tokens_of(s);
    *a = (dvk_attention_kv_args){.m = m, .keys = positions_of(s), .causal = 1};
    a->heads = heads[variety % N_HEADS].heads;
    a->kv_heads = heads[variety % N_HEADS].kv_heads;
    a->dim = heads[variety % N_HEADS].dim;
    a->window = variety % 5 == 4 ? 33 : 0;
    a->scale = 1.0f / sqrtf((float)a->dim);
    a->in = paging_of(p, s);
    const kc_rows_shape shape = {m, a->kv_heads, a->dim};
    const dvk_dtype stored = dtypes[(variety + i) % 3];
    const dvk_dtype t = variety % 4 == 1 && stored != DVK_F32 ? stored : DVK_F32;
    kc_rows(p, &a->q, t, (kc_rows_shape){m, a->heads, a->dim}, i % 2, KC_NORMAL);
    cache(p, &a->k, stored, cache_rows(s), shape, i / 2);
    cache(p, &a->v, stored, cache_rows(s), shape, i / 2);
    const dvk_view y = kc_rows(p, &a->y, t, (kc_rows_shape){m, a->heads, a->dim}, i % 2, KC_UNIFORM);
    kc_output_view(p, &y);
    p->error_class = KC_SOFTMAX;
    p->flops = 4.0 * (double)(a->heads * a->dim * m) * (double)a->keys;
    snprintf(p->text, sizeof p->text, "heads %lld/%lld dim %lld %s cache %s window %lld ", (long long)a->heads,
             (long long)a->kv_heads, (long long)a->dim, kc_dtype_name(t), kc_dtype_name(stored), (long long)a->window);
    describe(p, s, "");
}

/* One row of a sequence. */
static const paged_spec alone[] = {
    {.sequences = 1, .tokens = {1}, .past = {0}, .page = 64},
    {.sequences = 1, .tokens = {1}, .past = {32}, .plain = 1},
    {.sequences = 1, .tokens = {1}, .past = {150}, .plain = 1},
    {.sequences = 1, .tokens = {1}, .past = {1023}, .plain = 1},
    {.sequences = 1, .tokens = {1}, .past = {1100}, .page = 64},
    {.sequences = 3, .tokens = {1, 1, 1}, .past = {5, 191, 64}, .page = 64},
    {.sequences = 8, .tokens = {1, 1, 1, 1, 1, 1, 1, 1}, .past = {0, 1, 31, 32, 500, 63, 64, 65}, .page = 64},
    {.sequences = 2, .tokens = {1, 1}, .past = {1300, 127}, .page = 128},
};
static const struct {
    int64_t heads, kv_heads, dim;
} groups[] = {{9, 3, 64}, {16, 2, 128}, {4, 4, 64}, {24, 2, 128}, {8, 8, 128}, {10, 1, 64}};
enum { N_ALONE = (int)(sizeof alone / sizeof alone[0]), N_GROUPS = (int)(sizeof groups / sizeof groups[0]) };

static int new_count(void) {
    return N_ALONE * N_GROUPS * 2;
}

static void new_make(kc_problem *p, dvk_attention_new_args *n, const paged_spec *s, int variety, int i) {
    const int64_t m = tokens_of(s);
    *n = (dvk_attention_new_args){.a = {.m = m, .keys = positions_of(s), .causal = 1}, .inverse = i % 7 == 3};
    dvk_attention_kv_args *a = &n->a;
    a->heads = groups[variety].heads;
    a->kv_heads = groups[variety].kv_heads;
    a->dim = groups[variety].dim;
    a->window = i % 5 == 4 ? 33 : 0;
    a->scale = 1.0f / sqrtf((float)a->dim);
    a->in = paging_of(p, s);
    n->pairs = a->dim / 2;
    n->cs = kc_turns(p, m, n->pairs);
    kc_rows(p, &a->q, DVK_F32, (kc_rows_shape){m, a->heads + 2 * a->kv_heads, a->dim}, 0, KC_NORMAL);
    n->k = n->v = a->q;
    n->k.data = (float *)a->q.data + a->heads * a->q.head;
    n->v.data = (float *)n->k.data + a->kv_heads * a->q.head;
    const kc_rows_shape shape = {m, a->kv_heads, a->dim};
    const dvk_dtype stored = i % 2 == 0 ? DVK_F16 : DVK_BF16;
    const dvk_view k = cache(p, &a->k, stored, cache_rows(s), shape, 2 * (i / 2 % 2));
    const dvk_view v = cache(p, &a->v, stored, cache_rows(s), shape, 2 * (i / 2 % 2));
    kc_output_view(p, &k);
    kc_output_view(p, &v);
    p->error_class = KC_SOFTMAX;
    p->flops = 4.0 * (double)(a->heads * a->dim * m) * (double)a->keys;
    snprintf(p->text, sizeof p->text, "heads %lld/%lld dim %lld cache %s window %lld ", (long long)a->heads,
             (long long)a->kv_heads, (long long)a->dim, kc_dtype_name(stored), (long long)a->window);
    describe(p, s, "");
}

static void new_mixed(kc_problem *p, const paged_spec *s, int variety, int i) {
    dvk_attention_kv_args *a = &p->args.attention_new.a;
    new_make(p, &p->args.attention_new, s, variety, i);
    const dvk_view y = kc_rows(p, &a->y, DVK_F32, (kc_rows_shape){a->m, a->heads, a->dim}, i % 2, KC_UNIFORM);
    kc_output_view(p, &y);
}

static void new_build(kc_problem *p, int i) {
    new_mixed(p, &alone[i % N_ALONE], i / N_ALONE % N_GROUPS, i + i / N_ALONE / N_GROUPS);
}

/* A step of SmolVLM-256M and Qwen2.5-VL-3B after few and after many tokens. */
static int new_bench_count(void) {
    return 6;
}

static void new_bench_build(kc_problem *p, int i) {
    static const int64_t past[3] = {40, 300, 1200};
    const paged_spec s = {.sequences = 1, .tokens = {1}, .past = {past[i / 2]}, .plain = 1};
    new_mixed(p, &s, i % 2, 0);
    p->args.attention_new.a.window = 0;
}

/* ---- attention_out ---- */

enum { N_ONE = 5 /* of `alone`, with one row */, N_OUTS = 4 };

static void out_make(kc_problem *p, const paged_spec *s, int variety, int64_t n, int i) {
    dvk_attention_out_args *a = &p->args.attention_out;
    new_make(p, &a->of, s, variety, i);
    a->n = n;
    a->type = i / 2 % 2 == 0 ? DVK_W_BF16 : DVK_W_F16;
    a->parts = kc_floats(p, a->of.a.kv_heads * n, -1.0f, 1.0f);
    kc_output_floats(p, a->parts, a->of.a.kv_heads * n, 1);
    p->w_source = kc_weights(p, a->type, n, a->of.a.heads * a->of.a.dim);
    p->w_slot = &a->w;
    const size_t used = strlen(p->text);
    snprintf(p->text + used, sizeof p->text - used, " W %lld %s", (long long)n, kc_wtype_name(a->type));
}

static int out_count(void) {
    return N_ONE * N_GROUPS * N_OUTS;
}

static void out_build(kc_problem *p, int i) {
    static const int64_t sizes[N_OUTS] = {576, 100, 960, 7};
    const int variety = i / N_ONE % N_GROUPS;
    out_make(p, &alone[i % N_ONE], variety, sizes[i / N_ONE / N_GROUPS], i + variety);
}

static int out_bench_count(void) {
    return 3;
}

static void out_bench_build(kc_problem *p, int i) {
    static const int64_t past[3] = {40, 300, 1200};
    const paged_spec s = {.sequences = 1, .tokens = {1}, .past = {past[i]}, .plain = 1};
    out_make(p, &s, 0, 576, 0);
    p->args.attention_out.of.a.window = 0;
}

static int no_benches(void) {
    return 0;
}

const kc_suite kc_suite_paged_rope = {"rope", rope_count, rope_build, no_benches, NULL, 0, 35};
const kc_suite kc_suite_rope_qkv = {"rope_qkv", rope_count, rope_qkv_build, rope_count, rope_qkv_build, 0, 33};
const kc_suite kc_suite_paged_attention_kv = {"attention_kv", kv_count, kv_build, no_benches, NULL, 0, 36};
const kc_suite kc_suite_attention_out = {"attention_out", out_count, out_build, out_bench_count,
                                         out_bench_build, 1,         61};
const kc_suite kc_suite_attention_new = {"attention_new", new_count, new_build, new_bench_count,
                                         new_bench_build, 1,         37};
