/* autotune.h - convolutions of a plan that an NVIDIA library computes faster. Kernels of davy are chosen by estimates;
 * what a library would take is only known from running it. */
#ifndef DV_EXEC_AUTOTUNE_H
#define DV_EXEC_AUTOTUNE_H

#include "core/cuda/gpu.h"
#include "core/plan/plan.h"

/* Between the plan's creation and its first use, on the gpu it was made for. Runs each convolution both ways, unless that
 * has been done on this gpu, and puts the faster kernel into the plan. Does nothing where the gpu was opened without
 * libraries, where they are missing, or where there is no memory to measure in; never fails. */
void dv_plan_autotune(dv_plan *plan, dv_gpu *gpu, const dv_log *log);

#endif
