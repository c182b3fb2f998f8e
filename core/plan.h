/* plan.h - a fused graph turned into steps: which kernel runs, on what arguments, where every value lies in one arena.
 *
 * A plan is immutable, knows no weights' values and owns no memory for pictures: making one is cheap, so sizes are
 * tried out by planning them. A step's pointers are listed as binds and filled in per run (run.c) from the arena and
 * the packed weights (store.c); everything here but the kernels chosen would serve another back end as it is. */
#ifndef DV_PLAN_H
#define DV_PLAN_H

#include "core/graph.h"
#include "kernels/kernel.h"

typedef union dv_args {
    dvk_conv2d_args conv;
    dvk_pointwise_args pointwise;
    dvk_group_norm_stats_args stats;
    dvk_group_norm_finish_args finish;
    dvk_attention_args attention;
    dvk_resample_args resample;
    dvk_pad_args pad;
} dv_args;

typedef enum dv_bind_kind { DV_BIND_ARENA = 1, DV_BIND_WEIGHT } dv_bind_kind;

typedef struct dv_bind { /* a pointer inside a step's args */
    dv_bind_kind kind;
    uint32_t field; /* offset of the pointer in dv_args */
    uint64_t at;    /* byte offset in the arena; index into the plan's weights */
} dv_bind;

typedef struct dv_step {
    const dvk_kernel *kernel;
    const char *label; /* the node's, owned by the plan's graph */
    dv_args args;      /* pointers that are bound point to nothing */
    int64_t first_bind, n_binds;
    int64_t units;
    uint64_t flops, bytes; /* bytes: read and written, weights included */
    double cost;           /* estimated ns on one core */
} dv_step;

/* A parameter in the form a step wants it: packed by a kernel, or a vector of f32. */
typedef struct dv_weight {
    dv_param param;
    const dvk_kernel *kernel; /* NULL: vector */
    dvk_conv2d_args conv;     /* what pack() is told; pointers NULL */
    uint64_t bytes;
    int64_t count; /* of a vector: elements; a stored single one is repeated */
} dv_weight;

typedef struct dv_plan {
    dv_graph *graph; /* fused */
    dv_step *steps;
    int64_t n_steps, cap_steps;
    dv_bind *binds;
    int64_t n_binds, cap_binds;
    dv_weight *weights;
    int64_t n_weights, cap_weights;
    dvk_view input, output; /* data NULL */
    uint64_t input_at, output_at;
    uint64_t arena_bytes;
    uint64_t scratch_bytes; /* per thread, a multiple of 64 */
    uint64_t weight_bytes;
    uint64_t flops;
    double cost;
} dv_plan;

typedef struct dv_plan_options {
    uint32_t cpu;      /* DVK_CPU_* allowed */
    dvk_dtype compute; /* DVK_F32 or DVK_BF16 */
    bool lean;         /* kernels whose packed weights are hardly larger than the weights */
} dv_plan_options;

/* Takes the graph over in every case. It must have passed dv_graph_check and dv_fuse. */
davy_result dv_plan_create(dv_graph *graph, const dv_plan_options *options, dv_plan **out);
void dv_plan_release(dv_plan *p);
/* One line a step: kernel, label, shapes, places; then the arena. NULL: out of memory. */
char *dv_plan_dump(const dv_plan *p);

/* The view of a plan's value in an arena. */
static inline dvk_view dv_view_at(dvk_view v, void *arena, uint64_t at) {
    v.data = (char *)arena + at;
    return v;
}

#endif
