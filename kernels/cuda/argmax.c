/* argmax.c - "argmax" on CUDA. */
#include "kernels/cuda/argmax.h"

#include "kernels/cuda/elem_host.h"
#include "kernels/lm.h"

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_argmax_args *a = args;
    (void)caps;
    return a->x.form == DVK_ROWS_F32 && a->n < INT32_MAX && a->m <= 65535 && a->n_advance <= DVK_ARGMAX_BLOCKS;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_argmax_args *a = args;
    return 2.0 * dvk_elem_cost((double)(a->m * a->n) * 4.0, caps);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return (size_t)((const dvk_argmax_args *)args)->m * DVK_ARGMAX_BLOCKS * sizeof(dvk_argmax_best);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_argmax_args *a = args;
    dvk_argmax_params p = {.x = a->x.data,
                           .best = scratch,
                           .id = a->id,
                           .never = a->never,
                           .advance = a->advance,
                           .row = a->x.row,
                           .m = (int32_t)a->m,
                           .n = (int32_t)a->n,
                           .n_never = (int32_t)a->n_never,
                           .n_advance = (int32_t)a->n_advance};
    void *list[] = {&p};
    dvk_launch l = {.module = "argmax",
                    .function = "argmax_pieces",
                    .grid = {DVK_ARGMAX_BLOCKS, (uint32_t)a->m, 1},
                    .block = {DVK_ARGMAX_THREADS, 1, 1},
                    .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                    .params = list};
    const int r = a->m > 0 ? q->launch(q, &l) : 0;
    l.function = "argmax_last";
    l.grid[0] = (uint32_t)a->m;
    l.grid[1] = 1;
    l.block[0] = DVK_ARGMAX_BLOCKS;
    return r != 0 || a->m == 0 ? r : q->launch(q, &l);
}

const dvk_cuda_kernel dvk_argmax_cuda = {.op = "argmax",
                                         .variant = "cuda",
                                         .sm_min = 75,
                                         .computes = DVK_COMPUTES_ANY,
                                         .supports = supports,
                                         .cost = cost,
                                         .scratch_bytes = scratch_bytes,
                                         .enqueue = enqueue};
