/* picture.c - plans, and the way from 8-bit pictures to patches that a plan describes. */
#include "core/vlm/picture.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

/* ---- plans ---- */

static davy_result plan_fixed(const dv_vlm_config *c, dv_picture_plan *p) {
    const dv_vlm_picture *rule = &c->picture;
    p->tiles = 1;
    if (rule->rule == DV_VLM_PICTURE_SQUASH) {
        p->first_w = p->resized_w = rule->width;
        p->first_h = p->resized_h = rule->height;
        return DAVY_OK;
    }
    int64_t w = p->width;
    int64_t h = p->height;
    if (rule->pad_square && w != h) {
        p->pad = w = h = dv_max(w, h);
    }
    const int64_t shortest = dv_min(w, h);
    const int64_t longest = (int64_t)((double)(rule->shortest * dv_max(w, h)) / (double)shortest);
    p->first_w = p->resized_w = w <= h ? rule->shortest : longest;
    p->first_h = p->resized_h = w <= h ? longest : rule->shortest;
    int64_t rest_x = p->resized_w - rule->width;
    int64_t rest_y = p->resized_h - rule->height;
    /* Halves: down, or to the even one (3/2 is 2 and 5/2 is 2). */
    p->crop_x = rest_x / 2 + (rule->crop_round && rest_x % 4 == 3 ? 1 : 0);
    p->crop_y = rest_y / 2 + (rule->crop_round && rest_y % 4 == 3 ? 1 : 0);
    return DAVY_OK;
}

static void count_patches(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    const dv_vlm_vision *v = &c->vision;
    const bool smart = c->picture.rule == DV_VLM_PICTURE_SMART;
    p->grid_t = smart && p->frames > 0 ? dv_div_up(p->frames, v->temporal) : 1;
    p->grid_w = smart ? p->resized_w / v->patch : v->grid;
    p->grid_h = smart ? p->resized_h / v->patch : v->grid;
    p->patches = p->tiles * p->grid_t * p->grid_h * p->grid_w;
    p->patch_frames = o->fold_still && p->frames == 0 ? 1 : v->temporal;
    p->patch_values = 3 * p->patch_frames * v->patch * v->patch;
    p->tokens = smart ? p->patches / (v->merge * v->merge) : p->tiles * v->tokens_per_tile;
}

static davy_result plan(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    if (c->picture.rule == DV_VLM_PICTURE_NONE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: a %s model without a vision tower takes no pictures",
                       dv_vlm_family_name(c->family));
    }
    if (p->width < 1 || p->height < 1 || p->width > DV_PICTURE_MAX_SIDE || p->height > DV_PICTURE_MAX_SIDE) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld, sides are 1 to %d", (long long)p->width,
                       (long long)p->height, (int)DV_PICTURE_MAX_SIDE);
    }
    const davy_result r = c->picture.rule == DV_VLM_PICTURE_TILES   ? dv_picture_plan_tiles(c, o, p)
                          : c->picture.rule == DV_VLM_PICTURE_SMART ? dv_picture_plan_smart(c, o, p)
                                                                    : plan_fixed(c, p);
    if (r == DAVY_OK && (p->resized_w > DV_PICTURE_MAX_SIDE || p->resized_h > DV_PICTURE_MAX_SIDE)) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld is too long for this model",
                       (long long)p->width, (long long)p->height);
    }
    if (r == DAVY_OK) {
        count_patches(c, o, p);
    }
    return r;
}

davy_result dv_picture_plan_still(const dv_vlm_config *c, const dv_picture_options *o, int64_t width, int64_t height,
                                  dv_picture_plan *out) {
    dv_picture_plan p = {.width = width, .height = height};
    const davy_result r = plan(c, o, &p);
    if (r == DAVY_OK) {
        *out = p;
    }
    return r;
}

davy_result dv_picture_plan_video(const dv_vlm_config *c, const dv_picture_options *o, int64_t width, int64_t height,
                                  int64_t frames, dv_picture_plan *out) {
    if (c->picture.video_fps == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: %s models take no videos", dv_vlm_family_name(c->family));
    }
    if (frames < 1 || frames > DV_PICTURE_MAX_FRAMES) {
        return dv_fail(DAVY_E_INVALID, "captioning: %lld frames, expected 1 to %d", (long long)frames,
                       (int)DV_PICTURE_MAX_FRAMES);
    }
    dv_picture_plan p = {.width = width, .height = height, .frames = frames};
    const davy_result r = plan(c, o, &p);
    if (r == DAVY_OK) {
        *out = p;
    }
    return r;
}

bool dv_picture_smaller(const dv_vlm_config *c, const dv_picture_plan *plan_of, dv_picture_options *o) {
    if (c->picture.rule == DV_VLM_PICTURE_TILES && plan_of->rows > 0) {
        o->max_tiles = plan_of->tiles - 1;
        return true;
    }
    const int64_t unit = c->vision.merge * c->vision.merge * dv_max(plan_of->grid_t, 1);
    if (c->picture.rule == DV_VLM_PICTURE_SMART && plan_of->patches > unit) {
        o->max_pixels = dv_max(plan_of->resized_w * plan_of->resized_h * dv_max(plan_of->frames, 1) / 2, 1);
        return true;
    }
    return false;
}

/* ---- pixels ---- */

typedef struct preparing {
    const dv_vlm_config *c;
    const dv_picture_plan *plan;
    const dv_picture_work *work;
    float table[3][256];
    float *out;
    uint8_t *bytes; /* instead of out */
} preparing;

/* The references multiply in double, round, then subtract and divide in single precision. */
void dv_picture_table(const dv_vlm_config *config, float table[3][256]) {
    const dv_vlm_picture *rule = &config->picture;
    for (int c = 0; c < 3; c++) {
        for (int v = 0; v < 256; v++) {
            table[c][v] = ((float)((double)v * rule->rescale) - (float)rule->mean[c]) / (float)rule->std[c];
        }
    }
}

static davy_result resize(const preparing *p, const dv_rgb8 *from, int64_t w, int64_t h, dv_rgb8 *to) {
    const dv_pil_options o = {
        .filter = (dv_pil_filter)p->c->picture.filter, .pool = p->work->pool, .cpu = p->work->cpu};
    davy_result r = dv_picture_allocate(w, h, to);
    r = r < 0 ? r : dv_pil_resize(&o, from, to);
    if (r < 0) {
        dv_picture_free(to);
    }
    return r;
}

static void emit(preparing *p, const dv_rgb8 *frames) {
    const dv_picture_plan *plan = p->plan;
    const dv_patchify cut = {.frames = frames,
                             .n_frames = plan->patch_frames,
                             .patch = p->c->vision.patch,
                             .merge = p->c->vision.merge,
                             .grid_h = plan->grid_h,
                             .grid_w = plan->grid_w,
                             .table = (const float(*)[256])p->table,
                             .out = p->out,
                             .bytes = p->bytes};
    const int64_t n = plan->grid_h * plan->grid_w * plan->patch_values;
    dv_patchify_run(&cut, p->work->pool);
    p->out = p->out != NULL ? p->out + n : NULL;
    p->bytes = p->bytes != NULL ? p->bytes + n : NULL;
}

static davy_result prepare_tiles(preparing *p, const dv_rgb8 *picture) {
    const dv_picture_plan *plan = p->plan;
    const int64_t tile = p->c->picture.tile;
    dv_rgb8 first = {0};
    dv_rgb8 whole = {0};
    davy_result r = resize(p, picture, plan->first_w, plan->first_h, &first);
    r = r < 0 ? r : resize(p, &first, plan->resized_w, plan->resized_h, &whole);
    dv_picture_free(&first);
    for (int64_t i = 0; r == DAVY_OK && i < (int64_t)plan->rows * plan->cols; i++) {
        const dv_rgb8 cut = {.data = whole.data + i / plan->cols * tile * whole.stride + i % plan->cols * tile * 3,
                             .width = tile,
                             .height = tile,
                             .stride = whole.stride};
        emit(p, &cut);
    }
    if (r == DAVY_OK && plan->rows > 0) {
        dv_rgb8 global = {0};
        r = resize(p, &whole, tile, tile, &global);
        dv_picture_free(&whole);
        whole = global;
    }
    if (r == DAVY_OK) {
        emit(p, &whole);
    }
    dv_picture_free(&whole);
    return r;
}

static davy_result prepare_smart(preparing *p, const dv_rgb8 *pictures) {
    const dv_picture_plan *plan = p->plan;
    const int64_t given = dv_max(plan->frames, 1);
    dv_rgb8 frames[16] = {0}; /* config_vision.c: no more in a temporal patch */
    davy_result r = DAVY_OK;
    for (int64_t t = 0; r == DAVY_OK && t < plan->grid_t; t++) {
        int64_t own = 0;
        for (int64_t f = 0; r == DAVY_OK && f < plan->patch_frames; f++) { /* past the last frame: the last again */
            const int64_t at = t * p->c->vision.temporal + f;
            if (at < given) {
                r = resize(p, &pictures[at], plan->resized_w, plan->resized_h, &frames[f]);
                own++;
            } else {
                frames[f] = frames[own - 1];
            }
        }
        if (r == DAVY_OK) {
            emit(p, frames);
        }
        for (int64_t f = 0; f < own; f++) {
            dv_picture_free(&frames[f]);
        }
    }
    return r;
}

/* Around the middle of a square of the mean colour. */
static davy_result pad_square(const preparing *p, const dv_rgb8 *from, dv_rgb8 *to) {
    const int64_t side = p->plan->pad;
    const davy_result r = dv_picture_allocate(side, side, to);
    if (r < 0) {
        return r;
    }
    for (int64_t i = 0; i < side * side * 3; i++) {
        to->data[i] = (uint8_t)(p->c->picture.mean[i % 3] * 255);
    }
    const int64_t x = (side - from->width) / 2;
    const int64_t y = (side - from->height) / 2;
    for (int64_t row = 0; row < from->height; row++) {
        memcpy(to->data + (y + row) * to->stride + 3 * x, from->data + row * from->stride, (size_t)(3 * from->width));
    }
    return DAVY_OK;
}

static davy_result prepare_fixed(preparing *p, const dv_rgb8 *picture) {
    const dv_picture_plan *plan = p->plan;
    dv_rgb8 padded = {0};
    dv_rgb8 resized = {0};
    davy_result r = plan->pad > 0 ? pad_square(p, picture, &padded) : DAVY_OK;
    r = r < 0 ? r : resize(p, plan->pad > 0 ? &padded : picture, plan->resized_w, plan->resized_h, &resized);
    if (r == DAVY_OK) {
        dv_rgb8 middle = resized;
        middle.data += plan->crop_y * resized.stride + 3 * plan->crop_x;
        emit(p, &middle);
    }
    dv_picture_free(&padded);
    dv_picture_free(&resized);
    return r;
}

static davy_result prepare(preparing *p, const dv_rgb8 *pictures) {
    const dv_vlm_config *c = p->c;
    const dv_picture_plan *plan_of = p->plan;
    const int64_t n = dv_max(plan_of->frames, 1);
    for (int64_t i = 0; i < n; i++) {
        if (pictures[i].width != plan_of->width || pictures[i].height != plan_of->height) {
            return dv_fail(DAVY_E_SHAPE, "captioning: picture %lld is %lldx%lld, not the %lldx%lld of the others",
                           (long long)i, (long long)pictures[i].width, (long long)pictures[i].height,
                           (long long)plan_of->width, (long long)plan_of->height);
        }
    }
    if (c->picture.rule == DV_VLM_PICTURE_SMART) {
        return prepare_smart(p, pictures);
    }
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        r = c->picture.rule == DV_VLM_PICTURE_TILES ? prepare_tiles(p, &pictures[i]) : prepare_fixed(p, &pictures[i]);
    }
    return r;
}

davy_result dv_picture_prepare(const dv_vlm_config *c, const dv_picture_plan *plan_of, const dv_picture_work *work,
                               const dv_rgb8 *pictures, float *patches) {
    preparing p = {.c = c, .plan = plan_of, .work = work, .out = patches};
    dv_picture_table(c, p.table);
    return prepare(&p, pictures);
}

davy_result dv_picture_bytes(const dv_vlm_config *c, const dv_picture_plan *plan_of, const dv_picture_work *work,
                             const dv_rgb8 *pictures, uint8_t *patches) {
    preparing p = {.c = c, .plan = plan_of, .work = work, .bytes = patches};
    return prepare(&p, pictures);
}
