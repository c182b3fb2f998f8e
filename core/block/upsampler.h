/* upsampler.h - SeedVR2's upsampler as one convolution of the small picture. It stands for a 1x1 convolution to a
 * cell of frames and pixels, the shuffle of the cell, and a 3x3x3 convolution. */
#ifndef DV_BLOCK_UPSAMPLER_H
#define DV_BLOCK_UPSAMPLER_H

#include "core/graph/graph.h"

/* Doubles the sides and gives `times` (1 or 2) frames per frame; a clip's first frame gives one. For channel c of
 * the pixel at row b, column d of a cell in frame a, <prefix>.upscale_conv computes output ((2 b + d) times + a) C
 * + c. <prefix>.conv is causal and repeats the first frame before the clip. The result has x's channels. */
dv_value dv_upsampler(dv_graph *g, dv_value x, const char *prefix, int64_t times);

#endif
