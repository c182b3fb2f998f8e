/* upsampler.h - a 1x1 convolution to a cell of frames and pixels, its shuffle, and the 3x3x3 convolution behind it as one
 * convolution of the small picture: SeedVR2's. */
#ifndef DV_BLOCK_UPSAMPLER_H
#define DV_BLOCK_UPSAMPLER_H

#include "core/graph/graph.h"

/* Twice the sides and `times` (1 or 2) frames of each, of a clip's first frame one. <prefix>.upscale_conv makes, of channel
 * c and of the pixel at row b and column d of a cell in frame a, output ((2 b + d) times + a) C + c; <prefix>.conv is
 * causal, its first frame repeated before the clip. As many channels as x has. */
dv_value dv_upsampler(dv_graph *g, dv_value x, const char *prefix, int64_t times);

#endif
