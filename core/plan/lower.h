/* lower.h - from a graph's nodes to a plan's steps. */
#ifndef DV_PLAN_LOWER_H
#define DV_PLAN_LOWER_H

#include "core/plan/lowering.h"

/* lower.c */
davy_result dv_lower_node(dv_lowering *l, int64_t node);

/* ---- lower_conv.c ---- */

void dv_lower_conv(dv_lowering *l);
/* The arguments that a convolution would get, in l->step; nothing is added to the plan. */
davy_result dv_lower_try_conv(dv_lowering *l, int64_t node);
/* dv_choose_kernel for a convolution of that node. */
dv_kernel dv_lower_choose_conv(const dv_lowering *l, dvk_args *args);

/* ---- lower_time.c ---- */

/* Rows of the pictures that are transformed at once, and up to where they are kept: those behind it come with the next band,
 * which has to read first what was kept of them before. */
typedef struct dv_transform_rows {
    int64_t from, kept_to, to;
} dv_transform_rows;
/* The steps of a node that moves a clip's frames. A DV_OP_FRAMES node whose convolution reads bands has none:
 * the convolution transforms each band with dv_lower_frames_band. */
void dv_lower_time(dv_lowering *l);
void dv_lower_frames_band(dv_lowering *l, const dv_transform_rows *band);

/* ---- given_statistics.c: means and norms that are given ---- */

/* Their places, before those of "excite"; such a node's entry in the plan; a given mean's step. */
davy_result dv_place_given(dv_lowering *l);
void dv_lower_note_given(dv_lowering *l);
void dv_lower_given_mean(dv_lowering *l);

#endif
