/* op.h - what every op computes: argument structs, semantics and error bounds, shared by the plain references
 * (kernels/ref), the fast variants (kernels/cpu, kernels/cuda), the planner and kcheck.
 *
 * Activations are NHWC ("channels last"): channel stride 1, pixels `sw` elements apart, so that a concat is a slice of a
 * wider pixel. They are stored as f32, bf16 or f16; every sum and every parameter vector is f32.
 * Kernels never allocate, never fail and never touch memory outside their views: the planner checks shapes first. */
#ifndef DVK_OP_H
#define DVK_OP_H

#include <stdint.h>

typedef enum dvk_dtype { /* same numbers as davy_dtype */
                         DVK_NONE = 0,
                         DVK_F32 = 1,
                         DVK_F16 = 2,
                         DVK_BF16 = 3,
                         DVK_U8 = 4,
                         DVK_U16 = 5,
                         DVK_INT8 = 6, /* compute only: products of 8-bit integers */
                         DVK_FP8 = 8,  /* compute only: products of E4M3 */
                         DVK_TF32 = 16 /* compute only: f32 values, products of 10 bits */
} dvk_dtype;

/* A strided block of pixels. Strides in elements: of one picture, one row, one pixel. */
typedef struct dvk_view {
    void *data;
    dvk_dtype dtype;
    int32_t reserved;
    int64_t n, h, w, c;
    int64_t sn, sh, sw;
} dvk_view;

typedef enum dvk_act {
    DVK_ACT_NONE = 0,
    DVK_ACT_RELU,
    DVK_ACT_LRELU,  /* x >= 0 ? x : slope * x */
    DVK_ACT_PRELU,  /* slope per channel */
    DVK_ACT_SILU,   /* x * sigmoid(x) */
    DVK_ACT_CLAMP3, /* 3 * tanh(x / 3), the first op of a TAESD decoder */
    DVK_ACT_GELU,   /* x / 2 (1 + erf(x / sqrt 2)) */
    DVK_ACT_SIGMOID,
    DVK_ACT_TANH,
    DVK_ACT_MISH /* x * tanh(ln(1 + e^x)) */
} dvk_act;

/* What follows a convolution before its result is stored, per element of channel c:
 *     t = v + bias[c];  if (!act_last) t = act(t)
 *     t = alpha * t + sum_i beta[i] * res[i]
 *     if (act_last) t = act(t)
 * gate (SPAN, needs n_res == 1, no act): y = (t + res[0]) * (sigmoid(t) - 0.5) with t = v + bias[c].
 * gate 2 (CUDA's convolutions, those that say so in supports()): y = act(t) * sum_i beta[i] * res[i].
 * gate 3 (the same, needs n_res == 1): a 1x1 convolution of the result gates it, y = act(u) * (alpha * s + beta[0] * res[0])
 * with s[c] = v + bias[c], rounded to y's type, and u = gate_bias[c] + sum_k gate_w[c][k] * s[k].
 * A residual view has the output's n, h, w, c; it may be the very memory of the output. */
typedef struct dvk_epilogue {
    const float *bias;   /* [c_out] or NULL */
    const float *slopes; /* [c_out], DVK_ACT_PRELU */
    dvk_view res[2];
    float beta[2];
    float alpha; /* 1 where nothing is scaled */
    float slope; /* DVK_ACT_LRELU */
    dvk_act act;
    int32_t n_res;
    int32_t act_last;
    int32_t gate;
    /* CUDA only, and only kernels with stats_chunks: group norm statistics of y as stored, for group_norm_finish with
     * `chunks`. NULL: not wanted. */
    float *stats;
    int64_t stats_groups;
    /* CUDA only, and only kernels with sums_chunks: sums of y over the pixels, before it is rounded, in so many rows of
     * [c] for "excite" (kernels/excite.h). NULL: not wanted. */
    float *sums;
    /* CUDA only, kernels that say so in supports(): y is the pixel shuffle by this factor of the result (res[0], where
     * n_res is 1, is then a picture of the unshuffled size whose nearest neighbour is added after it, as pixel_shuffle
     * does, or one of y's). y is then no slice: what lies between its pixels may be overwritten. 0 and 1: none. */
    int64_t shuffle;
    const float *res_scale; /* of a residual of y's size behind a shuffle: multiplied by this, too, [c]. NULL: 1 */
    /* CUDA only, kernels with stores(): the result goes to this picture as "store" does, whose view is y but for its data,
     * and none to y. NULL: to y. */
    const struct dvk_convert_args *store;
    const float *gate_w, *gate_bias; /* gate 3: [c][c], and [c] or NULL */
} dvk_epilogue;

/* What happens to the input of an op as it is read: x' = act(x * scale[n][c] + shift[n][c]). This is a group norm, once
 * its statistics are known, and the SiLU behind it. Padding stays zero: it is applied to real pixels only. */
typedef struct dvk_prologue {
    const float *scale; /* [n * c] or NULL: none */
    const float *shift;
    dvk_act act; /* NONE, RELU, SILU or CLAMP3 (needs no scale) */
    int32_t reserved;
} dvk_prologue;

/* "conv2d": cross-correlation, zero padding, after nearest upsampling of x by `upsample` (1 or 2).
 * y[n,oy,ox,o] = epi( sum_{i,ky,kx} W[o,i,ky,kx] * X[n, oy*stride + ky - pad_top, ox*stride + kx - pad_left, i] ), X = the
 * (upsampled, prologued) input. Bottom and right padding follow from y's size. kh = kw = 1 is the matrix product. */
typedef struct dvk_conv2d_args {
    dvk_view x, y;
    const void *w; /* packed by the same kernel's pack() */
    dvk_prologue pro;
    dvk_epilogue epi;
    int32_t kh, kw, stride, pad_top, pad_left, upsample;
    dvk_dtype compute; /* CUDA: precision of the products, F32, TF32, F16, BF16, FP8 or INT8. The CPU's imply it */
    /* CUDA, with kh = kw = 2, upsample 2, stride and padding 1: nothing is enlarged by itself; each parity of y's rows and
     * columns has weights of its own, W[(2 * (oy & 1) + (ox & 1)) * y.c + o][i][ky][kx], and
     * y[n,oy,ox,o] = epi( sum_{i,ky,kx} W[..] * pro(x)[n, (oy + 1) / 2 + ky - 1, (ox + 1) / 2 + kx - 1, i] ). */
    int32_t phased;
    int32_t scaled;    /* CUDA, kernels that are `scalable`: the launch before makes w, which is read no sooner */
    int32_t backwards; /* CUDA, kernels that turn: from the picture's end, which the launch before has written last */
} dvk_conv2d_args;

/* A picture of h x w pixels, transformed along the width for convolutions of three taps by Winograd's F(4, 3): f16,
 * DVK_WINOGRAD_LINES * h rows of "quads" of DVK_WINOGRAD_PIXELS pixels, w / 4 rounded up. With
 * d[i] = x[oy][4 * q - 1 + i], zero beyond the picture's sides, row 6 * oy + f has at q
 *     f 0: 81/64 d[0] + (d[4] - 45/16 d[2])    1, 2: (d[4] - 9/4 d[2]) +- 3/4 (d[3] - 9/4 d[1])
 *       5: 81/64 d[1] + (d[5] - 45/16 d[3])    3, 4: (d[4] - 9/16 d[2]) +- 3/2 (d[3] - 9/16 d[1])
 * in f32, each sum a fused one: the points 0, 3/4, -3/4, 3/2, -3/2 and infinity, of those that are exact the ones that
 * round least.
 * "winograd_input": y = that of pro(x) as f16. Here f16 means clamped to its range and rounded; so are d and y. Picture 0 is
 * written `repeats` times more, `repeat_step` elements of y apart. kept = pro(x) as f16, d itself, of the last kept.n pictures
 * (0: of none).
 * "conv2d_winograd": dvk_conv2d_args with such a picture as x and one of h x w as y, compute F16, 3 x 3 taps, stride and
 * padding 1: what conv2d gives of the picture that was transformed, with the same weights. CUDA, and the references. */
enum { DVK_WINOGRAD_LINES = 6, DVK_WINOGRAD_PIXELS = 4 };
typedef struct dvk_winograd_input_args {
    dvk_view x, y, kept;
    dvk_prologue pro;
    int64_t repeats, repeat_step;
} dvk_winograd_input_args;

/* "pointwise": y = epi(pro(x)); additions, activations, the apply of a norm, scaling, conversion between dtypes, copies
 * of strided views (concat, crop). */
typedef struct dvk_pointwise_args {
    dvk_view x, y;
    dvk_prologue pro;
    dvk_epilogue epi;
} dvk_pointwise_args;

/* "group_norm_stats": partial[n][chunk][group] = {mean, M2} over the rows of one chunk (DVK_NORM_CHUNK_ROWS rows of a
 * picture; the last may be shorter), M2 = sum of squared differences from the chunk's mean. One unit = one chunk. The
 * chunking is part of the definition, so that the answer never depends on the number of threads. */
enum { DVK_NORM_CHUNK_ROWS = 8 };
typedef struct dvk_group_norm_stats_args {
    dvk_view x;
    float *partial; /* [n][chunks][groups][2] */
    int64_t groups;
    int64_t chunks; /* CUDA: at most this many pieces of whole rows, written as {count, mean, M2}. 0: as above */
} dvk_group_norm_stats_args;

/* "group_norm_finish": merges the chunks (Chan's formula, in double) and folds gamma and beta:
 * scale = gamma / sqrt(var + eps), shift = beta - mean * scale, var biased. One unit = one picture. */
typedef struct dvk_group_norm_finish_args {
    const float *partial;
    const float *gamma, *beta; /* [c] */
    float *scale, *shift;      /* [n][c] */
    int64_t n, h, w, c, groups;
    float eps;
    int32_t reserved;
    /* CUDA: partial is [n][chunks][groups][3] = {count, mean, M2}, of chunks of any size (a count of 0 is skipped), as
     * group_norm_stats (its own `chunks`) or a convolution's epilogue wrote it. 0: as above. */
    int64_t chunks;
} dvk_group_norm_finish_args;

/* "attention": scaled dot-product attention over the pixels of a picture, heads side by side in the channels:
 * y = softmax(scale * q k^T) v, softmax in f32, no mask. */
typedef struct dvk_attention_args {
    dvk_view q, k, v, y;
    int64_t heads;
    float scale;
    int32_t reserved;
} dvk_attention_args;

/* "window_attention": attention inside windows, as Swin has it. q, k, v and y are pictures of one size, heads side by side
 * in the channels (dim = c / heads; padded with zeros where a network's own is no multiple of 8: `scale` is of the true one).
 * The picture is extended by zeros, bottom and right, to ph x pw, both multiples of the window, and rolled: place (a, b) of
 * the frame is pixel ((a + shift_y) % ph, (b + shift_x) % pw). Query i of a window sees all its keys:
 *     y = softmax(scale q k^T + bias[head][yi - yj + kh - 1][xi - xj + kw - 1] + mask) v
 * with (yi, xi) in [0, wh) x [0, ww) and (yj, xj) in [0, kh) x [0, kw). Where kh > wh the window of keys reaches
 * (kh - wh) / 2 pixels beyond that of queries at each side (no shift then). Zeros of the extension and beyond are keys like
 * others. mask: -100 between pixels of different regions, if there is a shift: along an axis of length L, 0 before L - w,
 * 1 before L - shift, else 2. `grid`: a window is what is ph / wh and pw / ww apart: its (i, j) is pixel
 * (i * ph / wh + its row, j * pw / ww + its column); no shift. cut_y, cut_x: along that axis the queries' last region begins
 * at L - cut, and only that of the keys at L - shift; 0: both there. */
typedef struct dvk_window_attention_args {
    dvk_view q, k, v, y;
    const float *bias; /* [heads][wh + kh - 1][ww + kw - 1] or NULL */
    int64_t heads, ph, pw;
    int32_t wh, ww, kh, kw, shift_y, shift_x, grid;
    float scale;
    int32_t cut_y, cut_x;
} dvk_window_attention_args;

/* "channel_attention": attention between the channels of a head over a group of pixels,
 * y[d][t] = sum over e of softmax over e(temperature[head] * q'[d] . k'[e]) v[e][t], q' = q / max(|q|, eps) over the group's
 * pixels t, k' alike. Groups: the whole picture (wh 0); windows of wh x ww that divide it; `grid`: pixels wh and ww apart,
 * wh * ww groups. The first `dim` channels of a head count; y is 0 in those behind them, which pad it (as above). */
typedef struct dvk_channel_attention_args {
    dvk_view q, k, v, y;
    const float *temperature; /* [heads] */
    int64_t heads, dim;
    int32_t wh, ww, grid;
    float eps;
} dvk_channel_attention_args;

/* "depthwise": y[n,oy,ox,c] = epi( sum_{ky,kx} w[ky * kw + kx][c] * pro(x)[n, oy * s + ky - pad_top, ox * s + kx - pad_left, c] )
 * with s = stride, 1 where that is 0. */
typedef struct dvk_depthwise_args {
    dvk_view x, y;
    const float *w; /* [kh * kw][c] */
    dvk_prologue pro;
    dvk_epilogue epi;
    int32_t kh, kw, pad_top, pad_left;
    /* CUDA: x, w and the bias have twice the channels of y, y = act(t[c]) * t[y.c + c] with t = the sum + bias; without
     * residuals. */
    int32_t paired;
    int32_t stride;
} dvk_depthwise_args;

/* "multiply": y = epi(x * act(g)); g has x's size or 1 x 1 pixels, x's channels or one. y may be the very memory of x, of g
 * (of x's shape) or of a residual. */
typedef struct dvk_multiply_args {
    dvk_view x, g, y;
    dvk_epilogue epi;
    dvk_act act; /* without slopes */
    int32_t reserved;
} dvk_multiply_args;

/* "mean": y[n,0,0,c] = the mean of x over the pixels, summed in f32 or better in an order that depends on sizes alone.
 * "max_pool": largest of k x k every `stride` pixels, no padding.
 * "resize": bilinear to y's size, half-pixel centres, edges repeated, nothing smoothed. */
typedef struct dvk_pool_args {
    dvk_view x, y;
    int32_t k, stride; /* max_pool */
} dvk_pool_args;

/* "dysample": y[oy,ox,c] = x[Y,X,c] read bilinearly, edges repeated, for oy = h * r + i, ox = w * r + j and group g of c:
 *     X = clamp(w + (2j - r + 1) / (2r) + D[h,w,((0 * groups + g) * r + i) * r + j], 0, W - 1), Y with axis 1, i and h.
 * Where y has 1 / groups of x's channels, y[c] is the sum over g of what that gives for x[g * y.c + c]. */
typedef struct dvk_dysample_args {
    dvk_view x, offset, y; /* offset: D, 2 * groups * r * r channels */
    int64_t groups, r;
} dvk_dysample_args;

/* "upsample": nearest by r: y[oy,ox] = x[oy/r, ox/r].  "pixel_shuffle": y[h*r+i, w*r+j, c] = x[h, w, c*r*r + i*r + j], then
 * + res[oy/r, ox/r, c] where res.data is set (Compact's nearest skip).  "pixel_unshuffle": the inverse, no res. */
typedef struct dvk_resample_args {
    dvk_view x, y, res;
    int64_t r;
} dvk_resample_args;

/* "fold": y[oy,ox] holds the r x r pixels of x from (oy * r - top, ox * r - left) on, one behind the other with all their
 * channels, rows and columns of x going around: number i of these is channel i / dim * (y.c / heads) + i % dim, with
 * dim = r * r * x.c / heads. Channels that only pad a head are 0.  "unfold": the inverse, of one head without padding:
 * pixel (oy * r - top + i, ox * r - left + j) of y is channels (i * r + j) * y.c and on of x[oy,ox]. */
typedef struct dvk_fold_args {
    dvk_view x, y;
    int64_t r, heads;
    int32_t top, left; /* below r */
} dvk_fold_args;

/* "pad": y has x from (top, left) on, extended to y's size; reflect: x[-i] = x[i], x[L-1+i] = x[L-1-i] while that exists,
 * then the opposite edge's sample (so that any size >= 1 can be padded); edge: the nearest sample; otherwise zeros. */
typedef enum dvk_pad_mode { DVK_PAD_ZERO = 0, DVK_PAD_REFLECT = 1, DVK_PAD_EDGE = 2 } dvk_pad_mode;
typedef struct dvk_pad_args {
    dvk_view x, y;
    dvk_pad_mode mode;
    int32_t top, left;
    int32_t reserved;
} dvk_pad_args;

/* "blend": y[oy,ox,c] += wy[oy] * wx[ox] * x[oy,ox,c]: a tile faded into the rows it shares with its neighbours. y is f32. */
typedef struct dvk_blend_args {
    dvk_view x, y;
    const float *wy, *wx; /* [h], [w] */
} dvk_blend_args;

/* A rectangle of the caller's picture, any layout: strides in bytes. map[c] is the caller's channel for our channel c. */
typedef struct dvk_image {
    void *data;
    dvk_dtype dtype;
    int32_t channels; /* of ours: how many entries of map count */
    int64_t n, h, w;
    int64_t sn, sh, sw, sc;
    int32_t map[4];       /* used while channels <= 4 */
    int32_t identity_map; /* 1: channel c is c (latents) */
    int32_t reserved;
} dvk_image;

/* "load": y[c] = image[map[c]] * mul + add.
 * "store": image[map[c]] = clamp(x[c] * mul + add, lo, hi); integers are rounded to nearest, ties to even, NaN to lo. */
typedef struct dvk_convert_args {
    dvk_image image;
    dvk_view view; /* f32, bf16 or f16; same n, h, w; c = image.channels */
    float mul, add, lo, hi;
    int32_t clamp;
    int32_t reserved;
} dvk_convert_args;

/* A picture as video has it: a plane of luma and one of chroma, half as wide and high (rounded up), Cb and Cr side by
 * side. Chroma lies on the even columns and between two rows ("left", as MPEG-2 and H.264 have it). */
typedef enum dvk_yuv_matrix { DVK_YUV_BT601 = 0, DVK_YUV_BT709 = 1, DVK_YUV_BT2020 = 2 } dvk_yuv_matrix;

/* "load_yuv": view = rgb * mul + add, rgb in [0, 1] from luma and linearly interpolated chroma.
 * "store_yuv": the inverse, of rgb = clamp(view * mul + add, 0, 1), NaN to 0; chroma is that of the weighted mean of the
 * six pixels around it (1 2 1 across, 1 1 down). Past its edges a plane repeats. */
typedef struct dvk_yuv_args {
    void *luma, *chroma;
    int64_t luma_stride, chroma_stride; /* bytes */
    dvk_view view;                      /* n = 1, c = 3: red, green, blue */
    float mul, add;
    int32_t bits; /* 8: a byte (NV12); 10 to 16: the upper bits of a 16-bit word (P010, P016) */
    dvk_yuv_matrix matrix;
    int32_t full_range; /* 0: luma 16 to 235, chroma 16 to 240, of 8 bits */
    int32_t reserved;
} dvk_yuv_args;

/* Error bounds of a variant against the f32 reference, on ||a - b|| / ||b|| and on |a - b| <= abs + rel * |b|. */
typedef struct dvk_bound {
    double l2, abs, rel;
} dvk_bound;

#endif
