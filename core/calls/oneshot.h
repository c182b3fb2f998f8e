/* oneshot.h - upscale, vae_encode, vae_decode: turns the caller's tensors into runs of the engine, blocking or as a job.
 * The structs passed in are full-size (sized.h). */
#ifndef DV_ONESHOT_H
#define DV_ONESHOT_H

#include "core/host/model.h"
#include "core/calls/tensor.h"

typedef struct dv_oneshot_args {
    davy_model *model;
    davy_op op;
    const davy_tensor *in;
    davy_tensor *out;    /* written to on success only */
    const davy_run *run; /* never NULL */
    davy_job **job;      /* NULL: blocks */
} dv_oneshot_args;

davy_result dv_oneshot(const dv_oneshot_args *args);
davy_result dv_oneshot_plan(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run,
                            davy_plan_info *out);
/* Only the sizes of the result; *out has no memory. */
davy_result dv_oneshot_size(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run, dv_pixels *out);
davy_result dv_oneshot_load(davy_model *model, const davy_run *run, davy_job **job);

#endif
