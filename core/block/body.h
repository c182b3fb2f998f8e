/* body.h - the frame that transformer upscalers share, from the first convolution to the enlarged picture. */
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
    int64_t factors[DV_MAX_STAGES]; /* of the stages of SHUFFLE */
} dv_tail;

/* <name> as one 3x3 convolution, or <name>.0, .2, .4 through a quarter of the channels if the file has these. */
dv_value dv_residual_conv(dv_graph *g, dv_value x, const char *name);

/* ---- the whole network ----
 * A first convolution, groups of blocks in sequence, a norm and a convolution. The result plus the first
 * convolution's features goes to the tail. Each network defines its groups. */

enum { DV_MAX_GROUPS = 32 };

typedef struct dv_body {
    int64_t in, features, groups;
    int64_t unshuffle; /* pixels per side that are unshuffled into one before the first convolution */
    int64_t scale;     /* of the whole network: the tail's scale divided by unshuffle */
    int64_t multiple;  /* pictures are padded to a multiple of this, in pixels per side */
    float range;       /* pictures are scaled from [0, 1] to [0, range] before the mean is subtracted */
    bool plain;        /* no mean is subtracted */
    bool mirrored;     /* padded with mirror images that begin with the last pixel, not the one before it */
    uint8_t depth[DV_MAX_GROUPS], heads[DV_MAX_GROUPS]; /* blocks per group, heads per block */
    dv_tail tail;
} dv_body;

/* Fills in all but depth and heads; multiple and range are 1. `family` is the network's name in messages: "HAT". */
davy_result dv_body_find(const dv_tensors *t, const char *family, dv_body *out);

/* Names that give a group's depth and heads, appended to "layers.<i>". */
typedef struct dv_group_names {
    const char *blocks; /* prefix of the blocks' numbers */
    const char *heads;  /* a tensor whose axis `axis` has one element per `share` heads of a block */
    int32_t axis, share;
} dv_group_names;

/* Reads depth and heads of every group. */
davy_result dv_body_groups(const dv_tensors *t, const char *family, const dv_group_names *names, dv_body *body);

/* Implements dv_arch.info, except for the variant. */
void dv_body_info(const dv_body *body, davy_model_info *out);
/* Implements dv_arch.wide: the residual sums of the blocks exceed the range of F16. */
bool dv_body_wide(const void *cfg);

typedef struct dv_groups {
    dv_value (*group)(const void *cfg, dv_graph *g, dv_value x, int64_t index); /* returns that group of x */
    const dv_body *body;
    const void *cfg;
} dv_groups;

/* Implements dv_arch.build. */
davy_result dv_body_build(const dv_groups *groups, dv_stage stage, int64_t h, int64_t w, dv_graph *g);

#endif
