/* vision_tower.h - what the vision towers share: memory, patches, norms, blocks. A tower's own file (vision_vit.c, vision_qwen.c)
 * puts a program together out of these parts and runs it. */
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
    int64_t rows;        /* of x */
    int64_t inputs;      /* patches among them */
    dv_gpu_queue *queue; /* of a GPU */
    dv_row_program program;
    dv_space space;
    float *in, *x, *qkv, *mixed, *hidden, *cs, *grouped, *projected, *out;
    void *in_narrow, *normed, *mixed_in, *hidden_in, *grouped_in, *projected_in;
    dv_resampler_space resampler;
    const dv_patches *patches;
    const int32_t *order;                 /* of bytes; NULL: as they lie */
    const int32_t *bounds, *frame_bounds; /* of windows and of frames; NULL: all see all */
    int64_t n_bounds, n_frame_bounds;
    bool rotary;
} dv_tower;

davy_result dv_tower_start(dv_tower *t, int64_t rows, int64_t inputs, int64_t grouped_width, int64_t groups);
void dv_tower_clear(dv_tower *t);
/* What dv_tower_put put there to rows of x, with positions added (NULL: none). */
void dv_tower_patches(dv_tower *t, float *x, float *positions);
void dv_tower_norm(dv_tower *t, const dv_vlm_affine *w, dvk_rows y);
void dv_tower_block(dv_tower *t, const dv_vlm_block *b, bool whole);

/* t->in from patch `first` on. */
davy_result dv_tower_put(dv_tower *t, int64_t first, int64_t n);

davy_result dv_vision_vit(dv_tower *t, dv_vlm_features *out);
davy_result dv_vision_qwen(dv_tower *t, dv_vlm_features *out);

#endif
