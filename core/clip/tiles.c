/* tiles.c - see tiles.h. Frames are computed whole if they fit, even in the shortest slices. Otherwise they get the largest tiles that
 * fit, chosen as for pictures. The output of a tile's slice is added to the fade band in f32. Finished rows are converted to the
 * caller's format. If the caller's frames are in GPU memory, a few rows at a time are uploaded and converted there. */
#include "core/clip/tiles.h"

#include "core/base/error.h"
#include "core/cuda/gpu.h"
#include "core/tiles/engine_plan.h"
#include "core/tiles/fade_band.h"
#include "core/tiles/picture_view.h"
#include "core/tiles/search.h"
#include "core/tiles/pictures.h"
#include "kernels/cuda/cuda.h"

enum { ROW_BYTES = 16 << 20 }; /* bytes of finished rows that are uploaded to a GPU at once */

struct dv_clip_tiles {
    dv_engine *e;
    dv_clip_tiles_desc desc;
    dv_clip_rule rule;
    uint64_t limit;            /* bytes really available, after memory within the budget was refused; 0: unknown */
    dv_tile_schedule schedule; /* tiles = 1: frames are computed whole */
    int64_t out_c;             /* output channels, set when tiles have been chosen */
    bool each;                 /* every tile has its own stream */
    dv_axis y, x;              /* of the tiles */
    dv_clip_stream **streams;  /* one per tile, row by row, or one for all; NULL: not opened yet */
    int64_t n_streams;
    dv_clip_stream_info info; /* the same for all streams */
    dv_fade_band band;        /* for all frames of a run, or of a slice */
    uint64_t band_bytes;
    float *results; /* output of one tile's slice */
    int64_t taken;  /* frames of the clip so far */
    bool lost;
};

static bool is_whole(const dv_clip_tiles *t) {
    return t->schedule.tiles == 1;
}

/* Output samples of a tile's side. */
static int64_t output_side(const dv_axis *a) {
    return a->tile * a->num / a->den;
}

/* ---- memory ---- */

static int64_t results_of_slice(const dv_clip_rule *rule, int64_t slice) {
    return dv_max(dv_slice_out(rule, dv_slice_of(rule, slice, false), false),
                  dv_slice_out(rule, dv_slice_of(rule, slice, true), true));
}

static uint64_t tile_result_bytes(const dv_clip_tiles *t) {
    return (uint64_t)(results_of_slice(&t->rule, t->info.slice) * t->info.out_h * t->info.out_w * t->info.out_c) *
           sizeof(float);
}

static void give_memory(dv_clip_tiles *t) {
    dv_heap *heap = t->e->services.heap;
    if (t->results != NULL) {
        dv_heap_free(heap, DV_MEM_WORKSPACE, t->results, tile_result_bytes(t));
    }
    if (t->band.rows != NULL) {
        dv_heap_free(heap, DV_MEM_WORKSPACE, t->band.rows, t->band_bytes);
    }
    t->band.rows = t->results = NULL;
}

/* Bytes of the band for a row of tiles, with all frames of the clip or those of a slice. */
static uint64_t band_bytes(const dv_clip_tiles *t, const dv_axis_desc *y, int64_t slice, int64_t channels) {
    const int64_t frames = t->each ? results_of_slice(&t->rule, slice) : dv_slice_out(&t->rule, t->desc.frames, false);
    return (uint64_t)(frames * (y->tile * y->num / y->den) * (t->desc.w * y->num / y->den) * channels) * sizeof(float);
}

static uint64_t results_bytes(const dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x, int64_t slice,
                              int64_t channels) {
    const int64_t tile = y->tile * y->num / y->den * (x->tile * x->num / x->den);
    return (uint64_t)(results_of_slice(&t->rule, slice) * tile * channels) * sizeof(float);
}

/* Bytes that this file takes from the memory that streams use. On a GPU they are the rows uploaded for conversion. */
static uint64_t caller_bytes(const dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x, int64_t slice,
                             int64_t channels) {
    const uint64_t band = band_bytes(t, y, slice, channels);
    return t->e->services.n_gpus == 0 ? band + results_bytes(t, y, x, slice, channels)
           : band < ROW_BYTES         ? band
                                      : ROW_BYTES;
}

/* ---- the choice ---- */

typedef struct stream_cost {
    const dv_clip_tiles *t;
    bool offloads;  /* states are offloaded to host memory */
    int64_t *out_c; /* receives the output channels, the same for all tiles */
} stream_cost;

static davy_result measure(const void *user, const dv_request *request, dv_tile_schedule *l) {
    const stream_cost *g = user;
    const dv_clip_tiles *t = g->t;
    dv_clip_need need;
    dv_axis_desc y;
    dv_axis_desc x;
    const dv_clip_stream_desc tile = {.stage = request->stage, .h = l->tile_h, .w = l->tile_w};
    const davy_result r = dv_clip_stream_least(t->e, &tile, l->lean, &need);
    if (r < 0) {
        return r;
    }
    *g->out_c = need.out_c;
    dv_tile_schedule_axes(t->e, request, l, &y, &x);
    l->tiles = dv_tile_count(&y) * dv_tile_count(&x);
    l->groups = l->tiles;
    const uint64_t streams = (uint64_t)(t->each ? l->tiles : 1);
    l->workspace = need.arena + (g->offloads ? need.resident * (streams - 1) : need.state * streams);
    l->band = l->tiles > 1 ? caller_bytes(t, &y, &x, t->rule.step, need.out_c) : 0;
    l->weights = need.weights;
    l->copies = t->e->services.n_gpus > 0 ? 0 : (uint64_t)dv_min((int64_t)need.weights, (int64_t)DV_STORE_BATCH_BYTES);
    l->flops = need.flops * (uint64_t)l->tiles;
    l->cost = need.cost * (double)l->tiles;
    return DAVY_OK;
}

/* Available bytes, within the limit. */
static uint64_t available(const dv_clip_tiles *t) {
    const uint64_t all = dv_engine_available(t->e);
    return t->limit > 0 && t->limit < all ? t->limit : all;
}

static davy_result choose(dv_clip_tiles *t) {
    const dv_clip_tiles_desc *d = &t->desc;
    const dv_request request = {.stage = d->stage, .h = d->h, .w = d->w, .tiling = d->tiling};
    const int ways = t->e->services.n_gpus > 0 ? 2 : 1;
    davy_result r = DAVY_E_BUDGET;
    t->each = d->frames == 0;
    for (int offloads = 0; r == DAVY_E_BUDGET && offloads < ways; offloads++) {
        const stream_cost g = {.t = t, .offloads = offloads != 0, .out_c = &t->out_c};
        const dv_schedule_cost with = {.measure = measure, .user = &g};
        r = dv_tile_schedule_choose_by(t->e, &with, &request, available(t), &t->schedule);
    }
    return r;
}

/* ---- streams ---- */

static davy_result make_streams(dv_clip_tiles *t, int64_t n) {
    t->streams = dv_calloc((uint64_t)n, sizeof(dv_clip_stream *));
    t->n_streams = t->streams != NULL ? n : 0;
    return t->streams != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "clip: out of memory");
}

/* Opens the first stream, whose choice all others use. */
static davy_result join_first(dv_clip_tiles *t, int64_t h, int64_t w, int64_t slice, uint64_t taken) {
    const dv_stream_group group = {.streams = t->n_streams,
                                   .caller_bytes = dv_engine_available(t->e) - available(t) + taken};
    const dv_clip_stream_desc desc = {.stage = t->desc.stage, .h = h, .w = w, .slice = slice, .group = &group};
    return dv_clip_stream_open(t->e, &desc, t->streams);
}

static davy_result open_whole(dv_clip_tiles *t) {
    const dv_clip_tiles_desc *d = &t->desc;
    t->schedule = (dv_tile_schedule){.tile_h = d->h, .tile_w = d->w, .tiles = 1};
    const dv_clip_stream_desc alone = {
        .stage = d->stage, .h = d->h, .w = d->w, .frames = d->parts ? 0 : d->frames, .slice = d->slice};
    davy_result r = make_streams(t, 1);
    r = r < 0          ? r
        : t->limit > 0 ? join_first(t, d->h, d->w, d->slice, 0)
                       : dv_clip_stream_open(t->e, &alone, t->streams);
    if (r == DAVY_OK) {
        dv_clip_stream_info_get(t->streams[0], &t->info);
    }
    return r;
}

static davy_result make_axes(dv_clip_tiles *t, dv_axis_desc *y, dv_axis_desc *x) {
    const dv_request request = {.stage = t->desc.stage, .h = t->desc.h, .w = t->desc.w};
    dv_tile_schedule_axes(t->e, &request, &t->schedule, y, x);
    const davy_result r = dv_axis_create(y, &t->y);
    return r < 0 ? r : dv_axis_create(x, &t->x);
}

/* Uses the requested slice length if memory also suffices for the results; on the CPU both use the same memory. */
static davy_result open_first(dv_clip_tiles *t, const dv_axis_desc *y, const dv_axis_desc *x) {
    const bool gpu = t->e->services.n_gpus > 0;
    const int64_t step = t->rule.step;
    const int64_t preferred = gpu ? t->desc.slice : dv_max(t->desc.slice, step);
    davy_result r = join_first(t, y->tile, x->tile, preferred, caller_bytes(t, y, x, preferred, t->out_c));
    if (r == DAVY_E_BUDGET && preferred > step) {
        r = join_first(t, y->tile, x->tile, step, caller_bytes(t, y, x, step, t->out_c));
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
    if (r < 0 || t->schedule.tiles == 1) {
        return r;
    }
    r = make_axes(t, &y, &x);
    r = r < 0 ? r : make_streams(t, t->each ? t->schedule.tiles : 1);
    r = r < 0 ? r : open_first(t, &y, &x);
    const int64_t frames =
        t->each ? results_of_slice(&t->rule, t->info.slice) : dv_slice_out(&t->rule, t->desc.frames, false);
    const dv_fade_band_desc band = {.y = &t->y,
                                    .x = &t->x,
                                    .frames = frames,
                                    .height = output_side(&t->y),
                                    .channels = t->info.out_c,
                                    .pool = t->e->services.pool};
    return r < 0 ? r : dv_fade_band_create(&band, &t->band);
}

static davy_result open_stream(dv_clip_tiles *t, int64_t tile) {
    if (t->streams[tile] != NULL) {
        return DAVY_OK;
    }
    const dv_stream_group group = {.streams = t->n_streams, .arena_owner = t->streams[0]};
    const dv_clip_stream_desc desc = {.stage = t->desc.stage, .h = t->y.tile, .w = t->x.tile, .group = &group};
    return dv_clip_stream_open(t->e, &desc, &t->streams[tile]);
}

static void close_streams(dv_clip_tiles *t) {
    give_memory(t);
    for (int64_t i = t->n_streams - 1; i >= 0; i--) { /* the first last: the others use its memory */
        dv_clip_stream_release(t->streams[i]);
    }
    dv_free(t->streams);
    t->streams = NULL;
    t->n_streams = 0;
    dv_fade_band_free(&t->band);
    dv_axis_free(&t->y);
    dv_axis_free(&t->x);
}

static davy_result open_streams(dv_clip_tiles *t) {
    const bool requested = t->desc.tiling.width > 0 || t->desc.tiling.height > 0;
    if (t->streams != NULL) {
        return DAVY_OK;
    }
    davy_result r = requested ? DAVY_E_BUDGET : open_whole(t);
    if (r == DAVY_E_BUDGET && t->desc.tiling.width >= 0) {
        close_streams(t);
        r = open_tiles(t);
        r = r == DAVY_OK && t->schedule.tiles == 1 ? open_whole(t) : r; /* one tile is as large as the frame */
    }
    if (r < 0) {
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
                              ? open_streams(t)
                              : dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s clips", e->file_name,
                                        dv_stage_name(desc->stage));
    if (r < 0) {
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
    const bool whole = is_whole(t);
    const uint64_t tiles = (uint64_t)t->schedule.tiles;
    *out = (dv_clip_tiles_info){.tiles_y = whole ? 1 : t->y.count,
                                .tiles_x = whole ? 1 : t->x.count,
                                .tile_h = whole ? t->desc.h : t->y.tile,
                                .tile_w = whole ? t->desc.w : t->x.tile,
                                .slice = t->info.slice,
                                .flops_first = t->info.flops_first * tiles,
                                .flops_step = t->info.flops_step * tiles};
    const bool in_host = !whole && t->e->services.n_gpus == 0;
    out->memory_bytes = stream_bytes(t) + (in_host ? dv_fade_band_bytes(&t->band) + tile_result_bytes(t) : 0);
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
    const bool opened = open_streams(t) == DAVY_OK;
    t->limit = opened ? limit : 0;
    dv_error_set(&refused);
    return opened;
}

/* ---- finished rows in the memory of a GPU ---- */

static davy_result store_chunk(const dv_work *work, dv_gpu_queue *q, const dvk_image *image, const dvk_view *rows,
                               void *block) {
    dvk_view view = *rows;
    view.data = block;
    const dvk_convert_args args = dv_store_args(work, image, &view);
    const dvk_cuda_caps *caps = dv_gpu_caps(q->gpu);
    const dvk_cuda_kernel *kernel = dvk_cuda_choose("store", &args, caps, DVK_COMPUTES_F32);
    if (kernel == NULL || (kernel->scratch_bytes != NULL && kernel->scratch_bytes(&args, caps) > 0)) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op store that needs no scratch");
    }
    const davy_result r = dv_gpu_upload(q, block, rows->data, (uint64_t)(rows->h * rows->sh) * sizeof(float));
    return r < 0 ? r : dv_gpu_check(q->gpu, kernel->enqueue(&args, NULL, &q->base), "store");
}

/* block: device memory for at_once rows. */
static davy_result store_all(const dv_work *work, dv_gpu_queue *q, const dvk_convert_args *args, int64_t at_once,
                             void *block) {
    const dvk_image *image = &args->image;
    const dvk_view *rows = &args->view;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < rows->n; i++) {
        for (int64_t y = 0; r == DAVY_OK && y < rows->h; y += at_once) {
            const int64_t n = dv_min(at_once, rows->h - y);
            const dvk_image to = dv_image_part(image, i, y, 0, n, image->w);
            const dvk_view frame = dv_view_pictures(rows, i, 1);
            dvk_view part = dv_view_part(&frame, y, 0, n, rows->w, rows->c);
            r = store_chunk(work, q, &to, &part, block);
        }
    }
    return r;
}

static davy_result store_rows_cuda(const dv_clip_tiles *t, const dv_work *work, const dvk_convert_args *args) {
    dv_gpu *gpu = dv_engine_gpu(t->e, 0);
    const dvk_view *rows = &args->view;
    const uint64_t row = (uint64_t)rows->sh * sizeof(float);
    const int64_t at_once = dv_min(dv_max((int64_t)(ROW_BYTES / row), 1), rows->h);
    dv_gpu_queue *q = NULL;
    void *block = NULL;
    davy_result r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, row * (uint64_t)at_once, "rows of a clip", &block);
    if (r < 0) {
        return r;
    }
    r = dv_gpu_queue_take(gpu, work->stream, &q);
    if (r == DAVY_OK) {
        r = store_all(work, q, args, at_once, block);
        const davy_result waited = dv_gpu_queue_wait(q, NULL, NULL); /* the block must be unused when it is freed */
        r = r < 0 ? r : waited;
        dv_gpu_queue_give(q);
    }
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, block, row * (uint64_t)at_once);
    return r;
}

typedef struct run {
    dv_clip_tiles *t;
    const dv_work *work;
    dv_work parts[2]; /* each has its frames in one place */
    int n_parts;
    dv_watch watch; /* of the work between the streams' runs */
    dv_control quiet;
    int64_t slices, done; /* slices of tiles: all, finished */
} run;

/* ---- parts of a run ---- */

/* The control for part [done, done + share) of `all` parts of a control's progress. */
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

/* place: the place of the slice's output in the band. */
static davy_result run_slice(run *r, const cut *c, const dv_fade_place *place, dv_clip_stream *stream) {
    dv_clip_tiles *t = r->t;
    const int64_t ty = place->ty, tx = place->tx;
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
    return result < 0 ? result : dv_fade_band_add(&t->band, &view, place, &r->watch);
}

/* Computes a tile: of slice c only if each tile has its stream, otherwise of c and all later slices. */
static davy_result run_tile(run *r, cut c, int64_t ty, int64_t tx) {
    dv_clip_tiles *t = r->t;
    const int64_t tile = t->each ? ty * t->x.count + tx : 0;
    const int64_t begin = c.out;
    davy_result result = open_stream(t, tile);
    if (result == DAVY_OK && !t->each) {
        dv_clip_stream_reset(t->streams[0]);
    }
    for (bool more = true; result == DAVY_OK && more;) {
        const dv_fade_place place = {.frame = c.out - begin, .ty = ty, .tx = tx};
        result = run_slice(r, &c, &place, t->streams[tile]);
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
    return w->out_device ? store_rows_cuda(t, w, &args) : dv_convert_alone(&t->e->services, "store", &args, &r->watch);
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
        result = result < 0 ? result : store_rows(r, c, ty);
        result = result < 0 ? result : dv_fade_band_end_row(&t->band, ty, &r->watch);
    }
    return result;
}

/* ---- memory ---- */

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
        r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, tile_result_bytes(t), "tiles of a clip", &results);
        t->results = results;
    }
    return r;
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
        return dv_fail(DAVY_E_STATE, "%s: the clip was lost after an error; begin a new clip",
                       dv_stage_name(t->desc.stage));
    }
    for (int i = 0; i < r->n_parts; i++) {
        const bool continues = t->taken + frames > 0;
        const int64_t n = r->parts[i].in.n;
        const int64_t least = continues ? t->rule.step : t->rule.first;
        if (n < least || (n - least) % t->rule.step != 0) {
            return dv_fail(DAVY_E_SHAPE, "%s: %lld frames at frame %lld of a clip are not possible",
                           dv_stage_name(t->desc.stage), (long long)n, (long long)(t->taken + frames));
        }
        made += dv_slice_out(&t->rule, n, continues);
        frames += n;
    }
    if ((t->desc.frames > 0 && (t->taken > 0 || frames != t->desc.frames)) || w->out.n != made) {
        return dv_fail(DAVY_E_SHAPE, "%s: %lld frames of a clip of %lld give %lld frames; the output has %lld",
                       dv_stage_name(t->desc.stage), (long long)frames, (long long)t->desc.frames, (long long)made,
                       (long long)w->out.n);
    }
    if (w->in.h != t->desc.h || w->in.w != t->desc.w || w->out.h != h || w->out.w != width || w->out.channels < 1 ||
        w->out.channels > t->info.out_c) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: frames of %lld x %lld to %lld x %lld with %d channels do not match a clip of %lld x %lld",
                       dv_stage_name(t->desc.stage), (long long)w->in.w, (long long)w->in.h, (long long)w->out.w,
                       (long long)w->out.h, (int)w->out.channels, (long long)t->desc.w, (long long)t->desc.h);
    }
    return DAVY_OK;
}

/* If each tile has its stream, slice after slice goes through all tiles. Otherwise each tile goes through the whole clip. */
static davy_result run_tiles(run *r) {
    dv_clip_tiles *t = r->t;
    cut c = first_cut(r);
    davy_result result = take_memory(t);
    for (bool more = true; result == DAVY_OK && more;) {
        result = run_rows(r, &c, t->each ? c.n_out : r->work->out.n);
        more = t->each && next_cut(r, &c);
        t->taken = result < 0 ? t->taken : t->each ? c.taken : t->desc.frames;
    }
    return result;
}

davy_result dv_clip_tiles_run(dv_clip_tiles *t, const dv_work *work, const dvk_image *tail) {
    run r = {.t = t, .work = work, .quiet = work->control};
    davy_result result = open_streams(t);
    if (result < 0) {
        return result;
    }
    split(&r, tail);
    if (is_whole(t)) {
        return run_whole(&r);
    }
    result = check(&r);
    if (result < 0) {
        return result;
    }
    r.slices = t->schedule.tiles * count_cuts(&r);
    r.quiet.progress = NULL;
    dv_watch_begin(&r.watch, &r.quiet, dv_stage_name(t->desc.stage), 1.0);
    result = run_tiles(&r);
    if (result < 0) {
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
