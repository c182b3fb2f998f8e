/* network.h - facts about a network before its graph is built: its weights, its stages, the clip lengths a stage
 * takes. */
#ifndef DV_NETWORK_H
#define DV_NETWORK_H

#include "core/base/json.h"
#include "core/graph/graph.h"

typedef struct dv_probe {
    const dv_tensors *tensors; /* without wrapper prefixes */
    const dv_json *config;     /* config.json beside the weights; NULL: none */
    const char *file_name;     /* last component, "" if unknown */
    int64_t split[2];          /* height and width of DAT's windows from the caller; 0: not given */
} dv_probe;

typedef enum dv_stage { DV_STAGE_UPSCALE = 1, DV_STAGE_ENCODE = 2, DV_STAGE_DECODE = 3 } dv_stage;

/* The clip lengths of a clip autoencoder, in frames or latents: the smallest input, the step by which it may grow, and
 * the output of each. */
typedef struct dv_clip_rule {
    int64_t first, step;
    int64_t first_out, step_out;
    bool second; /* the slice right behind a first slice of exactly `first` is computed differently from later ones */
    /* frames at a clip's end that make no whole step. Up to `spare` are left out; if there are more, the last
     * frame is repeated to fill the step */
    int64_t spare;
} dv_clip_rule;

#endif
