/* tiles.c - which tiles a clip is computed in: none where its frames fit whole, even in the shortest slices; else the
 * largest that fit, chosen as those of pictures are. */
#include "core/clip/tiles_priv.h"

#include "core/base/error.h"

/* ---- memory ---- */

int64_t dv_clip_tiles_made(const dv_clip_rule *rule, int64_t slice) {
    return dv_max(dv_slice_out(rule, dv_slice_of(rule, slice, false), false),
                  dv_slice_out(rule, dv_slice_of(rule, slice, true), true));
}

/* Of a row of tiles: all frames of the clip, or a slice's. */
static uint64_t band_bytes(const dv_clip_tiles *t, const dv_axis_desc *y, int64_t slice, int64_t channels) {
    const int64_t frames =
        t->each ? dv_clip_tiles_made(&t->rule, slice) : dv_slice_out(&t->rule, t->desc.frames, false);
    return (uint64_t)(frames * (y->tile * y->num / y->den) * (t->desc.w * y->num / y->den) * channels) * sizeof(float);
}

static uint64_t results_bytes(const dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x, int64_t slice,
                              int64_t channels) {
    const int64_t tile = y->tile * y->num / y->den * (x->tile * x->num / x->den);
    return (uint64_t)(dv_clip_tiles_made(&t->rule, slice) * tile * channels) * sizeof(float);
}

/* Memory of the kind that streams take: with a GPU, rows on their way to a caller's frames. */
static uint64_t beside(const dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x, int64_t slice,
                       int64_t channels) {
    const uint64_t band = band_bytes(t, y, slice, channels);
    return t->e->services.n_gpus == 0 ? band + results_bytes(t, y, x, slice, channels)
           : band < DV_CLIP_ROWS      ? band
                                      : DV_CLIP_ROWS;
}

/* ---- the choice ---- */

typedef struct gauge {
    const dv_clip_tiles *t;
    bool offloads; /* states lie in the host's memory */
} gauge;

static davy_result measure(const void *user, const dv_request *request, dv_tile_schedule *l) {
    const gauge *g = user;
    const dv_clip_tiles *t = g->t;
    dv_clip_need need;
    dv_axis_desc y;
    dv_axis_desc x;
    const davy_result r = dv_clip_stream_least(t->e, request->stage, l->tile_h, l->tile_w, l->lean, &need);
    if (r != DAVY_OK) {
        return r;
    }
    dv_tile_schedule_axes(t->e, request, l, &y, &x);
    l->tiles = dv_tile_count(&y) * dv_tile_count(&x);
    l->groups = l->tiles;
    const uint64_t streams = (uint64_t)(t->each ? l->tiles : 1);
    l->workspace = need.arena + (g->offloads ? need.stays * (streams - 1) : need.state * streams);
    l->band = l->tiles > 1 ? beside(t, &y, &x, t->rule.step, need.out_c) : 0;
    l->weights = need.weights;
    l->copies = t->e->services.n_gpus > 0 ? 0 : (uint64_t)dv_min((int64_t)need.weights, (int64_t)DV_STORE_BATCH_BYTES);
    l->flops = need.flops * (uint64_t)l->tiles;
    l->cost = need.cost * (double)l->tiles;
    return DAVY_OK;
}

/* Memory that can be had, of what is free. */
static uint64_t available(const dv_clip_tiles *t) {
    const uint64_t all = dv_engine_available(t->e);
    return t->limit > 0 && t->limit < all ? t->limit : all;
}

static davy_result choose(dv_clip_tiles *t) {
    const dv_clip_tiles_desc *d = &t->desc;
    const dv_request request = {.stage = d->stage, .h = d->h, .w = d->w, .tiling = d->tiling};
    const int kinds = t->e->services.n_gpus > 0 ? 2 : 1;
    davy_result r = DAVY_E_BUDGET;
    t->each = d->frames == 0;
    for (int offloads = 0; r == DAVY_E_BUDGET && offloads < kinds; offloads++) {
        const gauge g = {.t = t, .offloads = offloads != 0};
        const dv_schedule_cost with = {.measure = measure, .user = &g};
        r = dv_tile_schedule_choose_by(t->e, &with, &request, available(t), &t->layout);
    }
    return r;
}

/* ---- streams ---- */

static davy_result make_streams(dv_clip_tiles *t, int64_t n) {
    t->streams = dv_calloc((uint64_t)n, sizeof(dv_clip_stream *));
    t->n_streams = t->streams != NULL ? n : 0;
    return t->streams != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "clip: out of memory");
}

/* The first of them decides for all. */
static davy_result join_first(dv_clip_tiles *t, int64_t h, int64_t w, int64_t slice, uint64_t taken) {
    const dv_stream_group group = {.streams = t->n_streams, .beside = dv_engine_available(t->e) - available(t) + taken};
    return dv_clip_stream_join(t->e, t->desc.stage, h, w, slice, &group, t->streams);
}

static davy_result open_whole(dv_clip_tiles *t) {
    const dv_clip_tiles_desc *d = &t->desc;
    t->layout = (dv_tile_schedule){.tile_h = d->h, .tile_w = d->w, .tiles = 1};
    davy_result r = make_streams(t, 1);
    if (r == DAVY_OK) {
        r = t->limit > 0
                ? join_first(t, d->h, d->w, d->slice, 0)
                : dv_clip_stream_open(t->e, d->stage, d->h, d->w, d->parts ? 0 : d->frames, d->slice, t->streams);
    }
    if (r == DAVY_OK) {
        dv_clip_stream_info_get(t->streams[0], &t->info);
    }
    return r;
}

static davy_result make_axes(dv_clip_tiles *t, dv_axis_desc *y, dv_axis_desc *x) {
    const dv_request request = {.stage = t->desc.stage, .h = t->desc.h, .w = t->desc.w};
    dv_tile_schedule_axes(t->e, &request, &t->layout, y, x);
    const davy_result r = dv_axis_create(y, &t->y);
    return r == DAVY_OK ? dv_axis_create(x, &t->x) : r;
}

/* Slices as long as wished for, where there is room for what comes of them too. On the CPU that is the same memory. */
static davy_result open_first(dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x) {
    const bool gpu = t->e->services.n_gpus > 0;
    const int64_t step = t->rule.step;
    const int64_t wish = gpu ? t->desc.slice : dv_max(t->desc.slice, step);
    dv_clip_need need;
    davy_result r = dv_clip_stream_least(t->e, t->desc.stage, y->tile, x->tile, t->layout.lean, &need);
    if (r == DAVY_OK) {
        r = join_first(t, y->tile, x->tile, wish, beside(t, y, x, wish, need.out_c));
    }
    if (r == DAVY_E_BUDGET && wish > step) {
        r = join_first(t, y->tile, x->tile, step, beside(t, y, x, step, need.out_c));
    }
    if (r == DAVY_OK) {
        dv_clip_stream_info_get(t->streams[0], &t->info);
    }
    return r;
}

static davy_result open_tiles(dv_clip_tiles *t) {
    dv_axis_desc y;
    dv_axis_desc x;
    davy_result r = choose(t);
    if (r != DAVY_OK || t->layout.tiles == 1) {
        return r;
    }
    r = make_axes(t, &y, &x);
    r = r == DAVY_OK ? make_streams(t, t->each ? t->layout.tiles : 1) : r;
    r = r == DAVY_OK ? open_first(t, &y, &x) : r;
    const int64_t frames =
        t->each ? dv_clip_tiles_made(&t->rule, t->info.slice) : dv_slice_out(&t->rule, t->desc.frames, false);
    return r == DAVY_OK ? dv_fade_band_create(&t->y, &t->x, frames, dv_clip_tiles_out(&t->y), t->info.out_c,
                                              t->e->services.pool, &t->band)
                        : r;
}

davy_result dv_clip_tiles_stream(dv_clip_tiles *t, int64_t tile) {
    if (t->streams[tile] != NULL) {
        return DAVY_OK;
    }
    const dv_stream_group group = {.streams = t->n_streams, .arena_owner = t->streams[0]};
    return dv_clip_stream_join(t->e, t->desc.stage, t->y.tile, t->x.tile, 0, &group, &t->streams[tile]);
}

static void close_streams(dv_clip_tiles *t) {
    dv_clip_tiles_give_memory(t);
    for (int64_t i = t->n_streams - 1; i >= 0; i--) { /* the first has lent its memory */
        dv_clip_stream_release(t->streams[i]);
    }
    dv_free(t->streams);
    t->streams = NULL;
    t->n_streams = 0;
    dv_fade_band_free(&t->band);
    dv_axis_free(&t->y);
    dv_axis_free(&t->x);
}

davy_result dv_clip_tiles_streams(dv_clip_tiles *t) {
    const bool asked = t->desc.tiling.width > 0 || t->desc.tiling.height > 0;
    if (t->streams != NULL) {
        return DAVY_OK;
    }
    davy_result r = asked ? DAVY_E_BUDGET : open_whole(t);
    if (r == DAVY_E_BUDGET && t->desc.tiling.width >= 0) {
        close_streams(t);
        r = open_tiles(t);
        r = r == DAVY_OK && t->layout.tiles == 1 ? open_whole(t) : r; /* as large as that */
    }
    if (r != DAVY_OK) {
        close_streams(t);
    }
    return r;
}

/* ---- clips ---- */

davy_result dv_clip_tiles_open(dv_engine *e, const dv_clip_tiles_desc *desc, dv_clip_tiles **out) {
    dv_clip_tiles *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "clip: out of memory");
    }
    t->e = e;
    t->desc = *desc;
    const davy_result r = dv_engine_clip(e, desc->stage, &t->rule)
                              ? dv_clip_tiles_streams(t)
                              : dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s clips", e->file_name,
                                        dv_stage_name(desc->stage));
    if (r != DAVY_OK) {
        dv_clip_tiles_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}

void dv_clip_tiles_release(dv_clip_tiles *t) {
    if (t != NULL) {
        close_streams(t);
        dv_free(t);
    }
}

static uint64_t stream_bytes(const dv_clip_tiles *t) {
    return t->info.arena_bytes + (t->info.state_bytes - t->info.offloaded_bytes) * (uint64_t)dv_max(t->n_streams, 1);
}

void dv_clip_tiles_info_get(const dv_clip_tiles *t, dv_clip_tiles_info *out) {
    const bool whole = dv_clip_tiles_whole(t);
    const uint64_t tiles = (uint64_t)t->layout.tiles;
    *out = (dv_clip_tiles_info){.tiles_y = whole ? 1 : t->y.count,
                                .tiles_x = whole ? 1 : t->x.count,
                                .tile_h = whole ? t->desc.h : t->y.tile,
                                .tile_w = whole ? t->desc.w : t->x.tile,
                                .slice = t->info.slice,
                                .flops_first = t->info.flops_first * tiles,
                                .flops_step = t->info.flops_step * tiles};
    const bool in_host = !whole && t->e->services.n_gpus == 0;
    out->memory_bytes = stream_bytes(t) + (in_host ? dv_fade_band_bytes(&t->band) + dv_clip_tiles_results(t) : 0);
}

void dv_clip_tiles_reset(dv_clip_tiles *t) {
    for (int64_t i = 0; i < t->n_streams; i++) {
        if (t->streams[i] != NULL) {
            dv_clip_stream_reset(t->streams[i]);
        }
    }
    t->taken = 0;
    t->lost = false;
}

bool dv_clip_tiles_shrink(dv_clip_tiles *t) {
    enum { LEAST = 1 << 16 };
    const uint64_t had = stream_bytes(t);
    const uint64_t limit = (t->limit > 0 && t->limit < had ? t->limit : had) / 2;
    davy_error_info refused = {.struct_size = sizeof refused};
    if (t->taken > 0 || t->desc.tiling.width != 0 || t->desc.tiling.height != 0 || limit < LEAST) {
        return false;
    }
    dv_error_get(&refused);
    close_streams(t);
    t->limit = limit;
    const bool opened = dv_clip_tiles_streams(t) == DAVY_OK;
    t->limit = opened ? limit : 0;
    dv_error_set(&refused);
    return opened;
}
