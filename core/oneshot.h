/* oneshot.h - upscale, vae_encode, vae_decode: from the caller's tensors to runs of the engine, one picture after the
 * other, now or as a job. The structs passed in are full-size (sized.h). */
#ifndef DV_ONESHOT_H
#define DV_ONESHOT_H

#include "core/model.h"
#include "core/tensor.h"

/* run: never NULL. out is written to on success only. job NULL: blocks. */
davy_result dv_oneshot(davy_model *model, davy_op op, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                       davy_job **job);
davy_result dv_oneshot_plan(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run,
                            davy_plan_info *out);
davy_result dv_oneshot_load(davy_model *model, const davy_run *run, davy_job **job);

/* ---- between oneshot.c, which checks, and oneshot_run.c, which works ---- */

typedef struct dv_call {
    davy_model *model; /* one reference */
    davy_op op;        /* 0: model_load */
    dv_stage stage;
    dv_pixels in, out;
    davy_buffer *in_buffer, *out_buffer; /* one reference each; NULL: the caller's memory */
    dv_mapping map_in, map_out;
    int32_t in_channels, out_channels; /* of the network's side of the maps */
    dv_colours colours_in, colours_out;
    dv_tiling tiling;
    bool alpha;     /* alpha goes through the network in a pass of its own */
    bool grey;      /* the result is the luma of three outputs */
    bool posterior; /* moments or a sample: through memory of our own */
    davy_run run;
    uint64_t deadline_ns;
    davy_job *job;        /* NULL: blocking */
    uint64_t progress_ns; /* of the last call to the host */
} dv_call;

int64_t dv_call_pictures(const dv_call *call);
int64_t dv_call_passes(const dv_call *call);     /* runs of the network for one picture */
uint64_t dv_call_workspace(const dv_call *call); /* beyond the engine's own */
davy_result dv_call_run(dv_call *call);

#endif
