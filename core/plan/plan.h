/* plan.h - a fused graph turned into steps: which kernel runs, on what arguments, where every value lies in one arena.
 *
 * A plan is immutable, holds no weights' values and owns no memory for pictures: making one is cheap, so sizes are
 * tried out by planning them. A step's pointers are listed as binds and filled in per run (run.c) from the arena and
 * the packed weights (exec/weights.c). The CPU and CUDA are planned alike; what differs is the storage of values, the list that
 * kernels are chosen from, and what the CUDA kernels can take over from their neighbours (fuse_cuda.c). */
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
    uint64_t within; /* weights: byte offset in that one */
} dv_bind;

typedef struct dv_step {
    dv_kernel kernel;
    const char *label; /* the node's, owned by the plan's graph */
    dvk_args args;     /* pointers that are bound point to nothing */
    int64_t first_bind, n_binds;
    int64_t units;         /* CPU */
    uint64_t flops, bytes; /* bytes: read and written, weights included */
    double cost;           /* estimated ns on one core, or on the GPU */
    uint64_t scratch_at;   /* CUDA: in the workspace */
} dv_step;

enum { DV_WEIGHT_ALIGN = 256 }; /* on a GPU */

#define DV_BUS_GBS 50.0 /* guess: between a GPU and the host's memory, in one direction while the other is busy too */

typedef struct dv_kept { /* a ring's part of a clip's state */
    uint64_t at, bytes;  /* in the resident or in the offloaded state */
    bool offloaded;
} dv_kept;

/* A ring's part of a clip's state on its way between the arena and the host's memory, beside the steps. */
typedef struct dv_transfer {
    uint64_t at, pitch; /* in the arena: rows of a pixel's frames */
    uint64_t host_at;   /* in the offloaded state: the same, one behind the other */
    uint64_t row_bytes, rows;
    bool to_host;
    double done; /* guessed, ns from the beginning */
} dv_transfer;

/* Before a step, or behind the last of them: a transfer may begin, as all steps before are done, or is waited for. In the
 * order in which that is to be done. */
typedef struct dv_sync {
    int64_t step;
    int64_t transfer;
    bool begins;
} dv_sync;

/* A parameter in the form a step reads it: packed by a kernel, or a vector of f32. */
typedef struct dv_weight {
    dv_param param;
    dv_kernel kernel;     /* none: vector */
    dvk_conv2d_args conv; /* what pack() is told; pointers point to nothing */
    uint64_t bytes;
    int64_t count; /* of a vector: elements; what is stored is repeated */
    int32_t parts; /* of the parameter, each packed by itself, one behind the other; 0: one */
} dv_weight;

/* A mean over a picture of which the plan computes a tile, or several: it is put into the arena before the plan runs, the
 * same for all of them. What it is of lies there once the steps before `step` have run. */
typedef struct dv_plan_mean {
    int64_t step;
    uint64_t flops; /* of those steps, as their cost */
    double cost;
    dv_kernel kernel; /* "mean" of a part of one picture of x, in f32 */
    dvk_view x;       /* data NULL */
    uint64_t x_at, given_at;
} dv_plan_mean;

typedef struct dv_live { /* a piece of the arena */
    uint64_t at, bytes;
} dv_live;

/* The same of a group norm's statistics: what they are of lies there once the steps before `step`, "group_norm_finish", have
 * run, which reads {1, mean, variance}, [picture][group][3] in f32. All that it and the steps behind it read of what the
 * steps before it have written is in the plan's live pieces [first_live, end_live). */
typedef struct dv_plan_norm {
    int64_t step, first_live, end_live;
    dv_kernel kernel; /* "group_norm_stats" of a part of one picture of x */
    dvk_view x;       /* data NULL */
    uint64_t x_at, given_at;
    int64_t groups;
} dv_plan_norm;

enum { DV_RINGS = 128 };

typedef struct dv_rings { /* a set of numbers, dv_time.ring; larger ones are in none */
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
    dvk_view input, output; /* data NULL */
    uint64_t input_at, output_at;
    uint64_t arena_bytes;
    dv_kept *kept; /* of rings, in their order; behind what is resident of it lies the rest of the state */
    int64_t n_kept;
    dv_transfer *transfers;
    dv_sync *syncs; /* two of each */
    int64_t n_transfers;
    dv_plan_mean means[DV_MEANS]; /* options: given_means */
    int32_t n_means;
    dv_plan_norm *norms;
    int64_t n_norms, cap_norms;
    dv_live *live;
    int64_t n_live, cap_live;
    uint64_t live_bytes;      /* of the norm that has most */
    uint64_t state_bytes;     /* what a clip's slice leaves to the next; where it lies depends on the nodes alone */
    uint64_t offloaded_bytes; /* more of it, in the host's memory */
    uint64_t scratch_bytes;   /* behind the arena, per thread, a multiple of 64 */
    uint64_t scratch_added;   /* of these: by dv_plan_autotune */
    uint64_t weight_bytes;
    uint64_t flops;
    double cost;
    double duration;      /* cost, and what steps wait for transfers */
    bool direct;          /* the last step stores pictures itself; `output` has no place in the arena */
    dv_rings plain_rings; /* policy.transform_frames: rings whose frames could be transformed and are not */
} dv_plan;

/* How the slices of a clip are executed: what trades time against memory. None of it changes the network, and all slices of a
 * clip have the same policy. All zero: the pictures of a slice are computed together, the state stays on the device, and
 * no frame is transformed. "Transformed" is Winograd's input transform. */
typedef struct dv_exec_policy {
    bool frame_by_frame; /* large pictures of a slice are computed one after the other (dv_by_frame): a smaller arena */
    bool offload_state;  /* CUDA: the rings of the state lie in the host's memory, but for resident_bytes of them */
    bool transform_frames;   /* CUDA: convolutions over time read transformed frames: faster, half as large again */
    bool transform_bands;    /* the largest frames are transformed in bands of rows, but for those in rings */
    uint64_t resident_bytes; /* offload_state: bytes of rings that stay on the GPU */
    /* offload_state: the arena may grow to this, so that copies run beside the steps; 0: as small as it gets */
    uint64_t overlap_arena_bytes;
    dv_rings plain_rings;         /* transform_frames: rings whose frames are left as they are */
    uint64_t transform_max_arena; /* no frame is transformed that would make the arena larger than this; 0: no limit */
    uint64_t transform_max_total; /* the same for the arena and the growth of the convolutions' weights together */
    double transform_min_gain;    /* least ns that a transform gains for each byte it adds to the weights; 0: any */
} dv_exec_policy;

typedef struct dv_plan_options {
    const dvk_cuda_caps *caps; /* of the GPU to plan for; NULL: the CPU */
    uint32_t cpu;              /* DVK_CPU_* allowed */
    dvk_dtype compute;         /* DVK_F32, DVK_BF16 or DVK_INT8; on a GPU also DVK_F16, DVK_TF32, DVK_FP8 */
    bool lean;                 /* CPU: kernels whose packed weights are hardly larger than the weights */
    bool direct;               /* CUDA: only "store" reads the output: the last step may store the picture itself */
    bool
        given_means; /* the graph's means, DV_MEANS at most, and its group norms' are over more than is computed here: they are given */
    const dv_int8 *int8; /* compute is eight bits: which convolutions may; NULL: all */
    bool int8_always;    /* and do, whether they gain or not */
    bool wide;           /* INT8 on a GPU: values leave the range of F16, what is stored is BF16 */
    dv_exec_policy policy;
} dv_plan_options;

/* Products of eight bits, on a GPU of values of 16, on a CPU of f32. */
static inline bool dv_is_8bit(dvk_dtype compute) {
    return compute == DVK_FP8 || compute == DVK_INT8;
}

/* What a convolution computes in that may not have 8-bit integers: the type of what is stored. */
static inline dvk_dtype dv_plain_of_int8(const dv_plan_options *options) {
    return options->caps == NULL ? DVK_F32 : options->wide ? DVK_BF16 : DVK_F16;
}

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
