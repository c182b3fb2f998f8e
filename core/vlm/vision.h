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

#endif
