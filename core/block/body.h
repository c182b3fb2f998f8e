/* body.h - transformer upscalers: their frame, from the first convolution to the larger picture, and what it is made of. */
#ifndef DV_BLOCK_BODY_H
#define DV_BLOCK_BODY_H

#include "core/graph/graph.h"
#include "core/graph/network.h"

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

/* <name> as one 3x3 convolution, or as <name>.0, .2, .4 through a quarter of the channels: whichever is there. */
dv_value dv_residual_conv(dv_graph *g, dv_value x, const char *name);

/* ---- the whole: a first convolution, groups of blocks one after the other, a norm and a convolution whose sum with the
 * first one's features goes to the tail. What a group is, each network says itself ---- */

enum { DV_MAX_GROUPS = 32 };

typedef struct dv_body {
    int64_t in, features, groups;
    int64_t unshuffle; /* pixels a side that become one in front of the first convolution */
    int64_t scale;     /* of the whole network: the tail's, less what unshuffling takes */
    int64_t multiple;  /* of pixels a side that pictures are extended to */
    float range;       /* pictures run from 0 to this */
    bool plain;        /* no mean is taken off */
    bool mirrored;     /* extended by mirror images that begin with the last pixel, not the one before it */
    uint8_t depth[DV_MAX_GROUPS], heads[DV_MAX_GROUPS]; /* blocks of a group, heads of a block */
    dv_tail tail;
} dv_body;

/* All but depth and heads; multiple and range are 1. `family` is the network's name in messages: "HAT". */
davy_result dv_body_find(const dv_tensors *t, const char *family, dv_body *out);

/* Where a group's numbers stand, behind "layers.<i>". */
typedef struct dv_group_names {
    const char *blocks; /* is followed by the blocks' numbers */
    const char *heads;  /* a tensor whose axis `axis` has one value for each `share` heads of a block */
    int32_t axis, share;
} dv_group_names;

/* Depth and heads of every group. */
davy_result dv_body_groups(const dv_tensors *t, const char *family, const dv_group_names *names, dv_body *body);

/* dv_arch.info but for the variant. */
void dv_body_info(const dv_body *body, davy_model_info *out);
/* dv_arch.wide: the sums that run past the blocks leave the range of F16. */
bool dv_body_wide(const void *cfg);

typedef struct dv_groups {
    dv_value (*group)(const void *cfg, dv_graph *g, dv_value x, int64_t index); /* that group of x */
    const dv_body *body;
    const void *cfg;
} dv_groups;

/* dv_arch.build */
davy_result dv_body_build(const dv_groups *groups, dv_stage stage, int64_t h, int64_t w, dv_graph *g);

#endif
