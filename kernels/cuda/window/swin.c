/* swin.c - host side of "norm_mlp" and "norm_window" on Hopper's tensor cores: support, cost and packed weights. */
#include "kernels/cuda/window/swin.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"
#include "kernels/cuda/window/swin_pack.h"
#include "kernels/swin.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(swin, term))

extern const dvk_cuda_kernel dvk_norm_mlp_cuda_f16;
extern const dvk_cuda_kernel dvk_norm_mlp_cuda_bf16;
extern const dvk_cuda_kernel dvk_norm_window_cuda_f16;
extern const dvk_cuda_kernel dvk_norm_window_cuda_bf16;
extern const dvk_cuda_kernel dvk_norm_window_cuda_warps_f16;
extern const dvk_cuda_kernel dvk_norm_window_cuda_warps_bf16;

/* ---- weights ---- */

/* Channels of the kernel that serves c channels. */
static int64_t padded(int64_t c) {
    return c <= 64 ? 64 : c <= 192 ? 192 : 256;
}

typedef struct shape { /* of a stage; dim: unpadded, of a head */
    int64_t rows, columns, stages, dim;
} shape;

static shape shape_of(const dvk_conv2d_args *a, dvk_swin_matrix m) {
    const int64_t dim = m < DVK_SWIN_MATRIX_WINDOW16_IN ? DVK_SWIN_DIM : DVK_SWIN_DIM / 2;
    switch (m) {
    case DVK_SWIN_MATRIX_MLP_IN:
        return (shape){DVK_SWIN_HIDDEN, padded(a->x.c), blocks_of(a->y.c, DVK_SWIN_HIDDEN), 0};
    case DVK_SWIN_MATRIX_MLP_OUT:
        return (shape){padded(a->y.c), DVK_SWIN_HIDDEN, blocks_of(a->x.c, DVK_SWIN_HIDDEN), 0};
    case DVK_SWIN_MATRIX_WINDOW_IN:
    case DVK_SWIN_MATRIX_WINDOW16_IN:
        return (shape){3 * DVK_SWIN_DIM, padded(a->x.c), a->y.c / (3 * dim), dim};
    default:
        return (shape){padded(a->y.c), DVK_SWIN_DIM, a->x.c / dim, dim};
    }
}

/* The weight of a row and column of a stage; 0 for padding. */
static float weight_at(const dvk_conv2d_args *a, dvk_swin_matrix m, const float *w, int64_t stage, int64_t row,
                       int64_t column) {
    const shape s = shape_of(a, m);
    int64_t o = row, i = column;
    if (m == DVK_SWIN_MATRIX_MLP_IN) {
        o += stage * s.rows;
    } else if (m == DVK_SWIN_MATRIX_MLP_OUT) {
        i += stage * s.columns;
    } else if (m == DVK_SWIN_MATRIX_WINDOW_IN || m == DVK_SWIN_MATRIX_WINDOW16_IN) { /* queries, keys and values */
        const int64_t d = row % DVK_SWIN_DIM;
        o = d < s.dim ? row / DVK_SWIN_DIM * (a->y.c / 3) + stage * s.dim + d : a->y.c;
    } else {
        i = column < s.dim ? stage * s.dim + column : a->x.c;
    }
    return o < a->y.c && i < a->x.c ? w[o * a->x.c + i] : 0.0f;
}

/* Its index in elements. */
static int64_t place_of(shape s, int64_t row, int64_t column) {
    const int64_t octet = column / 8 % 8;
    if (s.columns < 64) {
        return row * s.columns + ((octet ^ (row >> 1)) & 3) * 8 + column % 8;
    }
    return (column / 64 * s.rows + row) * 64 + ((octet ^ row) & 7) * 8 + column % 8;
}

static size_t packed_bytes(const void *args, dvk_swin_matrix m) {
    const shape s = shape_of(args, m);
    return (size_t)(s.stages * s.rows * s.columns) * 2;
}

static int64_t stages_of(const void *args, dvk_swin_matrix m) {
    return shape_of(args, m).stages;
}

static void pack(const void *args, dvk_swin_matrix m, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const shape s = shape_of(a, m);
    for (int64_t stage = first; stage < last; stage++) {
        for (int64_t row = 0; row < s.rows; row++) {
            for (int64_t column = 0; column < s.columns; column++) {
                dvk_store(dst, a->compute, stage * s.rows * s.columns + place_of(s, row, column),
                          weight_at(a, m, w, stage, row, column));
            }
        }
    }
}

#define PACKER(NAME, MATRIX)                                                                                           \
    static size_t NAME##_bytes(const void *args) {                                                                     \
        return packed_bytes(args, MATRIX);                                                                             \
    }                                                                                                                  \
    static int64_t NAME##_units(const void *args) {                                                                    \
        return stages_of(args, MATRIX);                                                                                \
    }                                                                                                                  \
    static void NAME##_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {                \
        pack(args, MATRIX, w, dst, first, last);                                                                       \
    }

PACKER(mlp_in, DVK_SWIN_MATRIX_MLP_IN)
PACKER(mlp_out, DVK_SWIN_MATRIX_MLP_OUT)
PACKER(window_in, DVK_SWIN_MATRIX_WINDOW_IN)
PACKER(window_out, DVK_SWIN_MATRIX_WINDOW_OUT)
PACKER(window16_in, DVK_SWIN_MATRIX_WINDOW16_IN)
PACKER(window16_out, DVK_SWIN_MATRIX_WINDOW16_OUT)

#define PACKS(OP, NAME)                                                                                                \
    {                                                                                                                  \
        .op = OP, .variant = "cuda/pack/" #NAME, .packed_bytes = NAME##_bytes, .pack_units = NAME##_units,             \
        .pack = NAME##_pack                                                                                            \
    }

const dvk_cuda_kernel dvk_swin_packers[DVK_SWIN_MATRICES] = {
    [DVK_SWIN_MATRIX_MLP_IN] = PACKS("norm_mlp", mlp_in),
    [DVK_SWIN_MATRIX_MLP_OUT] = PACKS("norm_mlp", mlp_out),
    [DVK_SWIN_MATRIX_WINDOW_IN] = PACKS("norm_window", window_in),
    [DVK_SWIN_MATRIX_WINDOW_OUT] = PACKS("norm_window", window_out),
    [DVK_SWIN_MATRIX_WINDOW16_IN] = PACKS("norm_window", window16_in),
    [DVK_SWIN_MATRIX_WINDOW16_OUT] = PACKS("norm_window", window16_out),
};

/* ---- supported arguments ---- */

/* 1 if all pictures have one pixel pitch and the last octet of channels may be read. y may be written if its octet is
 * padding. */
static int flat(const dvk_view *v, const dvk_view *x) {
    return v->dtype == x->dtype && v->c == x->c && v->n == x->n && v->h == x->h && v->w == x->w && mappable(v) &&
           (v->h == 1 || v->sh == v->w * v->sw) && (v->n == 1 || v->sn == v->h * v->w * v->sw);
}

/* Rejects sizes whose channels would be mostly padding. */
static int fits(const dvk_view *x, const dvk_view *y, const dvk_view *res, int64_t most) {
    const int channels = (x->c > 32 && x->c <= 64) || (x->c > 128 && x->c <= most);
    return is_half(x->dtype) && channels && flat(x, x) && flat(y, x) && ends_alone(y) &&
           (res->data == NULL || flat(res, x)) && x->n * x->h * x->w < INT32_MAX / 2;
}

static int64_t tiles_of(const dvk_view *x) {
    return blocks_of(x->n * x->h * x->w, DVK_SWIN_TOKENS);
}

/* Warpgroups of a block. */
static int32_t groups_of(const dvk_view *x) {
    return padded(x->c) == 64 ? 3 : 2;
}

static int32_t turns_of(const dvk_view *x) {
    return (int32_t)blocks_of(tiles_of(x), groups_of(x));
}

typedef struct plan {
    int32_t stages, slots, shared;
} plan;

static plan plan_of(const dvk_view *x, int64_t stages, int32_t rows, int32_t slots, int windows) {
    const int32_t c = (int32_t)padded(x->c), groups = groups_of(x), n = (int32_t)stages;
    const int32_t factors = 3 * c * 4 + n * rows * 4 + (windows ? (n * DVK_SWIN_TABLE + 1) / 2 * 8 : 0);
    const int32_t tiles = groups * (DVK_SWIN_ROWS(c) + (windows ? DVK_SWIN_KEYS : 0) + DVK_SWIN_TOKENS * 4);
    return (plan){n, slots, slots * (DVK_SWIN_STAGE(c) + 16) + tiles + factors};
}

static plan mlp_plan(const dvk_norm_mlp_args *a) {
    return plan_of(&a->x, blocks_of(a->hidden, DVK_SWIN_HIDDEN), DVK_SWIN_HIDDEN, padded(a->x.c) == 256 ? 2 : 3, 0);
}

/* With few channels, all weights stay in shared memory. */
static plan window_plan(const dvk_norm_window_args *a) {
    const int32_t slots = padded(a->x.c) == 64 ? (int32_t)a->heads : 3;
    return plan_of(&a->x, a->heads, 3 * DVK_SWIN_DIM, slots, 1);
}

static int mlp_supports(const dvk_norm_mlp_args *a, const dvk_cuda_caps *caps) {
    return fits(&a->x, &a->y, &a->res, 256) && a->in.packed != NULL && a->out.packed != NULL && a->hidden <= 4096 &&
           mlp_plan(a).shared <= caps->shared_bytes;
}

static int window_fits(const dvk_norm_window_args *a) {
    return fits(&a->x, &a->y, &a->res, 192) && a->in.packed != NULL && a->out.packed != NULL && a->heads <= 64 &&
           (a->dim == DVK_SWIN_DIM || a->dim == DVK_SWIN_DIM / 2) && a->window == DVK_SWIN_WINDOW &&
           a->x.h % a->window == 0 && a->x.w % a->window == 0;
}

static int window_supports(const dvk_norm_window_args *a, const dvk_cuda_caps *caps) {
    return window_fits(a) && window_plan(a).shared <= caps->shared_bytes;
}

/* For blocks whose warps have a window each: weights and biases, and as many warps as fit. */
enum {
    WARPS_C = 4 * DVK_SWIN_DIM / 2, /* four heads of 16 */
    WARPS_SHARED = 4 * WARPS_C * WARPS_C * 2 + (4 * DVK_SWIN_TABLE + 4 * WARPS_C) * 4
};

static int32_t warps_of(const dvk_cuda_caps *caps) {
    const int32_t most = (caps->shared_bytes - WARPS_SHARED) / DVK_SWIN_WARP_BYTES;
    return most < DVK_SWIN_WARPS ? most : DVK_SWIN_WARPS;
}

static int warps_supports(const dvk_norm_window_args *a, const dvk_cuda_caps *caps) {
    return window_fits(a) && a->x.c == WARPS_C && a->heads == 4 && a->dim == DVK_SWIN_DIM / 2 && warps_of(caps) > 0;
}

/* ---- cost and launch ---- */

/* Time of a launch's prologue and epilogue, and of its turns. */
static double cost_of(const dvk_view *x, double turn, const dvk_cuda_caps *caps) {
    return TERM(launch) + turn * (double)blocks_of(turns_of(x), caps->processors);
}

static double mlp_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_norm_mlp_args *a = args;
    const double each = padded(a->x.c) == 64 ? TERM(mlp_64) : padded(a->x.c) == 192 ? TERM(mlp_192) : TERM(mlp);
    return cost_of(&a->x, TERM(turn) + each * mlp_plan(a).stages, caps);
}

static double window_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_norm_window_args *a = args;
    const double each = padded(a->x.c) == 64 ? TERM(window_64) : TERM(window);
    return cost_of(&a->x, TERM(turn) + each * (double)a->heads, caps);
}

/* Warps share a multiprocessor; the cost of a window is its number of instructions. */
static double warps_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_norm_window_args *a = args;
    return TERM(warps_launch) + TERM(warps) * (double)blocks_of(tiles_of(&a->x), caps->processors);
}

static dvk_swin_params params_of(const dvk_view *x, const dvk_view *y, const dvk_view *res, const dvk_swin_norm *norm,
                                 const dvk_swin_linear *in, const dvk_swin_linear *out) {
    return (dvk_swin_params){.x = x->data,
                             .y = y->data,
                             .res = res->data,
                             .x_pitch = x->sw,
                             .y_pitch = y->sw,
                             .res_pitch = res->sw,
                             .gamma = norm->gamma,
                             .beta = norm->beta,
                             .eps = norm->eps,
                             .w_in = in->packed,
                             .b_in = in->bias,
                             .w_out = out->packed,
                             .b_out = out->bias,
                             .pixels = (int32_t)(x->n * x->h * x->w),
                             .tiles = (int32_t)tiles_of(x),
                             .c = (int32_t)x->c,
                             .h = (int32_t)x->h,
                             .w = (int32_t)x->w};
}

static int start(dvk_queue *q, const char *half, dvk_dtype t, const dvk_view *x, const plan *c, dvk_swin_params *p) {
    char module[32], function[32];
    snprintf(module, sizeof module, "swin_%s_sm90", half);
    snprintf(function, sizeof function, "swin_%s_%s_%d", half, t == DVK_BF16 ? "bf16" : "f16", (int)padded(x->c));
    p->stages = c->stages;
    p->slots = c->slots;
    void *params[] = {p};
    const dvk_launch l = {.module = module,
                          .function = function,
                          .grid = {(uint32_t)least(turns_of(x), q->caps->processors), 1, 1},
                          .block = {(uint32_t)DVK_SWIN_THREADS(groups_of(x)), 1, 1},
                          .shared_bytes = (uint32_t)c->shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = params};
    return q->launch(q, &l);
}

static int mlp_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_norm_mlp_args *a = args;
    const plan c = mlp_plan(a);
    (void)scratch;
    dvk_swin_params p = params_of(&a->x, &a->y, &a->res, &a->norm, &a->in, &a->out);
    p.inner = (int32_t)a->hidden;
    return start(q, "mlp", a->x.dtype, &a->x, &c, &p);
}

static dvk_swin_params window_params(const dvk_norm_window_args *a) {
    dvk_swin_params p = params_of(&a->x, &a->y, &a->res, &a->norm, &a->in, &a->out);
    p.inner = (int32_t)(a->heads * a->dim);
    p.dim = (int32_t)a->dim;
    p.table = a->table;
    p.down = p.h / a->window;
    p.across = p.w / a->window;
    p.shift_y = a->shift_y;
    p.shift_x = a->shift_x;
    p.grid = a->grid;
    p.scale_log2 = a->scale * 1.44269504f;
    return p;
}

static int window_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_norm_window_args *a = args;
    const plan c = window_plan(a);
    dvk_swin_params p = window_params(a);
    (void)scratch;
    return start(q, "window", a->x.dtype, &a->x, &c, &p);
}

static int warps_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_norm_window_args *a = args;
    const int32_t warps = warps_of(q->caps);
    dvk_swin_params p = window_params(a);
    (void)scratch;
    void *params[] = {&p};
    const dvk_launch l = {.module = "swin_window_warps",
                          .function = a->x.dtype == DVK_BF16 ? "swin_window_warps_bf16" : "swin_window_warps_f16",
                          .grid = {(uint32_t)least(p.tiles, q->caps->processors), 1, 1},
                          .block = {(uint32_t)warps * 32, 1, 1},
                          .shared_bytes = (uint32_t)(WARPS_SHARED + warps * DVK_SWIN_WARP_BYTES),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

#define KERNEL(NAME, OP, HALF, WAY, VARIANT, LAST, TYPE, DTYPE)                                                        \
    static int WAY##_supports_##TYPE(const void *args, const dvk_cuda_caps *caps) {                                    \
        const dvk_norm_##HALF##_args *a = args;                                                                        \
        return a->x.dtype == DVK_##DTYPE && WAY##_supports(a, caps);                                                   \
    }                                                                                                                  \
    const dvk_cuda_kernel NAME##_##TYPE = {.op = OP,                                                                   \
                                           .variant = VARIANT,                                                         \
                                           .sm_min = LAST > 0 ? LAST : 80,                                             \
                                           .sm_max = LAST,                                                             \
                                           .computes = DVK_COMPUTES_##DTYPE,                                           \
                                           .supports = WAY##_supports_##TYPE,                                          \
                                           .cost = WAY##_cost,                                                         \
                                           .enqueue = WAY##_enqueue};

KERNEL(dvk_norm_mlp_cuda, "norm_mlp", mlp, mlp, "cuda/wgmma", 90, f16, F16)
KERNEL(dvk_norm_mlp_cuda, "norm_mlp", mlp, mlp, "cuda/wgmma", 90, bf16, BF16)
KERNEL(dvk_norm_window_cuda, "norm_window", window, window, "cuda/wgmma", 90, f16, F16)
KERNEL(dvk_norm_window_cuda, "norm_window", window, window, "cuda/wgmma", 90, bf16, BF16)
KERNEL(dvk_norm_window_cuda_warps, "norm_window", window, warps, "cuda/warps", 0, f16, F16)
KERNEL(dvk_norm_window_cuda_warps, "norm_window", window, warps, "cuda/warps", 0, bf16, BF16)
