/* bleed.h - straight alpha: what lies under full transparency is no picture, and a network would draw it into the edge of
 * what is visible. So pixels of no opacity take the mean colour of their neighbours first, those next to visible ones
 * before those further away; beyond DVK_BLEED_REACH (kernels/cuda/pixels/bleed.h) they keep theirs. Visible pixels do not change. */
#ifndef DV_BLEED_H
#define DV_BLEED_H

#include "core/calls/tensor.h"

/* Of picture `index` of p, whose alpha means opacity as alpha * opacity->mul + opacity->add. */
typedef struct dv_bleed {
    const dv_pixels *p;
    int64_t index;
    dv_colours colours;
    dv_mapping opacity;
} dv_bleed;

bool dv_bleed_needed(const dv_bleed *b); /* some of it, but not all, is hidden */
/* out: [h][w][colours], numbers as stored; age: [h][w], working memory. */
void dv_bleed_run(const dv_bleed *b, float *out, uint8_t *age);

#endif
