/* vision_tower.h - shared parts of the vision towers: memory, patches, norms, blocks. vision_vit.c and vision_qwen.c build
 * programs from these parts and run them. */
#ifndef DV_VLM_VISION_TOWER_H
#define DV_VLM_VISION_TOWER_H

#include "core/vlm/vision.h"

typedef struct dv_resampler_space { /* GhostVis */
    float *x, *q, *kv, *mixed, *hidden;
    void *normed, *rows_in, *mixed_in, *hidden_in;
    dv_space space;
} dv_resampler_space;

typedef struct dv_tower { /* one run: `rows` patches at a time */
    const dv_vision_desc *desc;
    const dv_picture_plan *plan;
    int64_t rows;        /* rows of x */
    int64_t inputs;      /* number of these rows that are patches */
    dv_gpu_queue *queue; /* NULL: the CPU computes */
    dv_row_program program;
    dv_space space;
    float *in, *x, *qkv, *mixed, *hidden, *cs, *grouped, *projected, *out;
    void *in_narrow, *normed, *mixed_in, *hidden_in, *grouped_in, *projected_in;
    dv_resampler_space resampler;
    const dv_patches *patches;
    const int32_t *order;                 /* order of the patches in patches->bytes; NULL: unchanged */
    const int32_t *bounds, *frame_bounds; /* bounds of windows and of frames; NULL: full attention */
    int64_t n_bounds, n_frame_bounds;
    bool rotary;
} dv_tower;

davy_result dv_tower_start(dv_tower *t, int64_t rows, int64_t inputs, int64_t grouped_width, int64_t groups);
void dv_tower_clear(dv_tower *t);
/* Adds the patch embedding: patches from dv_tower_put become rows of x, plus positions (NULL: none). */
void dv_tower_patches(dv_tower *t, float *x, float *positions);
void dv_tower_norm(dv_tower *t, const dv_vlm_affine *w, dvk_rows y);
void dv_tower_block(dv_tower *t, const dv_vlm_block *b, bool whole);

/* Copies patches [first, first + n) into t->in. */
davy_result dv_tower_put(dv_tower *t, int64_t first, int64_t n);

davy_result dv_vision_vit(dv_tower *t, dv_vlm_features *out);
davy_result dv_vision_qwen(dv_tower *t, dv_vlm_features *out);

#endif
