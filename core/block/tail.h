/* tail.h - what surrounds the body of transformer upscalers: the mean taken off the picture and put back, the residual
 * around a group of blocks, and the layers that make the larger picture. */
#ifndef DV_BLOCK_TAIL_H
#define DV_BLOCK_TAIL_H

#include "core/graph/graph.h"

typedef enum dv_tail_kind {
    DV_TAIL_NONE,    /* conv_last */
    DV_TAIL_SHUFFLE, /* conv_before_upsample, stages of convolution and pixel shuffle, conv_last */
    DV_TAIL_DIRECT,  /* one convolution and pixel shuffle */
    DV_TAIL_NEAREST  /* conv_before_upsample, stages of nearest x2 and convolution, conv_hr, conv_last */
} dv_tail_kind;

enum { DV_MAX_STAGES = 5 };

typedef struct dv_tail {
    dv_tail_kind kind;
    int32_t stages;
    int64_t features, out, scale;
    int64_t factors[DV_MAX_STAGES]; /* of SHUFFLE's stages */
} dv_tail;

/* Which tail the file has; `in`: channels of the picture. */
davy_result dv_tail_find(const dv_tensors *t, int64_t in, dv_tail *out);
dv_value dv_tail_build(dv_graph *g, dv_value x, const dv_tail *tail);

/* (x - mean) * range, and x / range + mean; the mean is that of RGB, 0 of other channel counts. */
dv_value dv_take_mean(dv_graph *g, dv_value x, float range, bool rgb);
dv_value dv_give_mean(dv_graph *g, dv_value x, float range, bool rgb);

/* <name> as one 3x3 convolution, or as <name>.0, .2, .4 through a quarter of the channels: whichever is there. */
dv_value dv_residual_conv(dv_graph *g, dv_value x, const char *name);

/* Pads to at least 16 a side, as the reference has it, then to multiples; by reflection, below and right. */
dv_value dv_pad_picture(dv_graph *g, dv_value x, int64_t multiple);
/* The same by mirror images that begin with the last sample; of at least 8 a side. */
dv_value dv_mirror_picture(dv_graph *g, dv_value x, int64_t multiple);

#endif
