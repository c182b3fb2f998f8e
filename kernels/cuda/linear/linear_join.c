/* linear_join.c - host side of split-k "linear": adds the partial sums of several blocks. */
#include "kernels/cuda/linear/linear_join.h"

enum { JOIN_BLOCK = 256 };

int dvk_linear_join_enqueue(const dvk_linear_args *a, const float *parts, int32_t shares, dvk_queue *q) {
    dvk_linear_join p = {.out = dvk_many_out(a), .parts = parts, .shares = shares, .wide = (int32_t)dvk_many_rows(a)};
    const int64_t need = dvk_many_ceil(a->m * dvk_many_ceil(a->n, 2), JOIN_BLOCK);
    const int64_t most = (int64_t)q->caps->processors * 16;
    void *params[] = {&p};
    const dvk_launch l = {.module = "linear_join",
                          .function = "linear_join",
                          .grid = {(uint32_t)(need < most ? need : most), 1, 1},
                          .block = {JOIN_BLOCK, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}
