/* search.h - chooses the tile size of a picture and the number of tiles computed together: the best schedule within a memory
 * limit. */
#ifndef DV_TILE_SEARCH_H
#define DV_TILE_SEARCH_H

#include "core/tiles/engine_plan.h"
#include "core/tiles/tile.h"

#define DV_WORTH_SHARING_NS 3e6 /* shorter work stays on one GPU */

/* How a picture is computed: its tiles and the kind of kernels. */
typedef struct dv_tile_schedule {
    int64_t tile_h, tile_w;
    int64_t overlap;  /* input samples */
    bool exact;       /* tiles are cut without fades, and the result equals that of the whole picture */
    bool lean;        /* as in dv_plan_options: kernels with smaller packed weights */
    bool comfortable; /* faded tiles are large enough for the full overlap */
    int64_t tiles;    /* of a picture */
    int64_t together; /* tiles that one run of the steps computes; they may belong to several pictures */
    int64_t groups;   /* such runs, for all pictures */
    int32_t lanes;    /* over which the groups are distributed */
    int32_t means; /* means that the tiles of a picture share: one pass over all tiles for each, picture by picture */
    int32_t norms; /* norms that they share: all tiles are run up to each of them, picture by picture */
    uint64_t kept; /* part of the workspace: values that tiles keep between these passes */
    bool apart;    /* as in dv_request */
    uint64_t workspace; /* bytes of an instance */
    uint64_t band;      /* bytes of the f32 rows in which faded tiles are added up */
    uint64_t weights;   /* bytes of weights not packed yet */
    uint64_t copies;    /* least bytes of their f32 copies during packing */
    uint64_t flops;     /* of all tiles of a picture */
    double cost;        /* of all tiles of a picture, in ns */
    double moving;      /* ns to copy the pictures of a group between the host and a GPU */
    dv_plan *plan; /* owned: the plan of the steps on the first lane, which gave these numbers; NULL: not made yet */
} dv_tile_schedule;

/* Moves *from to *to. The plan's ownership moves, too. */
static inline void dv_tile_schedule_move(dv_tile_schedule *to, dv_tile_schedule *from) {
    dv_plan_release(to->plan);
    *to = *from;
    from->plan = NULL;
}

static inline void dv_tile_schedule_drop_plan(dv_tile_schedule *l) {
    dv_plan_release(l->plan);
    l->plan = NULL;
}

/* The cost of other work that is cut into the same tiles, such as clips. `measure` receives a schedule with tile size, overlap and
 * `lean` set and fills in the rest. */
typedef struct dv_schedule_cost {
    davy_result (*measure)(const void *user, const dv_request *request, dv_tile_schedule *l);
    const void *user;
} dv_schedule_cost;

/* Chooses the best schedule within `available` bytes, with its plan. *out must be zero. store: the packed weights; NULL: none.
 * DAVY_E_BUDGET: none fits; the message has the least need and the budget. */
davy_result dv_tile_schedule_choose(dv_engine *e, dv_store *store, const dv_request *request, uint64_t available,
                                    dv_tile_schedule *out);
/* The same with the caller's cost function, for one tile at a time and without a plan. */
davy_result dv_tile_schedule_choose_by(dv_engine *e, const dv_schedule_cost *cost, const dv_request *request,
                                       uint64_t available, dv_tile_schedule *out);

void dv_tile_schedule_axes(const dv_engine *e, const dv_request *request, const dv_tile_schedule *l, dv_axis_desc *y,
                           dv_axis_desc *x);

/* Whether the tiles of a picture share means or norms, so that they go through several passes. */
static inline bool dv_tile_schedule_shares(const dv_tile_schedule *l) {
    return l->means > 0 || l->norms > 0;
}

/* The request for the plan of one run of the steps. */
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

/* Whether tiles can reproduce the whole picture's result for a network of this reach. */
static inline bool dv_stage_tiles_exactly(const dv_reach *reach) {
    return !reach->global && !reach->strays && reach->halo <= 64;
}

#endif
