/* clip_reference.h - a clip as an array [t][h][w][c], and the layers of networks as plain loops over all of its
 * frames. It uses nothing of the library but stored weights. */
#ifndef DV_TESTS_CLIP_REFERENCE_H
#define DV_TESTS_CLIP_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/file/tensors.h"

typedef struct clip {
    int64_t t, h, w, c;
    float *data;
} clip;

clip clip_new(int64_t t, int64_t h, int64_t w, int64_t c);
int64_t clip_count(const clip *a);
float *clip_at(const clip *a, int64_t t, int64_t y, int64_t x);

typedef struct clip_conv {
    const char *weight, *bias; /* names; stored [o][i][frames][k][k] */
    int64_t o, frames, k, step, stride;
    int pad_bottom_right, zeros; /* zeros: zeros before the first frame; otherwise the first frame is repeated */
} clip_conv;

/* Puts frames - 1 frames before the first. Takes ownership of x. */
clip clip_convolve(const dv_tensors *weights, clip x, const clip_conv *s);

void clip_silu(const clip *x);

/* Each frame separately. */
void clip_norm(const dv_tensors *weights, const clip *x, const char *gamma, const char *beta, int64_t groups);

clip clip_copy(const clip *x);
void clip_add(const clip *to, const clip *x);

/* y[t] = x[t - by], zeros before the first */
clip clip_delay(const clip *x, int64_t by);

/* The channels of a, then those of b. Takes ownership of both. */
clip clip_beside(clip a, clip b);

/* Splits each frame into s frames, each from a part of its channels. `shuffle`: each part is also pixel-shuffled by 2.
 * Takes ownership of x. */
clip clip_spread(clip x, int64_t s, int shuffle);

/* Each s consecutive frames become one with s times the channels. Takes ownership of x. */
clip clip_gather(clip x, int64_t s);

/* Removes the frame of that index. Takes ownership of x. */
clip clip_drop(clip x, int64_t index);

double clip_distance(const float *a, const clip *b);

#endif
