/* vision.h - computes the vectors that replace a picture's placeholder tokens from its patches. */
#ifndef DV_VLM_VISION_H
#define DV_VLM_VISION_H

#include "core/vlm/picture.h"
#include "core/vlm/positions.h"
#include "core/vlm/row_program.h"

typedef struct dv_vlm_features {       /* if a GPU computes: in its memory */
    float *vectors;                    /* [tokens][hidden of the language model] */
    float *deep[DV_VLM_MAX_DEEPSTACK]; /* [tokens][hidden], added after layer k (Qwen3) */
    int64_t tokens;
    int64_t t, h, w; /* size of the span of positions, in tokens; t 0: consecutive positions */
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
    int32_t (*cancel)(void *user); /* called between tiles and between blocks; NULL: never */
    void *user;
} dv_vision_desc;

typedef struct dv_patches { /* of a plan without fold_still; one of numbers and bytes is set */
    const float *numbers;   /* from dv_picture_prepare */
    const uint8_t *bytes;   /* from dv_picture_bytes, if dv_vision_takes_bytes */
    const float (*table)[256];
} dv_patches;

bool dv_vision_takes_bytes(const dv_vlm_weights *weights);
/* Runs the vision tower. Free *out with dv_vision_free. */
davy_result dv_vision_run(const dv_vision_desc *desc, const dv_picture_plan *plan, const dv_patches *patches,
                          dv_vlm_features *out);
void dv_vision_free(dv_vlm_features *f);
/* Copies `n` numbers from one of f's arrays to the host. */
davy_result dv_vision_read(const dv_vlm_features *f, const float *from, int64_t n, float *to);

#endif
