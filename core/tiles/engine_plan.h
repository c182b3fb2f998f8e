/* engine_plan.h - what an engine consists of, and the plans that it makes: the network of a stage for pictures of one size, as
 * steps of a device. Rooms that compute with an engine (tiles, clip) use this header; all others use engine.h. */
#ifndef DV_ENGINE_PLAN_H
#define DV_ENGINE_PLAN_H

#include "core/base/os.h"
#include "core/exec/run.h"
#include "core/plan/int8.h"
#include "core/tiles/engine.h"

enum { DV_STAGES = 4, DV_CACHED_TILE_PLANS = 8, DV_LANES = 16 };

/* Sides of the pictures and latents that a stage is built for when only its channels, weights or rules are asked for. */
enum { DV_PROBE_PIXELS = 64, DV_PROBE_LATENTS = 8 };

/* What a caller asks for. Cached tile plans are kept under it. */
typedef struct dv_request {
    dv_stage stage;
    bool grey;
    int64_t pictures;      /* computed at once: of a batch, or frames of a clip; 0 and 1: one */
    bool continues;        /* the frames of a clip come after others */
    bool second;           /* only the first frames of the clip, the least number, come before them */
    bool keeps;            /* others may come after these */
    dv_exec_policy policy; /* of a clip */
    bool apart;            /* the result is taken from its place: no step stores pictures itself */
    bool given_means;      /* as in dv_plan_options */
    bool own_norms;        /* the norms of a tile are over the tile: there is no memory for what shared norms keep */
    int64_t batch;         /* pictures of a call, of which the schedule may put several together; 0 and 1: one */
    int64_t h, w;
    dv_tiling tiling;
    uint64_t memory_limit; /* bytes there really are, after a device refused memory within the budget; 0: unknown */
    int64_t max_together;  /* tiles at once, after a device refused memory for more; 0: any number */
} dv_request;

typedef struct dv_clip_choice_cache dv_clip_choice_cache; /* clip/choose.c */
struct dv_cached_tile_plan;                               /* pictures.h */
struct dv_picture_run;                                    /* picture_run.h */

struct dv_engine {
    dv_services services;
    dv_tensors *tensors;
    dv_json *config;
    char *file_name;
    const dv_arch *arch;
    _Alignas(16) unsigned char cfg[DV_ARCH_CONFIG_BYTES];
    dvk_dtype compute;
    dv_int8 int8;     /* compute is INT8: the convolutions that have eight bits */
    bool int8_open;   /* while these are listed: any may have them */
    bool int8_always; /* while these are tried: they have them, whether they gain or not */
    bool has_stage[DV_STAGES];
    dv_reach reach[DV_STAGES];
    uint64_t parameters, weight_bytes;
    dv_mutex *lock;
    dv_cond *finished;           /* a run ended */
    int32_t running;             /* under the lock, like all below */
    uint64_t running_bytes;      /* workspace of those runs */
    struct dv_picture_run *runs; /* those runs */
    int32_t n_lanes;             /* the CPU is one, or every GPU is one */
    dv_store *stores[DV_LANES];  /* replaced by unload */
    struct dv_cached_tile_plan *tile_plans[DV_CACHED_TILE_PLANS];
    dv_clip_choice_cache *clip_choices; /* how clips were computed before; NULL: none was */
    uint64_t clock;
};

/* NULL: the CPU computes. */
static inline dv_gpu *dv_engine_gpu(const dv_engine *e, int32_t lane) {
    return e->services.n_gpus > 0 ? e->services.gpus[lane] : NULL;
}

/* Whether its values leave the range of F16. */
static inline bool dv_engine_is_wide(const dv_engine *e) {
    return e->arch->wide != NULL && e->arch->wide(e->cfg);
}

/* Whether a tile of this size is the whole picture. */
static inline bool dv_tile_is_whole(const dv_request *q, int64_t tile_h, int64_t tile_w) {
    return q->h == tile_h && q->w == tile_w;
}

static inline const char *dv_stage_name(dv_stage stage) {
    return stage == DV_STAGE_ENCODE ? "encode" : stage == DV_STAGE_DECODE ? "decode" : "upscale";
}

uint64_t dv_engine_budget(const dv_engine *e); /* of the first lane */

/* The network of a stage for h x w, built and checked; a request in grey has a luma behind it. */
davy_result dv_engine_build_graph(const dv_engine *e, const dv_request *request, int64_t h, int64_t w, dv_graph **out);

typedef struct dv_plan_desc {
    int32_t lane; /* that is to compute it */
    int64_t h, w; /* of a tile, or of a slice's frames */
    bool lean;    /* as in dv_plan_options */
} dv_plan_desc;

/* The same network, planned for a lane. */
davy_result dv_engine_make_plan(const dv_engine *e, const dv_request *request, const dv_plan_desc *desc, dv_plan **out);

/* Bytes below which no plan of such a request has its arena, for frames that no others come before or after. */
davy_result dv_engine_least_arena(const dv_engine *e, const dv_request *request, int64_t h, int64_t w, uint64_t *bytes);

#endif
