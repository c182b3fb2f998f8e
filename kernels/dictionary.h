/* dictionary.h - ops of a dictionary of tokens (ATD): similarity of pixels and tokens, the mix of tokens for each
 * pixel, attention between pixels of similar tokens, and the refinement of the dictionary by a picture.
 *
 * Tokens are stored as a picture of m pixels in reading order. The pictures of a batch are independent. All views of an
 * op have the same n, except tokens (k of "similarity", v of "mix", t of "refine"): one picture of tokens may serve
 * all. */
#ifndef DVK_DICTIONARY_H
#define DVK_DICTIONARY_H

#include "kernels/dtype.h"
#include "kernels/op.h"

/* Picture n of v; if v has one picture for all, that one. */
static inline dvk_view dvk_picture_of(dvk_view v, int64_t n) {
    v.data = (char *)v.data + (v.n > 1 ? n * v.sn : 0) * (int64_t)dvk_dtype_size(v.dtype);
    v.n = 1;
    return v;
}

/* "similarity": y[p][i] = softmax over i of factor[i] * q[p] . k[i] / (max(|q[p]|, eps) max(|k[i]|, eps)), eps = 1e-12,
 * over y.c tokens. All views are f32. */
typedef struct dvk_similarity_args {
    dvk_view q, k, y;
    const float *factor; /* [m]; at most 80 */
} dvk_similarity_args;

/* "mix": y[p][c] = sum over i of s[p][i] * v[i][c]. s and v are f32. */
typedef struct dvk_mix_args {
    dvk_view s, v, y;
} dvk_mix_args;

/* "order": the pixels of s, as numbers in reading order, stably sorted by the channel of their maximum (the first of
 * equals). y, f32 with one channel, holds the numbers. If y is longer, the last numbers follow again in reverse order.
 * At most 2^24 pixels; y has at most twice as many. */
typedef struct dvk_order_args {
    dvk_view s, y;
} dvk_order_args;

/* "gather": pixel t of y is pixel order[t] of x, times scale[c] if scale is not NULL.
 * "scatter": pixel order[t] of y is pixel t of x, for each t below the number of y's pixels. */
typedef struct dvk_gather_args {
    dvk_view x, order, y;
    const float *scale; /* [c] or NULL */
} dvk_gather_args;

/* "refine": y[i][c] = g t[i][c] + (1 - g) sum over p of w[p] x[p][c], g = sigmoid(sigma[i]), w = softmax over p of
 * gamma[i] * s[p][i] / sqrt(var + eps), var the (biased) variance of s[.][i]. t, s and y are f32. */
typedef struct dvk_refine_args {
    dvk_view t, s, x, y;
    const float *gamma, *sigma; /* [m] */
    float eps;
    int32_t reserved;
} dvk_refine_args;

#endif
