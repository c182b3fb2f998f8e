/* lm_step.c - the speed of a language model's kernels, with SmolLM2-135M's shape, random weights and an engine's steps: a
 * token step, the prefill, and a step of several sequences at once. It is not a test, but is built with the tests so that it
 * keeps compiling.
 * usage: lm_step [f16|bf16|q8_0|q4_0|q4_1|q4_k|q6_k] [threads] [tokens] [prefill] [context] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/pool.h"
#include "core/exec/steps.h"
#include "kernels/dtype.h"
#include "kernels/lm.h"

enum { BLOCKS = 30, WIDTH = 576, HEADS = 9, KV = 3, HEAD = 64, FFN = 1536, WORDS = 49152, CONTEXT = 2048 };
enum { SHARE = CONTEXT / DVK_FEW }; /* each sequence's part of the cache */
enum { QKV = (HEADS + 2 * KV) * HEAD, MAX_STEPS = BLOCKS * 14 + 8 };

typedef struct block { /* packed */
    void *qkv, *o, *gate_up, *down;
} block;

typedef struct model {
    dvk_wtype type, head_type;
    block blocks[BLOCKS];
    void *head;
    float *norm;     /* [WIDTH], of all */
    uint16_t *cache; /* f16 [BLOCKS][2][KV][CONTEXT][HEAD] */
} model;

/* One pass over m tokens: its activations, and the arguments that its steps point to. */
typedef struct pass {
    const model *model;
    dv_steps *steps;
    int64_t m, past;
    dvk_paging rows; /* position NULL: one sequence, after `past` */
    float *x, *cs, *logits;
    dvk_rows wide, normed, qkv, mixed, mixed_in, hidden, hidden_in;
    union {
        dvk_linear_args linear;
        dvk_row_norm_args norm;
        dvk_row_convert_args convert;
        dvk_rope_args rope;
        dvk_attention_kv_args attention;
    } args[MAX_STEPS];
    dv_parallel_step list[MAX_STEPS];
    int64_t n;
    uint32_t cpu;
    int32_t threads;
} pass;

static void *need(void *p) {
    if (p == NULL) {
        fputs("lm_step: out of memory\n", stderr);
        exit(2);
    }
    return p;
}

static uint32_t noise(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Takes memory from one block for all weights, in the order in which they are read. The system can use huge pages for it, and
 * a prefetch at the end of one matrix reads the next. */
static unsigned char *from_arena(int64_t bytes) {
    static unsigned char *arena;
    static int64_t left;
    if (arena == NULL) {
        left = (int64_t)600 << 20;
        arena = need(dv_aligned_alloc((uint64_t)left, 64));
    }
    unsigned char *piece = bytes <= left ? arena : NULL;
    arena += bytes;
    left -= bytes;
    return need(piece);
}

/* n rows of k random weights, packed. Every 32 rows are the same; this does not change a kernel's speed. */
static void *weights(dvk_wtype t, int64_t n, int64_t k, int32_t glu) {
    const int64_t bytes = dvk_row_bytes(t, k);
    const int64_t panels = dvk_panel_count(n, glu);
    unsigned char *rows = need(calloc(DVK_PANEL, (size_t)bytes));
    float *x = need(malloc((size_t)k * sizeof *x));
    for (int64_t r = 0; r < DVK_PANEL; r++) {
        unsigned char *row = rows + r * bytes;
        for (int64_t i = 0; i < k; i++) {
            x[i] = ((float)noise() / 8388608.0f - 1.0f) / sqrtf((float)k);
        }
        for (int64_t i = 0; i < k && dvk_block_elements(t) == 1; i++) {
            dvk_store(row, t == DVK_W_F16 ? DVK_F16 : t == DVK_W_BF16 ? DVK_BF16 : DVK_F32, i, x[i]);
        }
        if (t == DVK_W_Q8_0) {
            dvk_quant_q8_0(x, row, k);
        } else if (t == DVK_W_Q4_0) {
            dvk_quant_q4_0(x, row, k);
        } /* other types stay zero, because only the time is measured */
    }
    unsigned char *packed = from_arena(panels * dvk_panel_bytes(t, k));
    const void *pointers[DVK_PANEL];
    for (int64_t r = 0; r < DVK_PANEL; r++) {
        pointers[r] = rows + r * bytes;
    }
    dvk_panel_pack(t, k, pointers, packed);
    for (int64_t p = 1; p < panels; p++) {
        memcpy(packed + p * dvk_panel_bytes(t, k), packed, (size_t)dvk_panel_bytes(t, k));
    }
    free(x);
    free(rows);
    return packed;
}

static void add(pass *p, const char *op, const void *args, size_t bytes, dvk_dtype compute, bool alone) {
    memcpy(&p->args[p->n], args, bytes);
    const dvk_kernel *k = dvk_choose(op, &p->args[p->n], p->cpu, compute);
    p->list[p->n] = (dv_parallel_step){.kernel = k, .args = &p->args[p->n], .alone = alone};
    p->n++;
}

static void add_linear(pass *p, const dvk_linear_args *of, dvk_rows x, dvk_rows y) {
    dvk_linear_args a = *of;
    a.x = x;
    a.y = y;
    a.m = p->m;
    add(p, "linear", &a, sizeof a, x.form == DVK_ROWS_BF16 ? DVK_BF16 : DVK_F32, false);
}

static void add_norm(pass *p) {
    const dvk_row_norm_args a = {
        .x = p->wide, .y = p->normed, .w = p->model->norm, .m = p->m, .heads = 1, .dim = WIDTH, .eps = 1e-5f};
    add(p, "row_norm", &a, sizeof a, DVK_F32, p->m == 1);
}

/* Adds a conversion of the next product's input to the form that it needs. */
static void add_convert(pass *p, dvk_rows from, dvk_rows to, int64_t dim) {
    if (from.data != to.data) {
        const dvk_row_convert_args a = {.x = from, .y = to, .m = p->m, .heads = 1, .dim = dim};
        add(p, "row_convert", &a, sizeof a, DVK_F32, p->m == 1);
    }
}

static void add_attention(pass *p, int64_t layer) {
    const int64_t plane = (int64_t)KV * CONTEXT * HEAD;
    uint16_t *k = p->model->cache + layer * 2 * plane;
    dvk_rows part = p->qkv;
    dvk_rope_args rope = {.x = part, .y = part, .cs = p->cs, .m = p->m, .heads = HEADS, .dim = HEAD, .pairs = HEAD / 2};
    add(p, "rope", &rope, sizeof rope, DVK_F32, p->m == 1);
    for (int i = 0; i < 2; i++) {
        part.data = (float *)p->qkv.data + (HEADS + i * KV) * HEAD;
        rope.x = part;
        rope.y = (dvk_rows){.data = k + i * plane + (p->rows.position != NULL ? 0 : p->past * HEAD),
                            .form = DVK_ROWS_F16,
                            .row = HEAD,
                            .head = (int64_t)CONTEXT * HEAD};
        rope.to = p->rows;
        rope.heads = KV;
        rope.pairs = i == 0 ? HEAD / 2 : 0;
        add(p, "rope", &rope, sizeof rope, DVK_F32, p->m == 1);
    }
    const dvk_rows keys = {.data = k, .form = DVK_ROWS_F16, .row = HEAD, .head = (int64_t)CONTEXT * HEAD};
    dvk_rows values = keys;
    values.data = k + plane;
    dvk_attention_kv_args a = {.q = p->qkv, .k = keys, .v = values, .y = p->mixed, .m = p->m, .past = p->past};
    a.in = p->rows;
    a.keys = p->rows.position != NULL ? SHARE : p->past + p->m;
    a.heads = HEADS;
    a.kv_heads = KV;
    a.dim = HEAD;
    a.scale = 0.125f;
    a.causal = 1;
    add(p, "attention_kv", &a, sizeof a, DVK_F32, false);
}

static void add_block(pass *p, int64_t layer) {
    const model *m = p->model;
    const block *b = &m->blocks[layer];
    add_norm(p);
    add_linear(p, &(dvk_linear_args){.w = b->qkv, .type = m->type, .n = QKV, .k = WIDTH}, p->normed, p->qkv);
    add_attention(p, layer);
    add_convert(p, p->mixed, p->mixed_in, WIDTH);
    add_linear(p, &(dvk_linear_args){.w = b->o, .type = m->type, .n = WIDTH, .k = WIDTH, .res = p->wide}, p->mixed_in,
               p->wide);
    add_norm(p);
    add_linear(
        p, &(dvk_linear_args){.w = b->gate_up, .type = m->type, .n = FFN, .k = WIDTH, .glu = 1, .act = DVK_GATE_SILU},
        p->normed, p->hidden);
    add_convert(p, p->hidden, p->hidden_in, FFN);
    add_linear(p, &(dvk_linear_args){.w = b->down, .type = m->type, .n = WIDTH, .k = FFN, .res = p->wide}, p->hidden_in,
               p->wide);
}

static dvk_rows rows(dvk_form form, int64_t m, int64_t k) {
    const int64_t blocks = (k + DVK_Q8_ELEMENTS - 1) / DVK_Q8_ELEMENTS;
    const int64_t row = form == DVK_ROWS_Q8 ? blocks : k;
    const uint64_t bytes = (uint64_t)(m * row) * (form == DVK_ROWS_Q8 ? sizeof(dvk_q8) : 4);
    return (dvk_rows){
        .data = memset(need(dv_aligned_alloc(bytes, 64)), 0, bytes), .form = form, .row = row, .head = HEAD};
}

/* Adds the head. Its input is the last token, or each sequence's token, in the head's form. */
static void add_head(pass *p, dvk_form form) {
    dvk_rows last = p->wide;
    if (p->rows.position == NULL) {
        last.data = (float *)p->wide.data + (p->m - 1) * p->wide.row;
        p->m = 1;
    }
    p->wide = last;
    p->normed = rows(form, p->m, WIDTH);
    add_norm(p);
    const dvk_rows out = {.data = p->logits, .form = DVK_ROWS_F32, .row = WORDS};
    add_linear(p, &(dvk_linear_args){.w = p->model->head, .type = p->model->head_type, .n = WORDS, .k = WIDTH},
               p->normed, out);
}

/* Each row belongs to its own sequence with consecutive pages, after `past` tokens. */
static dvk_paging several(int64_t past) {
    static int32_t table[DVK_FEW * SHARE / DVK_PAGE], sequence[DVK_FEW], position[DVK_FEW];
    for (int32_t i = 0; i < DVK_FEW * SHARE / DVK_PAGE; i++) {
        table[i] = i;
    }
    for (int32_t i = 0; i < DVK_FEW; i++) {
        sequence[i] = i;
        position[i] = (int32_t)(past < SHARE ? past : SHARE - 1);
    }
    return (dvk_paging){table, sequence, position, SHARE / DVK_PAGE, DVK_PAGE};
}

static pass *make_pass(const model *m, dv_pool *pool, int64_t tokens, int64_t past, bool of_several) {
    pass *p = need(calloc(1, sizeof *p));
    p->model = m;
    p->m = tokens;
    p->past = past;
    p->rows = of_several ? several(past) : (dvk_paging){.position = NULL};
    p->cpu = dvk_cpu_detect();
    p->threads = dv_pool_threads(pool);
    const int integer = dvk_block_elements(m->type) > 1;
    const int pairs = !integer && tokens > 1 && !of_several && (p->cpu & DVK_CPU_AVX512BF16) != 0;
    const dvk_form in = integer ? DVK_ROWS_Q8 : pairs ? DVK_ROWS_BF16 : DVK_ROWS_F32;
    const dvk_form out = pairs ? DVK_ROWS_BF16 : DVK_ROWS_F32;
    p->wide = rows(DVK_ROWS_F32, tokens, WIDTH);
    p->normed = rows(in, tokens, WIDTH);
    p->qkv = rows(DVK_ROWS_F32, tokens, QKV);
    p->mixed = rows(out, tokens, WIDTH);
    p->mixed_in = integer ? rows(in, tokens, WIDTH) : p->mixed;
    p->hidden = rows(out, tokens, FFN);
    p->hidden_in = integer ? rows(in, tokens, FFN) : p->hidden;
    p->x = p->wide.data;
    p->cs = rows(DVK_ROWS_F32, tokens, HEAD).data;
    p->logits = rows(DVK_ROWS_F32, of_several ? tokens : 1, WORDS).data;
    for (int64_t i = 0; i < tokens * HEAD / 2; i++) {
        const float angle = (float)(past + i / (HEAD / 2)) * powf(1e5f, -(float)(i % (HEAD / 2)) * 2.0f / HEAD);
        p->cs[2 * i] = cosf(angle);
        p->cs[2 * i + 1] = sinf(angle);
    }
    for (int64_t layer = 0; layer < BLOCKS; layer++) {
        add_block(p, layer);
    }
    add_head(p, integer ? DVK_ROWS_Q8 : DVK_ROWS_F32);
    if (dv_steps_create(pool, p->list, p->n, &p->steps) != DAVY_OK) {
        exit(2);
    }
    return p;
}

/* One thread is timed by its processor time: other programs then affect only the cache. */
static double now_seconds(const pass *p) {
    struct timespec t;
    clock_gettime(p->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(pass *p, int64_t tokens) {
    for (int64_t i = 0; i < tokens * WIDTH; i++) {
        p->x[i] = (float)noise() / 8388608.0f - 1.0f;
    }
    const double t0 = now_seconds(p);
    if (dv_steps_run(p->steps) != DAVY_OK) {
        exit(2);
    }
    return now_seconds(p) - t0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *times, int runs, int64_t tokens) {
    qsort(times, (size_t)runs, sizeof *times, by_value);
    printf("  %s: best %.1f tok/s, median %.1f tok/s", what, (double)tokens / times[0],
           (double)tokens / times[runs / 2]);
}

/* Prints the time of each op of a pass, on this thread alone. */
static void by_op(pass *p) {
    void *scratch = need(dv_aligned_alloc((uint64_t)1 << 24, 64));
    static const char *const ops[] = {"row_norm", "linear", "rope", "attention_kv", "row_convert"};
    double sums[sizeof ops / sizeof ops[0]] = {0.0};
    for (int round = 0; round < 10; round++) {
        for (int64_t i = 0; i < p->n; i++) {
            const dvk_kernel *k = p->list[i].kernel;
            const double t0 = now_seconds(p);
            k->run(p->list[i].args, 0, k->units(p->list[i].args), scratch);
            const double dt = now_seconds(p) - t0;
            for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
                sums[o] += strcmp(ops[o], k->op) == 0 && round > 0 ? dt / 9.0 : 0.0;
            }
        }
    }
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
        printf("  %s %.3f ms", ops[o], 1e3 * sums[o]);
    }
    putchar('\n');
    dv_aligned_free(scratch);
}

static const struct {
    const char *name;
    dvk_wtype type;
} types[] = {{"f16", DVK_W_F16},   {"bf16", DVK_W_BF16}, {"q8_0", DVK_W_Q8_0}, {"q4_0", DVK_W_Q4_0},
             {"q4_1", DVK_W_Q4_1}, {"q4_k", DVK_W_Q4_K}, {"q6_k", DVK_W_Q6_K}, {"f32", DVK_W_F32}};

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "q4_0";
    const int threads = argc > 2 ? atoi(argv[2]) : 2;
    const int tokens = argc > 3 ? atoi(argv[3]) : 64;
    const int prefill = argc > 4 ? atoi(argv[4]) : 512;
    const int context = argc > 5 ? atoi(argv[5]) : 32;
    model m = {.type = DVK_W_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        m.type = strcmp(types[i].name, name) == 0 ? types[i].type : m.type;
    }
    /* The head of a 4-bit file is Q8_0, as converters write it. */
    m.head_type = dvk_block_elements(m.type) > 1 ? DVK_W_Q8_0 : m.type;
    for (int i = 0; i < BLOCKS; i++) {
        m.blocks[i] = (block){weights(m.type, QKV, WIDTH, 0), weights(m.type, WIDTH, WIDTH, 0),
                              weights(m.type, FFN, WIDTH, 1), weights(m.type, WIDTH, FFN, 0)};
    }
    m.head = weights(m.head_type, WORDS, WIDTH, 0);
    m.norm = rows(DVK_ROWS_F32, 1, WIDTH).data;
    for (int i = 0; i < WIDTH; i++) {
        m.norm[i] = 1.0f;
    }
    const size_t cache = (size_t)BLOCKS * 2 * KV * CONTEXT * HEAD * sizeof(uint16_t);
    m.cache = memset(need(dv_aligned_alloc(cache, 64)), 0, cache);
    dv_pool *pool = NULL;
    if (dv_pool_create(threads, &pool) != DAVY_OK) {
        return 2;
    }
    pass *step = make_pass(&m, pool, 1, context, false);
    pass *many = make_pass(&m, pool, prefill, 0, false);
    double *times = need(calloc((size_t)tokens + 1, sizeof *times));
    seconds_of(step, 1);
    for (int i = 0; i < tokens; i++) {
        times[i] = seconds_of(step, 1);
    }
    printf("davy %s, %d threads:", name, threads);
    report("decode", times, tokens, 1);
    seconds_of(many, prefill);
    for (int i = 0; i < 5; i++) {
        times[i] = seconds_of(many, prefill);
    }
    report("prefill", times, 5, prefill);
    putchar('\n');
    for (int n = 1; n <= DVK_FEW; n *= 2) {
        pass *few = make_pass(&m, pool, n, context, true);
        char what[32];
        snprintf(what, sizeof what, "%d sequences", n);
        seconds_of(few, n);
        for (int i = 0; i < tokens; i++) {
            times[i] = seconds_of(few, n);
        }
        report(what, times, tokens, n);
        putchar('\n');
    }
    if (threads == 1) {
        by_op(step);
        by_op(many);
    }
    return 0;
}
