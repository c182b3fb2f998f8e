/* vision.c - runs a picture's patches through the model's vision tower. */
#include "core/vlm/vision.h"

#include <string.h>

#include "core/base/error.h"
#include "core/vlm/vision_tower.h"

bool dv_vision_takes_bytes(const dv_vlm_weights *weights) {
    return weights->gpu != NULL && dvk_block_elements(weights->patch.type) == 1;
}

davy_result dv_vision_run(const dv_vision_desc *desc, const dv_picture_plan *plan, const dv_patches *patches,
                          dv_vlm_features *out) {
    const dv_vlm_vision *v = &desc->config->vision;
    const int64_t values = 3 * v->temporal * v->patch * v->patch;
    dv_tower tower = {.desc = desc, .plan = plan, .patches = patches};
    dv_vlm_features f = {.tokens = plan->tokens};
    dv_space_part parts[1 + DV_VLM_MAX_DEEPSTACK];
    if (v->tower == DV_VLM_TOWER_NONE || desc->weights->patch.data == NULL) {
        return dv_fail(DAVY_E_UNSUPPORTED, "this model has no vision tower, so it takes no pictures");
    }
    if (plan->patch_values != values) {
        return dv_fail(DAVY_E_INTERNAL, "captioning: patches have %lld values, but the tower needs %lld",
                       (long long)plan->patch_values, (long long)values);
    }
    for (int32_t i = 0; i <= v->n_deepstack; i++) {
        parts[i] = (dv_space_part){i == 0 ? &f.vectors : &f.deep[i - 1], (uint64_t)(plan->tokens * v->out_hidden) * 4};
    }
    f.space = (dv_space){.heap = desc->heap, .gpu = desc->gpu};
    davy_result r = dv_space_take(&f.space, "a picture's vectors", parts, (size_t)v->n_deepstack + 1);
    if (r == DAVY_OK) {
        const bool vit = v->tower == DV_VLM_TOWER_SIGLIP || v->tower == DV_VLM_TOWER_CLIP;
        r = vit ? dv_vision_vit(&tower, &f) : dv_vision_qwen(&tower, &f);
        r = r < 0 ? r : dv_row_program_wait(&tower.program, desc->cancel, desc->user);
        dv_tower_clear(&tower);
    }
    if (r < 0) {
        dv_vision_free(&f);
        return r;
    }
    *out = f;
    return DAVY_OK;
}

void dv_vision_free(dv_vlm_features *f) {
    dv_space_release(&f->space);
    *f = (dv_vlm_features){0};
}

davy_result dv_vision_read(const dv_vlm_features *f, const float *from, int64_t n, float *to) {
    dv_gpu_queue *q = NULL;
    if (f->space.gpu == NULL) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return DAVY_OK;
    }
    davy_result r = dv_gpu_queue_take(f->space.gpu, NULL, &q);
    r = r < 0 ? r : dv_gpu_download(q, to, from, (uint64_t)n * sizeof *to);
    dv_gpu_queue_give(q);
    return r;
}
