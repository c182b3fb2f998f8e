/* lower.h - lowers a graph's nodes to a plan's steps. */
#ifndef DV_PLAN_LOWER_H
#define DV_PLAN_LOWER_H

#include "core/plan/lowering.h"

/* lower.c */
davy_result dv_lower_node(dv_lowering *l, int64_t node);

/* ---- lower_conv.c ---- */

void dv_lower_conv(dv_lowering *l);
/* Fills l->step with the arguments that a convolution would get; adds nothing to the plan. */
davy_result dv_lower_try_conv(dv_lowering *l, int64_t node);
/* dv_choose_kernel for the convolution that is being lowered. */
dv_kernel dv_lower_choose_conv(const dv_lowering *l, dvk_args *args);

/* ---- lower_time.c ---- */

/* A band of rows [from, to) that is transformed at once. Rows up to kept_to are written to the state here. The next
 * band writes the rest, since it must first read the old state of these rows. */
typedef struct dv_transform_rows {
    int64_t from, kept_to, to;
} dv_transform_rows;
/* Emits the steps of a node that moves a clip's frames. A DV_OP_FRAMES node whose convolution reads bands has none:
 * the convolution transforms each band with dv_lower_frames_band. */
void dv_lower_time(dv_lowering *l);
void dv_lower_frames_band(dv_lowering *l, const dv_transform_rows *band);

/* ---- given_statistics.c: means and norms that are given to the plan ---- */

/* Adds their buffers, before those of "excite"; adds the node to the plan's list; emits the step of a given mean. */
davy_result dv_place_given(dv_lowering *l);
void dv_lower_note_given(dv_lowering *l);
void dv_lower_given_mean(dv_lowering *l);

#endif
