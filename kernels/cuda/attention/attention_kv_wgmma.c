/* attention_kv_wgmma.c - host side of "attention_kv" for many queries on Hopper. Keys and values have one 16-bit type;
 * heads have any multiple of 8 up to 128 channels. Queries and results may be f32. */
#include "kernels/cuda/attention/attention_kv_wgmma.h"

#include <math.h>
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/attention/attention_kv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_kv_wgmma, term))

extern const dvk_cuda_kernel dvk_attention_kv_cuda_wgmma;

enum { ROWS = DVK_ATTENTION_KV_WGMMA_ROWS, KEYS = DVK_ATTENTION_KV_WGMMA_KEYS };

typedef struct kind { /* instantiations of attention_kv_wgmma_sm90.cu */
    int32_t dim;
    int32_t share; /* cost term: share of the tensor cores' rate */
} kind;

#define KIND(dim)                                                                                                      \
    { dim, DVK_COST(attention_kv_wgmma, dim_##dim) }
static const kind kinds[] = {KIND(64), KIND(80), KIND(96), KIND(128)};

static kind kind_of(const dvk_attention_kv_args *a) {
    int i = 0;
    while (kinds[i].dim < a->dim) {
        i++;
    }
    return kinds[i];
}

static int32_t shared_bytes(const dvk_attention_kv_args *a) {
    return DVK_ATTENTION_KV_WGMMA_SHARED(a->dim <= 64 ? 1 : 2);
}

static int rows_fit(const dvk_rows *x, int64_t heads) {
    return dvk_attention_kv_even(x, heads, 8) && x->row > 0 && (heads == 1 || x->head > 0) && x->head % 8 == 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    return (a->k.form == DVK_ROWS_F16 || a->k.form == DVK_ROWS_BF16) && a->v.form == a->k.form &&
           dvk_attention_kv_fits(a) && a->dim <= 128 && a->dim % 8 == 0 && a->scale > 0.0f &&
           rows_fit(&a->k, a->kv_heads) && rows_fit(&a->v, a->kv_heads) && dvk_attention_kv_even(&a->y, a->heads, 2) &&
           (a->m + ROWS - 1) / ROWS < 65536 && shared_bytes(a) <= caps->shared_bytes;
}

static int64_t blocks_of(const dvk_attention_kv_args *a) {
    return (a->m + ROWS - 1) / ROWS;
}

/* Prologue and epilogue of a block have a fixed cost, which is higher if the block searches for its windows. Blocks of
 * later queries begin first, so that causal ones end together. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const kind k = kind_of(a);
    const double flops = 4.0 * ROWS * (dvk_attention_kv_seen(a) + KEYS) * k.dim;
    const double around = a->bounds != NULL && a->n_bounds > 2 ? TERM(block_windows) : TERM(block);
    const double block = around + flops / (1e3 * dvk_cuda_cost(caps, k.share) * caps->tensor_tflops / caps->processors);
    const double waves = (double)(blocks_of(a) * a->heads) / caps->processors;
    return TERM(launch) + block * (a->causal && waves > 1.0 ? waves : ceil(waves));
}

static int map_of(dvk_queue *q, const dvk_attention_kv_args *a, const dvk_rows *x, dvk_tensor_map *out) {
    const dvk_tensor_map_desc d = {.data = x->data,
                                   .dtype = (dvk_dtype)x->form,
                                   .rank = 3,
                                   .size = {a->dim, a->in.table != NULL ? INT32_MAX / 2 : a->keys, a->kv_heads},
                                   .stride_bytes = {x->row * 2, a->kv_heads > 1 ? x->head * 2 : x->row * 2},
                                   .box = {64, DVK_ATTENTION_KV_WGMMA_BOX, 1},
                                   .swizzle_bytes = 128};
    return q->tensor_map(q, &d, out);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_attention_kv_args *a = args;
    dvk_tensor_map maps[2];
    (void)scratch;
    int r = map_of(q, a, &a->k, &maps[0]);
    r = r != 0 ? r : map_of(q, a, &a->v, &maps[1]);
    if (r != 0) {
        return r;
    }
    dvk_attention_kv_params p = dvk_attention_kv_of(a);
    char name[48];
    snprintf(name, sizeof name, "attention_kv_wgmma_%s_%d", a->k.form == DVK_ROWS_BF16 ? "bf16" : "f16",
             (int)kind_of(a).dim);
    void *params[] = {&maps[0], &maps[1], &p};
    const dvk_launch l = {.module = "attention_kv_wgmma_sm90",
                          .function = name,
                          .grid = {(uint32_t)a->heads, (uint32_t)blocks_of(a), 1},
                          .block = {DVK_ATTENTION_KV_WGMMA_THREADS, 1, 1},
                          .shared_bytes = (uint32_t)shared_bytes(a),
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_kv_cuda_wgmma = {.op = "attention_kv",
                                                     .variant = "cuda/wgmma",
                                                     .sm_min = 90,
                                                     .sm_max = 90,
                                                     .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                     .supports = supports,
                                                     .cost = cost,
                                                     .enqueue = enqueue};
