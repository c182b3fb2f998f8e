/* search.h - which tiles a picture is computed in, and how many of them together: the best schedule within a number of bytes. */
#ifndef DV_TILE_SEARCH_H
#define DV_TILE_SEARCH_H

#include "core/tiles/engine_plan.h"
#include "core/tiles/tile.h"

#define DV_WORTH_SHARING_NS 3e6 /* what takes less stays on one GPU */

/* How a picture is computed: which tiles, which kernels. */
typedef struct dv_tile_schedule {
    int64_t tile_h, tile_w;
    int64_t overlap; /* input samples */
    bool exact;      /* tiles are cut, and the result is that of the whole picture */
    bool lean;
    bool comfortable; /* not the last resort: faded tiles have their whole overlap */
    int64_t tiles;    /* of a picture */
    int64_t together; /* tiles, whatever their picture, that one run of the steps computes */
    int64_t groups;   /* such runs, for all pictures */
    int32_t lanes;    /* to which the groups are dealt */
    int32_t means;    /* means that the tiles of a picture share: a pass over all tiles for each, picture by picture */
    int32_t norms;    /* norms that they share: all tiles are run as far as each of them, picture by picture */
    uint64_t kept;    /* of the workspace: what tiles leave between these passes */
    bool apart;       /* as in dv_request */
    uint64_t workspace; /* of an instance */
    uint64_t band;      /* f32 rows in which fades are added up */
    uint64_t weights;   /* not packed yet */
    uint64_t copies;    /* of them, while they are packed, at least */
    uint64_t flops;     /* all tiles of a picture */
    double cost;        /* also */
    double moving;      /* ns that the pictures of a group take between the host and a GPU */
    dv_plan *plan; /* owned: that of the steps on the first lane, from which these numbers are; NULL: is to be made */
} dv_tile_schedule;

/* *to becomes *from, which gives its plan away. */
static inline void dv_tile_schedule_move(dv_tile_schedule *to, dv_tile_schedule *from) {
    dv_plan_release(to->plan);
    *to = *from;
    from->plan = NULL;
}

static inline void dv_tile_schedule_drop_plan(dv_tile_schedule *l) {
    dv_plan_release(l->plan);
    l->plan = NULL;
}

/* What something else than pictures costs that is cut into tiles alike: `measure` is given a schedule whose tile size, overlap and
 * `lean` are set. */
typedef struct dv_schedule_cost {
    davy_result (*measure)(const void *user, const dv_request *request, dv_tile_schedule *l);
    const void *user;
} dv_schedule_cost;

/* The best schedule within `available` bytes, with its plan; *out is zero. store: what is packed already, NULL: nothing.
 * DAVY_E_BUDGET names need and budget. */
davy_result dv_tile_schedule_choose(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                    dv_tile_schedule *out);
/* The same by a cost of the caller's, one tile at a time and without a plan. */
davy_result dv_tile_schedule_choose_by(dv_engine *e, const dv_schedule_cost *cost, const dv_request *request,
                                       uint64_t available, dv_tile_schedule *out);

void dv_tile_schedule_axes(const dv_engine *e, const dv_request *request, const dv_tile_schedule *l, dv_axis_desc *y,
                           dv_axis_desc *x);

/* Whether the tiles of a picture share something, so that they go through several passes. */
static inline bool dv_tile_schedule_shares(const dv_tile_schedule *l) {
    return l->means > 0 || l->norms > 0;
}

/* The request that a run of the steps is planned for. */
static inline dv_request dv_tile_schedule_request(const dv_request *request, const dv_tile_schedule *l) {
    dv_request q = *request;
    q.pictures = l->together > 1 ? l->together : q.pictures;
    q.apart = l->apart;
    q.given_means = dv_tile_schedule_shares(l);
    return q;
}

static inline bool dv_tile_schedule_better(const dv_tile_schedule *a, const dv_tile_schedule *b) {
    return a->comfortable != b->comfortable ? a->comfortable : a->cost < b->cost;
}

/* Whether tiles change nothing for a network of this reach. */
static inline bool dv_stage_tiles_exactly(const dv_reach *reach) {
    return !reach->global && !reach->strays && reach->halo <= 64;
}

#endif
