/* elem_host.h - shared code of the host sides of the plain ops: device views, grid sizes, costs. */
#ifndef DVK_CUDA_ELEM_HOST_H
#define DVK_CUDA_ELEM_HOST_H

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/common/elem.h"
#include "kernels/dtype.h"

enum { DVK_ELEM_BLOCK = 256, DVK_ELEM_LANES = 8 };

static inline int dvk_elem_multiple(int64_t bytes) {
    return bytes % 16 == 0;
}

static inline dvk_elem_view dvk_elem_of(const dvk_view *v) {
    const int64_t size = (int64_t)dvk_dtype_size(v->dtype);
    return (dvk_elem_view){.data = v->data,
                           .sn = v->sn,
                           .sh = v->sh,
                           .sw = v->sw,
                           .dtype = (int32_t)v->dtype,
                           .vector = (uintptr_t)v->data % 16 == 0 && (v->n == 1 || dvk_elem_multiple(v->sn * size)) &&
                                     (v->h == 1 || dvk_elem_multiple(v->sh * size)) &&
                                     (v->w == 1 || dvk_elem_multiple(v->sw * size))};
}

/* `pro` NULL: none. */
static inline dvk_elem_ends dvk_elem_ends_of(const dvk_prologue *pro, const dvk_epilogue *e) {
    dvk_elem_ends r = {.scale = pro != NULL ? pro->scale : NULL,
                       .shift = pro != NULL ? pro->shift : NULL,
                       .bias = e->bias,
                       .slopes = e->act == DVK_ACT_PRELU ? e->slopes : NULL,
                       .n_res = e->n_res,
                       .pro_act = pro != NULL ? (int32_t)pro->act : 0,
                       .act = (int32_t)e->act,
                       .act_last = e->act_last,
                       .gate = e->gate,
                       .beta = {e->beta[0], e->beta[1]},
                       .alpha = e->alpha,
                       .slope = e->slope};
    for (int32_t i = 0; i < e->n_res; i++) {
        r.res[i] = dvk_elem_of(&e->res[i]);
    }
    return r;
}

static inline int32_t dvk_elem_chunks(int64_t c) {
    return (int32_t)((c + DVK_ELEM_LANES - 1) / DVK_ELEM_LANES);
}

/* 1 if the last vector of a 16-bit view's channels may be read and written whole, because the elements behind it are
 * padding (cuda.h). */
static inline int dvk_elem_whole(const dvk_view *v) {
    return v->dtype != DVK_F32 && dvk_elem_of(v).vector &&
           (v->c % DVK_ELEM_LANES == 0 || v->sw == dvk_elem_chunks(v->c) * DVK_ELEM_LANES);
}

/* 1 if the pixels of a picture are evenly spaced, also from row to row. */
static inline int dvk_elem_even(const dvk_view *v) {
    return v->h == 1 || v->sh == v->w * v->sw;
}

/* 1 if all elements are contiguous. */
static inline int dvk_elem_dense(const dvk_view *v) {
    return dvk_elem_even(v) && (v->w * v->h == 1 || v->sw == v->c) && (v->n == 1 || v->sn == v->h * v->w * v->c);
}

/* 1 if the rows, and the elements of a row, can be counted in 32 bits. */
static inline int dvk_elem_rows_fit(const dvk_view *v) {
    return v->n * v->h < INT32_MAX / 2 && v->w * v->c < INT32_MAX / 2;
}

static inline int64_t dvk_elem_count(const dvk_view *v) {
    return v->n * v->h * v->w * v->c;
}

static inline double dvk_elem_bytes(const dvk_view *v) {
    return v->data != NULL ? (double)dvk_elem_count(v) * (double)dvk_dtype_size(v->dtype) : 0.0;
}

/* Launch overhead, plus bytes at the share of the memory rate that these kernels reach. */
static inline double dvk_elem_cost(double bytes, const dvk_cuda_caps *caps) {
    return dvk_cuda_cost(caps, DVK_COST(elem, launch)) +
           bytes / (dvk_cuda_cost(caps, DVK_COST(elem, memory)) * caps->memory_gbs);
}

/* Number of blocks for `threads` threads. Blocks loop if there are more than the device can hold. */
static inline uint32_t dvk_elem_blocks(int64_t threads, int64_t others, const dvk_cuda_caps *caps) {
    const int64_t need = (threads + DVK_ELEM_BLOCK - 1) / DVK_ELEM_BLOCK;
    const int64_t fit = ((int64_t)caps->processors * 16 + others - 1) / others;
    const int64_t blocks = need < fit ? need : fit;
    return (uint32_t)(blocks > 0 ? blocks : 1);
}

static inline int dvk_elem_launch(dvk_queue *q, const char *module, const char *function, uint32_t x, int64_t y,
                                  void *params) {
    void *list[] = {params};
    const dvk_launch l = {.module = module,
                          .function = function,
                          .grid = {x, (uint32_t)y, 1},
                          .block = {DVK_ELEM_BLOCK, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

/* Launches kernels that loop over rows (ROWS_AND_ITEMS of elem.cuh), with a number of items in each row. */
static inline int dvk_elem_launch_rows(dvk_queue *q, const char *module, const char *function, int64_t items,
                                       int64_t rows, void *params) {
    const uint32_t x = dvk_elem_blocks(items, 1, q->caps);
    const int64_t fit = (int64_t)q->caps->processors * 32 / x + 1;
    return dvk_elem_launch(q, module, function, x, rows < fit ? rows : fit, params);
}

/* Defines the entry of a plain op for every device and every precision. */
#define DVK_ELEM_KERNEL(NAME, OP, SUPPORTS, COST, ENQUEUE)                                                             \
    extern const dvk_cuda_kernel NAME;                                                                                 \
    const dvk_cuda_kernel NAME = {.op = OP,                                                                            \
                                  .variant = "cuda",                                                                   \
                                  .sm_min = 75,                                                                        \
                                  .computes = DVK_COMPUTES_ANY,                                                        \
                                  .supports = SUPPORTS,                                                                \
                                  .cost = COST,                                                                        \
                                  .enqueue = ENQUEUE}

#endif
