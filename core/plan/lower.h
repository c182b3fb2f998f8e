/* lower.h - from a graph node to steps. Internal to planning: plan.c calls it node by node. */
#ifndef DV_LOWER_H
#define DV_LOWER_H

#include "core/plan/memory.h"
#include "core/plan/plan.h"

typedef struct dv_lowering {
    dv_plan *plan;
    const dv_memory_plan *place; /* offsets known, but for folding */
    const dv_plan_options *options;
    int64_t node;       /* being lowered */
    dv_step step;       /* being made */
    davy_result result; /* sticky; the record holds why */
} dv_lowering;

davy_result dv_lower_node(dv_lowering *l, int64_t node);
/* The arguments that a convolution would get, in l->step; nothing is added to the plan. */
davy_result dv_lower_try_conv(dv_lowering *l, int64_t node);
/* dv_choose_kernel for a convolution of that node. */
dv_kernel dv_lower_choose_conv(const dv_lowering *l, dv_args *args);
/* View of a value without its address, and where in the arena it begins. */
dvk_view dv_view_of(const dv_memory_plan *place, dv_value v, uint64_t *at);
/* The same with the stand-in for an address that CUDA kernels are chosen by. */
dvk_view dv_view_planned(const dv_memory_plan *place, dv_value v);

/* ---- what lowering a node is made of (lower.c), for the files lower_*.c ---- */

const dv_node *dv_lower_now(const dv_lowering *l);
dv_shape dv_lower_shape(const dv_lowering *l, dv_value v);
/* Offset of a member of l->step.args. */
uint32_t dv_lower_field(const dv_lowering *l, const void *member);
uint64_t dv_view_bytes(const dvk_view *v);
/* A new step in l->step. */
void dv_lower_begin(dv_lowering *l);
/* Notes what the pointer at `field` stands for. */
void dv_lower_bind(dv_lowering *l, dv_bind_kind kind, uint32_t field, uint64_t at);
/* Writes the view of v to `out`, a member of the step's args, and binds its data. */
void dv_lower_view(dv_lowering *l, dvk_view *out, dv_value v);
/* Binds the pointer at `field` to a vector of weights; DV_NO_PARAM: leaves it NULL. */
void dv_lower_vector(dv_lowering *l, uint32_t field, dv_param param, int64_t count);
/* Prologue and epilogue of the node, as fuse.c left them. */
void dv_lower_fused(dv_lowering *l, dvk_prologue *pro, dvk_epilogue *epi);
/* Adds a weight to the plan; NULL: out of memory. */
dv_weight *dv_lower_weight(dv_lowering *l, const dv_weight *w);
/* Chooses the kernel, if that has not been done, and appends the step. */
void dv_lower_commit(dv_lowering *l, const char *op, const dvk_view *in, const dvk_view *out, uint64_t flops);

/* lower_conv.c */
void dv_lower_conv(dv_lowering *l);

/* lower_move.c; kernels that are chosen by an operation have its name */
void dv_lower_resample(dv_lowering *l);
void dv_lower_fold(dv_lowering *l);
void dv_lower_pad(dv_lowering *l);
void dv_lower_concat(dv_lowering *l);

/* lower_time.c */
/* Rows of the pictures that are transformed at once, and up to where they are kept: those behind it come with the next band,
 * which has to read first what was kept of them before. */
typedef struct dv_transform_rows {
    int64_t from, kept_to, to;
} dv_transform_rows;
void dv_lower_frames(dv_lowering *l);
void dv_lower_frames_band(dv_lowering *l,
                          const dv_transform_rows *band); /* of a node of frames that does nothing at its place */
void dv_lower_to_frames(dv_lowering *l);
void dv_lower_join_frames(dv_lowering *l);
void dv_lower_past(dv_lowering *l);
void dv_lower_window(dv_lowering *l);

/* offload.c: the plan's state that is the rings', and its transfers. first_step: of every node, and behind the last. */
davy_result dv_plan_rings(dv_plan *p, const dv_memory_plan *place, const int64_t *first_step);
void dv_plan_time(dv_plan *p); /* sets the duration of a plan with all its steps */

/* reverse_scan.c: which convolutions go through their picture from its end; caps NULL: none. */
void dv_plan_reverse_scan(dv_plan *p, const dvk_cuda_caps *caps);

/* lower_gate.c */
void dv_lower_depthwise(dv_lowering *l);
void dv_lower_multiply(dv_lowering *l);
void dv_lower_pool(dv_lowering *l);
void dv_lower_dysample(dv_lowering *l);

/* fuse_cuda_depthwise.c, fuse_cuda_swin.c */
void dv_lower_norm_depthwise(dv_lowering *l);
void dv_lower_swin(dv_lowering *l);
/* fuse_cuda_excite.c */
void dv_lower_excite(dv_lowering *l);
/* fuse_cuda_up_conv.c */
void dv_lower_up_conv(dv_lowering *l);

/* given_statistics.c: means and norms that are given. Their places, before those of "excite"; their entries in the plan; their step. */
davy_result dv_place_means(const dv_plan *plan, dv_memory_plan *place);
void dv_lower_note_norm(dv_lowering *l);
void dv_lower_note_mean(dv_lowering *l);
void dv_lower_given_mean(dv_lowering *l);
/* fuse_cuda_conv_down.c */
void dv_lower_conv_down(dv_lowering *l);

/* lower_dictionary.c */
void dv_lower_dictionary(dv_lowering *l);

/* lower_window.c */
void dv_lower_layer_norm(dv_lowering *l);
void dv_lower_attention(dv_lowering *l);
void dv_lower_window_attention(dv_lowering *l);
void dv_lower_channel_attention(dv_lowering *l);

/* ---- fuse_cuda.c: what CUDA kernels take over from the steps around them ---- */

/* Rewrites the plan's graph where a convolution's kernel shuffles pixels itself; *changed: place the values anew. */
davy_result dv_fold_shuffles(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for products that a kernel makes along with one of their factors (fuse_cuda_gate.c). */
davy_result dv_fold_products(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for pictures whose channels are scaled by what becomes of their means (fuse_cuda_excite.c); then, once the values are
 * placed again, buffers for that. */
davy_result dv_fold_excites(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
davy_result dv_place_excites(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);
/* The same for two convolutions in one (fuse_cuda_up_conv.c). */
void dv_fold_up_convs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for two of which the first's result is wanted, too (fuse_cuda_conv_down.c). */
void dv_fold_conv_downs(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for what leads to a depthwise convolution, and for what follows its paired halves (fuse_cuda_depthwise.c). */
void dv_fold_depthwise(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for the halves of transformer blocks (fuse_cuda_swin.c). */
void dv_fold_swin(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* The same for what leads to the frames of a convolution over time, where its kernel reads them transformed
 * (fuse_winograd.c). */
davy_result dv_fold_winograd(dv_plan *plan, const dv_memory_plan *place, const dv_plan_options *options, bool *changed);
/* Decides how each group norm gets its statistics: `conv` and `chunks` of place->norms. */
davy_result dv_fold_norms(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);
/* Sets plan->direct, and the output's buffer takes no room, where the last convolution's kernel can store it. */
davy_result dv_fold_store(dv_plan *plan, dv_memory_plan *place, const dv_plan_options *options);

/* ---- choose.c ---- */

/* None: nothing suits. CUDA: sets args.conv.compute. */
dv_kernel dv_choose_kernel(const dv_plan_options *options, const char *op, dv_args *args);
davy_result dv_choose_failed(const dv_plan_options *options, const char *op, const char *label, const dvk_view *in,
                             const dvk_view *out);
/* Sets units and cost of a step with a kernel. */
void dv_step_measure(dv_step *s, const dv_plan_options *options, uint64_t *scratch);
uint64_t dv_convert_scratch(const dv_plan_options *options, const char *op, const dvk_view *view);
const char *dv_dtype_name(dvk_dtype t);

#endif
