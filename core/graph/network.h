/* network.h - what is known of a network before its graph is built: its weights, its stages, how a stage takes clips. */
#ifndef DV_NETWORK_H
#define DV_NETWORK_H

#include "core/base/json.h"
#include "core/graph/graph.h"

typedef struct dv_probe {
    const dv_tensors *tensors; /* unwrapped */
    const dv_json *config;     /* config.json beside the weights; NULL: none */
    const char *file_name;     /* last component, "" if unknown */
    int64_t split[2];          /* what the caller says of DAT's windows: height and width; 0: nothing */
} dv_probe;

typedef enum dv_stage { DV_STAGE_UPSCALE = 1, DV_STAGE_ENCODE = 2, DV_STAGE_DECODE = 3 } dv_stage;

/* Of an autoencoder of clips: the least a clip may have, frames or latents, what becomes of it, and what every `step` more
 * add. */
typedef struct dv_clip_rule {
    int64_t first, step;
    int64_t first_out, step_out;
    bool second; /* what comes right behind `first` frames by themselves is computed otherwise than what comes later */
    int64_t spare; /* at a clip's end so many, or fewer, that make no whole step are left out; more have the last one
                    * repeated */
} dv_clip_rule;

#endif
