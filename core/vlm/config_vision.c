/* config_vision.c - the vision tower's part of config.json with the projector's fields, and the preparation of pictures:
 * preprocessor_config.json, or image_processor in processor_config.json, override the family's defaults. */
#include <math.h>
#include <string.h>

#include "core/vlm/config_read.h"
#include "core/vlm/pil_resize.h"

enum { MAX_WIDTH = 1 << 16, MAX_HEADS = 256, MAX_SIDE = 1 << 14 };

static int64_t layers_of(const dv_cfg *v, const char *key, int64_t fallback) {
    return dv_cfg_int(v, key, fallback, 1, DV_VLM_MAX_LAYERS);
}

static void refuse_channels(const dv_cfg *v) {
    static const char *const keys[] = {"num_channels", "in_channels", "in_chans"};
    for (size_t i = 0; i < DV_ARRAY_LEN(keys); i++) {
        dv_cfg_int(v, keys[i], 3, 3, 3);
    }
}

typedef struct vit_defaults {
    int64_t hidden, ffn, layers, heads, image, patch;
    double eps;
    dv_vlm_act act;
} vit_defaults;

/* CLIP, SigLIP and Idefics3's tower have the same field names. */
static void read_vit(const dv_cfg *v, const vit_defaults *d, dv_vlm_vision *out) {
    out->hidden = dv_cfg_int(v, "hidden_size", d->hidden, 1, MAX_WIDTH);
    out->ffn = dv_cfg_int(v, "intermediate_size", d->ffn, 1, 8 * MAX_WIDTH);
    out->layers = layers_of(v, "num_hidden_layers", d->layers);
    out->heads = dv_cfg_int(v, "num_attention_heads", d->heads, 1, MAX_HEADS);
    out->image_size = dv_cfg_int(v, "image_size", d->image, 1, MAX_SIDE);
    out->patch = dv_cfg_int(v, "patch_size", d->patch, 1, 256);
    out->norm = DV_VLM_LAYER_NORM;
    out->norm_eps = dv_cfg_real(v, "layer_norm_eps", d->eps, 1e-12, 1e-1);
    out->act = dv_cfg_act(v, "hidden_act", d->act);
    out->temporal = 1;
    out->merge = 1;
    out->run_layers = out->layers;
}

/* Published SmolVLM2 files leave out fields in which the tower of width 768 differs from the class defaults. */
static void read_idefics3(const dv_cfg *root, dv_vlm_config *c) {
    const dv_cfg v = dv_cfg_object(root, "vision_config");
    const int64_t hidden = dv_cfg_int(&v, "hidden_size", 1152, 1, MAX_WIDTH);
    const vit_defaults base = {768, 3072, 12, 12, 512, 16, 1e-6, DV_VLM_GELU_TANH};
    const vit_defaults so400m = {1152, 4304, 27, 16, 384, 14, 1e-6, DV_VLM_GELU_TANH};
    c->vision.tower = DV_VLM_TOWER_SIGLIP;
    read_vit(&v, hidden == 768 ? &base : &so400m, &c->vision);
    refuse_channels(&v);
    c->vision.shuffle = dv_cfg_int(root, "scale_factor", 2, 1, 64);
}

static void read_feature_layer(const dv_cfg *root, dv_vlm_vision *out) {
    int64_t layer = -2;
    const int32_t n = dv_cfg_ints(root, "vision_feature_layer", &layer, 1, -DV_VLM_MAX_LAYERS, DV_VLM_MAX_LAYERS);
    if (n == 0) {
        dv_cfg_fail(root, DAVY_E_UNSUPPORTED, "vision_feature_layer", "expected the number of one layer");
    }
    out->run_layers = layer >= 0 ? layer : out->layers + 1 + layer;
    if (out->run_layers < 0 || out->run_layers > out->layers) {
        dv_cfg_fail(root, DAVY_E_FORMAT, "vision_feature_layer", "the tower has no such layer");
    }
    const char *strategy = dv_cfg_string(root, "vision_feature_select_strategy", "default");
    out->drop_class = strcmp(strategy, "default") == 0;
    if (!out->drop_class && strcmp(strategy, "full") != 0) {
        dv_cfg_fail(root, DAVY_E_FORMAT, "vision_feature_select_strategy", "expected default or full");
    }
}

static void read_llava(const dv_cfg *root, dv_vlm_config *c) {
    const dv_cfg v = dv_cfg_object(root, "vision_config");
    const vit_defaults clip_large = {1024, 4096, 24, 16, 336, 14, 1e-5, DV_VLM_GELU_QUICK};
    const vit_defaults clip = {768, 3072, 12, 12, 224, 32, 1e-5, DV_VLM_GELU_QUICK};
    const vit_defaults siglip = {768, 3072, 12, 12, 224, 16, 1e-6, DV_VLM_GELU_TANH};
    const char *type = dv_cfg_string(&v, "model_type", "clip_vision_model");
    if (strcmp(type, "siglip_vision_model") == 0) {
        c->vision.tower = DV_VLM_TOWER_SIGLIP;
        read_vit(&v, &siglip, &c->vision);
    } else if (strcmp(type, "clip_vision_model") == 0) {
        c->vision.tower = DV_VLM_TOWER_CLIP;
        read_vit(&v, v.node != NULL ? &clip : &clip_large, &c->vision);
    } else {
        dv_cfg_fail(&v, DAVY_E_UNSUPPORTED, "model_type", "the vision tower must be CLIP or SigLIP");
    }
    refuse_channels(&v);
    read_feature_layer(root, &c->vision);
    c->vision.projector_act = dv_cfg_act(root, "projector_hidden_act", DV_VLM_GELU);
    if (!dv_cfg_bool(root, "multimodal_projector_bias", true)) {
        dv_cfg_fail(root, DAVY_E_UNSUPPORTED, "multimodal_projector_bias",
                    "a projector without biases is not supported");
    }
}

static void read_windows(const dv_cfg *v, dv_vlm_vision *out) {
    out->window = dv_cfg_int(v, "window_size", 112, 1, MAX_SIDE);
    out->tokens_per_second = dv_cfg_real(v, "tokens_per_second", 4, 1e-3, 1e4);
    int64_t full[DV_VLM_MAX_LAYERS] = {7, 15, 23, 31};
    const int32_t n = dv_cfg_ints(v, "fullatt_block_indexes", full, DV_VLM_MAX_LAYERS, 0, DV_VLM_MAX_LAYERS - 1);
    for (int32_t i = 0; i < (n < 0 ? 4 : n); i++) {
        out->full[full[i]] = true;
    }
}

static void read_deepstack(const dv_cfg *v, dv_vlm_vision *out) {
    int64_t at[DV_VLM_MAX_DEEPSTACK] = {8, 16, 24};
    const int32_t n = dv_cfg_ints(v, "deepstack_visual_indexes", at, DV_VLM_MAX_DEEPSTACK, 0, DV_VLM_MAX_LAYERS - 1);
    out->n_deepstack = n < 0 ? 3 : n;
    for (int32_t i = 0; i < out->n_deepstack; i++) {
        out->deepstack[i] = (int32_t)at[i];
        if (at[i] >= out->layers || (i > 0 && at[i] <= at[i - 1])) {
            dv_cfg_fail(v, DAVY_E_FORMAT, "deepstack_visual_indexes", "expected rising numbers of blocks");
        }
    }
    const int64_t positions = dv_cfg_int(v, "num_position_embeddings", 2304, 1, MAX_SIDE * MAX_SIDE);
    out->position_side = (int64_t)(sqrt((double)positions) + 0.5);
    if (out->position_side * out->position_side != positions) {
        dv_cfg_fail(v, DAVY_E_FORMAT, "num_position_embeddings", "is not a square number");
    }
}

/* In Qwen2-VL embed_dim is the tower's width, and hidden_size the projector's. */
static void read_qwen(const dv_cfg *root, dv_vlm_config *c) {
    const dv_cfg v = dv_cfg_object(root, "vision_config");
    dv_vlm_vision *out = &c->vision;
    const bool qwen2 = c->family == DV_VLM_QWEN2;
    const bool qwen3 = c->family == DV_VLM_QWEN3;
    out->tower = qwen2 ? DV_VLM_TOWER_QWEN2 : qwen3 ? DV_VLM_TOWER_QWEN3 : DV_VLM_TOWER_QWEN2_5;
    out->layers = layers_of(&v, "depth", qwen3 ? 27 : 32);
    out->hidden = dv_cfg_int(&v, qwen2 ? "embed_dim" : "hidden_size", qwen3 ? 1152 : 1280, 1, MAX_WIDTH);
    out->heads = dv_cfg_int(&v, "num_heads", 16, 1, MAX_HEADS);
    out->out_hidden = dv_cfg_int(&v, qwen2 ? "hidden_size" : "out_hidden_size", c->text.hidden, 1, MAX_WIDTH);
    if (qwen2) {
        const double ratio = dv_cfg_real(&v, "mlp_ratio", 4, 0.01, 64);
        out->ffn = (int64_t)((double)out->hidden * ratio);
    } else {
        out->ffn = dv_cfg_int(&v, "intermediate_size", qwen3 ? 4304 : 3420, 1, 8 * MAX_WIDTH);
    }
    out->patch = dv_cfg_int(&v, "patch_size", dv_cfg_int(&v, "spatial_patch_size", qwen3 ? 16 : 14, 1, 256), 1, 256);
    out->merge = dv_cfg_int(&v, "spatial_merge_size", 2, 1, 16);
    out->temporal = dv_cfg_int(&v, "temporal_patch_size", 2, 1, 16);
    const dv_vlm_act act = qwen2 ? DV_VLM_GELU_QUICK : qwen3 ? DV_VLM_GELU_TANH : DV_VLM_SILU;
    out->act = dv_cfg_act(&v, "hidden_act", act);
    out->norm = out->tower == DV_VLM_TOWER_QWEN2_5 ? DV_VLM_RMS_NORM : DV_VLM_LAYER_NORM;
    out->gated = out->tower == DV_VLM_TOWER_QWEN2_5;
    out->norm_eps = 1e-6;
    out->projector_act = DV_VLM_GELU;
    out->run_layers = out->layers;
    refuse_channels(&v);
    if (out->tower == DV_VLM_TOWER_QWEN2_5) {
        read_windows(&v, out);
    } else if (qwen3) {
        read_deepstack(&v, out);
    }
}

/* nanovision gives only the name of its tower: OpenAI's ViT-L/14. It uses the last layer's output unchanged, including the class
 * token. A vision_config as in other models can override this. */
static void read_ghostvis(const dv_cfg *root, dv_vlm_config *c) {
    const vit_defaults clip_large = {1024, 4096, 24, 16, 336, 14, 1e-5, DV_VLM_GELU_QUICK};
    const dv_cfg v = dv_cfg_object(root, "vision_config");
    dv_vlm_vision *out = &c->vision;
    out->tower = DV_VLM_TOWER_CLIP;
    read_vit(&v, &clip_large, out);
    out->image_size = dv_cfg_int(root, "vision_image_size", out->image_size, 14, MAX_SIDE);
    out->queries = dv_cfg_int(root, "vision_num_tokens", 64, 1, 4096);
    out->resampler_layers = dv_cfg_int(root, "vision_resampler_depth", 2, 1, 64);
    out->resampler_heads = dv_cfg_int(root, "vision_resampler_heads", 8, 1, MAX_HEADS);
    out->projector_hidden = dv_cfg_int(root, "vision_proj_hidden", 2048, 1, MAX_WIDTH);
    out->clip_colours = strcmp(dv_cfg_string(root, "vision_encoder_name", ""), "clip_vit_l14") == 0;
    out->projector_act = DV_VLM_GELU;
    if (strcmp(dv_cfg_string(root, "vision_resampler_mode", "perceiver"), "perceiver") != 0) {
        dv_cfg_fail(root, DAVY_E_UNSUPPORTED, "vision_resampler_mode", "only perceiver is supported");
    }
}

void dv_vlm_read_vision(const dv_cfg *root, dv_vlm_config *c) {
    switch (c->family) {
    case DV_VLM_IDEFICS3:
        read_idefics3(root, c);
        break;
    case DV_VLM_LLAVA:
        read_llava(root, c);
        break;
    case DV_VLM_GHOSTVIS:
        read_ghostvis(root, c);
        break;
    case DV_VLM_NANOCHAT:
        break;
    default:
        read_qwen(root, c);
        break;
    }
    if (c->vision.out_hidden == 0) {
        c->vision.out_hidden = c->text.hidden;
    }
}

/* ---- preparation of pictures: preprocessor_config.json, or image_processor in processor_config.json, override the values of
 * the family's published files ---- */

enum { MAX_PIXELS = 1 << 28 };

static void statistics(dv_vlm_picture *p, bool clip) {
    static const double mean[3] = {0.48145466, 0.4578275, 0.40821073};
    static const double std[3] = {0.26862954, 0.26130258, 0.27577711};
    for (int i = 0; i < 3; i++) {
        p->mean[i] = clip ? mean[i] : 0.5;
        p->std[i] = clip ? std[i] : 0.5;
    }
}

static void qwen_defaults(dv_vlm_picture *p, bool qwen3) {
    p->rule = DV_VLM_PICTURE_SMART;
    p->filter = DV_PIL_BICUBIC;
    p->min_pixels = qwen3 ? 65536 : 3136;
    p->max_pixels = qwen3 ? 16777216 : 12845056;
    p->video_fps = 2;
    p->video_min_frames = 4;
    p->video_max_frames = 768;
    p->video_min_pixels = qwen3 ? 4096 : 128 * 28 * 28;
    p->video_max_pixels = qwen3 ? 25165824 : 768 * 28 * 28;
    statistics(p, !qwen3);
}

static void crop_defaults(dv_vlm_picture *p, int64_t side) {
    p->rule = DV_VLM_PICTURE_CROP;
    p->filter = DV_PIL_BICUBIC;
    p->shortest = p->width = p->height = side;
}

void dv_vlm_picture_defaults(dv_vlm_config *c) {
    dv_vlm_picture *p = &c->picture;
    *p = (dv_vlm_picture){.rescale = 1.0 / 255};
    const int64_t side = c->vision.image_size;
    switch (c->family) {
    case DV_VLM_IDEFICS3:
        *p = (dv_vlm_picture){.rule = DV_VLM_PICTURE_TILES,
                              .filter = DV_PIL_LANCZOS,
                              .rescale = p->rescale,
                              .longest = 4 * side,
                              .tile = side,
                              .split = true,
                              .video_fps = 1,
                              .video_min_frames = 1,
                              .video_max_frames = 64,
                              .video_longest = 4 * side};
        statistics(p, false);
        break;
    case DV_VLM_LLAVA:
        crop_defaults(p, side);
        if (c->vision.tower == DV_VLM_TOWER_SIGLIP) {
            p->rule = DV_VLM_PICTURE_SQUASH;
            p->shortest = 0;
        }
        statistics(p, c->vision.tower == DV_VLM_TOWER_CLIP);
        break;
    case DV_VLM_GHOSTVIS:
        crop_defaults(p, side);
        p->crop_round = true;
        statistics(p, c->vision.clip_colours);
        break;
    case DV_VLM_NANOCHAT:
        break;
    default:
        qwen_defaults(p, c->family == DV_VLM_QWEN3);
        break;
    }
}

static void read_normalisation(const dv_cfg *c, dv_vlm_picture *p) {
    static const char *const keys[2] = {"image_mean", "image_std"};
    double *const to[2] = {p->mean, p->std};
    for (int k = 0; k < 2; k++) {
        const double lo = k == 0 ? -1e3 : 1e-6;
        const int32_t n = dv_cfg_reals(c, keys[k], to[k], 3, lo, 1e3);
        if (n == 1) {
            to[k][1] = to[k][2] = to[k][0];
        } else if (n == 0 || n == 2) {
            dv_cfg_fail(c, DAVY_E_FORMAT, keys[k], "expected one number or three");
        }
    }
    if (!dv_cfg_bool(c, "do_normalize", true)) {
        for (int i = 0; i < 3; i++) {
            p->mean[i] = 0;
            p->std[i] = 1;
        }
    }
    p->rescale = dv_cfg_real(c, "rescale_factor", p->rescale, 1e-9, 1e3);
    if (!dv_cfg_bool(c, "do_rescale", true)) {
        p->rescale = 1;
    }
}

/* In old files `size` is a number. */
static int64_t plain_size(const dv_cfg *c, const char *key) {
    const dv_json *v = c->node != NULL ? dv_json_get(c->node, key) : NULL;
    int64_t n = 0;
    return v != NULL && dv_json_int(v, &n) ? dv_cfg_int(c, key, 0, 1, MAX_SIDE) : 0;
}

static int64_t longest_of(const dv_cfg *c, int64_t otherwise) {
    const int64_t plain = plain_size(c, "size");
    if (plain > 0) {
        return plain;
    }
    const dv_cfg size = dv_cfg_object(c, "size");
    return dv_cfg_int(&size, "longest_edge", otherwise, 1, MAX_SIDE);
}

/* SmolVLM2's settings for videos. The published files have them among the settings for pictures; files saved by transformers
 * have them among those for videos. `size` overrides video_size, as in transformers, although it is meant for pictures. */
static void read_sampling(const dv_cfg *c, dv_vlm_picture *p) {
    p->video_fps = dv_cfg_real(c, "fps", p->video_fps, 1e-3, 1e3);
    p->video_max_frames = dv_cfg_int(c, "num_frames", p->video_max_frames, 1, 65536);
    const dv_cfg sampling = dv_cfg_object(c, "video_sampling");
    p->video_fps = dv_cfg_real(&sampling, "fps", p->video_fps, 1e-3, 1e3);
    p->video_max_frames = dv_cfg_int(&sampling, "max_frames", p->video_max_frames, 1, 65536);
    const dv_cfg frame = dv_cfg_object(&sampling, "video_size");
    p->video_longest = dv_cfg_int(&frame, "longest_edge", p->video_longest, 1, MAX_SIDE);
    p->video_longest = longest_of(c, p->video_longest);
}

static void read_tiles(const dv_cfg *c, dv_vlm_picture *p) {
    p->longest = longest_of(c, p->longest);
    const dv_cfg most = dv_cfg_object(c, "max_image_size");
    p->tile = dv_cfg_int(&most, "longest_edge", p->tile, 1, MAX_SIDE);
    p->split = dv_cfg_bool(c, "do_image_splitting", p->split);
    read_sampling(c, p);
}

static void read_smart(const dv_cfg *c, const dv_vlm_vision *v, dv_vlm_picture *p) {
    const dv_cfg size = dv_cfg_object(c, "size");
    p->min_pixels = dv_cfg_int(&size, "shortest_edge", p->min_pixels, 1, MAX_PIXELS);
    p->max_pixels = dv_cfg_int(&size, "longest_edge", p->max_pixels, 1, MAX_PIXELS);
    p->min_pixels = dv_cfg_int(&size, "min_pixels", p->min_pixels, 1, MAX_PIXELS);
    p->max_pixels = dv_cfg_int(&size, "max_pixels", p->max_pixels, 1, MAX_PIXELS);
    p->min_pixels = dv_cfg_int(c, "min_pixels", p->min_pixels, 1, MAX_PIXELS);
    p->max_pixels = dv_cfg_int(c, "max_pixels", p->max_pixels, 1, MAX_PIXELS);
    if (p->min_pixels > p->max_pixels) {
        dv_cfg_fail(c, DAVY_E_FORMAT, "min_pixels", "is above max_pixels");
    }
    dv_cfg_int(c, "patch_size", v->patch, v->patch,
               v->patch); /* the weights determine it; another value means mixed-up files */
    dv_cfg_int(c, "merge_size", v->merge, v->merge, v->merge);
    dv_cfg_int(c, "temporal_patch_size", v->temporal, v->temporal, v->temporal);
}

static void read_square(const dv_cfg *c, const char *key, dv_vlm_picture *p) {
    const int64_t side = plain_size(c, key);
    if (side > 0) {
        p->width = p->height = side;
        return;
    }
    const dv_cfg box = dv_cfg_object(c, key);
    p->width = dv_cfg_int(&box, "width", p->width, 1, MAX_SIDE);
    p->height = dv_cfg_int(&box, "height", p->height, 1, MAX_SIDE);
}

static void read_fixed(const dv_cfg *c, dv_vlm_picture *p) {
    const bool crop = dv_cfg_bool(c, "do_center_crop", p->rule == DV_VLM_PICTURE_CROP);
    const int64_t plain = plain_size(c, "size");
    const dv_cfg size = plain > 0 ? (dv_cfg){.file = c->file, .r = c->r} : dv_cfg_object(c, "size");
    const int64_t shortest = plain > 0 && crop ? plain : dv_cfg_int(&size, "shortest_edge", 0, 0, MAX_SIDE);
    if (shortest > 0 || (size.node == NULL && plain == 0 && p->rule == DV_VLM_PICTURE_CROP)) {
        p->rule = DV_VLM_PICTURE_CROP;
        p->shortest = shortest > 0 ? shortest : p->shortest;
        read_square(c, "crop_size", p);
        if (!crop) {
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "do_center_crop", "must be true: this tower needs a crop");
        }
        if (p->shortest < p->width || p->shortest < p->height) {
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "crop_size", "is larger than the resized picture");
        }
    } else {
        p->rule = DV_VLM_PICTURE_SQUASH;
        p->shortest = 0;
        read_square(c, "size", p);
    }
    /* Only LLaVA's own processor class pads to a square. */
    const char *type = dv_cfg_string(c, "image_processor_type", "");
    p->pad_square = strncmp(type, "LlavaImageProcessor", 19) == 0 && dv_cfg_bool(c, "do_pad", false);
}

void dv_vlm_read_picture(const dv_cfg *c, dv_vlm_config *out) {
    dv_vlm_picture *p = &out->picture;
    if (c->node == NULL || p->rule == DV_VLM_PICTURE_NONE) {
        return;
    }
    if (!dv_cfg_bool(c, "do_resize", true)) {
        dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "do_resize", "must be true: davy always resizes pictures");
    }
    p->filter = (int32_t)dv_cfg_int(c, "resample", p->filter, DV_PIL_LANCZOS, DV_PIL_HAMMING);
    read_normalisation(c, p);
    if (p->rule == DV_VLM_PICTURE_TILES) {
        read_tiles(c, p);
    } else if (p->rule == DV_VLM_PICTURE_SMART) {
        read_smart(c, &out->vision, p);
    } else {
        read_fixed(c, p);
    }
}

/* Reads video_preprocessor_config.json, or video_processor in processor_config.json. */
void dv_vlm_read_video(const dv_cfg *c, dv_vlm_config *out) {
    dv_vlm_picture *p = &out->picture;
    if (c->node == NULL || p->video_fps == 0) {
        return;
    }
    if (p->rule != DV_VLM_PICTURE_SMART) {
        read_sampling(c, p);
        return;
    }
    p->video_fps = dv_cfg_real(c, "fps", p->video_fps, 1e-3, 1e3);
    p->video_min_frames = dv_cfg_int(c, "min_frames", p->video_min_frames, 1, 65536);
    p->video_max_frames = dv_cfg_int(c, "max_frames", p->video_max_frames, p->video_min_frames, 65536);
    const dv_cfg size = dv_cfg_object(c, "size");
    p->video_min_pixels = dv_cfg_int(&size, "shortest_edge", p->video_min_pixels, 1, MAX_PIXELS);
    p->video_max_pixels = dv_cfg_int(&size, "longest_edge", p->video_max_pixels, p->video_min_pixels, MAX_PIXELS);
}
