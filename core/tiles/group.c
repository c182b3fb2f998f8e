/* group.c - what a layout costs, and how many tiles a run of the steps computes. A small tile does not fill a GPU:
 * most of its time passes between the steps and in the last wave of each, so several are computed together, of one picture
 * or of a batch, as long as the estimates of real plans say that this takes less time and the memory is there. Kernels are
 * chosen by the whole of a group's work; where that is another one than for a tile alone, so may be the rounding. The CPU
 * computes one at a time: its units fill its cores, and small arenas its caches. */
#include "core/tiles/picture_run.h"

#define GROUP_WORKSPACE (2ull << 30)
#define MAX_TIME_RATIO  0.95 /* of the time before */
#define HOST_BYTES_A_NS 10.0 /* a byte a sample */

enum { MOST_TOGETHER = 256 };

/* Tiles that share something are of one picture. */
static int64_t pictures_at_once(const dv_request *q, const dv_tile_schedule *l) {
    return dv_tile_schedule_shares(l) ? 1 : dv_max(q->batch, 1);
}

static int64_t tiles_in_all(const dv_request *q, const dv_tile_schedule *l) {
    return l->tiles * pictures_at_once(q, l);
}

dv_request dv_tile_schedule_request(const dv_request *request, const dv_tile_schedule *l) {
    dv_request q = *request;
    q.pictures = l->together > 1 ? l->together : q.pictures;
    q.apart = l->apart;
    q.given_means = dv_tile_schedule_shares(l);
    return q;
}

/* Of a group's pictures, with the caller's pixels. */
static int64_t samples_of(const dv_plan *plan) {
    const dvk_view *in = &plan->input;
    const dvk_view *out = &plan->output;
    return in->n * in->h * in->w * dv_max(in->c, 4) + out->n * out->h * out->w * dv_max(out->c, 4);
}

/* Device memory through which they pass, in f32: two turns where there are several groups, and what the first of several
 * GPUs may have to hold for each of the others. */
static uint64_t staging_of(const dv_plan *plan, const dv_tile_schedule *l) {
    const int64_t turns = (l->groups > 1 ? 2 : 1) + dv_max(l->lanes - 1, 0);
    int64_t means = 0;
    for (int32_t k = 0; k < plan->n_means; k++) {
        means = dv_max(means, l->tiles * plan->means[k].x.c);
    }
    const int64_t norms = l->tiles * dv_norm_floats(plan);
    return (uint64_t)(samples_of(plan) * turns + means + norms) * sizeof(float) + 2 * l->band;
}

/* Of a pass for each mean and of that for the result. */
static void add_passes(const dv_plan *plan, uint64_t *flops, double *cost) {
    *flops = plan->flops;
    *cost = plan->cost;
    for (int32_t k = 0; k < plan->n_means; k++) {
        *flops += plan->means[k].flops;
        *cost += plan->means[k].cost;
    }
}

davy_result dv_tile_schedule_measure(dv_engine *e, dv_store *store, const dv_request *request, dv_tile_schedule *l) {
    const dv_reach *reach = &e->reach[request->stage];
    const bool gpu = e->services.n_gpus > 0;
    dv_axis_desc y;
    dv_axis_desc x;
    dv_tile_schedule_axes(e, request, l, &y, &x);
    l->tiles = dv_tile_count(&y) * dv_tile_count(&x);
    l->means = l->tiles > 1 ? reach->n_means : 0;
    l->norms = l->tiles > 1 && !request->own_norms ? reach->n_norms : 0;
    const dv_request q = dv_tile_schedule_request(request, l);
    dv_plan *plan = NULL;
    uint64_t flops = 0;
    const davy_result r = dv_engine_make_plan(e, 0, &q, l->tile_h, l->tile_w, l->lean, &plan);
    if (r != DAVY_OK) {
        return r;
    }
    add_passes(plan, &flops, &l->cost);
    l->groups =
        dv_div_up(tiles_in_all(request, l), l->together) * (dv_max(request->batch, 1) / pictures_at_once(request, l));
    l->workspace = dv_plan_workspace(plan, gpu ? 1 : dv_pool_threads(e->services.pool));
    l->weights = store != NULL ? dv_store_missing(store, request->stage, plan) : plan->weight_bytes;
    l->copies = gpu ? 0 : dv_store_copies(store, request->stage, plan); /* a GPU's are in the host's memory */
    l->flops = flops / (uint64_t)l->together * (uint64_t)l->tiles;
    l->cost *= (double)l->tiles / (double)l->together;
    l->moving = (double)samples_of(plan) / HOST_BYTES_A_NS;
    l->band = l->tiles > 1 && !l->exact ? (uint64_t)(request->w * plan->output.h * plan->output.c) * sizeof(float) *
                                              (uint64_t)reach->num / (uint64_t)reach->den
                                        : 0;
    l->workspace += gpu ? staging_of(plan, l) : 0;
    l->kept = (uint64_t)dv_div_up(dv_div_up(l->tiles, l->together), dv_max(l->lanes, 1)) * plan->live_bytes;
    l->workspace += l->kept;
    dv_plan_release(plan);
    return DAVY_OK;
}

/* The f32 copies made while packing are gone before the workspace is taken. */
uint64_t dv_tile_schedule_need(const dv_tile_schedule *l) {
    const uint64_t run = l->workspace + l->band;
    return l->weights + (run > l->copies ? run : l->copies);
}

/* Tiles of one picture go to all GPUs, pictures of one tile where there is enough to do. */
static int32_t lanes_for(const dv_engine *e, const dv_request *q, const dv_tile_schedule *l) {
    const int64_t all = tiles_in_all(q, l);
    const bool shared = l->tiles > 1 || l->cost * (double)all >= DV_WORTH_SHARING_NS;
    return shared ? (int32_t)dv_min(e->n_lanes, all) : 1;
}

/* Of all groups, one behind the other; what is moved is hidden behind them, but for that of one group. */
static double time_of(const dv_tile_schedule *l) {
    return (double)l->groups * l->cost * (double)l->together / (double)l->tiles + l->moving;
}

davy_result dv_tile_schedule_group(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                   dv_tile_schedule *l) {
    const int64_t all = tiles_in_all(request, l);
    l->lanes = lanes_for(e, request, l);
    l->apart = l->lanes > 1;
    const int64_t most = dv_min(dv_div_up(all, l->lanes), request->most > 0 ? request->most : MOST_TOGETHER);
    if (request->batch > 1 || l->lanes > 1) { /* more to stage */
        const davy_result r = dv_tile_schedule_measure(e, store, request, l);
        if (r != DAVY_OK) {
            return r;
        }
    }
    if (e->services.n_gpus == 0 || e->arch->clip != NULL) { /* several at once are frames of a clip there */
        return DAVY_OK;
    }
    for (int64_t wish = 2; wish < 2 * most; wish *= 2) {
        dv_tile_schedule trial = *l;
        trial.together = dv_div_up(all, dv_div_up(all, dv_min(wish, most))); /* all groups alike */
        const davy_result r = dv_tile_schedule_measure(e, store, request, &trial);
        if (r != DAVY_OK && r != DAVY_E_UNSUPPORTED) { /* no kernel takes so many */
            return r;
        }
        if (r != DAVY_OK || trial.workspace - trial.kept > GROUP_WORKSPACE ||
            dv_tile_schedule_need(&trial) > available || time_of(&trial) > MAX_TIME_RATIO * time_of(l)) {
            break;
        }
        *l = trial;
    }
    l->lanes = (int32_t)dv_min(l->lanes, l->groups);
    return DAVY_OK;
}
