/* graph.h - a network as a list of ops with concrete shapes. Architectures build it, fuse.c rewrites it, and core/plan
 * lowers it to steps. The graph has no device, memory or tensor data: of the weights it holds only names and shapes.
 *
 * Builders need no error checks. After the first mistake (a missing tensor, a wrong shape) every call returns
 * DV_NO_VALUE, and dv_graph_check() returns the error. Values are pictures in NHWC; nodes are in execution order. */
#ifndef DV_GRAPH_H
#define DV_GRAPH_H

#include "core/file/tensors.h"
#include "kernels/op.h"

typedef int32_t dv_value; /* index into values, DV_NO_VALUE after an error */
typedef int32_t dv_param; /* index into params, DV_NO_PARAM: none */
enum { DV_NO_VALUE = -1, DV_NO_PARAM = -1, DV_MAX_INPUTS = 8 };

typedef struct dv_shape {
    int64_t n, h, w, c;
} dv_shape;

/* ---- parameters: weights in the layout that the network needs ---- */

typedef struct dv_derivation dv_derivation;

/* Fills dst (row-major, shape known to the caller) from stored tensors. */
typedef davy_result (*dv_derive_fn)(const dv_tensors *weights, const dv_derivation *from, float *dst);

/* The same for one share of the values. Any number of threads may call it at once, each with a share of its own.
 * `cpu`: the instruction sets that kernels may use (DVK_CPU_*). */
typedef davy_result (*dv_derive_share_fn)(const dv_tensors *weights, const dv_derivation *from, int32_t share,
                                          uint32_t cpu, float *dst);

/* The source of a derived parameter, and its computation. */
struct dv_derivation {
    const char *name; /* of the stored tensor, or the common prefix of several; "": none */
    const void *how;  /* the derivation's own struct, without pointers; the graph copies it; NULL: nothing */
    size_t how_bytes;
    dv_derive_fn derive;
    dv_derive_share_fn derive_share; /* instead of derive, for much work: it is called for each of `shares` */
    int32_t shares;
    int64_t stored; /* values that it reads from the file; 0: as many as its shape has, -1: none */
};

typedef struct dv_param_info {
    char *label; /* "decoder.conv_in.weight", or a derived parameter's source; unique in the graph */
    int32_t ndim;
    int64_t shape[4];         /* conv: O, I, kh, kw; vectors: C */
    const dv_tensor_ref *ref; /* stored tensor; NULL: derived or constant */
    dv_derivation *from;      /* of a derived parameter; owned, in one block with its name and `how` */
    float *constant;          /* values given by the architecture */
    int32_t exponent;         /* the values are multiplied by 2^exponent when they are read */
    int64_t stored;           /* from the derivation; 0 for a parameter multiplied by 2^exponent */
} dv_param_info;

/* ---- ops ---- */

/* ops.def describes each of them. */
typedef enum dv_op {
    DV_OP_NONE,
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) DV_OP_##NAME,
#include "core/graph/ops.def"
    DV_OPS
} dv_op;

/* Where a pixel of the result lies on the grid of in[0], and which pixels of in[0] it needs. */
typedef enum dv_reach_kind {
    DV_REACH_SAME,    /* the pixel at its own place */
    DV_REACH_CONV,    /* kh x kh pixels every `stride`, the first one pad_top before its place */
    DV_REACH_ENLARGE, /* a grid r times finer, moved by pad_top */
    DV_REACH_SAMPLE,  /* the same, but in[1] gives the places; only the network's training bounds them */
    DV_REACH_REDUCE,  /* a grid r times coarser, moved by pad_top */
    DV_REACH_PAD,     /* the same grid, beginning pad_top rows earlier */
    DV_REACH_CROP,    /* the same grid, beginning at row pad_top */
    DV_REACH_WINDOW,  /* the keys of `window` */
    DV_REACH_MEAN,    /* one number for the whole picture; tiles may share it */
    DV_REACH_ALL,     /* every pixel */
    DV_REACH_RESIZE   /* every pixel, and the result has no grid in common with the picture */
} dv_reach_kind;

typedef enum dv_trait {
    DV_TRAIT_NONE,
    DV_TRAIT_BY_FRAME,   /* of a clip: frame t of the result needs only frame t of the operands */
    DV_TRAIT_F32_OUT,    /* the result is always f32, since later ops group pixels by it */
    DV_TRAIT_F32_ALL,    /* ... and so are in[0] and in[1] */
    DV_TRAIT_F32_SECOND, /* only in[1] must be f32 */
    DV_TRAIT_F32_FIRST   /* if the result is f32, only in[0] must be f32 too */
} dv_trait;

typedef struct dv_op_info {
    const char *name;
    dv_reach_kind reach;
    dv_trait trait;
} dv_op_info;

extern const dv_op_info dv_op_infos[DV_OPS];
const char *dv_op_name(dv_op op);

typedef struct dv_act {
    dvk_act kind;
    float slope;
    dv_param slopes; /* DVK_ACT_PRELU */
} dv_act;

/* The pixels that attend to each other; same meaning as in kernels/op.h. */
typedef struct dv_window {
    int32_t h, w;             /* channel attention: 0 is the whole picture */
    int32_t keys_h, keys_w;   /* 0: same as h, w */
    int32_t shift_y, shift_x; /* of the frame, or 0 */
    int32_t cut_y, cut_x;     /* of the regions of queries; 0: same as the shift */
    int32_t grid;
    int64_t padded_h, padded_w; /* the frame; 0: the smallest multiple of the window */
} dv_window;

/* frames before a clip's first: that frame repeated, or zeros */
typedef enum dv_before { DV_BEFORE_FIRST, DV_BEFORE_ZERO } dv_before;

/* Frame t of the result holds frames t * step to t * step + frames - 1 of the operand, oldest first. Numbering begins
 * `lead` frames before the operand's first. Those `lead` frames are the last `keep` of the clip's previous slice. In a
 * clip's first slice, `before` says how they are filled. */
typedef struct dv_time {
    int32_t frames, step, lead, keep;
    dv_before before;
    /* number of the ring of a FRAMES, PAST or WINDOW op, in the order in which FRAMES ops were appended */
    int32_t ring;
} dv_time;

typedef struct dv_node {
    dv_op op;
    int32_t n_in;
    dv_value in[DV_MAX_INPUTS];
    dv_value out;
    char *label; /* for dumps, profiles and messages: the weight's base name or the op's name */
    /* attributes; the builder of an op says which ones it uses */
    dv_param weight, bias; /* conv; group norm: gamma, beta; affine: scale, shift */
    int32_t kh, kw, stride, pad_top, pad_left;
    /* 2x2 convolution to twice the size, with weights for each parity (dvk_conv2d_args); fused.upsample is 2 */
    bool phased;
    int64_t r, groups, heads, first;
    float eps, scale, alpha, beta;
    dvk_pad_mode pad_mode;
    dv_act act;
    dv_window window;
    dv_time time;
    /* fuse.c sets this. Before dv_fuse all of it is at its defaults (alpha 1, the rest none). After dv_fuse it
     * describes each live conv2d, depthwise, multiply and pointwise node (act, add, gate, affine, group norm) exactly:
     *   y = epilogue(op(prologue(in[0]))), kernels/op.h; op = the convolution, the product with in[1], or nothing
     *   prologue  norm >= 0: the coefficients of node `norm` (norm_of == in[0]);
     *             else pro_scale, pro_shift where set; then pro_act
     *   epilogue  bias (convolutions), act, act_last, gate, alpha, res[i] * beta[i]
     * Operands other than in[0] have moved to res, except the second one of multiply. A live group norm node computes
     * its coefficients at its place in the order. It also applies them (pointwise, to out) only while values[out].uses
     * > 0. */
    struct {
        int32_t upsample;   /* nearest x2 before the conv; 0 and 1: none */
        dv_value norm_of;   /* == in[0] where norm >= 0, else DV_NO_VALUE */
        int32_t norm;       /* index of the DV_OP_GROUP_NORM node whose coefficients are used; -1: none */
        dv_param pro_scale; /* constants [c] (affine); DV_NO_PARAM: none */
        dv_param pro_shift;
        dv_act pro_act;
        dv_act act;
        int32_t act_last, gate, n_res;
        dv_value res[2];
        float alpha, beta[2];
    } fused;
    bool dead; /* absorbed by another node; `out` is DV_NO_VALUE, or the other node computes it */
} dv_node;

typedef struct dv_value_info {
    dv_shape shape;
    int32_t producer; /* index of the node */
    int32_t uses;     /* in[] and fused.res[] of live nodes, plus 1 for the graph's output */
} dv_value_info;

typedef struct dv_graph {
    const dv_tensors *weights;
    dv_node *nodes;
    int64_t n_nodes, cap_nodes;
    dv_value_info *values;
    int64_t n_values, cap_values;
    dv_param_info *params;
    int64_t n_params, cap_params;
    dv_value input, output;
    int64_t pictures;   /* input's n: a batch, or a clip's frames in order. Set before building; default 1 */
    bool continues;     /* of a clip: frames came before these; the network's state holds what it keeps of them */
    bool second;        /* continues, and only the smallest possible first slice came before */
    bool keeps;         /* of a clip: frames may follow; what they need is kept */
    bool fused;         /* dv_fuse has run */
    davy_result result; /* the first error; it stays */
    davy_error_info error;
} dv_graph;

davy_result dv_graph_create(const dv_tensors *weights, dv_graph **out);
void dv_graph_release(dv_graph *g);
/* Returns the first error of building, and puts it back into the thread's error record. Without one, checks that input
 * and output are set. */
davy_result dv_graph_check(dv_graph *g);
/* One line per node: "%12 = conv2d %11 decoder.conv_in 3x3 4->512 [1,32,32,512]". After fusion a line also shows the
 * absorbed ops. */
char *dv_graph_dump(const dv_graph *g); /* free with dv_free; NULL: out of memory */

dv_shape dv_shape_of(const dv_graph *g, dv_value v); /* zeros for DV_NO_VALUE */

/* The first existing tensor of the '|'-separated names, each followed by suffix; NULL: none. All lookups below do the
 * same. */
const dv_tensor_ref *dv_weight_find(const dv_tensors *weights, const char *names, const char *suffix);

/* ---- builders ----
 * Names are no printf formats. '|' separates alternatives: "a.to_q|a.q" takes the first that exists. */

dv_value dv_input(dv_graph *g, dv_shape shape); /* shape of one picture; the value has the graph's `pictures` of them */
void dv_output(dv_graph *g, dv_value v);
/* Makes r and the current error record the graph's error, on behalf of an architecture. */
dv_value dv_graph_fail(dv_graph *g, davy_result r);

/* The tensor of that name and suffix, for derivations. It must exist and have that shape. NULL: the graph has
 * failed. */
const dv_tensor_ref *dv_weight_require(dv_graph *g, const char *names, const char *suffix, int32_t ndim,
                                       const int64_t *shape);

/* exact shape; a 1x1 weight may be stored 2-D */
dv_param dv_param_stored(dv_graph *g, const char *name, int32_t ndim, const int64_t *shape);
/* The label names everything that the values depend on: two derivations with one label are one parameter. */
dv_param dv_param_derived(dv_graph *g, const char *label, const dv_derivation *from, int32_t ndim,
                          const int64_t *shape);
dv_param dv_param_constant(dv_graph *g, const char *label, int32_t ndim, const int64_t *shape, const float *values);

typedef struct dv_conv_opts {
    int32_t stride;        /* 0: 1 */
    bool pad_bottom_right; /* as KL's downsampling pads: one zero row and column at the bottom and right only */
    bool valid;            /* no padding: the result is k - 1 smaller */
    bool no_bias;
    bool derived; /* the weight and bias below replace <name>.weight and <name>.bias */
    dv_param weight, bias;
} dv_conv_opts;

/* k x k, zero padding (k-1)/2, weights <name>.weight [c_out, c_in, k, k] and <name>.bias [c_out]. opts may be NULL. */
dv_value dv_conv(dv_graph *g, dv_value x, const char *name, int64_t c_out, int32_t k, const dv_conv_opts *opts);
/* The result has twice the size; each pixel reads 2x2 of x. The derived weight is [4 * c_out, c, 2, 2], one part for
 * each parity of row and column. A bias with fewer channels is repeated. Of opts, only weight and bias are used. */
dv_value dv_conv_phased(dv_graph *g, dv_value x, const char *label, int64_t c_out, const dv_conv_opts *opts);
dv_value dv_activation(dv_graph *g, dv_value x, dvk_act kind, float slope);
dv_value dv_prelu(dv_graph *g, dv_value x, const char *name); /* <name>.weight [c], or [1] for all channels */
dv_value dv_group_norm(dv_graph *g, dv_value x, const char *name, int64_t groups, float eps);
dv_value dv_add(dv_graph *g, float alpha, dv_value a, float beta, dv_value b);
dv_value dv_span_gate(dv_graph *g, dv_value t, dv_value x);
dv_value dv_affine(dv_graph *g, dv_value x, const float *scale, const float *shift); /* [c] each, copied */
dv_value dv_scale_channels(dv_graph *g, dv_value x, const char *name);               /* by tensor <name>, [c] */
dv_value dv_attention(dv_graph *g, dv_value q, dv_value k, dv_value v, int64_t heads, float scale);
dv_value dv_upsample(dv_graph *g, dv_value x, int64_t r);
/* nearest_skip: DV_NO_VALUE for none */
dv_value dv_pixel_shuffle(dv_graph *g, dv_value x, int64_t r, dv_value nearest_skip);
dv_value dv_pixel_unshuffle(dv_graph *g, dv_value x, int64_t r);
dv_value dv_concat(dv_graph *g, const dv_value *xs, int32_t count);
dv_value dv_pad_to(dv_graph *g, dv_value x, int64_t h, int64_t w, dvk_pad_mode mode); /* pads at the bottom and right */
dv_value dv_crop_to(dv_graph *g, dv_value x, int64_t h, int64_t w);                   /* keeps the top left part */

typedef struct dv_rect {
    int64_t top, left, h, w;
} dv_rect;

/* A picture of h x w pixels with x at (top, left). */
dv_value dv_pad(dv_graph *g, dv_value x, dv_rect to, dvk_pad_mode mode);
dv_value dv_crop(dv_graph *g, dv_value x, dv_rect of);                    /* that part of x */
dv_value dv_slice(dv_graph *g, dv_value x, int64_t first, int64_t count); /* channels */
/* r x r pixels become one pixel; the first r x r begin at (-before, -before), as in kernels/op.h. The channels of each
 * of `heads` heads are padded to `padded`. dv_unfold is the inverse for r * r * c channels of one head. */
dv_value dv_fold(dv_graph *g, dv_value x, int64_t r, int64_t before, int64_t heads, int64_t padded);
dv_value dv_unfold(dv_graph *g, dv_value x, int64_t r, int64_t before);
/* k x k, weights <name>.weight [c, 1, k, k] and <name>.bias [c]. opts as in dv_conv; a derived weight is [k * k, c]. */
dv_value dv_depthwise(dv_graph *g, dv_value x, const char *name, int32_t k, const dv_conv_opts *opts);
/* x * act(gate). gate has x's pixels or one pixel, and x's channels or one channel. */
dv_value dv_multiply(dv_graph *g, dv_value x, dv_value gate, dvk_act act);
dv_value dv_mean(dv_graph *g, dv_value x); /* of all pixels: [n, 1, 1, c] */
dv_value dv_max_pool(dv_graph *g, dv_value x, int32_t k, int32_t stride);
dv_value dv_resize(dv_graph *g, dv_value x, int64_t h, int64_t w); /* bilinear, half-pixel centres */
/* sum: adds the samples of the groups; the result then has 1 / groups of x's channels. */
dv_value dv_dysample(dv_graph *g, dv_value x, dv_value offset, int64_t groups, int64_t r, bool sum);

/* ---- attention.c: norms, windows ---- */
dv_value dv_layer_norm(dv_graph *g, dv_value x, const char *name, float eps); /* <name>.weight and .bias */
/* x / sqrt(mean of the channels' squares + eps) * tensor `name`: [c], or [c, 1, ...] */
dv_value dv_rms_norm(dv_graph *g, dv_value x, const char *name, float eps);
/* q, k and v of one shape; bias [heads, h + keys_h - 1, w + keys_w - 1] or DV_NO_PARAM */
dv_value dv_window_attention(dv_graph *g, const dv_value qkv[3], int64_t heads, float scale, const dv_window *window,
                             dv_param bias);
typedef struct dv_channel_heads {
    int64_t heads, dim;   /* per head only the first `dim` channels count; the rest are padding */
    dv_window window;     /* its sides divide the picture; shift, keys and padded are ignored */
    float eps;            /* added when vectors are divided by their lengths */
    dv_param temperature; /* [heads] */
} dv_channel_heads;
dv_value dv_channel_attention(dv_graph *g, const dv_value qkv[3], const dv_channel_heads *opts);

/* ---- time.c: values whose n is the frames of a clip, in order ----
 * A single picture (n 1, neither continued nor kept) is treated as a clip of one frame. */

typedef struct dv_conv3d_opts {
    int32_t frames;        /* of the kernel; 0: 3 */
    int32_t step;          /* stride in time; 0: 1 */
    int32_t k;             /* kernel in space; 0: 3 */
    int32_t stride;        /* in space; 0: 1 */
    bool pad_bottom_right; /* as in dv_conv_opts */
    bool no_bias;
    dv_before before;
    bool derived; /* weight [c_out, frames * c_in, k, k], oldest frame first, and bias replace the stored ones */
    dv_param weight, bias;
} dv_conv3d_opts;

/* Causal: frames - 1 frames precede a clip's first. A slice that continues a clip reads the last (frames - step)
 * frames that the slice before kept. Weights <name>.weight [c_out, c_in, frames, k, k] (for one frame also [c_out,
 * c_in, k, k]) and <name>.bias. opts may be NULL. */
dv_value dv_conv3d(dv_graph *g, dv_value x, const char *name, int64_t c_out, const dv_conv3d_opts *opts);
/* [n, h, w, frames * c]: each frame with the frames - 1 frames before it, oldest first. */
dv_value dv_recall(dv_graph *g, dv_value x, int32_t frames, dv_before before);
dv_value dv_frames_to_channels(dv_graph *g, dv_value x, int64_t s); /* [n / s, h, w, s * c], oldest first */
dv_value dv_channels_to_frames(dv_graph *g, dv_value x, int64_t s); /* [n * s, h, w, c / s] */
dv_value dv_take_frames(dv_graph *g, dv_value x, int64_t first, int64_t count);
dv_value dv_join_frames(dv_graph *g, const dv_value *xs, int32_t count);

/* ---- attention.c: dictionaries (ATD) ---- Tokens are the pixels of a picture of one row. The similarities of a
 * pixel to m tokens (its shares) are m channels. */
dv_value dv_tokens(dv_graph *g, dv_param tokens, int64_t count, int64_t channels); /* [count, channels] */
dv_value dv_similarity(dv_graph *g, dv_value q, dv_value k, dv_param factor);      /* factor [m]; returns the shares */
dv_value dv_mix(dv_graph *g, dv_value s, dv_value v);
dv_value dv_order(dv_graph *g, dv_value s, int64_t rows, int64_t width);     /* rows * width >= the pixels of s */
dv_value dv_gather(dv_graph *g, dv_value x, dv_value order, dv_param scale); /* scale [c] or DV_NO_PARAM */
dv_value dv_scatter(dv_graph *g, dv_value x, dv_value order, int64_t h, int64_t w);
typedef struct dv_refinement {
    dv_param gamma, sigma; /* [m] */
    float eps;
} dv_refinement;
dv_value dv_refine(dv_graph *g, dv_value tokens, dv_value s, dv_value x, const dv_refinement *how);

/* ---- passes and queries ---- */

/* Fuses in place, with exactly the same results:
 *   conv + bias + activation + (scaled) residuals
 *   SPAN gate
 *   norm + SiLU into the prologue of the next conv
 *   nearest x2 into the next conv
 *   chains of pointwise ops
 *   nearest skip into the pixel shuffle */
davy_result dv_fuse(dv_graph *g);

/* Before dv_fuse, for 16-bit types of small range. Values that only group norms, convolutions and additions read are
 * stored divided by a power of two. Weights, biases and eps are scaled to match. Exact except for overflow and
 * underflow. */
davy_result dv_rescale(dv_graph *g);

/* Before dv_fuse: rewrites a clip's graph to compute large pictures frame by frame, one residual block after another.
 * "Large" is at least half the height and width of the largest. Windows in time become rings of as many frames as they
 * hold. The results are the same, in less memory. *changed: false if there is one frame only or if an op does not work
 * frame by frame. */
davy_result dv_by_frame(dv_graph *g, bool *changed);
/* Of a whole clip: the largest number of elements alive at once, frame by frame where that is possible. */
davy_result dv_by_frame_least(const dv_graph *g, uint64_t *elements);

typedef struct dv_grid { /* pixels of a value per pixel of the input; num / den in lowest terms */
    int64_t num, den;
} dv_grid;

enum { DV_MEANS = 8 }; /* most means that tiles share; each costs a pass over the picture */
enum { DV_NORMS = 64 };

typedef struct dv_reach {
    bool global; /* some op needs the whole picture (attention, more than DV_MEANS means): tiles change the result */
    bool strays; /* some op reads at places that the data give, in practice near ones (DySample): tiles are not exact */
    /* if only means need the whole picture: tiles sum the means' operands, and a later pass is given the means */
    int32_t n_means;
    dv_grid means[DV_MEANS]; /* grids of the means' operands, in node order; `halo` holds for these operands, too */
    int32_t n_norms;         /* the same for the statistics of group norms */
    dv_grid norms[DV_NORMS];
    int64_t halo;     /* input pixels on each side, beyond its own place, that an output pixel depends on */
    int64_t align;    /* tile origins must be multiples of this, in input pixels (unshuffle, stride) */
    int64_t num, den; /* output size = input size * num / den */
} dv_reach;
davy_result dv_graph_reach(const dv_graph *g, dv_reach *out);

/* Multiplications and additions of the whole graph, counted separately. */
uint64_t dv_graph_flops(const dv_graph *g);
uint64_t dv_graph_parameters(const dv_graph *g);

#endif
