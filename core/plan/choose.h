/* choose.h - chooses the kernel of a step, and estimates its time and scratch (choose.c). */
#ifndef DV_PLAN_CHOOSE_H
#define DV_PLAN_CHOOSE_H

#include "core/plan/plan.h"

/* Returns an empty dv_kernel if no kernel supports the arguments. On CUDA it sets args.conv.compute. */
dv_kernel dv_choose_kernel(const dv_plan_options *options, const char *op, dvk_args *args);
davy_result dv_choose_failed(const dv_plan_options *options, const char *op, const char *label, const dvk_view *in,
                             const dvk_view *out);
/* Sets units and cost of a step that has a kernel; *scratch receives bytes. */
void dv_step_measure(dv_step *s, const dv_plan_options *options, uint64_t *scratch);
const char *dv_dtype_name(dvk_dtype t);

#endif
