/* graph.h - a network as a list of ops with concrete shapes. Architectures build it, fuse.c rewrites it, plan.c turns
 * it into steps. It knows no device, no memory and no file payload: of the weights only names and shapes.
 *
 * Building never needs error checks: after the first mistake (a missing tensor, a wrong shape) every call returns
 * DV_NO_VALUE and dv_graph_check() has the error. Values are pictures, NHWC in meaning; nodes are in execution
 * order. */
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

/* ---- parameters: weights as the network wants them ---- */

typedef struct dv_derivation dv_derivation;

/* Fills dst (row-major, shape known to the caller) from stored tensors. */
typedef davy_result (*dv_derive_fn)(const dv_tensors *weights, const dv_derivation *from, float *dst);

/* The same for a share of the values: any number of threads at once, each with shares of its own. `cpu`: what kernels may
 * use (DVK_CPU_*). */
typedef davy_result (*dv_derive_share_fn)(const dv_tensors *weights, const dv_derivation *from, int32_t share,
                                          uint32_t cpu, float *dst);

/* What a derived parameter is made of, and how. */
struct dv_derivation {
    const char *name; /* of the stored tensor, or what the names of several begin with; "": none */
    const void *how;  /* the derivation's own struct, without pointers, of which the graph has a copy; NULL: nothing */
    size_t how_bytes;
    dv_derive_fn derive;
    dv_derive_share_fn derive_share; /* instead of derive: much work, in so many shares */
    int32_t shares;
    int64_t stored; /* how many values of the file it is made of; 0: as its shape says, -1: none */
};

typedef struct dv_param_info {
    char *label; /* "decoder.conv_in.weight", or what a derived one is made of; unique in the graph */
    int32_t ndim;
    int64_t shape[4];         /* conv: O, I, kh, kw; vectors: C */
    const dv_tensor_ref *ref; /* stored tensor; NULL: derived or constant */
    dv_derivation *from;      /* of a derived one; owned, with what it points to */
    float *constant;          /* values given by the architecture */
    int32_t exponent;         /* the values are multiplied by 2^exponent when they are read */
    int64_t stored;           /* as the derivation has it; 0 of a parameter multiplied by 2^exponent */
} dv_param_info;

/* ---- ops ---- */

/* What each one is: ops.def. */
typedef enum dv_op {
    DV_OP_NONE,
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) DV_OP_##NAME,
#include "core/graph/ops.def"
    DV_OPS
} dv_op;

/* Where a pixel of the result lies on the grid of in[0], and what it needs of it. */
typedef enum dv_reach_kind {
    DV_REACH_SAME,    /* its own place */
    DV_REACH_CONV,    /* kh x kh pixels every `stride`, from pad_top before its place on */
    DV_REACH_ENLARGE, /* a grid r times finer, moved by pad_top */
    DV_REACH_SAMPLE,  /* the same, read at places that in[1] says: there is no bound but what networks learn */
    DV_REACH_REDUCE,  /* a grid r times coarser, moved by pad_top */
    DV_REACH_PAD,     /* the same grid from pad_top rows before it on */
    DV_REACH_CROP,    /* the same grid from row pad_top on */
    DV_REACH_WINDOW,  /* the keys of `window` */
    DV_REACH_MEAN,    /* a number for the whole picture, which tiles may share */
    DV_REACH_ALL,     /* every pixel */
    DV_REACH_RESIZE   /* every pixel, and it lies on no grid of the picture's */
} dv_reach_kind;

typedef enum dv_trait {
    DV_TRAIT_NONE,
    DV_TRAIT_BY_FRAME,   /* of a clip, a frame of the result needs that frame of the operands alone */
    DV_TRAIT_F32_OUT,    /* stored as f32 whatever the rest is: the result decides what belongs together */
    DV_TRAIT_F32_ALL,    /* ... and in[0] and in[1] */
    DV_TRAIT_F32_SECOND, /* in[1] alone */
    DV_TRAIT_F32_FIRST   /* where the result is f32, of the operands in[0] alone has to be */
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

/* Which pixels attend to each other; as in kernels/op.h. */
typedef struct dv_window {
    int32_t h, w;             /* channel attention: 0 is the whole picture */
    int32_t keys_h, keys_w;   /* 0: as the queries */
    int32_t shift_y, shift_x; /* of the frame, or 0 */
    int32_t cut_y, cut_x;     /* of the queries' regions; 0: the shift */
    int32_t grid;
    int64_t padded_h, padded_w; /* the frame; 0: the least multiple of the window */
} dv_window;

typedef enum dv_before { DV_BEFORE_FIRST, DV_BEFORE_ZERO } dv_before; /* a clip's first frame: that again, or zeros */

/* Frame t of the result is the frames t * step to t * step + frames - 1, oldest first, of what begins `lead` frames before
 * the operand's first. Those are the last `keep` of the clip's slice before; `before` says what they are in its first. */
typedef struct dv_time {
    int32_t frames, step, lead, keep;
    dv_before before;
    int32_t ring; /* which one, of frames, a past or a window: in the order in which frames were appended */
} dv_time;

typedef struct dv_node {
    dv_op op;
    int32_t n_in;
    dv_value in[DV_MAX_INPUTS];
    dv_value out;
    char *label; /* for dumps, profiles and messages: the weight's base name or the op's */
    /* attributes; which ones an op uses is said at its builder */
    dv_param weight, bias; /* conv; group norm: gamma, beta; affine: scale, shift */
    int32_t kh, kw, stride, pad_top, pad_left;
    bool
        phased; /* a convolution of 2x2 to twice the size, weights for each parity: dvk_conv2d_args. fused.upsample is 2 */
    int64_t r, groups, heads, first;
    float eps, scale, alpha, beta;
    dvk_pad_mode pad_mode;
    dv_act act;
    dv_window window;
    dv_time time;
    /* Set by fuse.c; what each live conv2d, depthwise and multiply, and each live pointwise node (act, add, gate, affine,
     * group norm), computes is then exactly y = epilogue(op(prologue(in[0]))) of kernels/op.h, with op = the convolution,
     * the product with in[1], or nothing:
     *   prologue  norm >= 0: the coefficients of node `norm` (norm_of == in[0]);
     *             else pro_scale, pro_shift where set; then pro_act
     *   epilogue  bias (convolutions), act, act_last, gate, alpha, res[i] * beta[i]
     * Other operands, but for that of multiply, have moved to res. Before dv_fuse nothing of this is set (alpha 1, the
     * rest none). A live group norm node makes its coefficients at its place in the order; it applies
     * them itself (as pointwise, out) only while values[out].uses > 0. */
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
    bool dead; /* absorbed by another node; its out is DV_NO_VALUE or made by that node */
} dv_node;

typedef struct dv_value_info {
    dv_shape shape;
    int32_t producer; /* node */
    int32_t uses;     /* in[] and fused.res[] of live nodes, and 1 for the graph's output */
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
    int64_t pictures; /* of the input: a batch, or a clip's frames in their order. Set before building; 1 until then */
    bool continues;   /* a clip's: frames came before these, and what the network keeps of them is its state */
    bool second;      /* continues, and only the least that a clip begins with came before */
    bool keeps;       /* a clip's: frames may follow, and what they need is kept */
    bool fused;       /* dv_fuse has run */
    davy_result result; /* sticky */
    davy_error_info error;
} dv_graph;

davy_result dv_graph_create(const dv_tensors *weights, dv_graph **out);
void dv_graph_release(dv_graph *g);
/* The first error of building, put back into the thread's record; else checks that input and output are set. */
davy_result dv_graph_check(dv_graph *g);
/* One line a node: "%12 = conv2d %11 decoder.conv_in 3x3 4->512 [1,32,32,512]"; after fusion with what was absorbed. */
char *dv_graph_dump(const dv_graph *g); /* dv_free; NULL: out of memory */

dv_shape dv_shape_of(const dv_graph *g, dv_value v); /* zeros for DV_NO_VALUE */

/* The first of the '|'-separated names, each followed by suffix, that exists; NULL: none. Like every lookup below. */
const dv_tensor_ref *dv_weight_find(const dv_tensors *weights, const char *names, const char *suffix);

/* ---- builders ----
 * Names are printf-free; alternatives are separated by '|': "a.to_q|a.q" takes the first that exists. */

dv_value dv_input(dv_graph *g, dv_shape shape); /* of one picture; the value has all of the graph's `pictures` */
void dv_output(dv_graph *g, dv_value v);
/* Fails the graph on behalf of an architecture, with the current error record. */
dv_value dv_graph_fail(dv_graph *g, davy_result r);

/* The tensor of that name and suffix, for derivations, once it is there and of that shape; NULL: the graph has failed. */
const dv_tensor_ref *dv_weight_require(dv_graph *g, const char *names, const char *suffix, int32_t ndim,
                                       const int64_t *shape);

dv_param dv_param_stored(dv_graph *g, const char *name, int32_t ndim, const int64_t *shape); /* exact; 1x1 may be 2-D */
/* The label says all that the values depend on: two derivations of one label are one parameter. */
dv_param dv_param_derived(dv_graph *g, const char *label, const dv_derivation *from, int32_t ndim,
                          const int64_t *shape);
dv_param dv_param_constant(dv_graph *g, const char *label, int32_t ndim, const int64_t *shape, const float *values);

typedef struct dv_conv_opts {
    int32_t stride;        /* 0: 1 */
    bool pad_bottom_right; /* KL down: one zero row and column at the bottom and right only, none at top and left */
    bool valid;            /* no padding: the result is k - 1 smaller */
    bool no_bias;
    bool derived; /* weight and bias below are used instead of <name>.weight and <name>.bias */
    dv_param weight, bias;
} dv_conv_opts;

/* k x k, zero padding (k-1)/2, weights <name>.weight [c_out, c_in, k, k] and <name>.bias [c_out]. opts may be NULL. */
dv_value dv_conv(dv_graph *g, dv_value x, const char *name, int64_t c_out, int32_t k, const dv_conv_opts *opts);
/* Twice the size, 2x2 of x for a pixel: the derived weight [4 * c_out, c, 2, 2], one part for each parity of row and column;
 * a bias of fewer channels is repeated. Of opts only these two. */
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
dv_value dv_pixel_shuffle(dv_graph *g, dv_value x, int64_t r, dv_value nearest_skip); /* skip may be DV_NO_VALUE */
dv_value dv_pixel_unshuffle(dv_graph *g, dv_value x, int64_t r);
dv_value dv_concat(dv_graph *g, const dv_value *xs, int32_t count);
dv_value dv_pad_to(dv_graph *g, dv_value x, int64_t h, int64_t w, dvk_pad_mode mode); /* below and right */
dv_value dv_crop_to(dv_graph *g, dv_value x, int64_t h, int64_t w);                   /* the top left part */

typedef struct dv_rect {
    int64_t top, left, h, w;
} dv_rect;

/* h x w pixels in all, x's own from (top, left) on. */
dv_value dv_pad(dv_graph *g, dv_value x, dv_rect to, dvk_pad_mode mode);
dv_value dv_crop(dv_graph *g, dv_value x, dv_rect of);                    /* that part of x */
dv_value dv_slice(dv_graph *g, dv_value x, int64_t first, int64_t count); /* channels */
/* r x r pixels become one, the first of them from (-before, -before) on: as kernels/op.h has it, with the channels of each of
 * `heads` heads padded to so many. dv_unfold puts r * r * c channels of one head back. */
dv_value dv_fold(dv_graph *g, dv_value x, int64_t r, int64_t before, int64_t heads, int64_t padded);
dv_value dv_unfold(dv_graph *g, dv_value x, int64_t r, int64_t before);
/* k x k, weights <name>.weight [c, 1, k, k] and <name>.bias [c]; opts as for dv_conv, a derived weight is [k * k, c]. */
dv_value dv_depthwise(dv_graph *g, dv_value x, const char *name, int32_t k, const dv_conv_opts *opts);
/* x * act(gate); gate has x's pixels or one, x's channels or one. */
dv_value dv_multiply(dv_graph *g, dv_value x, dv_value gate, dvk_act act);
dv_value dv_mean(dv_graph *g, dv_value x); /* of all pixels: [n, 1, 1, c] */
dv_value dv_max_pool(dv_graph *g, dv_value x, int32_t k, int32_t stride);
dv_value dv_resize(dv_graph *g, dv_value x, int64_t h, int64_t w); /* bilinear, half-pixel centres */
/* sum: the samples of the groups are added, and the result has 1 / groups of x's channels. */
dv_value dv_dysample(dv_graph *g, dv_value x, dv_value offset, int64_t groups, int64_t r, bool sum);

/* ---- attention.c: norms, windows, dictionaries ---- */
dv_value dv_layer_norm(dv_graph *g, dv_value x, const char *name, float eps); /* <name>.weight and .bias */
/* x / sqrt(mean of the channels' squares + eps) * tensor `name`: [c], or [c, 1, ...] */
dv_value dv_rms_norm(dv_graph *g, dv_value x, const char *name, float eps);
/* q, k and v of one shape; bias [heads, h + keys_h - 1, w + keys_w - 1] or DV_NO_PARAM */
dv_value dv_window_attention(dv_graph *g, const dv_value qkv[3], int64_t heads, float scale, const dv_window *window,
                             dv_param bias);
typedef struct dv_channel_heads {
    int64_t heads, dim;   /* of each head's channels the first `dim` count, the rest are padding */
    dv_window window;     /* its sides divide the picture; shift, keys and padded are unused */
    float eps;            /* of the vectors' lengths */
    dv_param temperature; /* [heads] */
} dv_channel_heads;
dv_value dv_channel_attention(dv_graph *g, const dv_value qkv[3], const dv_channel_heads *opts);

/* time.c: values whose n is the frames of a clip, in order. Of a picture by itself - one, not continued, nothing kept -
 * a clip of one frame. */

typedef struct dv_conv3d_opts {
    int32_t frames;        /* the kernel's; 0: 3 */
    int32_t step;          /* stride in time; 0: 1 */
    int32_t k;             /* kernel in space; 0: 3 */
    int32_t stride;        /* in space; 0: 1 */
    bool pad_bottom_right; /* as dv_conv_opts */
    bool no_bias;
    dv_before before;
    bool
        derived; /* weight [c_out, frames * c_in, k, k], oldest frame first, and bias are used instead of the stored ones */
    dv_param weight, bias;
} dv_conv3d_opts;

/* Causal: frames - 1 frames ahead of a clip's first, frames - step kept when it continues. Weights <name>.weight
 * [c_out, c_in, frames, k, k] (one frame: also [c_out, c_in, k, k]) and <name>.bias. opts may be NULL. */
dv_value dv_conv3d(dv_graph *g, dv_value x, const char *name, int64_t c_out, const dv_conv3d_opts *opts);
/* [n, h, w, frames * c]: with every frame the frames - 1 before it, oldest first. */
dv_value dv_recall(dv_graph *g, dv_value x, int32_t frames, dv_before before);
dv_value dv_frames_to_channels(dv_graph *g, dv_value x, int64_t s); /* [n / s, h, w, s * c], oldest first */
dv_value dv_channels_to_frames(dv_graph *g, dv_value x, int64_t s); /* [n * s, h, w, c / s] */
dv_value dv_take_frames(dv_graph *g, dv_value x, int64_t first, int64_t count);
dv_value dv_join_frames(dv_graph *g, const dv_value *xs, int32_t count);

/* dictionary.c. Tokens are pixels of a picture of one row; a picture's shares of m tokens are m channels. */
dv_value dv_tokens(dv_graph *g, dv_param tokens, int64_t count, int64_t channels); /* [count, channels] */
dv_value dv_similarity(dv_graph *g, dv_value q, dv_value k, dv_param factor);      /* factor [m]; gives the shares */
dv_value dv_mix(dv_graph *g, dv_value s, dv_value v);
dv_value dv_order(dv_graph *g, dv_value s, int64_t rows, int64_t width);     /* of at least as many pixels as s has */
dv_value dv_gather(dv_graph *g, dv_value x, dv_value order, dv_param scale); /* scale [c] or DV_NO_PARAM */
dv_value dv_scatter(dv_graph *g, dv_value x, dv_value order, int64_t h, int64_t w);
typedef struct dv_refinement {
    dv_param gamma, sigma; /* [m] */
    float eps;
} dv_refinement;
dv_value dv_refine(dv_graph *g, dv_value tokens, dv_value s, dv_value x, const dv_refinement *how);

/* ---- passes and questions ---- */

/* Rewrites in place, exactly: conv + bias + activation + (scaled) residuals, SPAN gate, norm + SiLU into the next
 * conv's prologue, nearest x2 into the next conv, chains of pointwise ops, nearest skip into the pixel shuffle. */
davy_result dv_fuse(dv_graph *g);

/* Before dv_fuse, for 16-bit values of little range: numbers that only group norms, convolutions and additions see are
 * kept divided by a power of two, weights, biases and eps with them. Exact but for the range. */
davy_result dv_rescale(dv_graph *g);

/* Before dv_fuse: where pictures are at least half as high and wide as the largest, a clip's frames are computed one after the
 * other, residual block by residual block, and windows in time are rings of as many frames as they see. The same numbers in less
 * memory. *changed: not so where there is one frame or an op that cannot be taken apart. */
davy_result dv_by_frame(dv_graph *g, bool *changed);
/* Of a whole clip: elements that are alive at once somewhere, whether it is computed frame by frame or not. */
davy_result dv_by_frame_least(const dv_graph *g, uint64_t *elements);

typedef struct dv_grid { /* pixels of a value for a pixel of the input; num / den in lowest terms */
    int64_t num, den;
} dv_grid;

enum { DV_MEANS = 8 }; /* so many passes over a picture are worth it, at most */
enum { DV_NORMS = 64 };

typedef struct dv_reach {
    bool global; /* some op sees the whole picture (attention, more means): tiles change the result */
    bool strays; /* some op sees as far as its numbers say, which is near (DySample): tiles are not exact */
    int32_t
        n_means; /* or all that does is so many means: what they are of is summed tile by tile, then they are given */
    dv_grid means[DV_MEANS]; /* grids of what each is of, in the nodes' order; the halo is that of these values, too */
    int32_t n_norms;         /* or so many group norms: the same of their statistics */
    dv_grid norms[DV_NORMS];
    int64_t halo;     /* input pixels an output pixel depends on, beyond its own place, each side */
    int64_t align;    /* tile origins must be multiples of this many input pixels (unshuffle, stride) */
    int64_t num, den; /* output size = input size * num / den */
} dv_reach;
davy_result dv_graph_reach(const dv_graph *g, dv_reach *out);

/* Multiplies and adds of the whole graph, counted apart. */
uint64_t dv_graph_flops(const dv_graph *g);
uint64_t dv_graph_parameters(const dv_graph *g);

#endif
