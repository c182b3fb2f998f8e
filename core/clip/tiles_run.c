/* tiles_run.c - the frames of a clip through its tiles: what comes of a tile's slice is added to the band, in f32 as the
 * network gives it, and finished rows are converted as the caller wants them. */
#include "core/clip/tiles_priv.h"
#include "core/tiles/picture_run.h"

#include "core/base/error.h"

typedef struct run {
    dv_clip_tiles *t;
    const dv_work *work;
    dv_work parts[2]; /* frames in one place each */
    int n_parts;
    dv_watch watch; /* of what is done between the streams' runs */
    dv_control quiet;
    int64_t slices, done; /* of tiles: in all, so far */
} run;

/* ---- parts of a run ---- */

/* Part [done, done + share) of `all` of what a control is for. */
static dv_control share_of(const dv_control *c, int64_t done, int64_t share, int64_t all) {
    const uint64_t whole = c->total > 0 ? c->share : 1000;
    dv_control part = *c;
    part.base = (c->total > 0 ? c->base : 0) * (uint64_t)all + whole * (uint64_t)done;
    part.share = whole * (uint64_t)share;
    part.total = (c->total > 0 ? c->total : whole) * (uint64_t)all;
    return part;
}

static void split(run *r, const dvk_image *tail) {
    const dv_work *w = r->work;
    const dv_clip_rule *rule = &r->t->rule;
    const int64_t made = w->in.n > 0 ? dv_slice_out(rule, w->in.n, r->t->taken > 0) : 0;
    r->parts[0] = *w;
    r->n_parts = 1;
    if (tail == NULL) {
        return;
    }
    dv_work *last = &r->parts[w->in.n > 0 ? 1 : 0];
    *last = *w;
    last->in = *tail;
    last->out.data = (char *)w->out.data + made * w->out.sn;
    last->out.n = w->out.n - made;
    if (w->in.n > 0) {
        const int64_t all = w->in.n + tail->n;
        r->parts[0].out.n = made;
        r->parts[0].control = share_of(&w->control, 0, w->in.n, all);
        last->control = share_of(&w->control, w->in.n, tail->n, all);
        r->n_parts = 2;
    }
}

static davy_result run_whole(run *r) {
    dv_clip_tiles *t = r->t;
    davy_result result = DAVY_OK;
    for (int i = 0; result == DAVY_OK && i < r->n_parts; i++) {
        result = dv_clip_stream_run(t->streams[0], &r->parts[i]);
        t->taken += result == DAVY_OK ? r->parts[i].in.n : 0;
    }
    return result;
}

/* ---- slices ---- */

typedef struct cut { /* a slice of a run */
    int part;
    int64_t in, n_in; /* frames of the part */
    int64_t out, n_out;
    int64_t taken; /* frames of the clip before it */
} cut;

static void measure_cut(const run *r, cut *c) {
    const dv_clip_tiles *t = r->t;
    const int64_t left = r->parts[c->part].in.n - c->in;
    c->n_in = dv_slice_of(&t->rule, dv_min(left, t->info.slice), c->taken > 0);
    c->n_out = dv_slice_out(&t->rule, c->n_in, c->taken > 0);
}

static cut first_cut(const run *r) {
    cut c = {.taken = r->t->taken};
    measure_cut(r, &c);
    return c;
}

static bool next_cut(const run *r, cut *c) {
    c->taken += c->n_in;
    c->in += c->n_in;
    c->out += c->n_out;
    if (c->in == r->parts[c->part].in.n) {
        c->part++;
        c->in = 0;
    }
    if (c->part == r->n_parts) {
        return false;
    }
    measure_cut(r, c);
    return true;
}

static int64_t count_cuts(const run *r) {
    cut c = first_cut(r);
    int64_t n = 1;
    while (next_cut(r, &c)) {
        n++;
    }
    return n;
}

/* ---- a tile ---- */

static dvk_image results_image(const dv_clip_tiles *t, int64_t frames) {
    const int64_t pixel = t->info.out_c * (int64_t)sizeof(float);
    dvk_image image = {.data = t->results,
                       .dtype = DVK_F32,
                       .channels = (int32_t)t->info.out_c,
                       .n = frames,
                       .h = t->info.out_h,
                       .w = t->info.out_w,
                       .sc = (int64_t)sizeof(float),
                       .sw = pixel,
                       .identity_map = 1};
    image.sh = image.sw * image.w;
    image.sn = image.sh * image.h;
    for (int32_t c = 0; c < 4 && c < image.channels; c++) {
        image.map[c] = c;
    }
    return image;
}

static dvk_view results_view(const dv_clip_tiles *t, int64_t frames) {
    const int64_t row = t->info.out_w * t->info.out_c;
    return (dvk_view){.data = t->results,
                      .dtype = DVK_F32,
                      .n = frames,
                      .h = t->info.out_h,
                      .w = t->info.out_w,
                      .c = t->info.out_c,
                      .sn = row * t->info.out_h,
                      .sh = row,
                      .sw = t->info.out_c};
}

/* at: of the slice's results in the band. */
static davy_result run_slice(run *r, const cut *c, int64_t at, int64_t ty, int64_t tx, dv_clip_stream *stream) {
    dv_clip_tiles *t = r->t;
    dv_work w = r->parts[c->part];
    w.in = dv_image_part(&w.in, c->in, t->y.origin[ty], t->x.origin[tx], t->y.tile, t->x.tile);
    w.in.n = c->n_in;
    w.out = results_image(t, c->n_out);
    w.out_device = false;
    w.out_mul = 1.0f;
    w.out_add = 0.0f;
    w.out_clamp = false;
    w.control = share_of(&r->work->control, r->done++, 1, r->slices);
    const davy_result result = dv_clip_stream_run(stream, &w);
    const dvk_view view = results_view(t, c->n_out);
    return result == DAVY_OK ? dv_fade_band_add(&t->band, &view, at, ty, tx, &r->watch) : result;
}

/* Of the slice alone, or of it and all behind it. */
static davy_result run_tile(run *r, cut c, int64_t ty, int64_t tx) {
    dv_clip_tiles *t = r->t;
    const int64_t tile = t->each ? ty * t->x.count + tx : 0;
    const int64_t begin = c.out;
    davy_result result = dv_clip_tiles_stream(t, tile);
    if (result == DAVY_OK && !t->each) {
        dv_clip_stream_reset(t->streams[0]);
    }
    for (bool more = true; result == DAVY_OK && more;) {
        result = run_slice(r, &c, c.out - begin, ty, tx, t->streams[tile]);
        more = !t->each && next_cut(r, &c);
    }
    return result;
}

/* ---- finished rows ---- */

static davy_result store_rows(run *r, const cut *c, int64_t ty) {
    const dv_clip_tiles *t = r->t;
    const dv_work *w = r->work;
    const dvk_view view = dv_fade_band_finished(&t->band, ty, w->out.channels);
    if (view.h == 0) {
        return DAVY_OK;
    }
    dvk_image image = dv_image_part(&w->out, c->out, t->band.row, 0, view.h, view.w);
    image.n = view.n;
    const dvk_convert_args args = dv_store_args(w, &image, &view);
    return w->out_device ? dv_clip_tiles_store_cuda(t, w, &image, &view)
                         : dv_convert_alone(&t->e->services, "store", &args, &r->watch);
}

static davy_result run_rows(run *r, const cut *c, int64_t frames) {
    dv_clip_tiles *t = r->t;
    davy_result result = DAVY_OK;
    t->band.frames = frames;
    for (int64_t ty = 0; result == DAVY_OK && ty < t->y.count; ty++) {
        result = dv_fade_band_begin_row(&t->band, ty, &r->watch);
        for (int64_t tx = 0; result == DAVY_OK && tx < t->x.count; tx++) {
            result = run_tile(r, *c, ty, tx);
        }
        result = result == DAVY_OK ? store_rows(r, c, ty) : result;
        result = result == DAVY_OK ? dv_fade_band_end_row(&t->band, ty, &r->watch) : result;
    }
    return result;
}

/* ---- memory ---- */

uint64_t dv_clip_tiles_results(const dv_clip_tiles *t) {
    return (uint64_t)(dv_clip_tiles_made(&t->rule, t->info.slice) * t->info.out_h * t->info.out_w * t->info.out_c) *
           sizeof(float);
}

static davy_result take_memory(dv_clip_tiles *t) {
    dv_heap *heap = t->e->services.heap;
    void *rows = t->band.rows;
    void *results = t->results;
    davy_result r = DAVY_OK;
    if (rows == NULL) {
        t->band_bytes = dv_fade_band_bytes(&t->band);
        r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, t->band_bytes, "tiles of a clip", &rows);
        t->band.rows = rows;
    }
    if (r == DAVY_OK && results == NULL) {
        r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, dv_clip_tiles_results(t), "tiles of a clip", &results);
        t->results = results;
    }
    return r;
}

void dv_clip_tiles_give_memory(dv_clip_tiles *t) {
    dv_heap *heap = t->e->services.heap;
    if (t->results != NULL) {
        dv_heap_free(heap, DV_MEM_WORKSPACE, t->results, dv_clip_tiles_results(t));
    }
    if (t->band.rows != NULL) {
        dv_heap_free(heap, DV_MEM_WORKSPACE, t->band.rows, t->band_bytes);
    }
    t->band.rows = t->results = NULL;
}

/* ---- a call ---- */

static davy_result check(const run *r) {
    const dv_clip_tiles *t = r->t;
    const dv_work *w = r->work;
    const int64_t h = dv_axis_end(&t->y, t->y.count - 1);
    const int64_t width = dv_axis_end(&t->x, t->x.count - 1);
    int64_t frames = 0;
    int64_t made = 0;
    if (t->lost) {
        return dv_fail(DAVY_E_STATE, "%s: the clip was lost to an error; a new one has to begin",
                       dv_stage_name(t->desc.stage));
    }
    for (int i = 0; i < r->n_parts; i++) {
        const bool continues = t->taken + frames > 0;
        const int64_t n = r->parts[i].in.n;
        const int64_t least = continues ? t->rule.step : t->rule.first;
        if (n < least || (n - least) % t->rule.step != 0) {
            return dv_fail(DAVY_E_SHAPE, "%s: %lld frames at a clip's frame %lld", dv_stage_name(t->desc.stage),
                           (long long)n, (long long)(t->taken + frames));
        }
        made += dv_slice_out(&t->rule, n, continues);
        frames += n;
    }
    if ((t->desc.frames > 0 && (t->taken > 0 || frames != t->desc.frames)) || w->out.n != made) {
        return dv_fail(DAVY_E_SHAPE, "%s: %lld frames of a clip of %lld give %lld, not %lld",
                       dv_stage_name(t->desc.stage), (long long)frames, (long long)t->desc.frames, (long long)made,
                       (long long)w->out.n);
    }
    if (w->in.h != t->desc.h || w->in.w != t->desc.w || w->out.h != h || w->out.w != width || w->out.channels < 1 ||
        w->out.channels > t->info.out_c) {
        return dv_fail(DAVY_E_SHAPE, "%s: frames of %lld x %lld to %lld x %lld with %d channels, expected %lld x %lld",
                       dv_stage_name(t->desc.stage), (long long)w->in.w, (long long)w->in.h, (long long)w->out.w,
                       (long long)w->out.h, (int)w->out.channels, (long long)t->desc.w, (long long)t->desc.h);
    }
    return DAVY_OK;
}

/* All tiles through the clip; or slice after slice through all tiles. */
static davy_result run_tiles(run *r) {
    dv_clip_tiles *t = r->t;
    cut c = first_cut(r);
    davy_result result = take_memory(t);
    for (bool more = true; result == DAVY_OK && more;) {
        result = run_rows(r, &c, t->each ? c.n_out : r->work->out.n);
        more = t->each && next_cut(r, &c);
        t->taken = result != DAVY_OK ? t->taken : t->each ? c.taken : t->desc.frames;
    }
    return result;
}

davy_result dv_clip_tiles_run(dv_clip_tiles *t, const dv_work *work, const dvk_image *tail) {
    run r = {.t = t, .work = work, .quiet = work->control};
    davy_result result = dv_clip_tiles_streams(t);
    if (result != DAVY_OK) {
        return result;
    }
    split(&r, tail);
    if (dv_clip_tiles_whole(t)) {
        return run_whole(&r);
    }
    result = check(&r);
    if (result != DAVY_OK) {
        return result;
    }
    r.slices = t->layout.tiles * count_cuts(&r);
    r.quiet.progress = NULL;
    dv_watch_begin(&r.watch, &r.quiet, dv_stage_name(t->desc.stage), 1.0);
    result = run_tiles(&r);
    if (result != DAVY_OK) {
        davy_error_info error = {.struct_size = sizeof error};
        const bool begun = t->taken > 0;
        dv_error_get(&error);
        if (dv_is_short(result) && !begun) {
            dv_clip_tiles_reset(t);
        }
        t->lost = begun || !dv_is_short(result);
        dv_error_set(&error);
    }
    return result;
}
