/* search.c - chooses tiles. Candidates are measured by real plans, so the numbers are those of the run.
 *
 * A network that sees only a neighbourhood gives the same picture in any tiles. Its tiles are chosen so that a tile's workspace stays
 * moderate and little is computed twice. A network that sees the whole picture (group norms, attention) stays whole while the budget
 * allows it; then it gets the largest tiles that fit. The same holds if tiles share means or norms, because that takes several
 * passes. If the packed weights do not fit, kernels with smaller weights are tried, and the cheaper schedule is taken.
 *
 * A small tile does not fill a GPU: most of its time is spent between steps and in the last wave of each. So several tiles are computed
 * together, of one picture or of a batch. Their number grows while the plans' estimates say that this is faster and the memory
 * suffices. Kernels are chosen for the group's whole work. If that gives another kernel than for a single tile, rounding may differ.
 * The CPU computes one tile at a time: its units fill the cores, and a small arena fits the caches. */
#include "core/tiles/search.h"

#include <math.h>

#include "core/base/error.h"
#include "core/tiles/statistics.h"

#define EXACT_WORKSPACE     (1ull << 30) /* limit of a tile's workspace if tiles change nothing */
#define FADED_WORKSPACE     (2ull << 30) /* if tiles change little: a deep network with a finite reach */
#define GPU_EXACT_WORKSPACE (4ull << 30) /* a GPU is faster on large tiles and has no cache that small ones would fit */
#define GPU_FADED_WORKSPACE (8ull << 30)
#define GROUP_WORKSPACE     (2ull << 30)
#define MAX_TIME_RATIO      0.95 /* a larger group must take at most this share of the time before */
#define HOST_BYTES_A_NS     10.0 /* copy rate between host and GPU, at one byte per sample */

enum { MOST_USUAL_OVERLAP = 96, TRIES = 16, MAX_COLUMNS = 4096, MOST_TOGETHER = 256 };

/* ---- the cost of a schedule ---- */

/* Pictures whose tiles may be in one pass. Tiles that share means or norms are of one picture. */
static int64_t pictures_at_once(const dv_request *q, const dv_tile_schedule *l) {
    return dv_tile_schedule_shares(l) ? 1 : dv_max(q->batch, 1);
}

static int64_t tiles_in_all(const dv_request *q, const dv_tile_schedule *l) {
    return l->tiles * pictures_at_once(q, l);
}

/* Samples of a group's pictures in the caller's memory, counted with at least four channels. */
static int64_t samples_of(const dv_plan *plan) {
    const dvk_view *in = &plan->input;
    const dvk_view *out = &plan->output;
    return in->n * in->h * in->w * dv_max(in->c, 4) + out->n * out->h * out->w * dv_max(out->c, 4);
}

/* Device memory for staging these samples, in f32. It is doubled if there are several groups. The first of several GPUs also holds
 * the samples of each other GPU. */
static uint64_t staging_of(const dv_plan *plan, const dv_tile_schedule *l) {
    const int64_t turns = (l->groups > 1 ? 2 : 1) + dv_max(l->lanes - 1, 0);
    int64_t means = 0;
    for (int32_t k = 0; k < plan->n_means; k++) {
        means = dv_max(means, l->tiles * plan->means[k].x.c);
    }
    const int64_t norms = l->tiles * dv_norm_floats(plan);
    return (uint64_t)(samples_of(plan) * turns + means + norms) * sizeof(float) + 2 * l->band;
}

/* Adds up the passes for the means and the pass for the result. */
static void add_passes(const dv_plan *plan, uint64_t *flops, double *cost) {
    *flops = plan->flops;
    *cost = plan->cost;
    for (int32_t k = 0; k < plan->n_means; k++) {
        *flops += plan->means[k].flops;
        *cost += plan->means[k].cost;
    }
}

static davy_result measure_schedule(dv_engine *e, dv_store *store, const dv_request *request, dv_tile_schedule *l) {
    const dv_reach *reach = &e->reach[request->stage];
    const bool gpu = e->services.n_gpus > 0;
    dv_axis_desc y;
    dv_axis_desc x;
    dv_tile_schedule_axes(e, request, l, &y, &x);
    l->tiles = dv_tile_count(&y) * dv_tile_count(&x);
    l->means = l->tiles > 1 ? reach->n_means : 0;
    l->norms = l->tiles > 1 && !request->own_norms ? reach->n_norms : 0;
    const dv_request q = dv_tile_schedule_request(request, l);
    uint64_t flops = 0;
    dv_tile_schedule_drop_plan(l);
    const davy_result r =
        dv_engine_make_plan(e, &q, &(dv_plan_desc){.h = l->tile_h, .w = l->tile_w, .lean = l->lean}, &l->plan);
    if (r < 0) {
        return r;
    }
    const dv_plan *plan = l->plan;
    add_passes(plan, &flops, &l->cost);
    l->groups =
        dv_div_up(tiles_in_all(request, l), l->together) * (dv_max(request->batch, 1) / pictures_at_once(request, l));
    l->workspace = dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(e->services.pool));
    l->weights = store != NULL ? dv_store_missing(store, request->stage, plan) : plan->weight_bytes;
    l->copies = gpu ? 0 : dv_store_copies(store, request->stage, plan); /* for a GPU they are in host memory */
    l->flops = flops / (uint64_t)l->together * (uint64_t)l->tiles;
    l->cost *= (double)l->tiles / (double)l->together;
    l->moving = (double)samples_of(plan) / HOST_BYTES_A_NS;
    l->band = l->tiles > 1 && !l->exact ? (uint64_t)(request->w * plan->output.h * plan->output.c) * sizeof(float) *
                                              (uint64_t)reach->num / (uint64_t)reach->den
                                        : 0;
    l->workspace += gpu ? staging_of(plan, l) : 0;
    l->kept = (uint64_t)dv_div_up(dv_div_up(l->tiles, l->together), dv_max(l->lanes, 1)) * plan->live_bytes;
    l->workspace += l->kept;
    return DAVY_OK;
}

/* Total need. The f32 copies of packing are freed before the workspace is taken, so only the larger of both counts. */
static uint64_t need_of(const dv_tile_schedule *l) {
    const uint64_t run = l->workspace + l->band;
    return l->weights + (run > l->copies ? run : l->copies);
}

/* The number of GPUs. Several tiles of a picture use all; pictures of one tile do so if there is enough work. */
static int32_t lanes_for(const dv_engine *e, const dv_request *q, const dv_tile_schedule *l) {
    const int64_t all = tiles_in_all(q, l);
    const bool shared = l->tiles > 1 || l->cost * (double)all >= DV_WORTH_SHARING_NS;
    return shared ? (int32_t)dv_min(e->n_lanes, all) : 1;
}

/* Estimated time: the groups run one after the other; copies overlap with them, except those of one group. */
static double time_of(const dv_tile_schedule *l) {
    return (double)l->groups * l->cost * (double)l->together / (double)l->tiles + l->moving;
}

static davy_result group_tiles(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                               dv_tile_schedule *l) {
    const int64_t all = tiles_in_all(request, l);
    l->lanes = lanes_for(e, request, l);
    l->apart = l->lanes > 1;
    const int64_t most =
        dv_min(dv_div_up(all, l->lanes), request->max_together > 0 ? request->max_together : MOST_TOGETHER);
    if (request->batch > 1 || l->lanes > 1) { /* staging needs more memory */
        const davy_result r = measure_schedule(e, store, request, l);
        if (r < 0) {
            return r;
        }
    }
    if (e->services.n_gpus == 0 || e->arch->clip != NULL) { /* for a clip, several pictures at once mean its frames */
        return DAVY_OK;
    }
    for (int64_t target = 2; target < 2 * most; target *= 2) {
        dv_tile_schedule trial = *l;
        trial.plan = NULL;
        trial.together = dv_div_up(all, dv_div_up(all, dv_min(target, most))); /* groups of about equal size */
        const davy_result r = measure_schedule(e, store, request, &trial);
        if (r < 0 && r != DAVY_E_UNSUPPORTED) { /* DAVY_E_UNSUPPORTED: no kernel takes so many pictures */
            return r;
        }
        if (r < 0 || trial.workspace - trial.kept > GROUP_WORKSPACE || need_of(&trial) > available ||
            time_of(&trial) > MAX_TIME_RATIO * time_of(l)) {
            dv_tile_schedule_drop_plan(&trial);
            break;
        }
        dv_tile_schedule_move(l, &trial);
    }
    l->lanes = (int32_t)dv_min(l->lanes, l->groups);
    return DAVY_OK;
}

/* ---- tiles ---- */

typedef struct search {
    dv_engine *e;
    dv_store *store; /* NULL: nothing is packed */
    const dv_request *request;
    const dv_schedule_cost *cost; /* NULL: the cost of pictures */
    dv_reach reach;
    uint64_t available; /* bytes for workspace, band and weights */
    bool lean;
    bool shared;    /* the tiles are distributed over several GPUs */
    int64_t side;   /* the least tile side that is allowed at the moment */
    uint64_t least; /* least need of all schedules tried, for the message */
} search;

static int64_t round_up(int64_t v, int64_t step) {
    return dv_div_up(v, step) * step;
}

static bool can_be_exact(const search *s) {
    return dv_stage_tiles_exactly(&s->reach);
}

static int64_t exact_overlap(const search *s) {
    return 2 * round_up(s->reach.halo, s->reach.align);
}

/* With this overlap a photograph in tiles stays within 2/255 of the photograph computed whole. In a deep network with a finite
 * neighbourhood, the outer half of it has little influence. */
static int64_t usual_overlap(const search *s) {
    const int64_t finite = dv_min(MOST_USUAL_OVERLAP, 2 * round_up(s->reach.halo, s->reach.align));
    return s->request->stage == DV_STAGE_ENCODE   ? 128
           : s->request->stage == DV_STAGE_DECODE ? 16
           : s->reach.global                      ? 32
                                                  : dv_max(32, finite);
}

/* Sets the overlap of tiles of this size. Faded tiles use the requested overlap, or the usual one, but at most a quarter of the
 * tile's smaller side. */
static void set_overlap(const search *s, dv_tile_schedule *l) {
    const int64_t requested = s->request->tiling.overlap;
    if (can_be_exact(s) && (requested == 0 || requested >= exact_overlap(s))) {
        l->exact = true;
        l->overlap = dv_max(requested, exact_overlap(s));
        return;
    }
    l->exact = false;
    l->overlap = requested > 0 ? requested : dv_min(usual_overlap(s), dv_min(l->tile_h, l->tile_w) / 4);
}

void dv_tile_schedule_axes(const dv_engine *e, const dv_request *request, const dv_tile_schedule *schedule,
                           dv_axis_desc *y, dv_axis_desc *x) {
    const dv_reach *reach = &e->reach[request->stage];
    *y = (dv_axis_desc){.size = request->h,
                        .tile = schedule->tile_h,
                        .overlap = schedule->overlap,
                        .align = reach->align,
                        .margin = reach->global ? 0 : schedule->overlap / 4,
                        .num = reach->num,
                        .den = reach->den,
                        .exact = schedule->exact};
    *x = *y;
    x->size = request->w;
    x->tile = schedule->tile_w;
}

/* The least side of a tile. Smaller tiles would change the result too much. */
static int64_t smallest_side(const search *s) {
    const int64_t usual = s->request->stage == DV_STAGE_DECODE ? 16 : 64;
    return can_be_exact(s) ? dv_max(usual, exact_overlap(s) + 32) : usual;
}

/* Fills in the cost of a schedule with this tile size, one tile at a time. */
static davy_result measure(search *s, dv_tile_schedule *l) {
    set_overlap(s, l);
    l->lean = s->lean;
    l->together = 1;
    const davy_result r = s->cost != NULL ? s->cost->measure(s->cost->user, s->request, l)
                                          : measure_schedule(s->e, s->store, s->request, l);
    l->comfortable = s->side > smallest_side(s) || l->exact || l->tiles == 1;
    return r;
}

static bool fits(search *s, const dv_tile_schedule *l) {
    const uint64_t need = need_of(l);
    s->least = s->least == 0 || need < s->least ? need : s->least;
    return need <= s->available;
}

/* ---- automatic tiles ---- */

/* The least side at which a faded tile has its full overlap. */
static int64_t comfortable_side(const search *s) {
    return can_be_exact(s) ? smallest_side(s) : 4 * usual_overlap(s);
}

/* The size of each of `count` tiles along an axis. */
static int64_t even_tile(int64_t size, int64_t count, int64_t overlap, int64_t align) {
    const int64_t tile = dv_div_up(size + (count - 1) * overlap, count);
    return count == 1 ? size : dv_tile_fit(size, round_up(tile, align) + align, align);
}

/* Sets tiles of at most `area` samples, with nx tiles across. False: they would be too small. */
static bool columns_schedule(const search *s, int64_t nx, double area, dv_tile_schedule *l) {
    const dv_request *q = s->request;
    const int64_t least = s->side;
    l->tile_w = l->tile_h = dv_max(q->w / nx, least); /* a first guess, for the overlap */
    set_overlap(s, l);
    l->tile_w = even_tile(q->w, nx, l->overlap, s->reach.align);
    const int64_t room = (int64_t)dv_min((int64_t)(area / (double)l->tile_w), q->h);
    const int64_t step = room - l->overlap - 2 * s->reach.align;
    if (room < dv_min(least, q->h) || l->tile_w < dv_min(least, q->w) || (room < q->h && step < 1)) {
        return false;
    }
    const int64_t ny = room >= q->h ? 1 : dv_div_up(q->h - l->overlap, step);
    l->tile_h = even_tile(q->h, ny, l->overlap, s->reach.align);
    return l->tile_h <= room && l->tile_h >= dv_min(least, q->h);
}

/* The samples computed in all tiles; fewer are better. A fade may be visible, so faded tiles that are not square get a penalty. */
static double score(const search *s, const dv_tile_schedule *l) {
    dv_axis_desc y;
    dv_axis_desc x;
    dv_tile_schedule_axes(s->e, s->request, l, &y, &x);
    const double h = (double)l->tile_h;
    const double w = (double)l->tile_w;
    const double computed = (double)(dv_tile_count(&y) * dv_tile_count(&x)) * h * w;
    return l->exact ? computed : computed * (1.0 + 0.05 * (fmax(h / w, w / h) - 1.0));
}

/* The best tile size of at most `area` samples. */
static bool best_of_area(const search *s, double area, dv_tile_schedule *out) {
    double best = 0.0;
    for (int64_t nx = 1; nx <= dv_min(MAX_COLUMNS, s->request->w); nx++) {
        dv_tile_schedule l = {0};
        if (!columns_schedule(s, nx, area, &l)) {
            continue;
        }
        const double value = score(s, &l);
        if (best == 0.0 || value < best) {
            best = value;
            *out = l;
        }
    }
    return best > 0.0;
}

/* The area with which every GPU gets two tiles: one is copied while the other is computed. */
static double shared_area(const search *s) {
    const double all = (double)s->request->h * (double)s->request->w;
    return s->shared ? all / (2.0 * (double)s->e->n_lanes) : all;
}

/* Shrinks tiles until one fits. The estimate of bytes per sample is corrected by each plan made on the way. */
static davy_result search_tiles(search *s, uint64_t limit, const dv_tile_schedule *whole, dv_tile_schedule *out,
                                bool *found) {
    double per_sample = (double)whole->workspace / (double)(whole->tile_h * whole->tile_w);
    uint64_t kept = 0;
    *found = false;
    for (int i = 0; i < TRIES; i++) {
        const uint64_t fixed = whole->weights + kept;
        const uint64_t left = fixed < s->available ? s->available - fixed : 0;
        dv_tile_schedule l = {0};
        if (!best_of_area(s, fmin((double)(left < limit ? left : limit) / per_sample, shared_area(s)), &l)) {
            break;
        }
        const davy_result r = measure(s, &l);
        if (r < 0) {
            return r;
        }
        *found = fits(s, &l) && l.workspace + l.band <= limit;
        if (*found) {
            dv_tile_schedule_move(out, &l);
            return DAVY_OK;
        }
        dv_tile_schedule_drop_plan(&l);
        per_sample *= 1.02;
        per_sample = fmax(per_sample, 1.01 * (double)(l.workspace - l.kept + l.band) / (double)(l.tile_h * l.tile_w));
        kept = l.kept;
    }
    return DAVY_OK;
}

static davy_result choose_smallest(search *s, dv_tile_schedule *out, bool *found) {
    dv_tile_schedule l = {.tile_h = dv_tile_fit(s->request->h, smallest_side(s) + s->reach.align, s->reach.align),
                          .tile_w = dv_tile_fit(s->request->w, smallest_side(s) + s->reach.align, s->reach.align)};
    const davy_result r = measure(s, &l);
    *found = r == DAVY_OK && fits(s, &l);
    dv_tile_schedule_move(out, &l);
    return r;
}

static uint64_t limit_of(const search *s) {
    const bool gpu = s->e->services.n_gpus > 0;
    const bool passes = s->reach.n_means > 0 || s->reach.n_norms > 0;
    return s->reach.global || passes || s->cost != NULL ? UINT64_MAX
           : can_be_exact(s)                            ? (gpu ? GPU_EXACT_WORKSPACE : EXACT_WORKSPACE)
                                                        : (gpu ? GPU_FADED_WORKSPACE : FADED_WORKSPACE);
}

static davy_result choose_automatic(search *s, dv_tile_schedule *out, bool *found) {
    dv_tile_schedule whole = {.tile_h = s->request->h, .tile_w = s->request->w};
    davy_result r = measure(s, &whole);
    if (r < 0) {
        return r;
    }
    const uint64_t limit = limit_of(s);
    const bool whole_fits = fits(s, &whole) && whole.workspace <= limit;
    s->shared = s->e->n_lanes > 1 && limit != UINT64_MAX && whole.cost >= DV_WORTH_SHARING_NS;
    *found = false;
    if (!whole_fits || s->shared) {
        r = search_tiles(s, limit, &whole, out, found);
    }
    if (r == DAVY_OK && !*found && whole_fits) {
        dv_tile_schedule_move(out, &whole);
        *found = true;
    }
    dv_tile_schedule_drop_plan(&whole);
    if (r == DAVY_OK && !*found && s->side == smallest_side(s)) {
        r = choose_smallest(s, out, found);
    }
    return r;
}

/* ---- given tiles ---- */

static davy_result choose_given(search *s, dv_tile_schedule *out, bool *found) {
    const dv_request *q = s->request;
    const int64_t height = q->tiling.height > 0 ? q->tiling.height : q->tiling.width;
    const int64_t width = q->tiling.width > 0 ? q->tiling.width : height;
    dv_tile_schedule l = {.tile_h = q->h, .tile_w = q->w};
    if (q->tiling.width >= 0) {
        l.tile_w = dv_tile_fit(q->w, width, s->reach.align);
        l.tile_h = dv_tile_fit(q->h, height, s->reach.align);
    }
    set_overlap(s, &l);
    const int64_t least = l.overlap + s->reach.align;
    if ((l.tile_w < q->w && l.tile_w < least) || (l.tile_h < q->h && l.tile_h < least)) {
        return dv_fail(DAVY_E_INVALID,
                       "a tile of %lld x %lld is too small for an overlap of %lld; use larger tiles, with sides in "
                       "multiples of %lld",
                       (long long)width, (long long)height, (long long)dv_max(l.overlap, 0), (long long)s->reach.align);
    }
    const davy_result r = measure(s, &l);
    *found = r == DAVY_OK && fits(s, &l);
    dv_tile_schedule_move(out, &l);
    return r;
}

/* Tries the usual kernels, then lean ones, and takes the cheaper schedule. */
static davy_result choose_kernels(search *s, bool automatic, dv_tile_schedule *out, bool *found) {
    *found = false;
    for (int lean = 0; lean < (s->e->services.n_gpus > 0 ? 1 : 2); lean++) { /* all GPU kernels are lean */
        dv_tile_schedule l = {0};
        bool ok = false;
        s->lean = lean != 0;
        const davy_result r = automatic ? choose_automatic(s, &l, &ok) : choose_given(s, &l, &ok);
        if (r < 0) {
            dv_tile_schedule_drop_plan(&l);
            return r;
        }
        if (ok && (!*found || dv_tile_schedule_better(&l, out))) {
            dv_tile_schedule_move(out, &l);
            *found = true;
        }
        dv_tile_schedule_drop_plan(&l);
        if (*found && (!automatic || out->tiles == 1 || out->weights == 0)) {
            break;
        }
    }
    return DAVY_OK;
}

static davy_result choose_tiles(search *s, dv_tile_schedule *out) {
    const dv_request *request = s->request;
    const bool automatic = request->tiling.width == 0 && request->tiling.height == 0;
    bool found = false;
    s->side = comfortable_side(s);
    davy_result r = choose_kernels(s, automatic, out, &found);
    const bool shares =
        s->reach.n_norms > 0 && !request->own_norms; /* small tiles would be worse than norms of each tile */
    if (r == DAVY_OK && !found && automatic && !shares && s->side > smallest_side(s)) {
        s->side = smallest_side(s);
        r = choose_kernels(s, automatic, out, &found);
    }
    if (r == DAVY_OK && !found) {
        r = dv_fail(DAVY_E_BUDGET,
                    "%s of %lld x %lld needs at least %llu bytes%s; the memory budget has %llu of %llu bytes left",
                    dv_stage_name(request->stage), (long long)request->w, (long long)request->h,
                    (unsigned long long)s->least, automatic ? ", in the smallest tiles" : "",
                    (unsigned long long)s->available, (unsigned long long)dv_engine_budget(s->e));
    }
    return r;
}

static search search_of(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available) {
    return (search){
        .e = e, .store = store, .request = request, .reach = e->reach[request->stage], .available = available};
}

davy_result dv_tile_schedule_choose_by(dv_engine *e, const dv_schedule_cost *cost, const dv_request *request,
                                       uint64_t available, dv_tile_schedule *out) {
    search s = search_of(e, NULL, request, available);
    s.cost = cost;
    return choose_tiles(&s, out);
}

/* Chooses a schedule with shared norms or not, as request->own_norms says. The tiles do not depend on the number of pictures, unless
 * the memory for a batch leaves too little for them. Then smaller tiles are chosen. */
static davy_result choose_schedule(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                   dv_tile_schedule *out) {
    dv_request one = *request;
    one.batch = 1;
    search s = search_of(e, store, &one, available);
    davy_result r = choose_tiles(&s, out);
    if (r < 0) {
        return r;
    }
    const uint64_t alone = need_of(out);
    r = group_tiles(e, store, request, available, out);
    const uint64_t need = need_of(out);
    if (r == DAVY_OK && need > available && need - alone < available) {
        s = search_of(e, store, &one, available - (need - alone));
        r = choose_tiles(&s, out);
        r = r < 0 ? r : group_tiles(e, store, request, available, out);
    }
    return r;
}

davy_result dv_tile_schedule_choose(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                    dv_tile_schedule *out) {
    davy_result r = choose_schedule(e, store, request, available, out);
    if (r == DAVY_E_BUDGET && e->reach[request->stage].n_norms > 0) {
        dv_request own = *request;
        own.own_norms = true;
        r = choose_schedule(e, store, &own, available, out);
    }
    if (r < 0) {
        dv_tile_schedule_drop_plan(out);
    }
    return r;
}
