/* config_gguf_vision.c - the vision tower of an mmproj file. Its keys are those of llama.cpp's converters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/vlm/config_gguf.h"

enum { MAX_WIDTH = 1 << 16, MAX_HEADS = 256, MAX_SIDE = 1 << 14, MAX_PIXELS = 1 << 28 };

static bool there(const dv_gmeta *m, const char *name) {
    return dv_tensors_find(m->t, name) != NULL;
}

static dv_vlm_tower tower_of(const dv_gmeta *clip, dv_vlm_family family) {
    switch (family) {
    case DV_VLM_QWEN2:
        return DV_VLM_TOWER_QWEN2;
    case DV_VLM_QWEN2_5:
        return DV_VLM_TOWER_QWEN2_5;
    case DV_VLM_QWEN3:
        return DV_VLM_TOWER_QWEN3;
    default:
        return there(clip, "v.class_embd") ? DV_VLM_TOWER_CLIP : DV_VLM_TOWER_SIGLIP;
    }
}

/* "GELU" of these files is the one with tanh, as every tower here but CLIP's has it. SigLIP has no other: a converter that
 * knew GELU by its shortest name only wrote false there. */
static dv_vlm_act act_of(const dv_gmeta *clip, dv_vlm_tower tower) {
    if (dv_gmeta_bool(clip, "use_silu", false)) {
        return DV_VLM_SILU;
    }
    if (tower == DV_VLM_TOWER_SIGLIP) {
        return DV_VLM_GELU_TANH;
    }
    if (!dv_gmeta_bool(clip, "use_gelu", false)) {
        return DV_VLM_GELU_QUICK;
    }
    return tower == DV_VLM_TOWER_CLIP ? DV_VLM_GELU : DV_VLM_GELU_TANH;
}

static void read_windows(const dv_gmeta *v, dv_vlm_vision *out) {
    out->window = dv_gmeta_int(v, "window_size", 112, 1, MAX_SIDE);
    out->tokens_per_second = 2; /* of the published models; converters do not write it */
    double list[DV_VLM_MAX_LAYERS];
    const int32_t n = dv_gmeta_list(v, "wa_layer_indexes", list, DV_VLM_MAX_LAYERS);
    for (int32_t i = 0; i < n; i++) {
        if (list[i] >= 0 && list[i] < DV_VLM_MAX_LAYERS) {
            out->full[(int32_t)list[i]] = true;
        }
    }
    const int64_t every = dv_gmeta_int(v, "n_wa_pattern", 8, 1, DV_VLM_MAX_LAYERS);
    for (int64_t i = 0; n < 0 && i < out->layers; i++) {
        out->full[i] = (i + 1) % every == 0;
    }
}

static void read_deepstack(const dv_gmeta *v, dv_vlm_vision *out) {
    double flags[DV_VLM_MAX_LAYERS];
    const int32_t n = dv_gmeta_list(v, "is_deepstack_layers", flags, DV_VLM_MAX_LAYERS);
    for (int32_t i = 0; i < n && i < out->layers; i++) {
        if (flags[i] != 0) {
            if (out->n_deepstack == DV_VLM_MAX_DEEPSTACK) {
                dv_gmeta_fail(v, DAVY_E_FORMAT, "is_deepstack_layers", "names more than 16 blocks");
                return;
            }
            out->deepstack[out->n_deepstack++] = i;
        }
    }
    const dv_tensor_ref *table = dv_tensors_find(v->t, "v.position_embd.weight");
    const int64_t rows = table != NULL && table->ndim == 2 ? table->shape[0] : 0;
    out->position_side = rows > 0 && rows < (int64_t)1 << 40 ? (int64_t)(sqrt((double)rows) + 0.5) : 0;
    if (out->position_side == 0 || out->position_side * out->position_side != rows) {
        dv_gmeta_fail(v, DAVY_E_TENSOR, "position_embd", "v.position_embd.weight is missing or not of a square table");
    }
}

/* LLaVA's files give the width of CLIP's own projection, which is not in them: 768, or 0 where the tower has none. */
static int64_t projector_width(const dv_gmeta *v, const dv_vlm_config *c) {
    const dv_tensor_ref *last = c->family == DV_VLM_LLAVA ? dv_tensors_find(v->t, "mm.2.weight") : NULL;
    if (c->family != DV_VLM_LLAVA) {
        return dv_gmeta_int(v, "projection_dim", c->text.hidden, 1, 32 * MAX_WIDTH);
    }
    return last != NULL && last->ndim == 2 ? last->shape[0] : c->text.hidden;
}

/* The first files of Qwen2-VL say 0; there, the two layers' names may also be the wrong way round. */
static int64_t ffn_of(const dv_gmeta *v, int64_t hidden) {
    const int64_t most = 8 * MAX_WIDTH;
    int64_t n = dv_gmeta_int(v, "feed_forward_length", DV_CFG_NEEDED, 0, most);
    const dv_tensor_ref *up = n == 0 ? dv_tensors_find(v->t, "v.blk.0.ffn_up.weight") : NULL;
    if (up != NULL && up->ndim == 2) {
        n = up->shape[0] == hidden ? up->shape[1] : up->shape[0];
    }
    if (n < 1 || n > most) {
        dv_gmeta_fail(v, DAVY_E_FORMAT, "feed_forward_length", "is 0, and v.blk.0.ffn_up.weight does not tell it");
    }
    return n;
}

/* Old files call some activations' and norms' numbers differently; 1e-5 of a tower other than CLIP's is a known slip of
 * converters, 1e-6 was trained. */
static void read_numbers(const dv_gmeta *clip, const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_vision *out = &c->vision;
    out->tower = tower_of(clip, c->family);
    out->hidden = dv_gmeta_int(v, "embedding_length", DV_CFG_NEEDED, 1, MAX_WIDTH);
    out->ffn = ffn_of(v, out->hidden);
    out->layers = dv_gmeta_int(v, "block_count", DV_CFG_NEEDED, 1, DV_VLM_MAX_LAYERS);
    out->heads = dv_gmeta_int(v, "attention.head_count", DV_CFG_NEEDED, 1, MAX_HEADS);
    out->patch = dv_gmeta_int(v, "patch_size", DV_CFG_NEEDED, 1, 256);
    out->out_hidden = projector_width(v, c);
    const double eps = dv_gmeta_real(v, "attention.layer_norm_epsilon", 1e-6, 1e-12, 1e-1);
    out->norm_eps = out->tower != DV_VLM_TOWER_CLIP && eps > 9e-6 && eps < 1.1e-5 ? 1e-6 : eps;
    out->norm = out->tower == DV_VLM_TOWER_QWEN2_5 ? DV_VLM_RMS_NORM : DV_VLM_LAYER_NORM;
    out->act = act_of(clip, out->tower);
    out->gated = out->tower == DV_VLM_TOWER_QWEN2_5;
    out->projector_act = DV_VLM_GELU;
    out->run_layers = out->layers;
    out->temporal = out->merge = 1;
}

static void read_llava(const dv_gmeta *v, dv_vlm_vision *out) {
    /* A tower cut where LLaVA leaves it has no last norm; a whole one counts a block that is not used. */
    out->run_layers = out->layers - (there(v, "v.post_ln.weight") ? 1 : 0);
    out->drop_class = out->tower == DV_VLM_TOWER_CLIP;
    const char *merge = dv_tensors_meta(v->t, "clip.vision.mm_patch_merge_type");
    if (merge != NULL && strcmp(merge, "flat") != 0) {
        dv_gmeta_fail(v, DAVY_E_UNSUPPORTED, "mm_patch_merge_type", "the tiles of LLaVA-NeXT are not supported");
    }
}

static void read_family(const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_vision *out = &c->vision;
    if (c->family == DV_VLM_IDEFICS3 || c->family == DV_VLM_LLAVA) {
        out->image_size = dv_gmeta_int(v, "image_size", DV_CFG_NEEDED, 1, MAX_SIDE);
        if (c->family == DV_VLM_IDEFICS3) {
            out->shuffle = dv_gmeta_int(v, "projector.scale_factor", 2, 1, 64);
        } else {
            read_llava(v, out);
        }
        return;
    }
    out->temporal = 2;
    out->merge = dv_gmeta_int(v, "spatial_merge_size", 2, 1, 16);
    if (out->tower == DV_VLM_TOWER_QWEN2_5) {
        read_windows(v, out);
    } else if (out->tower == DV_VLM_TOWER_QWEN3) {
        read_deepstack(v, out);
        if (out->out_hidden == c->text.hidden * (1 + out->n_deepstack)) {
            out->out_hidden = c->text.hidden; /* llama.cpp counts the deepstack outputs behind one another */
        }
    }
}

static void read_picture(const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_picture *p = &c->picture;
    static const char *const keys[2] = {"image_mean", "image_std"};
    double *const to[2] = {p->mean, p->std};
    dv_vlm_picture_defaults(c);
    for (int k = 0; k < 2; k++) {
        double three[3] = {0};
        const int32_t n = dv_gmeta_list(v, keys[k], three, 3);
        for (int i = 0; n == 3 && i < 3; i++) {
            if (!(three[i] >= (k == 0 ? -1e3 : 1e-6) && three[i] <= 1e3)) {
                dv_gmeta_fail(v, DAVY_E_FORMAT, keys[k], "is out of range");
            }
            to[k][i] = three[i];
        }
    }
    if (p->rule == DV_VLM_PICTURE_TILES) {
        p->longest = dv_gmeta_int(v, "preproc_image_size", p->longest, 1, MAX_SIDE);
    } else if (p->rule == DV_VLM_PICTURE_SMART) {
        p->min_pixels = dv_gmeta_int(v, "image_min_pixels", p->min_pixels, 1, MAX_PIXELS);
        p->max_pixels = dv_gmeta_int(v, "image_max_pixels", p->max_pixels, p->min_pixels, MAX_PIXELS);
    }
}

void dv_vlm_gguf_vision(const dv_gmeta *clip, dv_vlm_config *c) {
    const dv_gmeta v = {.t = clip->t, .file = clip->file, .prefix = "clip.vision.", .r = clip->r};
    if (!dv_gmeta_bool(clip, "has_vision_encoder", true)) {
        dv_gmeta_fail(clip, DAVY_E_ARCH, "has_vision_encoder", "the file has no vision tower");
    }
    read_numbers(clip, &v, c);
    read_family(&v, c);
    if (*clip->r == DAVY_OK) {
        read_picture(&v, c);
    }
}
