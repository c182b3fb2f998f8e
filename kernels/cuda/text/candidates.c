/* candidates.c - host side of "candidates": the maximum of every piece, then, in one block, the bound and the values
 * that reach it. */
#include "kernels/cuda/text/candidates.h"

#include "kernels/cuda/common/elem_host.h"

static int64_t pieces_of(const dvk_candidates_args *a) {
    return (a->n + DVK_CANDIDATE_PIECE - 1) / DVK_CANDIDATE_PIECE;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_candidates_args *a = args;
    (void)caps;
    return a->n > 0 && a->least > 0 && pieces_of(a) <= DVK_CANDIDATE_PIECES && (uintptr_t)a->x % 8 == 0;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    return 3.0 * dvk_elem_cost((double)((const dvk_candidates_args *)args)->n * 4.0, caps);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return (size_t)pieces_of(args) * sizeof(uint32_t);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_candidates_args *a = args;
    const int32_t pieces = (int32_t)pieces_of(a);
    dvk_candidates_params p = {.x = a->x,
                               .tops = scratch,
                               .to = a->to,
                               .n = (int32_t)a->n,
                               .pieces = pieces,
                               .least = (int32_t)(a->least < pieces ? a->least : pieces)};
    void *list[] = {&p};
    dvk_launch l = {.module = "candidates",
                    .function = "candidates_tops",
                    .grid = {(uint32_t)(pieces + DVK_CANDIDATES_WARPS - 1) / DVK_CANDIDATES_WARPS, 1, 1},
                    .block = {DVK_CANDIDATES_WARPS * 32, 1, 1},
                    .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                    .params = list};
    const int r = q->launch(q, &l);
    l.function = "candidates_take";
    l.grid[0] = 1;
    l.block[0] = DVK_CANDIDATES_THREADS;
    return r != 0 ? r : q->launch(q, &l);
}

extern const dvk_cuda_kernel dvk_candidates_cuda;
const dvk_cuda_kernel dvk_candidates_cuda = {.op = "candidates",
                                             .variant = "cuda",
                                             .sm_min = 75,
                                             .computes = DVK_COMPUTES_ANY,
                                             .supports = supports,
                                             .cost = cost,
                                             .scratch_bytes = scratch_bytes,
                                             .enqueue = enqueue};
