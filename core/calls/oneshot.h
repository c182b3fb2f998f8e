/* oneshot.h - upscale, vae_encode, vae_decode: from the caller's tensors to runs of the engine, one picture after the
 * other, now or as a job. The structs passed in are full-size (sized.h). */
#ifndef DV_ONESHOT_H
#define DV_ONESHOT_H

#include "core/host/model.h"
#include "core/calls/tensor.h"

/* run: never NULL. out is written to on success only. job NULL: blocks. */
davy_result dv_oneshot(davy_model *model, davy_op op, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                       davy_job **job);
davy_result dv_oneshot_plan(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run,
                            davy_plan_info *out);
/* Sizes of the result alone. */
davy_result dv_oneshot_size(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run, dv_pixels *out);
davy_result dv_oneshot_load(davy_model *model, const davy_run *run, davy_job **job);

#endif
