/* attention_kv_simt.c - host side of "attention_kv" in f32 for all cases that the faster kernels do not support. */
#include <math.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/attention/attention_kv_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(attention_kv_simt, term))

extern const dvk_cuda_kernel dvk_attention_kv_cuda_simt;

static int supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_attention_kv_fits(args);
}

static int slabs_of(const dvk_attention_kv_args *a) {
    return a->dim <= 64 ? 1 : a->dim <= 128 ? 2 : a->dim <= 256 ? 4 : 8;
}

static int64_t blocks_of(const dvk_attention_kv_args *a) {
    return (a->m + DVK_ATTENTION_KV_SIMT_ROWS - 1) / DVK_ATTENTION_KV_SIMT_ROWS;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_attention_kv_args *a = args;
    const double flops = 4.0 * DVK_ATTENTION_KV_SIMT_ROWS * dvk_attention_kv_seen(a) * slabs_of(a) * 64.0;
    const double block = flops / (1e3 * TERM(simt) * caps->simt_tflops / caps->processors);
    return TERM(launch) + block * ceil((double)(blocks_of(a) * a->heads) / caps->processors);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    static const char *const names[] = {"attention_kv_simt_1", "attention_kv_simt_2", "attention_kv_simt_4",
                                        "attention_kv_simt_8"};
    const dvk_attention_kv_args *a = args;
    const int slabs = slabs_of(a);
    (void)scratch;
    dvk_attention_kv_params p = dvk_attention_kv_of(a);
    void *params[] = {&p};
    const dvk_launch l = {.module = "attention_kv_simt",
                          .function = names[slabs == 8 ? 3 : slabs / 2],
                          .grid = {(uint32_t)blocks_of(a), (uint32_t)a->heads, 1},
                          .block = {DVK_ATTENTION_KV_SIMT_THREADS, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_attention_kv_cuda_simt = {.op = "attention_kv",
                                                    .variant = "cuda/simt",
                                                    .sm_min = 75,
                                                    .computes = DVK_COMPUTES_ANY,
                                                    .supports = supports,
                                                    .cost = cost,
                                                    .enqueue = enqueue};
