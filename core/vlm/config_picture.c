/* config_picture.c - how pictures are prepared: preprocessor_config.json, or processor_config.json's image_processor, over
 * the numbers of the family's published files. */
#include <string.h>

#include "core/vlm/config_read.h"
#include "core/vlm/pil_resize.h"

enum { MAX_SIDE = 1 << 14, MAX_PIXELS = 1 << 28 };

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

/* `size` is a number in old files. */
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

/* How SmolVLM2 looks at videos. As published it stands among the settings for pictures, and what transformers makes of it among
 * those for videos; `size` goes before video_size there, of pictures though it be. */
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
    dv_cfg_int(c, "patch_size", v->patch, v->patch, v->patch); /* the weights decide; another number is a mix-up */
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
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "do_center_crop", "pictures of any shape need a crop for this tower");
        }
        if (p->shortest < p->width || p->shortest < p->height) {
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "crop_size", "is larger than the resized picture");
        }
    } else {
        p->rule = DV_VLM_PICTURE_SQUASH;
        p->shortest = 0;
        read_square(c, "size", p);
    }
    /* Only LLaVA's own class knows padding to a square. */
    const char *type = dv_cfg_string(c, "image_processor_type", "");
    p->pad_square = strncmp(type, "LlavaImageProcessor", 19) == 0 && dv_cfg_bool(c, "do_pad", false);
}

void dv_vlm_read_picture(const dv_cfg *c, dv_vlm_config *out) {
    dv_vlm_picture *p = &out->picture;
    if (c->node == NULL || p->rule == DV_VLM_PICTURE_NONE) {
        return;
    }
    if (!dv_cfg_bool(c, "do_resize", true)) {
        dv_cfg_fail(c, DAVY_E_UNSUPPORTED, "do_resize", "pictures are always resized here");
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

/* video_preprocessor_config.json, or processor_config.json's video_processor. */
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
