/* test_lm_block.c - a real transformer block (SmolLM2-135M, block 0, Q4_1, if DAVY_SHARED has it) built from the ops of lm.h.
 * It runs with the reference kernels, and with this machine's fastest kernels and activations in f32, bf16 and q8. The test
 * compares it with the reference's hidden state. */
#include <math.h>

#include "core/base/os.h"
#include "core/base/pool.h"
#include "core/exec/steps.h"
#include "kernels/dtype.h"
#include "kernels/lm.h"
#include "tests/lib/file_check.h"
#include "tests/lib/distance.h"

enum { TOKENS = 37, WIDTH = 576, HEADS = 9, KV = 3, HEAD = 64, FFN = 1536, MAX = 16 };

typedef struct tensors {
    dv_tensors *gguf, *ref;
} tensors;

typedef struct run {
    const tensors *files;
    bool plain; /* references only */
    dvk_form form;
    dv_parallel_step list[MAX];
    union {
        dvk_linear_args linear;
        dvk_row_norm_args norm;
        dvk_row_convert_args convert;
        dvk_rope_args rope;
        dvk_attention_kv_args attention;
    } args[MAX];
    void *owned[64];
    int n, n_owned;
} run;

static dv_tensors *open_shared(const char *name) {
    const char *root = getenv("DAVY_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/smollm2/%s", root != NULL ? root : "../shared", name);
    dv_tensors *t = NULL;
    if (dv_path_stat(path) != DV_PATH_NONE) {
        CHECK_OK(dv_tensors_open_path(path, true, NULL, &t));
    }
    return t;
}

static void *memory(run *r, int64_t bytes) {
    void *p = dv_aligned_alloc((uint64_t)bytes, 64);
    if (p == NULL) {
        abort();
    }
    memset(p, 0, (size_t)bytes);
    r->owned[r->n_owned++] = p;
    return p;
}

static dvk_rows rows(run *r, dvk_form form, int64_t k) {
    const int64_t row = form == DVK_ROWS_Q8 ? k / DVK_Q8_ELEMENTS : k;
    const int64_t size = form == DVK_ROWS_Q8 ? (int64_t)sizeof(dvk_q8) : 4;
    return (dvk_rows){.data = memory(r, TOKENS * row * size), .form = form, .row = row, .head = HEAD};
}

static void *values(run *r, dv_tensors *t, const char *name) {
    const dv_tensor_ref *ref = dv_tensors_find(t, name);
    if (!CHECKF(ref != NULL, "%s is missing", name)) {
        abort();
    }
    float *to = memory(r, dv_tensor_elements(ref) * 4);
    CHECK_OK(dv_tensor_read_f32(ref, to));
    return to;
}

static void add(run *r, const char *op, const void *args, size_t bytes) {
    memcpy(&r->args[r->n], args, bytes);
    const dvk_kernel *k = r->plain ? dvk_find(op, "ref") : dvk_choose(op, &r->args[r->n], dvk_cpu_detect(), DVK_BF16);
    r->list[r->n] = (dv_parallel_step){.kernel = k, .args = &r->args[r->n], .alone = strncmp(op, "row", 3) == 0};
    r->n++;
}

/* Joins the named weights and packs them for the kernel. */
static void add_linear(run *r, dvk_linear_args a, const char *const *names) {
    unsigned char *plain = memory(r, a.n * (a.glu ? 2 : 1) * dvk_row_bytes(DVK_W_Q4_1, a.k));
    unsigned char *to = plain;
    for (; *names != NULL; names++) {
        const dv_tensor_ref *ref = dv_tensors_find(r->files->gguf, *names);
        const void *view = NULL;
        void *owned = NULL;
        if (!CHECKF(ref != NULL, "%s is missing", *names)) {
            abort();
        }
        CHECK_OK(dv_source_view(ref->source, ref->offset, ref->bytes, &view, &owned));
        memcpy(to, view, (size_t)ref->bytes);
        to += ref->bytes;
        dv_free(owned);
    }
    a.m = TOKENS;
    a.type = DVK_W_Q4_1;
    a.w = plain;
    add(r, "linear", &a, sizeof a);
    const dvk_kernel *k = r->list[r->n - 1].kernel;
    if (k->pack != NULL) {
        void *packed = memory(r, (int64_t)k->packed_bytes(&a));
        k->pack(&a, (const float *)(const void *)plain, packed, 0, k->pack_units(&a));
        r->args[r->n - 1].linear.w = packed;
    }
}

static void add_norm(run *r, dvk_rows x, dvk_rows y, const char *weight) {
    const dvk_row_norm_args a = {
        .x = x, .y = y, .w = values(r, r->files->gguf, weight), .m = TOKENS, .heads = 1, .dim = WIDTH, .eps = 1e-5f};
    add(r, "row_norm", &a, sizeof a);
}

static dvk_rows convert(run *r, dvk_rows x, int64_t dim) {
    if (x.form == r->form) {
        return x;
    }
    const dvk_row_convert_args a = {.x = x, .y = rows(r, r->form, dim), .m = TOKENS, .heads = 1, .dim = dim};
    add(r, "row_convert", &a, sizeof a);
    return a.y;
}

/* GGUF permutes the rows of q and k, so that rotation is of neighbours. */
static void add_attention(run *r, dvk_rows qkv, dvk_rows mixed) {
    float *freq = memory(r, HEAD / 2 * 4);
    int32_t *pos = memory(r, TOKENS * 4);
    for (int i = 0; i < HEAD / 2; i++) {
        freq[i] = (float)pow(1e5, -2.0 * i / HEAD);
    }
    for (int i = 0; i < TOKENS; i++) {
        pos[i] = i;
    }
    const dvk_rope_table_args table = {
        .pos = pos, .freq = freq, .cs = memory(r, TOKENS * HEAD * 4), .m = TOKENS, .pairs = HEAD / 2, .axes = 1};
    dvk_find("rope_table", "ref")->run(&table, 0, TOKENS, NULL);
    const dvk_rope_args rope = {.x = qkv,
                                .y = qkv,
                                .cs = table.cs,
                                .m = TOKENS,
                                .heads = HEADS + KV, /* of q and of k */
                                .dim = HEAD,
                                .pairs = HEAD / 2,
                                .interleaved = 1};
    add(r, "rope", &rope, sizeof rope);
    dvk_attention_kv_args a = {.q = qkv, .k = qkv, .v = qkv, .y = mixed, .m = TOKENS, .keys = TOKENS, .heads = HEADS};
    a.k.data = (float *)qkv.data + HEADS * HEAD;
    a.v.data = (float *)qkv.data + (HEADS + KV) * HEAD;
    a.kv_heads = KV;
    a.dim = HEAD;
    a.scale = 0.125f;
    a.causal = 1;
    add(r, "attention_kv", &a, sizeof a);
}

static void test_block(const tensors *files, dv_pool *pool, bool plain, dvk_form form, double bound) {
    run *r = calloc(1, sizeof *r);
    *r = (run){.files = files, .plain = plain, .form = form};
    const dvk_rows x = {.data = values(r, files->ref, "embed"), .form = DVK_ROWS_F32, .row = WIDTH, .head = HEAD};
    const dvk_rows normed = rows(r, form, WIDTH);
    const dvk_rows qkv = rows(r, DVK_ROWS_F32, (HEADS + 2 * KV) * HEAD);
    const dvk_rows mixed = rows(r, DVK_ROWS_F32, WIDTH);
    const dvk_rows hidden = rows(r, DVK_ROWS_F32, FFN);
    add_norm(r, x, normed, "blk.0.attn_norm.weight");
    add_linear(r, (dvk_linear_args){.x = normed, .y = qkv, .n = (HEADS + 2 * KV) * HEAD, .k = WIDTH},
               (const char *const[]){"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", NULL});
    add_attention(r, qkv, mixed);
    add_linear(r, (dvk_linear_args){.x = convert(r, mixed, WIDTH), .y = x, .res = x, .n = WIDTH, .k = WIDTH},
               (const char *const[]){"blk.0.attn_output.weight", NULL});
    add_norm(r, x, normed, "blk.0.ffn_norm.weight");
    add_linear(r, (dvk_linear_args){.x = normed, .y = hidden, .n = FFN, .k = WIDTH, .glu = 1, .act = DVK_GATE_SILU},
               (const char *const[]){"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", NULL});
    add_linear(r, (dvk_linear_args){.x = convert(r, hidden, FFN), .y = x, .res = x, .n = WIDTH, .k = FFN},
               (const char *const[]){"blk.0.ffn_down.weight", NULL});
    dv_steps *steps = NULL;
    CHECK_OK(dv_steps_create(pool, r->list, r->n, &steps));
    CHECK_OK(dv_steps_run(steps));
    const double error = relative_distance(x.data, values(r, files->ref, "after_blk0"), TOKENS * WIDTH);
    printf("%s, activations %d: relative error %.2e\n", plain ? "references" : "kernels", (int)form, error);
    CHECKF(error <= bound, "block 0, plain %d, activations %d: relative error %g, allowed %g", plain, (int)form, error,
           bound);
    dv_steps_release(steps);
    while (r->n_owned > 0) {
        dv_aligned_free(r->owned[--r->n_owned]);
    }
    free(r);
}

int main(void) {
    tensors files = {.gguf = open_shared("SmolLM2-135M-Instruct.Q4_1.blk0.gguf")};
    files.ref = files.gguf != NULL ? open_shared("llama-blk0.ref.safetensors") : NULL;
    if (files.gguf == NULL || files.ref == NULL) {
        check_skip("models/smollm2 is not there (DAVY_SHARED)");
        return check_done();
    }
    dv_pool *pool = NULL;
    CHECK_OK(dv_pool_create(3, &pool));
    test_block(&files, pool, true, DVK_ROWS_F32, 2e-6);
    test_block(&files, pool, false, DVK_ROWS_F32, 5e-6);
    test_block(&files, pool, false, DVK_ROWS_BF16, 1e-2); /* weights and activations rounded to 8 bits of mantissa */
    test_block(&files, pool, false, DVK_ROWS_Q8, 2e-2);   /* activations as 8-bit blocks */
    dv_pool_release(pool);
    dv_tensors_release(files.ref);
    dv_tensors_release(files.gguf);
    return check_done();
}
