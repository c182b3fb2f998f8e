/* clip_reference.h - a clip as an array [t][h][w][c] and what networks do to it, in plain loops over all of its frames at
 * once, with nothing of the library but stored weights. */
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
    int pad_bottom_right, zeros; /* zeros: before the first frame; else that frame */
} clip_conv;

/* frames - 1 frames are put before the first; takes x over */
clip clip_convolve(const dv_tensors *weights, clip x, const clip_conv *s);

void clip_silu(const clip *x);

/* Every frame by itself. */
void clip_norm(const dv_tensors *weights, const clip *x, const char *gamma, const char *beta, int64_t groups);

clip clip_copy(const clip *x);
void clip_add(const clip *to, const clip *x);

/* y[t] = x[t - by], zeros before the first */
clip clip_delay(const clip *x, int64_t by);

/* Channels of a beside those of b; takes both over. */
clip clip_beside(clip a, clip b);

/* Frame t of s frames, `channels` after channel c0 of x's frame t0: what of x is there; takes x over. */
clip clip_spread(clip x, int64_t s, int shuffle);

/* s frames one after another become one of s times the channels; takes x over. */
clip clip_gather(clip x, int64_t s);

/* Without the frame of that index; takes x over. */
clip clip_drop(clip x, int64_t index);

double clip_distance(const float *a, const clip *b);

#endif
