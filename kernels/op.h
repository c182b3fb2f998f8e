/* op.h - argument structs, semantics and error bounds of every op. The references (kernels/ref), the fast kernels
 * (kernels/cpu, kernels/cuda), the planner and kcheck share them.
 *
 * Activations are NHWC ("channels last"): channel stride 1, pixels `sw` elements apart. A concat is therefore a slice
 * of a wider pixel. Activations are stored as f32, bf16 or f16. Every sum and every parameter vector is f32.
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

/* The epilogue of a convolution, applied to each element of channel c before the store:
 *     t = v + bias[c];  if (!act_last) t = act(t)
 *     t = alpha * t + sum_i beta[i] * res[i]
 *     if (act_last) t = act(t)
 * gate 1 (SPAN; needs n_res == 1, no act): y = (t + res[0]) * (sigmoid(t) - 0.5) with t = v + bias[c].
 * gate 2 (CUDA convolutions whose supports() accepts it): y = act(t) * sum_i beta[i] * res[i].
 * gate 3 (likewise; needs n_res == 1): a 1x1 convolution of s gates the result, with s[c] = v + bias[c] rounded to y's
 * type:
 *     y = act(u) * (alpha * s + beta[0] * res[0]), u = gate_bias[c] + sum_k gate_w[c][k] * s[k]
 * A residual view has the output's n, h, w, c. It may alias the output exactly. */
typedef struct dvk_epilogue {
    const float *bias;   /* [c_out] or NULL */
    const float *slopes; /* [c_out], DVK_ACT_PRELU */
    dvk_view res[2];
    float beta[2];
    float alpha; /* 1: no scaling */
    float slope; /* DVK_ACT_LRELU */
    dvk_act act;
    int32_t n_res;
    int32_t act_last;
    int32_t gate;
    /* CUDA only, kernels with stats_chunks: group norm statistics of y as stored, for group_norm_finish with `chunks`.
     * NULL: no statistics. */
    float *stats;
    int64_t stats_groups;
    /* CUDA only, kernels with sums_chunks: sums of the unrounded y over the pixels, for "excite" (kernels/excite.h).
     * sums_chunks returns the number of rows of [c]. NULL: no sums. */
    float *sums;
    /* CUDA only, kernels whose supports() accepts it: y is the pixel shuffle of the result by this factor. 0 and 1: no
     * shuffle. With n_res 1, res[0] has one of two sizes. It has y's size, or it is a picture of the unshuffled size
     * whose nearest neighbour is added after the shuffle, as in pixel_shuffle. y must not be a slice: the kernel may
     * overwrite the gaps between its pixels. */
    int64_t shuffle;
    const float *res_scale; /* [c], second factor of a residual of y's size behind a shuffle. NULL: 1 */
    /* CUDA only, kernels with stores(): the result goes to this picture as "store" writes it. Its view equals y except
     * for the data pointer; y is not written. NULL: the result goes to y. */
    const struct dvk_convert_args *store;
    const float *gate_w, *gate_bias; /* gate 3: [c][c], and [c] or NULL */
} dvk_epilogue;

/* The prologue of an op, applied to the input as it is read: x' = act(x * scale[n][c] + shift[n][c]). This is a group
 * norm with known statistics, followed by SiLU. It applies to real pixels only, so padding stays zero. */
typedef struct dvk_prologue {
    const float *scale; /* [n * c] or NULL: none */
    const float *shift;
    dvk_act act; /* NONE, RELU, SILU or CLAMP3 (needs no scale) */
    int32_t reserved;
} dvk_prologue;

/* "conv2d": cross-correlation with zero padding, after nearest upsampling of x by `upsample` (1 or 2).
 *     y[n,oy,ox,o] = epi( sum_{i,ky,kx} W[o,i,ky,kx] * X[n, oy*stride + ky - pad_top, ox*stride + kx - pad_left, i] )
 * X is the upsampled input after the prologue. Bottom and right padding follow from y's size. kh = kw = 1 is the matrix
 * product. */
typedef struct dvk_conv2d_args {
    dvk_view x, y;
    const void *w; /* packed by the same kernel's pack() */
    dvk_prologue pro;
    dvk_epilogue epi;
    int32_t kh, kw, stride, pad_top, pad_left, upsample;
    /* CUDA: precision of the products: F32, TF32, F16, BF16, FP8 or INT8. On the CPU the kernel implies it */
    dvk_dtype compute;
    /* CUDA, with kh = kw = 2, upsample 2, stride and padding 1: a convolution in four phases without an upsampled
     * picture. Each parity of y's rows and columns has separate weights W[p][i][ky][kx], p = (2 * (oy & 1) + (ox & 1))
     * * y.c + o.
     *     y[n,oy,ox,o] = epi( sum_{i,ky,kx} W[p][i][ky][kx] * pro(x)[n, (oy + 1) / 2 + ky - 1, (ox + 1) / 2 + kx - 1, i] )
     */
    int32_t phased;
    int32_t scaled; /* CUDA, `scalable` kernels: the preceding launch writes w; w is read after it has finished */
    /* CUDA, kernels with `turns`: tiles run from the picture's end, which the preceding launch wrote last */
    int32_t backwards;
} dvk_conv2d_args;

/* A picture of h x w pixels after Winograd's transform F(4, 3) along the width, for convolutions with three taps. It is
 * f16 and has DVK_WINOGRAD_LINES * h rows of w / 4 (rounded up) "quads" of DVK_WINOGRAD_PIXELS pixels. With d[i] =
 * x[oy][4 * q - 1 + i], zero beyond the picture's sides, row 6 * oy + f has at quad q:
 *     f 0: 81/64 d[0] + (d[4] - 45/16 d[2])    1, 2: (d[4] - 9/4 d[2]) +- 3/4 (d[3] - 9/4 d[1])
 *       5: 81/64 d[1] + (d[5] - 45/16 d[3])    3, 4: (d[4] - 9/16 d[2]) +- 3/2 (d[3] - 9/16 d[1])
 * Each sum is an FMA in f32. The points are 0, 3/4, -3/4, 3/2, -3/2 and infinity. Among points with exact coefficients,
 * these have the smallest rounding error.
 * "winograd_input": y = the transform of pro(x) as f16. d and y are f16, clamped to its range and rounded. Picture 0 is
 * written `repeats` more times, `repeat_step` elements of y apart. kept = pro(x) as f16, which is d, of the last kept.n
 * pictures (0: none).
 * "conv2d_winograd": dvk_conv2d_args with such a picture as x and a picture of h x w as y; compute F16, 3 x 3 taps,
 * stride and padding 1. The result is conv2d of the picture before the transform, with the same weights. Only CUDA and
 * the references implement it. */
enum { DVK_WINOGRAD_LINES = 6, DVK_WINOGRAD_PIXELS = 4 };
typedef struct dvk_winograd_input_args {
    dvk_view x, y, kept;
    dvk_prologue pro;
    int64_t repeats, repeat_step;
} dvk_winograd_input_args;

/* "pointwise": y = epi(pro(x)). It serves additions, activations, the apply of a norm, scaling, conversion between
 * dtypes and copies of strided views (concat, crop). */
typedef struct dvk_pointwise_args {
    dvk_view x, y;
    dvk_prologue pro;
    dvk_epilogue epi;
} dvk_pointwise_args;

/* "group_norm_stats": partial[n][chunk][group] = {mean, M2} over the rows of one chunk. M2 is the sum of squared
 * differences from the chunk's mean. A chunk is DVK_NORM_CHUNK_ROWS rows of a picture; the last may be shorter. One
 * unit is one chunk. The chunks are part of the definition, so the result does not depend on the number of threads. */
enum { DVK_NORM_CHUNK_ROWS = 8 };
typedef struct dvk_group_norm_stats_args {
    dvk_view x;
    float *partial; /* [n][chunks][groups][2] */
    int64_t groups;
    int64_t chunks; /* CUDA: at most this many chunks of whole rows, written as {count, mean, M2}. 0: as above */
} dvk_group_norm_stats_args;

/* "group_norm_finish": merges the chunks (Chan's formula, in double) and folds gamma and beta:
 *     scale = gamma / sqrt(var + eps), shift = beta - mean * scale, biased var
 * One unit is one picture. */
typedef struct dvk_group_norm_finish_args {
    const float *partial;
    const float *gamma, *beta; /* [c] */
    float *scale, *shift;      /* [n][c] */
    int64_t n, h, w, c, groups;
    float eps;
    int32_t reserved;
    /* CUDA: partial is [n][chunks][groups][3] = {count, mean, M2}, from group_norm_stats with `chunks` or from the
     * epilogue of a convolution. Chunks may differ in size; a count of 0 is skipped. 0: as above. */
    int64_t chunks;
} dvk_group_norm_finish_args;

/* "attention": scaled dot-product attention over the pixels of a picture, without a mask. Heads are side by side in the
 * channels. y = softmax(scale * q k^T) v, softmax in f32. */
typedef struct dvk_attention_args {
    dvk_view q, k, v, y;
    int64_t heads;
    float scale;
    int32_t reserved;
} dvk_attention_args;

/* "window_attention": attention inside windows, as in Swin. q, k, v and y are pictures of one size. Heads are side by
 * side in the channels (dim = c / heads). If a network's dim is no multiple of 8, each head is padded with zeros;
 * `scale` is that of the unpadded dim.
 * The picture is extended with zeros, bottom and right, to a frame of ph x pw, both multiples of the window. The frame
 * is rolled: place (a, b) is pixel ((a + shift_y) % ph, (b + shift_x) % pw). Query i of a window sees all keys of the
 * window:
 *     y = softmax(scale q k^T + bias[head][yi - yj + kh - 1][xi - xj + kw - 1] + mask) v
 * with (yi, xi) in [0, wh) x [0, ww) and (yj, xj) in [0, kh) x [0, kw). If kh > wh, the window of keys extends (kh -
 * wh) / 2 pixels beyond that of queries on each side; shift is then 0. Zeros of the extension and beyond count as keys.
 * mask, with a shift: -100 between pixels of different regions. Along an axis of length L the region is 0 before L - w,
 * then 1 before L - shift, then 2.
 * `grid`: a window holds pixels that are ph / wh and pw / ww apart. Its element (i, j) is pixel (i * ph / wh + window
 * row, j * pw / ww + window column). There is no shift.
 * cut_y, cut_x: along that axis the last region of the queries begins at L - cut; that of the keys begins at L - shift.
 * 0: both begin at L - shift. */
typedef struct dvk_window_attention_args {
    dvk_view q, k, v, y;
    const float *bias; /* [heads][wh + kh - 1][ww + kw - 1] or NULL */
    int64_t heads, ph, pw;
    int32_t wh, ww, kh, kw, shift_y, shift_x, grid;
    float scale;
    int32_t cut_y, cut_x;
} dvk_window_attention_args;

/* "channel_attention": attention between the channels of a head over a group of pixels t:
 *     y[d][t] = sum over e of softmax over e(temperature[head] * q'[d] . k'[e]) v[e][t]
 * q' = q / max(|q|, eps) with the norm over the group's pixels; k' likewise. A group is the whole picture (wh 0) or a
 * window of wh x ww; windows divide the picture. With `grid` there are wh * ww groups, whose pixels are wh and ww
 * apart. The first `dim` channels of a head count. The remaining channels are padding, and y is 0 there. */
typedef struct dvk_channel_attention_args {
    dvk_view q, k, v, y;
    const float *temperature; /* [heads] */
    int64_t heads, dim;
    int32_t wh, ww, grid;
    float eps;
} dvk_channel_attention_args;

/* "depthwise", with s = stride (0: 1):
 *     y[n,oy,ox,c] = epi( sum_{ky,kx} w[ky * kw + kx][c] * pro(x)[n, oy * s + ky - pad_top, ox * s + kx - pad_left, c] ) */
typedef struct dvk_depthwise_args {
    dvk_view x, y;
    const float *w; /* [kh * kw][c] */
    dvk_prologue pro;
    dvk_epilogue epi;
    int32_t kh, kw, pad_top, pad_left;
    /* CUDA: x, w and the bias have twice the channels of y. y = act(t[c]) * t[y.c + c] with t = sum + bias; no
     * residuals. */
    int32_t paired;
    int32_t stride;
} dvk_depthwise_args;

/* "multiply": y = epi(x * act(g)). g has x's size or 1 x 1 pixels, and x's channels or one. y may alias x, g (of x's
 * shape) or a residual exactly. */
typedef struct dvk_multiply_args {
    dvk_view x, g, y;
    dvk_epilogue epi;
    dvk_act act; /* without slopes */
    int32_t reserved;
} dvk_multiply_args;

/* "mean": y[n,0,0,c] = the mean of x over the pixels, summed in f32 or better. The order of the sum depends only on the
 * sizes.
 * "max_pool": the maximum of k x k pixels every `stride` pixels, no padding.
 * "resize": bilinear to y's size, half-pixel centres, edges repeated, no antialiasing. */
typedef struct dvk_pool_args {
    dvk_view x, y;
    int32_t k, stride; /* max_pool */
} dvk_pool_args;

/* "dysample": y[oy,ox,c] = x[Y,X,c] sampled bilinearly, edges repeated, for oy = h * r + i, ox = w * r + j and group g
 * of c:
 *     X = clamp(w + (2j - r + 1) / (2r) + D[h,w,((0 * groups + g) * r + i) * r + j], 0, W - 1)
 * Y is the same with axis 1, i and h. If y has 1 / groups of x's channels, y[c] is the sum of these samples of x[g *
 * y.c + c] over g. */
typedef struct dvk_dysample_args {
    dvk_view x, offset, y; /* offset: D, 2 * groups * r * r channels */
    int64_t groups, r;
} dvk_dysample_args;

/* "upsample": nearest by r: y[oy,ox] = x[oy/r, ox/r].
 * "pixel_shuffle": y[h*r+i, w*r+j, c] = x[h, w, c*r*r + i*r + j], plus res[oy/r, ox/r, c] if res.data is set (the
 * nearest skip of Compact).
 * "pixel_unshuffle": the inverse, without res. */
typedef struct dvk_resample_args {
    dvk_view x, y, res;
    int64_t r;
} dvk_resample_args;

/* "fold": y[oy,ox] holds the r x r pixels of x from (oy * r - top, ox * r - left) on. Rows and columns of x wrap
 * around. The pixels are concatenated with all their channels. Number i of these is channel i / dim * (y.c / heads) + i
 * % dim, with dim = r * r * x.c / heads. Channels that pad a head are 0.
 * "unfold": the inverse for one head without padding. Pixel (oy * r - top + i, ox * r - left + j) of y is the y.c
 * channels from (i * r + j) * y.c on of x[oy,ox]. */
typedef struct dvk_fold_args {
    dvk_view x, y;
    int64_t r, heads;
    int32_t top, left; /* below r */
} dvk_fold_args;

/* "pad": y holds x from (top, left) on, extended to y's size.
 * - reflect: x[-i] = x[i], x[L-1+i] = x[L-1-i] while that exists, then the opposite edge's sample. Every size >= 1 can
 *   be padded.
 * - edge: the nearest sample.
 * - zero: zeros. */
typedef enum dvk_pad_mode { DVK_PAD_ZERO = 0, DVK_PAD_REFLECT = 1, DVK_PAD_EDGE = 2 } dvk_pad_mode;
typedef struct dvk_pad_args {
    dvk_view x, y;
    dvk_pad_mode mode;
    int32_t top, left;
    int32_t reserved;
} dvk_pad_args;

/* "blend": y[oy,ox,c] += wy[oy] * wx[ox] * x[oy,ox,c]: fades a tile into the rows that it shares with its neighbours. y
 * is f32. */
typedef struct dvk_blend_args {
    dvk_view x, y;
    const float *wy, *wx; /* [h], [w] */
} dvk_blend_args;

/* A rectangle of the caller's picture, in any layout; strides in bytes. map[c] is the caller's channel for davy's
 * channel c. */
typedef struct dvk_image {
    void *data;
    dvk_dtype dtype;
    int32_t channels; /* davy's channels: number of entries of map in use */
    int64_t n, h, w;
    int64_t sn, sh, sw, sc;
    int32_t map[4];       /* read if channels <= 4 */
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

/* A 4:2:0 picture: a plane of luma, and a plane of chroma of half the width and height (rounded up) with Cb and Cr
 * interleaved. Chroma samples are on the even columns and between two rows ("left", as in MPEG-2 and H.264). */
typedef enum dvk_yuv_matrix { DVK_YUV_BT601 = 0, DVK_YUV_BT709 = 1, DVK_YUV_BT2020 = 2 } dvk_yuv_matrix;

/* "load_yuv": view = rgb * mul + add, rgb in [0, 1] from luma and linearly interpolated chroma.
 * "store_yuv": the inverse, of rgb = clamp(view * mul + add, 0, 1), NaN to 0. Chroma is the weighted mean of the six
 * pixels around it (1 2 1 across, 1 1 down). Planes repeat their edges. */
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

/* Error bounds of a kernel against the f32 reference: on ||a - b|| / ||b||, and |a - b| <= abs + rel * |b|. */
typedef struct dvk_bound {
    double l2, abs, rel;
} dvk_bound;

#endif
