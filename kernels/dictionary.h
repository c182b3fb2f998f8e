/* dictionary.h - ops of a dictionary of tokens (ATD): how like each of them a pixel is, what they say to it, attention between
 * pixels that are like the same one, and the dictionary as the picture has changed it. Tokens are a picture, too, of m pixels
 * in reading order. Pictures of a batch know nothing of each other; those of one op are as many, but for tokens (k of
 * "similarity", v of "mix", t of "refine"), which may be one picture's for all. */
#ifndef DVK_DICTIONARY_H
#define DVK_DICTIONARY_H

#include "kernels/dtype.h"
#include "kernels/op.h"

/* Picture n of v, by itself; of tokens for all, these. */
static inline dvk_view dvk_picture_of(dvk_view v, int64_t n) {
    v.data = (char *)v.data + (v.n > 1 ? n * v.sn : 0) * (int64_t)dvk_dtype_size(v.dtype);
    v.n = 1;
    return v;
}

/* "similarity": y[p][i] = softmax over i of factor[i] * q[p] . k[i] / (max(|q[p]|, eps) max(|k[i]|, eps)), eps = 1e-12, of y.c
 * tokens. All views are f32. */
typedef struct dvk_similarity_args {
    dvk_view q, k, y;
    const float *factor; /* [m]; at most 80 */
} dvk_similarity_args;

/* "mix": y[p][c] = sum over i of s[p][i] * v[i][c]. s and v are f32. */
typedef struct dvk_mix_args {
    dvk_view s, v, y;
} dvk_mix_args;

/* "order": the pixels of s, by number in reading order, sorted by the channel of their greatest value, the first of equals;
 * those of one channel stay in order. y, f32 of one channel, holds their numbers; what y has more of are the last ones
 * again, backwards. At most 2^24 pixels, and at most as many again. */
typedef struct dvk_order_args {
    dvk_view s, y;
} dvk_order_args;

/* "gather": pixel t of y is pixel order[t] of x, times scale[c] where that is not NULL.
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
