/* dictionary.h - ops of a dictionary of tokens (ATD): how like each of them a pixel is, what they say to it, attention between
 * pixels that are like the same one, and the dictionary as the picture has changed it. One picture at a time: every n is 1.
 * Tokens are a picture, too, of m pixels in reading order. */
#ifndef DVK_DICTIONARY_H
#define DVK_DICTIONARY_H

#include "kernels/op.h"

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
