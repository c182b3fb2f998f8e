/* config_check.c - what must agree between the parts of a configuration, and the numbers that follow from them. Both
 * sources, JSON and GGUF, end here. */
#include <inttypes.h>

#include "core/base/error.h"
#include "core/vlm/config_read.h"

static davy_result bad(const char *file, const char *what, int64_t a, int64_t b) {
    return dv_fail(DAVY_E_FORMAT, "%s: %s (%" PRId64 ", %" PRId64 ")", file, what, a, b);
}

static davy_result finish_text(const char *file, const dv_vlm_text *t) {
    if (t->heads % t->kv_heads != 0) {
        return bad(file, "num_attention_heads is no multiple of num_key_value_heads", t->heads, t->kv_heads);
    }
    if (t->head_dim % 2 != 0) {
        return bad(file, "head_dim is odd", t->head_dim, t->heads);
    }
    return DAVY_OK;
}

static davy_result finish_window(const char *file, dv_vlm_vision *v) {
    const int64_t unit = v->patch * v->merge;
    if (v->tower == DV_VLM_TOWER_QWEN2_5 && (v->window < unit || v->window % unit != 0)) {
        return bad(file, "vision_config.window_size is no multiple of patch_size * spatial_merge_size", v->window,
                   unit);
    }
    for (int64_t i = 0; v->window == 0 && i < v->layers; i++) {
        v->full[i] = true;
    }
    return DAVY_OK;
}

/* Tiles of one size: the grid of patches, and how many vectors leave the tower for each. */
static davy_result finish_tile(const char *file, dv_vlm_config *c) {
    dv_vlm_vision *v = &c->vision;
    v->grid = v->image_size / v->patch;
    v->position_side = v->grid;
    if (v->grid < 1) {
        return bad(file, "vision_config.patch_size is larger than image_size", v->patch, v->image_size);
    }
    const int64_t class_token = v->tower == DV_VLM_TOWER_CLIP ? 1 : 0;
    v->tokens_per_tile = v->grid * v->grid + class_token - (v->drop_class ? 1 : 0);
    if (c->family == DV_VLM_GHOSTVIS) {
        v->tokens_per_tile = v->queries;
    } else if (v->shuffle > 0) {
        if (v->grid % v->shuffle != 0) {
            return bad(file, "scale_factor does not divide the patches of a tile's side", v->shuffle, v->grid);
        }
        v->tokens_per_tile = v->grid / v->shuffle * (v->grid / v->shuffle);
    }
    const dv_vlm_picture *p = &c->picture;
    const int64_t w = p->rule == DV_VLM_PICTURE_TILES ? p->tile : p->width;
    const int64_t h = p->rule == DV_VLM_PICTURE_TILES ? p->tile : p->height;
    if (w / v->patch != v->grid || h / v->patch != v->grid) {
        return bad(file, "the picture size of the preprocessor is not that of the vision tower", w, v->image_size);
    }
    return DAVY_OK;
}

static davy_result finish_vision(const char *file, dv_vlm_config *c) {
    dv_vlm_vision *v = &c->vision;
    if (v->hidden % v->heads != 0) {
        return bad(file, "the vision tower's width is no multiple of its heads", v->hidden, v->heads);
    }
    v->head_dim = v->hidden / v->heads;
    if (v->queries > 0 && v->hidden % v->resampler_heads != 0) {
        return bad(file, "vision_resampler_heads does not divide the vision tower's width", v->resampler_heads,
                   v->hidden);
    }
    if (v->out_hidden != c->text.hidden) {
        return bad(file, "the projector's width is not the language model's", v->out_hidden, c->text.hidden);
    }
    if (v->n_deepstack > c->text.layers) {
        return bad(file, "more deepstack blocks than layers of the language model", v->n_deepstack, c->text.layers);
    }
    const bool qwen = c->picture.rule == DV_VLM_PICTURE_SMART;
    if (qwen && v->head_dim % 4 != 0) {
        return bad(file, "the vision tower's heads have no whole number of frequencies per axis", v->head_dim,
                   v->heads);
    }
    const davy_result r = finish_window(file, v);
    return r < 0 || qwen ? r : finish_tile(file, c);
}

davy_result dv_vlm_config_finish(const char *file, dv_vlm_config *c) {
    const davy_result r = finish_text(file, &c->text);
    return r < 0 || c->vision.tower == DV_VLM_TOWER_NONE ? r : finish_vision(file, c);
}
