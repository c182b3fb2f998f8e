/* vision.h - from a picture's patches to the vectors that take the place of its tokens. */
#ifndef DV_VLM_VISION_H
#define DV_VLM_VISION_H

#include "core/vlm/picture.h"
#include "core/vlm/positions.h"
#include "core/vlm/row_program.h"

typedef struct dv_vlm_features {       /* on a GPU in its memory */
    float *vectors;                    /* [tokens][hidden of the language model] */
    float *deep[DV_VLM_MAX_DEEPSTACK]; /* the same of what is added behind layer k (Qwen3) */
    int64_t tokens;
    int64_t t, h, w; /* of the tokens, as a span of positions; t 0: one position after the other */
    dv_space space;
} dv_vlm_features;

typedef struct dv_vision_desc {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    dv_heap *heap;
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU */
    uint32_t cpu;
    dvk_dtype compute;
    int32_t (*cancel)(void *user); /* asked between tiles and between blocks; NULL: never */
    void *user;
} dv_vision_desc;

typedef struct dv_patches { /* without fold_still; one of the two */
    const float *numbers;   /* of dv_picture_prepare */
    const uint8_t *bytes;   /* of dv_picture_bytes, where dv_vision_takes_bytes */
    const float (*table)[256];
} dv_patches;

bool dv_vision_takes_bytes(const dv_vlm_weights *weights);
/* Free with dv_vision_free. */
davy_result dv_vision_run(const dv_vision_desc *desc, const dv_picture_plan *plan, const dv_patches *patches,
                          dv_vlm_features *out);
void dv_vision_free(dv_vlm_features *f);
/* `n` numbers of one of f's arrays to the host. */
davy_result dv_vision_read(const dv_vlm_features *f, const float *from, int64_t n, float *to);

/* ---- parts ---- */

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
davy_result dv_tower_resampler_start(dv_tower *t); /* after dv_tower_start */
void dv_tower_resampler(dv_tower *t);

/* t->in from patch `first` on. */
davy_result dv_tower_put(dv_tower *t, int64_t first, int64_t n);

davy_result dv_vision_vit(dv_tower *t, dv_vlm_features *out);
davy_result dv_vision_qwen(dv_tower *t, dv_vlm_features *out);

#endif
