/* argmax_host.h - shared code of the host sides of "argmax" and "next_token". */
#ifndef DVK_CUDA_ARGMAX_HOST_H
#define DVK_CUDA_ARGMAX_HOST_H

#include "kernels/cuda/text/argmax.h"
#include "kernels/cuda/cuda.h"
#include "kernels/lm.h"

static inline int dvk_argmax_fits(const dvk_argmax_args *a) {
    return a->x.form == DVK_ROWS_F32 && a->n < INT32_MAX && a->m <= 65535 && a->n_advance <= DVK_ARGMAX_THREADS;
}

static inline dvk_argmax_params dvk_argmax_of(const dvk_argmax_args *a, void *best) {
    return (dvk_argmax_params){.x = a->x.data,
                               .best = best,
                               .id = a->id,
                               .never = a->never,
                               .advance = a->advance,
                               .row = a->x.row,
                               .m = (int32_t)a->m,
                               .n = (int32_t)a->n,
                               .n_never = (int32_t)a->n_never,
                               .n_advance = (int32_t)a->n_advance};
}

static inline dvk_launch dvk_argmax_pieces(const dvk_argmax_args *a, void **params, const dvk_queue *q) {
    return (dvk_launch){.module = "argmax",
                        .function = "argmax_pieces",
                        .grid = {DVK_ARGMAX_BLOCKS, (uint32_t)a->m, 1},
                        .block = {DVK_ARGMAX_THREADS, 1, 1},
                        .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                        .params = params};
}

#endif
