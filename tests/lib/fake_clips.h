/* fake_clips.h - names and shapes of small video autoencoders, and clips of generated frames for them. */
#ifndef DV_TESTS_FAKE_CLIPS_H
#define DV_TESTS_FAKE_CLIPS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tiles/engine.h"
#include "tests/lib/fake_networks.h"

void fake_conv3d(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t frames, int64_t k);

/* SeedVR2's with that many levels. All samplers but the encoder's first and the decoder's last change the number of
 * frames. */
dv_tensors *fake_seedvr2_of(const int64_t *width, int levels, int64_t z);

/* Three levels: two frames per latent, a quarter of the sides, four latent channels. */
dv_tensors *fake_seedvr2(void);

/* ---- frames: planes of f32, [t][c][h][w] ---- */

int64_t frames_bytes(int64_t n, int64_t c, int64_t h, int64_t w);
dvk_image frames_image(void *data, int64_t n, int64_t c, int64_t h, int64_t w);
float *made_up_frames(int64_t n, int64_t c, int64_t h, int64_t w);

#endif
