/* vlm_kernels.c - see vlm_kernels.h. */
#include "tests/cuda/vlm_kernels.h"

typedef struct vlm_call { /* kept for the whole test: a graph may run it again */
    const char *op;
    union {
        dvk_linear_args linear;
        dvk_row_norm_args norm;
        dvk_row_convert_args convert;
        dvk_rope_table_args table;
        dvk_rope_args rope;
        dvk_rope_qkv_args qkv;
        dvk_attention_kv_args attention;
        dvk_attention_new_args fresh;
        dvk_attention_out_args out;
        dvk_gather_rows_args gather;
        dvk_add_rows_args add;
        dvk_embed_args embed;
        dvk_argmax_args argmax;
        dvk_next_token_args next;
        dvk_candidates_args candidates;
        dvk_patches_args patches;
    } a;
    struct vlm_call *next;
} vlm_call;

static vlm_call *vlm_calls;

void vlm_calls_free(void) {
    while (vlm_calls != NULL) {
        vlm_call *c = vlm_calls;
        vlm_calls = c->next;
        free(c);
    }
}

/* Rows of linear_layout.h as f32. */
static float *plain_rows(const void *w, dvk_wtype type, int64_t rows, int64_t k) {
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(type), rows, k);
    const int64_t blocks = dvk_lin_blocks(k);
    float *out = calloc((size_t)(rows * k), sizeof *out);
    for (int64_t i = 0; i < rows * k; i++) {
        const int64_t r = i / k;
        const int64_t c = i % k;
        const unsigned char *row = (const unsigned char *)w + r * l.row;
        if (l.halves == 0) {
            out[i] = dvk_load(row, type == DVK_W_F32 ? DVK_F32 : type == DVK_W_F16 ? DVK_F16 : DVK_BF16, c);
            continue;
        }
        const int64_t j = c / LIN_BLOCK;
        const int64_t at = c % LIN_BLOCK;
        const unsigned char *block = row + j * (l.row / blocks);
        const int number = !dvk_lin_nibbles(l.kind) ? block[at] : at < 16 ? block[at] & 15 : block[at - 16] >> 4;
        uint16_t heads[2][2] = {{0}};
        const int64_t in_pair = lin_in_pairs(l.kind) ? 2 : 1;
        memcpy(heads, (const unsigned char *)w + l.scales + r * l.scale_row + j / in_pair * in_pair * l.halves * 2,
               (size_t)(in_pair * l.halves) * 2);
        const lin_scales s = lin_scales_of(l.kind, (const uint16_t(*)[2])heads, j % 2 != 0);
        out[i] = s.d[at / 16] * (float)(number - lin_zero(type)) + s.min;
    }
    return out;
}

static void run_reference(const char *op, const void *args) {
    const dvk_kernel *k = dvk_find(op, "ref");
    const size_t bytes = k->scratch_bytes != NULL ? k->scratch_bytes(args) : 0;
    void *scratch = aligned_alloc(64, bytes / 64 * 64 + 64);
    k->run(args, 0, k->units(args), scratch);
    free(scratch);
}

static void vlm_run(void *argument) {
    vlm_call c = *(const vlm_call *)argument;
    float *rows = NULL;
    if (strcmp(c.op, "linear") == 0) {
        dvk_linear_args *a = &c.a.linear;
        a->w = rows = plain_rows(a->w, a->type, a->glu ? 2 * a->n : a->n, a->k);
        a->type = DVK_W_F32;
    } else if (strcmp(c.op, "embed") == 0) {
        dvk_embed_args *a = &c.a.embed;
        a->w = rows = plain_rows(a->w, a->type, a->n, a->k);
        a->type = DVK_W_F32;
    } else if (strcmp(c.op, "next_token") == 0) {
        dvk_embed_args *a = &c.a.next.embed;
        a->w = rows = plain_rows(a->w, a->type, a->n, a->k);
        a->type = DVK_W_F32;
    } else if (strcmp(c.op, "attention_out") == 0) {
        dvk_attention_out_args *a = &c.a.out;
        a->w = rows = plain_rows(a->w, a->type, a->n, a->of.a.heads * a->of.a.dim);
        a->type = DVK_W_F32;
    }
    run_reference(c.op, &c.a);
    free(rows);
}

static int vlm_enqueue(const char *op, const void *args, size_t bytes, dvk_queue *q) {
    static void (*const call)(void *argument) = vlm_run;
    vlm_call *c = calloc(1, sizeof *c);
    c->op = op;
    memcpy(&c->a, args, bytes);
    c->next = vlm_calls;
    vlm_calls = c;
    void *params[] = {(void *)(uintptr_t)&call, &c};
    const dvk_launch l = {
        .module = "alpha", .function = "host_call", .grid = {1, 1, 1}, .block = {32, 1, 1}, .params = params};
    return q->launch(q, &l);
}

#define VLM_OPS(X)                                                                                                     \
    X(linear, linear)                                                                                                  \
    X(row_norm, norm)                                                                                                  \
    X(row_convert, convert)                                                                                            \
    X(rope_table, table)                                                                                               \
    X(rope, rope)                                                                                                      \
    X(rope_qkv, qkv)                                                                                                   \
    X(attention_kv, attention)                                                                                         \
    X(attention_new, fresh)                                                                                            \
    X(attention_out, out)                                                                                              \
    X(gather_rows, gather)                                                                                             \
    X(add_rows, add)                                                                                                   \
    X(embed, embed)                                                                                                    \
    X(argmax, argmax)                                                                                                  \
    X(next_token, next)                                                                                                \
    X(candidates, candidates)                                                                                          \
    X(patches, patches)

/* A scratch size; the mock kernels do not use the memory. */
static size_t vlm_scratch(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return 1000;
}

#define VLM_ENQUEUE(name, field)                                                                                       \
    static int enqueue_##name(const void *args, void *scratch, dvk_queue *q) {                                         \
        (void)scratch;                                                                                                 \
        return vlm_enqueue(#name, args, sizeof(((vlm_call *)0)->a.field), q);                                          \
    }
#define VLM_KERNEL(name, field)                                                                                        \
    {.op = #name, .variant = "mock", .scratch_bytes = vlm_scratch, .enqueue = enqueue_##name},

VLM_OPS(VLM_ENQUEUE)

static const dvk_cuda_kernel vlm_kernels[] = {VLM_OPS(VLM_KERNEL)};

bool vlm_chooses;

const dvk_cuda_kernel *__real_dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps,
                                              uint32_t computes);

const dvk_cuda_kernel *__wrap_dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps,
                                              uint32_t computes);

const dvk_cuda_kernel *__wrap_dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps,
                                              uint32_t computes) {
    if (!vlm_chooses) {
        return __real_dvk_cuda_choose(op, args, caps, computes);
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(vlm_kernels); i++) {
        if (strcmp(vlm_kernels[i].op, op) == 0) {
            return &vlm_kernels[i];
        }
    }
    return NULL;
}
