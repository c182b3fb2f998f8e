/* conv_made_host.h - the host side of what conv_made.cuh does: which pictures, and tiles of the 3 x 3. */
#ifndef DVK_CUDA_CONV_MADE_HOST_H
#define DVK_CUDA_CONV_MADE_HOST_H

#include "kernels/cuda/conv_wgmma_host.h"

enum { DVK_MADE_CHANNELS = 64 }; /* of the result, at most */

static inline int made_fits(const dvk_view *x, const dvk_view *y) {
    return y->c <= DVK_MADE_CHANNELS && x->n == y->n && y->h >= 1 && y->w >= 1 && x->dtype == y->dtype && vectored(x) &&
           mappable(y) && ends_alone(y) && y->n * y->h * y->w < INT32_MAX / 8;
}

static inline int64_t made_jobs(const dvk_view *y) {
    return blocks_of(y->n * blocks_of(y->h, DVK_WGMMA_TILE_H) * blocks_of(y->w, DVK_WGMMA_TILE_W), 2);
}

static inline void made_fill(dvk_conv_wgmma *of, const dvk_view *x, const dvk_view *y, int32_t entries) {
    memset(of, 0, sizeof *of);
    of->from = view_of(x);
    of->epi = (dvk_conv_epi){
        .y = view_of(y), .alpha = 1.0f, .act = (int32_t)DVK_ACT_LRELU, .shuffle = 1, .c_out = (int32_t)y->c, .step = 1};
    of->epilogue = (int32_t)DVK_WGMMA_SLOPE;
    of->c_in = (int32_t)x->c;
    of->n = (int32_t)y->n;
    of->in_h = (int32_t)x->h;
    of->in_w = (int32_t)x->w;
    of->out_h = (int32_t)y->h;
    of->out_w = (int32_t)y->w;
    of->tiles_x = (int32_t)blocks_of(of->out_w, DVK_WGMMA_TILE_W);
    of->tiles_y = (int32_t)blocks_of(of->out_h, DVK_WGMMA_TILE_H);
    of->blocks = of->phases = of->split = 1;
    of->jobs = (int32_t)made_jobs(y);
    of->entries = entries;
    of->entry_bytes = DVK_WGMMA_PIECE;
}

static inline int made_launch(dvk_queue *q, const char *module, const char *function, const dvk_conv_wgmma *of,
                              uint32_t shared_bytes, void *params) {
    void *list[] = {params};
    const dvk_launch l = {.module = module,
                          .function = function,
                          .grid = {(uint32_t)least(of->jobs, q->caps->processors), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .shared_bytes = shared_bytes,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

#endif
