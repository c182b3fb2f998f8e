/* rows_host.h - shared code of the host sides of the ops of lm.h: device views, launches of one grid along x. */
#ifndef DVK_CUDA_ROWS_HOST_H
#define DVK_CUDA_ROWS_HOST_H

#include "kernels/cuda/common/elem_host.h"
#include "kernels/cuda/norm/rows.h"

static inline dvk_rows_view dvk_rows_of(const dvk_rows *x, int64_t heads) {
    const int64_t size = x->form == DVK_ROWS_F32 ? 4 : 2;
    return (dvk_rows_view){.data = x->data,
                           .row = x->row,
                           .head = x->head,
                           .form = (int32_t)x->form,
                           .vector = x->form != DVK_ROWS_Q8 && (uintptr_t)x->data % (uintptr_t)(4 * size) == 0 &&
                                     x->row % 4 == 0 && (heads == 1 || x->head % 4 == 0)};
}

static inline double dvk_rows_bytes(const dvk_rows *x, int64_t values) {
    const double size = x->form == DVK_ROWS_F32  ? 4.0
                        : x->form == DVK_ROWS_Q8 ? (double)sizeof(dvk_q8) / DVK_Q8_ELEMENTS
                                                 : 2.0;
    return size * (double)values;
}

/* Launches one block per `share` of `items`. If a thread processes one item, share is the number of threads of a block. */
static inline int dvk_rows_launch(dvk_queue *q, const char *module, const char *function, int64_t items, int32_t share,
                                  int32_t threads, void *params) {
    void *list[] = {params};
    const dvk_launch l = {.module = module,
                          .function = function,
                          .grid = {(uint32_t)((items + share - 1) / share), 1, 1},
                          .block = {(uint32_t)threads, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return items > 0 ? q->launch(q, &l) : 0;
}

#endif
