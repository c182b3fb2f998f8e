/* fake_clips.h - names and shapes of video autoencoders, small; and clips of made-up frames on their way through them. */
#ifndef DV_TESTS_FAKE_CLIPS_H
#define DV_TESTS_FAKE_CLIPS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tiles/engine.h"
#include "tests/lib/fake_networks.h"

void fake_conv3d(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t frames, int64_t k);

/* SeedVR2's on so many levels: all but the encoder's first downsampler and the decoder's last upsampler change the number of
 * frames. */
dv_tensors *fake_seedvr2_of(const int64_t *width, int levels, int64_t z);

/* On three levels: two frames a latent, a quarter of the sides, four latent channels. */
dv_tensors *fake_seedvr2(void);

/* ---- frames: planes of f32, [t][c][h][w] ---- */

int64_t frames_bytes(int64_t n, int64_t c, int64_t h, int64_t w);
dvk_image frames_image(void *data, int64_t n, int64_t c, int64_t h, int64_t w);
float *made_up_frames(int64_t n, int64_t c, int64_t h, int64_t w);

#endif
