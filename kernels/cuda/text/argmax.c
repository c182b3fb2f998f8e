/* argmax.c - "argmax" on CUDA. */
#include "kernels/cuda/text/argmax_host.h"
#include "kernels/cuda/common/elem_host.h"

static int supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_argmax_fits(args);
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
    dvk_argmax_params p = dvk_argmax_of(a, scratch);
    void *list[] = {&p};
    dvk_launch l = dvk_argmax_pieces(a, list, q);
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
