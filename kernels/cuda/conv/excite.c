/* excite.c - "excite" on CUDA. */
#include "kernels/excite.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/conv/excite.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(excite, term))

extern const dvk_cuda_kernel dvk_excite_cuda;

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_excite_args *a = args;
    (void)caps;
    return (a->dtype == DVK_F16 || a->dtype == DVK_BF16) && a->c >= 1 && a->c <= DVK_EXCITE_CHANNELS &&
           a->hidden >= 1 && a->hidden <= DVK_EXCITE_HIDDEN && a->c * a->hidden <= DVK_EXCITE_WEIGHTS &&
           a->rows < INT32_MAX / DVK_EXCITE_CHANNELS && a->count % 8 == 0 && a->count < INT32_MAX;
}

/* Little more than a launch. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_excite_args *a = args;
    return TERM(launch) + TERM(row) * (double)a->rows * (double)a->c / DVK_EXCITE_BLOCK;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_excite_args *a = args;
    dvk_excite_params p = {.sums = a->sums,
                           .w_in = a->w_in,
                           .b_in = a->b_in,
                           .w_out = a->w_out,
                           .b_out = a->b_out,
                           .scale = a->scale,
                           .w = a->w,
                           .channel = a->channel,
                           .scaled = a->scaled,
                           .inverse = (float)(1.0 / (double)a->pixels),
                           .rows = (int32_t)a->rows,
                           .c = (int32_t)a->c,
                           .hidden = (int32_t)a->hidden,
                           .pieces = (int32_t)(a->count / 8)};
    const int32_t blocks = (p.pieces + DVK_EXCITE_BLOCK - 1) / DVK_EXCITE_BLOCK;
    void *list[] = {&p};
    const dvk_launch l = {.module = "excite",
                          .function = a->dtype == DVK_F16 ? "excite_f16" : "excite_bf16",
                          .grid = {(uint32_t)(blocks < 1                   ? 1
                                              : blocks < DVK_EXCITE_BLOCKS ? blocks
                                                                           : DVK_EXCITE_BLOCKS),
                                   1, 1},
                          .block = {DVK_EXCITE_BLOCK, 1, 1},
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    (void)scratch;
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_excite_cuda = {.op = "excite",
                                         .variant = "cuda",
                                         .sm_min = 75,
                                         .computes = DVK_COMPUTES_ANY,
                                         .supports = supports,
                                         .cost = cost,
                                         .enqueue = enqueue};
