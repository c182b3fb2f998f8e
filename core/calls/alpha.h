/* alpha.h - straight alpha. The colours and alpha go through the network in two passes. What lies under full transparency
 * is no picture, and a network would draw it into the edge of what is visible. So pixels of no opacity take the mean
 * colour of their neighbours first, those next to visible ones before those further away. Beyond DVK_BLEED_REACH
 * (kernels/cuda/pixels/bleed.h) they keep theirs. Visible pixels do not change. */
#ifndef DV_ALPHA_H
#define DV_ALPHA_H

#include "core/calls/call.h"

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

/* The pass of the colours of a picture that has straight alpha, from a copy in which colours have bled, and the memory that
 * it takes. */
davy_result dv_call_colours(dv_call *call, int64_t picture, dv_work *work);
uint64_t dv_call_bleed_bytes(const dv_call *call);
/* The pass of alpha, as a grey picture; alpha that is the same everywhere stays what it is. */
davy_result dv_call_alpha(dv_call *call, int64_t picture, const dv_control *control);

#endif
