/* picture_size.c - the sizes that the models' preprocessors choose. Arithmetic is in double and truncated or rounded
 * exactly where theirs is: a different size would be a different number of tokens. */
#include <math.h>

#include "core/base/error.h"
#include "core/vlm/picture.h"

enum { TILES_MAX_EDGE = 4096 }; /* Idefics3's own bound */

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

davy_result dv_picture_plan_tiles(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    const int64_t tile = c->picture.tile;
    int64_t longest = c->picture.longest;
    const int64_t pixels = o->max_pixels > 0 ? o->max_pixels : INT64_MAX;
    const int64_t most = dv_max(dv_min(o->max_tiles > 0 ? o->max_tiles : INT64_MAX, pixels / (tile * tile)), 1);
    if (p->frames > 0 || !c->picture.split || most == 1) { /* one square, by way of the first size */
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
    while (got.tiles > most) { /* ends: a longest edge of one tile is one tile */
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

/* Sizes in multiples of f; the product of both and `frames` (1: not counted) between lo and hi. */
static size smart_resize(double w, double h, int64_t f, int64_t frames, int64_t lo, int64_t hi) {
    size s = {to_multiple(w, f, rint), to_multiple(h, f, rint)}; /* halves to even, as everybody's default mode */
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
                       "captioning: a picture of %.0fx%.0f is %.0f times as long as wide, this model takes "
                       "at most %d",
                       w, h, aspect, (int)DV_PICTURE_MAX_ASPECT);
    }
    return DAVY_OK;
}

davy_result dv_picture_plan_smart(const dv_vlm_config *c, const dv_picture_options *o, dv_picture_plan *p) {
    const dv_vlm_picture *rule = &c->picture;
    const int64_t f = c->vision.patch * c->vision.merge;
    const bool video = p->frames > 0;
    const bool together = video && c->family == DV_VLM_QWEN3; /* its limits are those of all frames */
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
    if (o->max_pixels > 0 && s.w * s.h * frames > hi) { /* a narrow picture; the models' own limit lets it be */
        int64_t *longer = s.w > s.h ? &s.w : &s.h;
        *longer = dv_max(hi / (dv_min(s.w, s.h) * frames) / f * f, f);
    }
    p->first_w = p->resized_w = s.w;
    p->first_h = p->resized_h = s.h;
    p->tiles = 1;
    return DAVY_OK;
}
