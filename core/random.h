/* random.h - normal numbers that are a function of (seed, stream, index) and of nothing else: not of threads, tiles,
 * layout or what was drawn before. Philox 4x32 with ten rounds (Salmon et al., 2011), then Box and Muller's transform.
 */
#ifndef DV_RANDOM_H
#define DV_RANDOM_H

#include "core/common.h"

/* key = seed; counter = (pair low, pair high, stream low, stream high) with pair = index / 2. With u = (word + 0.5) /
 * 2^32 of the first two words: sqrt(-2 ln u0) * cos(2 pi u1) for an even index, sin for an odd one. */
float dv_random_normal(uint64_t seed, uint64_t stream, uint64_t index);

#endif
