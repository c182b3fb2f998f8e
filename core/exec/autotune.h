/* autotune.h - replaces convolutions of a plan by an NVIDIA library's where that is faster. davy's own kernels are chosen by
 * estimates. A library's time is only known from measuring it. */
#ifndef DV_EXEC_AUTOTUNE_H
#define DV_EXEC_AUTOTUNE_H

#include "core/cuda/gpu.h"
#include "core/plan/plan.h"

/* Call it between the plan's creation and its first use, on the gpu the plan was made for. It runs each convolution with both
 * kernels, unless this gpu has measured it before, and puts the faster kernel into the plan. It never fails. It changes nothing if
 * the gpu was opened without libraries, if they are missing, or if there is no memory for the measurement. */
void dv_plan_autotune(dv_plan *plan, dv_gpu *gpu, const dv_log *log);

#endif
