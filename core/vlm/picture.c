/* picture.c - converts the caller's pixels to the patches of a vision tower: 8-bit RGB as in Pillow, sizes as in the models'
 * preprocessors, frames of videos, tiles, normalised patches. */
#include "core/vlm/picture.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

/* ---- sizes, in double, truncated or rounded exactly as in the models' preprocessors: another size would give another number
 * of tokens ---- */

enum { TILES_MAX_EDGE = 4096 }; /* Idefics3's own limit */

/* ---- Idefics3 ---- */

typedef struct size {
    int64_t w, h;
} size;

static size longest_to(int64_t w, int64_t h, int64_t longest) {
    const double aspect = (double)w / (double)h;
    size s;
    if (w >= h) {
        s = (size){longest, (int64_t)((double)longest / aspect)};
        s.h += s.h % 2;
    } else {
        s = (size){(int64_t)((double)longest * aspect), longest};
        s.w += s.w % 2;
    }
    s = (size){dv_max(s.w, 1), dv_max(s.h, 1)};
    const double again = (double)s.w / (double)s.h;
    if (s.w >= s.h && s.w > TILES_MAX_EDGE) {
        s = (size){TILES_MAX_EDGE, dv_max((int64_t)(TILES_MAX_EDGE / again), 1)};
    } else if (s.h > s.w && s.h > TILES_MAX_EDGE) {
        s = (size){dv_max((int64_t)(TILES_MAX_EDGE * again), 1), TILES_MAX_EDGE};
    }
    return s;
}

static size whole_tiles(size s, int64_t tile) {
    const double aspect = (double)s.w / (double)s.h;
    if (s.w >= s.h) {
        s.w = dv_div_up(s.w, tile) * tile;
        s.h = dv_div_up((int64_t)((double)s.w / aspect), tile) * tile;
    } else {
        s.h = dv_div_up(s.h, tile) * tile;
        s.w = dv_div_up((int64_t)((double)s.h * aspect), tile) * tile;
    }
    return (size){dv_max(s.w, tile), dv_max(s.h, tile)};
}

static void split_at(const dv_picture_plan *in, int64_t longest, int64_t tile, dv_picture_plan *out) {
    *out = *in;
    const size first = longest_to(in->width, in->height, longest);
    const size tiles = whole_tiles(first, tile);
    out->first_w = first.w;
    out->first_h = first.h;
    out->resized_w = tiles.w;
    out->resized_h = tiles.h;
    const bool split = tiles.w > tile || tiles.h > tile;
    out->rows = split ? (int32_t)(tiles.h / tile) : 0;
    out->cols = split ? (int32_t)(tiles.w / tile) : 0;
    out->tiles = split ? (int64_t)out->rows * out->cols + 1 : 1;
}

static davy_result dv_picture_plan_tiles(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    const int64_t tile = c->picture.tile;
    int64_t longest = c->picture.longest;
    const int64_t pixels = o->max_pixels > 0 ? o->max_pixels : INT64_MAX;
    const int64_t most = dv_max(dv_min(o->max_tiles > 0 ? o->max_tiles : INT64_MAX, pixels / (tile * tile)), 1);
    if (p->frames > 0 || !c->picture.split || most == 1) { /* one square, after the first resize */
        const size first = longest_to(p->width, p->height, p->frames > 0 ? c->picture.video_longest : longest);
        p->first_w = first.w;
        p->first_h = first.h;
        p->resized_w = p->resized_h = tile;
        p->tiles = dv_max(p->frames, 1);
        return DAVY_OK;
    }
    const int64_t side = dv_max(p->width, p->height);
    if (o->keep_small && dv_div_up(side, tile) * tile < longest) {
        longest = dv_div_up(side, tile) * tile;
    }
    dv_picture_plan got;
    split_at(p, longest, tile, &got);
    while (got.tiles > most) { /* terminates: with a longest edge of one tile there is one tile */
        longest = (dv_div_up(longest, tile) - 1) * tile;
        split_at(p, longest, tile, &got);
    }
    *p = got;
    return DAVY_OK;
}

/* ---- Qwen ---- */

static int64_t to_multiple(double v, int64_t f, double (*whole)(double)) {
    return (int64_t)whole(v / (double)f) * f;
}

/* Sizes in multiples of f. The product of both and `frames` (1: not counted) is between lo and hi. */
static size smart_resize(double w, double h, int64_t f, int64_t frames, int64_t lo, int64_t hi) {
    size s = {to_multiple(w, f, rint), to_multiple(h, f, rint)}; /* rounds halves to even, the default mode */
    const int64_t volume = s.w * s.h * (int64_t)rint((double)frames / 2) * 2;
    const double own = w * h * (double)frames;
    const int64_t area = frames == 1 ? s.w * s.h : volume;
    if (area > hi) {
        const double beta = sqrt(own / (double)hi);
        s.w = dv_max(f, to_multiple(w / beta, f, floor));
        s.h = dv_max(f, to_multiple(h / beta, f, floor));
    } else if (area < lo) {
        const double beta = sqrt((double)lo / own);
        s.w = to_multiple(w * beta, f, ceil);
        s.h = to_multiple(h * beta, f, ceil);
    }
    return s;
}

static davy_result check_aspect(double w, double h) {
    const double aspect = w > h ? w / h : h / w;
    if (aspect > DV_PICTURE_MAX_ASPECT) {
        return dv_fail(DAVY_E_SHAPE,
                       "captioning: the sides of a picture of %.0fx%.0f have the ratio %.0f; this model allows "
                       "at most %d, so crop the picture",
                       w, h, aspect, (int)DV_PICTURE_MAX_ASPECT);
    }
    return DAVY_OK;
}

static davy_result dv_picture_plan_smart(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    const dv_vlm_picture *rule = &c->picture;
    const int64_t f = c->vision.patch * c->vision.merge;
    const bool video = p->frames > 0;
    const bool together = video && c->family == DV_VLM_QWEN3; /* its limits apply to all frames together */
    int64_t lo = video ? rule->video_min_pixels : rule->min_pixels;
    int64_t hi = video ? rule->video_max_pixels : rule->max_pixels;
    if (o->max_pixels > 0) {
        hi = dv_max(dv_min(hi, video && !together ? o->max_pixels / p->frames : o->max_pixels), 1);
        lo = dv_min(lo, hi);
    }
    double w = (double)p->width;
    double h = (double)p->height;
    if (together && (p->width < f || p->height < f)) {
        const double scale = fmax((double)f / h, (double)f / w);
        w = floor(w * scale);
        h = floor(h * scale);
    }
    const davy_result r = check_aspect(w, h);
    if (r < 0) {
        return r;
    }
    const int64_t frames = together ? dv_max(p->frames, 2) : 1;
    size s = smart_resize(w, h, f, frames, lo, hi);
    if (o->max_pixels > 0 && s.w * s.h * frames > hi) { /* a narrow picture; the model's own rule does not limit it */
        int64_t *longer = s.w > s.h ? &s.w : &s.h;
        *longer = dv_max(hi / (dv_min(s.w, s.h) * frames) / f * f, f);
    }
    p->first_w = p->resized_w = s.w;
    p->first_h = p->resized_h = s.h;
    p->tiles = 1;
    return DAVY_OK;
}

/* ---- the caller's pixels as 8-bit RGB, as in Pillow's conversions ---- */

davy_result dv_picture_allocate(int64_t width, int64_t height, dv_rgb8 *out) {
    *out = (dv_rgb8){.data = dv_calloc((uint64_t)height, (uint64_t)(3 * width)),
                     .width = width,
                     .height = height,
                     .stride = 3 * width};
    return out->data != NULL ? DAVY_OK
                             : dv_fail(DAVY_E_NOMEM_HOST, "a picture of %lldx%lld: out of memory", (long long)width,
                                       (long long)height);
}

void dv_picture_free(dv_rgb8 *p) {
    dv_free(p->data);
    *p = (dv_rgb8){0};
}

static uint8_t byte_of(const dv_pixels *p, const dv_mapping *unit, const char *at) {
    if (p->range == DAVY_RANGE_FULL && p->dtype == DAVY_DTYPE_U8) {
        return *(const uint8_t *)at;
    }
    const float v = dv_element_load(at, p->dtype);
    if (p->range == DAVY_RANGE_FULL && p->dtype == DAVY_DTYPE_U16) {
        return (uint8_t)((uint32_t)v >> 8);
    }
    const float x = rintf((v * unit->mul + unit->add) * 255.0f);
    return (uint8_t)(x >= 0.0f ? x < 255.0f ? x : 255.0f : 0.0f); /* NaN: 0 */
}

/* Pillow's alpha_composite over opaque white: 7 bits of fraction, division by 255 rounded to nearest. */
static uint8_t over_white(uint8_t v, uint8_t alpha) {
    if (alpha == 0) {
        return 255;
    }
    const uint32_t sum = 128u * ((uint32_t)v * alpha + 255u * (255u - alpha)) + (0x80u << 7);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> 7);
}

static void load_row(const dv_pixels *p, const dv_colours *colours, int64_t index, int64_t y, uint8_t *out) {
    const dv_mapping unit = dv_mapping_in(p, DAVY_RANGE_UNIT);
    const char *row = dv_pixels_at(p, index, y, 0, 0);
    int64_t from[3];
    for (int32_t c = 0; c < 3; c++) {
        from[c] = p->sc * (colours->count == 1 ? colours->map[0] : colours->map[c]);
    }
    if (colours->alpha < 0 && p->dtype == DAVY_DTYPE_U8 && p->range == DAVY_RANGE_FULL) { /* the most common case */
        for (int64_t x = 0; x < p->w; x++, out += 3, row += p->sw) {
            for (int32_t c = 0; c < 3; c++) {
                out[c] = *(const uint8_t *)(row + from[c]);
            }
        }
        return;
    }
    for (int64_t x = 0; x < p->w; x++, out += 3, row += p->sw) {
        const uint8_t alpha = colours->alpha >= 0 ? byte_of(p, &unit, row + colours->alpha * p->sc) : 255;
        for (int32_t c = 0; c < 3; c++) {
            const uint8_t v = byte_of(p, &unit, row + from[c]);
            out[c] = colours->alpha >= 0 ? over_white(v, alpha) : v;
        }
    }
}

davy_result dv_picture_load(const dv_pixels *p, int64_t index, dv_rgb8 *out) {
    if (p->on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: pictures must be in host memory");
    }
    if (p->h < 1 || p->w < 1 || p->h > DV_PICTURE_MAX_SIDE || p->w > DV_PICTURE_MAX_SIDE) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld; sides must be 1 to %d", (long long)p->w,
                       (long long)p->h, (int)DV_PICTURE_MAX_SIDE);
    }
    if (p->channels == DAVY_CHANNELS_LATENT || p->range == DAVY_RANGE_RAW) {
        return dv_fail(DAVY_E_INVALID, "captioning: expected a picture, not a latent or raw numbers");
    }
    const dv_colours colours = dv_colours_of(p->channels);
    const davy_result r = dv_picture_allocate(p->w, p->h, out);
    for (int64_t y = 0; r == DAVY_OK && y < p->h; y++) {
        load_row(p, &colours, index, y, out->data + y * out->stride);
    }
    return r;
}

/* ---- 8-bit pictures to normalised patches, in the towers' order ---- */

/* Writes one row of a patch as normalised numbers. put_bytes writes the bytes unchanged. */
static void put_numbers(const dv_patchify *p, const uint8_t *from, float *to) {
    const int64_t colour = p->n_frames * p->patch * p->patch;
    for (int64_t x = 0; x < p->patch; x++, from += 3) {
        to[x] = p->table[0][from[0]];
        to[x + colour] = p->table[1][from[1]];
        to[x + 2 * colour] = p->table[2][from[2]];
    }
}

static void put_bytes(const dv_patchify *p, const uint8_t *from, uint8_t *to) {
    const int64_t colour = p->n_frames * p->patch * p->patch;
    for (int64_t x = 0; x < p->patch; x++, from += 3) {
        to[x] = from[0];
        to[x + colour] = from[1];
        to[x + 2 * colour] = from[2];
    }
}

/* A unit of work is a row of merge blocks. */
static void run_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const dv_patchify *p = user;
    (void)worker;
    const int64_t side = p->patch;
    const int64_t plane = side * side;
    int64_t at = first * p->merge * p->grid_w * 3 * p->n_frames * plane;
    for (int64_t block = first * (p->grid_w / p->merge); block < last * (p->grid_w / p->merge); block++) {
        const int64_t top = block / (p->grid_w / p->merge) * p->merge;
        const int64_t left = block % (p->grid_w / p->merge) * p->merge;
        for (int64_t in_block = 0; in_block < p->merge * p->merge; in_block++, at += 3 * p->n_frames * plane) {
            const int64_t y0 = (top + in_block / p->merge) * side;
            const int64_t x0 = (left + in_block % p->merge) * side;
            for (int64_t row = 0; row < p->n_frames * side; row++) {
                const dv_rgb8 *frame = &p->frames[row / side];
                const uint8_t *from = frame->data + (y0 + row % side) * frame->stride + 3 * x0;
                if (p->bytes != NULL) {
                    put_bytes(p, from, p->bytes + at + row * side);
                } else {
                    put_numbers(p, from, p->out + at + row * side);
                }
            }
        }
    }
}

static void dv_patchify_run(const dv_patchify *p, dv_pool *pool) {
    const int64_t units = p->grid_h / p->merge;
    dv_patchify copy = *p;
    if (pool != NULL) {
        const dv_loop loop = {.units = units, .run = run_rows, .user = &copy};
        dv_pool_run(pool, &loop);
    } else {
        run_rows(&copy, 0, units, 0);
    }
}

/* ---- selection of a video's frames, and their times ---- */

/* Idefics3: evenly spaced, without the first and the last second if enough frames remain. Duplicates are removed. */
static int64_t frames_tiles(const dv_vlm_picture *p, int64_t total, double fps, int64_t *index) {
    const double seconds = (double)total / fps;
    const int64_t want = dv_max(dv_min((int64_t)rint(p->video_fps * seconds), p->video_max_frames), 1);
    int64_t first = 0;
    int64_t last = total - 1;
    if (seconds - 2.0 > (double)p->video_max_frames * p->video_fps) {
        first = (int64_t)fps;
        last = dv_min((int64_t)((double)total - fps), total - 1);
    }
    if (first >= last) {
        first = 0;
        last = total - 1;
    }
    const double step = want > 1 ? (double)(last - first) / (double)(want - 1) : 0;
    int64_t n = 0;
    for (int64_t i = 0; i < want; i++) {
        const int64_t at = i > 0 && i == want - 1 ? last : (int64_t)((double)i * step + (double)first);
        if (n == 0 || at != index[n - 1]) {
            index[n++] = at;
        }
    }
    return n;
}

/* Qwen2-VL, Qwen2.5-VL: a whole number of temporal patches, from the start on. Single precision, as in torch's arange. */
static int64_t frames_qwen2(const dv_vlm_picture *p, int64_t temporal, int64_t total, double fps, int64_t *index) {
    const int64_t most = dv_min(p->video_max_frames, total) / temporal * temporal;
    double want = (double)total / fps * p->video_fps;
    want = fmin(fmin(fmax(want, (double)p->video_min_frames), (double)most), (double)total);
    const int64_t n = (int64_t)floor(want / (double)temporal) * temporal;
    if (n == 0) { /* fewer frames than a temporal patch: takes all */
        for (int64_t i = 0; i < total; i++) {
            index[i] = i;
        }
        return total;
    }
    const double step = (double)total / (double)n;
    for (int64_t i = 0; i < n; i++) {
        index[i] = dv_min((int64_t)(float)((double)i * step), total - 1);
    }
    return n;
}

/* Qwen3-VL: from the first to the last frame, rounded. */
static int64_t frames_qwen3(const dv_vlm_picture *p, int64_t total, double fps, int64_t *index) {
    int64_t n = (int64_t)((double)total / fps * p->video_fps);
    n = dv_min(dv_min(dv_max(n, p->video_min_frames), p->video_max_frames), total);
    const double step = n > 1 ? (double)(total - 1) / (double)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        index[i] = i > 0 && i == n - 1 ? total - 1 : (int64_t)rint((double)i * step);
    }
    return n;
}

davy_result dv_video_frames(const dv_vlm_config *c, int64_t total, double fps, int64_t *index, int64_t *n) {
    const dv_vlm_picture *p = &c->picture;
    if (p->video_fps == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: %s models do not support videos",
                       dv_vlm_family_name(c->family));
    }
    if (total < 1 || total > INT32_MAX || !(fps > 1e-3 && fps < 1e5)) {
        return dv_fail(DAVY_E_INVALID, "captioning: a video of %lld frames at %g frames per second", (long long)total,
                       fps);
    }
    *n = c->family == DV_VLM_IDEFICS3 ? frames_tiles(p, total, fps, index)
         : c->family == DV_VLM_QWEN3  ? frames_qwen3(p, total, fps, index)
                                      : frames_qwen2(p, c->vision.temporal, total, fps, index);
    return DAVY_OK;
}

double dv_video_seconds(const dv_vlm_config *c, const int64_t *index, int64_t n, double fps, int64_t i) {
    const int64_t first = dv_min(i * c->vision.temporal, n - 1);
    const int64_t last = dv_min(first + c->vision.temporal - 1, n - 1);
    return ((double)index[first] / fps + (double)index[last] / fps) / 2;
}

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
    /* Half of an odd remainder rounds down, or to even (3/2 is 2 and 5/2 is 2). */
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
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: this %s model has no vision tower, so it takes no pictures",
                       dv_vlm_family_name(c->family));
    }
    if (p->width < 1 || p->height < 1 || p->width > DV_PICTURE_MAX_SIDE || p->height > DV_PICTURE_MAX_SIDE) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld; sides must be 1 to %d", (long long)p->width,
                       (long long)p->height, (int)DV_PICTURE_MAX_SIDE);
    }
    const davy_result r = c->picture.rule == DV_VLM_PICTURE_TILES   ? dv_picture_plan_tiles(c, o, p)
                          : c->picture.rule == DV_VLM_PICTURE_SMART ? dv_picture_plan_smart(c, o, p)
                                                                    : plan_fixed(c, p);
    if (r == DAVY_OK && (p->resized_w > DV_PICTURE_MAX_SIDE || p->resized_h > DV_PICTURE_MAX_SIDE)) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld is too narrow for this model; crop it",
                       (long long)p->width, (long long)p->height);
    }
    if (r == DAVY_OK) {
        count_patches(c, o, p);
    }
    return r;
}

davy_result dv_picture_plan_make(const dv_vlm_config *c, const dv_picture_options *o, const dv_picture_size *given,
                                 dv_picture_plan *out) {
    if (given->frames != 0 && c->picture.video_fps == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: %s models do not support videos",
                       dv_vlm_family_name(c->family));
    }
    if (given->frames < 0 || given->frames > DV_PICTURE_MAX_FRAMES) {
        return dv_fail(DAVY_E_INVALID, "captioning: %lld frames, expected 1 to %d", (long long)given->frames,
                       (int)DV_PICTURE_MAX_FRAMES);
    }
    dv_picture_plan p = {.width = given->width, .height = given->height, .frames = given->frames};
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

/* As in the reference preprocessors: multiply in double, round, then subtract and divide in single precision. */
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
    dv_rgb8 frames[16] = {0}; /* config_vision.c limits a temporal patch to 16 frames */
    davy_result r = DAVY_OK;
    for (int64_t t = 0; r == DAVY_OK && t < plan->grid_t; t++) {
        int64_t own = 0;
        for (int64_t f = 0; r == DAVY_OK && f < plan->patch_frames; f++) { /* repeats the last frame */
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

/* Centres the picture in a square filled with the mean colour. */
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
            return dv_fail(DAVY_E_SHAPE, "captioning: picture %lld is %lldx%lld, but the others are %lldx%lld",
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
