/* plan.h - a fused graph as steps: which kernel runs with which arguments, and the place of every value in one arena.
 *
 * A plan is immutable. It holds no weight data and no memory for pictures, so it is cheap to create: callers plan
 * several sizes to compare them. Binds list a step's pointers; core/exec fills them in per run from the arena and the
 * packed weights. The CPU and CUDA share the planner. They differ in the storage of values, the list of kernels, and
 * the neighbouring steps that CUDA kernels can absorb (fuse_cuda.c). */
#ifndef DV_PLAN_H
#define DV_PLAN_H

#include "core/plan/int8.h"
#include "core/graph/graph.h"
#include "core/plan/kernel.h"
#include "kernels/ops.h"

typedef enum dv_bind_kind { DV_BIND_ARENA = 1, DV_BIND_WEIGHT, DV_BIND_STATE } dv_bind_kind;

typedef struct dv_bind { /* a pointer inside a step's args */
    dv_bind_kind kind;
    uint32_t field;  /* offset of the pointer in dvk_args */
    uint64_t at;     /* byte offset in the arena or the state; index into the plan's weights */
    uint64_t within; /* weights: byte offset within that weight */
} dv_bind;

typedef struct dv_step {
    dv_kernel kernel;
    const char *label; /* owned by the plan's graph */
    dvk_args args;     /* bound pointers are invalid until the run */
    int64_t first_bind, n_binds;
    int64_t units;         /* CPU */
    uint64_t flops, bytes; /* bytes: read and written, weights included */
    double cost;           /* estimate in ns, on one core or on the GPU */
    uint64_t scratch_at;   /* CUDA: byte offset in the workspace */
} dv_step;

enum { DV_WEIGHT_ALIGN = 256 }; /* on a GPU */

#define DV_BUS_GBS 50.0 /* estimate for GPU <-> host memory in one direction while the other is busy too */

typedef struct dv_kept { /* a ring's part of a clip's state */
    uint64_t at, bytes;  /* in the resident or in the offloaded state */
    bool offloaded;
} dv_kept;

/* The transfer of a ring's part of a clip's state between the arena and host memory, concurrent with the steps. */
typedef struct dv_transfer {
    uint64_t at, pitch; /* in the arena: rows hold the frames of one pixel */
    uint64_t host_at;   /* in the offloaded state: the same rows, contiguous */
    uint64_t row_bytes, rows;
    bool to_host;
    double done; /* estimate, ns from the start of the plan */
} dv_transfer;

/* Before `step`, or behind the last one: the transfer may begin (all earlier steps are complete), or must be complete.
 * In the order of execution. */
typedef struct dv_sync {
    int64_t step;
    int64_t transfer;
    bool begins;
} dv_sync;

/* A parameter in the form that a step reads: packed by a kernel, or a vector of f32. */
typedef struct dv_weight {
    dv_param param;
    dv_kernel kernel;     /* none: vector */
    dvk_conv2d_args conv; /* argument of pack(); its pointers are invalid */
    uint64_t bytes;
    int64_t count; /* vector: elements; a shorter stored vector is repeated */
    int32_t parts; /* parts of the parameter, each packed separately, one after another; 0: one part */
} dv_weight;

/* A mean over a picture of which the plan computes one or several tiles. The caller writes it to the arena before the
 * plan runs; all tiles share it. Its operand is in the arena once the steps before `step` have run. */
typedef struct dv_plan_mean {
    int64_t step;
    uint64_t flops; /* of those steps; so is cost */
    double cost;
    dv_kernel kernel; /* "mean" of a part of one picture of x, in f32 */
    dvk_view x;       /* data is NULL */
    uint64_t x_at, given_at;
} dv_plan_mean;

typedef struct dv_live { /* a piece of the arena */
    uint64_t at, bytes;
} dv_live;

/* The same for a group norm's statistics. `step` is its "group_norm_finish", which reads {1, mean, variance},
 * [picture][group][3] in f32. The pieces live[first_live, end_live) hold everything that earlier steps have written
 * and that `step` or later steps read. */
typedef struct dv_plan_norm {
    int64_t step, first_live, end_live;
    dv_kernel kernel; /* "group_norm_stats" of a part of one picture of x */
    dvk_view x;       /* data is NULL */
    uint64_t x_at, given_at;
    int64_t groups;
} dv_plan_norm;

enum { DV_RINGS = 128 };

typedef struct dv_rings { /* a set of ring numbers (dv_time.ring) below DV_RINGS */
    uint64_t bits[DV_RINGS / 64];
} dv_rings;

static inline bool dv_rings_have(const dv_rings *r, int32_t ring) {
    return ring < DV_RINGS && (r->bits[ring / 64] >> ring % 64 & 1) != 0;
}

static inline bool dv_rings_any(const dv_rings *r) {
    bool any = false;
    for (int i = 0; i < DV_RINGS / 64; i++) {
        any = any || r->bits[i] != 0;
    }
    return any;
}

static inline void dv_rings_add(dv_rings *r, int32_t ring) {
    if (ring < DV_RINGS) {
        r->bits[ring / 64] |= 1ull << ring % 64;
    }
}

typedef struct dv_plan {
    dv_graph *graph; /* fused */
    dv_step *steps;
    int64_t n_steps, cap_steps;
    dv_bind *binds;
    int64_t n_binds, cap_binds;
    dv_weight *weights;
    int64_t n_weights, cap_weights;
    dvk_view input, output; /* data is NULL */
    uint64_t input_at, output_at;
    uint64_t arena_bytes;
    dv_kept *kept; /* one per ring, in order; the rest of the resident state lies behind them */
    int64_t n_kept;
    dv_transfer *transfers;
    dv_sync *syncs; /* two per transfer */
    int64_t n_transfers;
    dv_plan_mean means[DV_MEANS]; /* filled in with options.given_means */
    int32_t n_means;
    dv_plan_norm *norms;
    int64_t n_norms, cap_norms;
    dv_live *live;
    int64_t n_live, cap_live;
    uint64_t live_bytes;      /* largest total of a norm's pieces */
    uint64_t state_bytes;     /* state that a clip's slice leaves to the next; its layout depends only on the nodes */
    uint64_t offloaded_bytes; /* further state in host memory */
    uint64_t scratch_bytes;   /* behind the arena, per thread, a multiple of 64 */
    uint64_t scratch_added;   /* the part of scratch_bytes that dv_plan_autotune added */
    uint64_t weight_bytes;
    uint64_t flops;
    double cost;
    double duration;      /* cost plus the time that steps wait for transfers */
    bool direct;          /* the last step stores pictures itself; `output` has no buffer */
    dv_rings plain_rings; /* policy.transform_frames: rings that could be transformed but are not */
} dv_plan;

/* How the slices of a clip are executed: the settings that trade time for memory. None changes the network. All slices
 * of a clip have the same policy. All zero: the pictures of a slice are computed together, the state stays on the
 * device, and no frame is transformed. "Transformed" means Winograd's input transform. */
typedef struct dv_exec_policy {
    bool frame_by_frame; /* computes large pictures of a slice one after another (dv_by_frame): a smaller arena */
    bool offload_state;  /* CUDA: rings of the state are in host memory, except resident_bytes of them */
    /* CUDA: convolutions over time read transformed frames: faster, with 1.5 times the memory */
    bool transform_frames;
    bool transform_bands;    /* transforms the largest frames in bands of rows, except those in rings */
    uint64_t resident_bytes; /* offload_state: bytes of ring state that stay on the GPU */
    /* offload_state: the arena may grow to this size so that copies overlap with steps; 0: smallest arena */
    uint64_t overlap_arena_bytes;
    dv_rings plain_rings;         /* transform_frames: rings that stay untransformed */
    uint64_t transform_max_arena; /* limit of the arena in bytes; a transform that exceeds it is skipped; 0: no limit */
    uint64_t transform_max_total; /* the same for the arena plus the growth of the convolutions' weights */
    double transform_min_gain;    /* least ns that a transform must save per byte it adds to the weights; 0: any */
} dv_exec_policy;

typedef struct dv_plan_options {
    const dvk_cuda_caps *caps; /* of the GPU to plan for; NULL: CPU */
    uint32_t cpu;              /* allowed DVK_CPU_* bits */
    dvk_dtype compute;         /* DVK_F32, DVK_BF16 or DVK_INT8; on a GPU also DVK_F16, DVK_TF32, DVK_FP8 */
    bool lean;                 /* CPU: only kernels whose packed weights are hardly larger than the weights */
    bool direct;               /* CUDA: only "store" reads the output, so the last step may store the picture itself */
    /* the graph's means (at most DV_MEANS) and group norms span more than this plan computes; their statistics are
     * given */
    bool given_means;
    const dv_int8 *int8; /* for 8-bit compute: the convolutions that may use it; NULL: all */
    bool int8_always;    /* these use 8 bits even if it is slower */
    bool wide;           /* INT8 on a GPU: values exceed the range of F16, so they are stored as BF16 */
    dv_exec_policy policy;
} dv_plan_options;

/* 8-bit products: of 16-bit values on a GPU, of f32 on a CPU. */
static inline bool dv_is_8bit(dvk_dtype compute) {
    return compute == DVK_FP8 || compute == DVK_INT8;
}

/* The compute type of convolutions that may not use 8 bits: the stored type. */
static inline dvk_dtype dv_plain_of_int8(const dv_plan_options *options) {
    return options->caps == NULL ? DVK_F32 : options->wide ? DVK_BF16 : DVK_F16;
}

/* Takes ownership of the graph in every case. The graph must have passed dv_graph_check and dv_fuse. */
davy_result dv_plan_create(dv_graph *graph, const dv_plan_options *options, dv_plan **out);
void dv_plan_release(dv_plan *p);
/* One line per step: kernel, label, shapes, places; then the arena. Free with dv_free; NULL: out of memory. */
char *dv_plan_dump(const dv_plan *p);

/* The view of a plan's value in an arena. */
static inline dvk_view dv_view_at(dvk_view v, void *arena, uint64_t at) {
    v.data = (char *)arena + at;
    return v;
}

#endif
