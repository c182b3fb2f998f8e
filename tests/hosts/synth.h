/* synth.h - generates small weight files in memory. The tests of hosts need a network of a known kind, not a trained one. The
 * same seed gives the same bytes on every machine. */
#ifndef DV_TESTS_SYNTH_H
#define DV_TESTS_SYNTH_H

#include <stdint.h>

typedef struct synth_file {
    unsigned char *data; /* a whole .safetensors file; free() */
    uint64_t bytes;
} synth_file;

/* SRVGGNetCompact, `layers` convolutions between the first and the last. data NULL: out of memory. */
synth_file synth_compact(int feats, int layers, int scale, uint32_t seed);
/* One half of a TAESD: the encoder's or the decoder's file, 4 latent channels. */
synth_file synth_taesd(int decoder, uint32_t seed);

/* The encoder of an AutoencoderKL (ldm names): two levels of 32 channels, 4 latent ones with a posterior. */
synth_file synth_kl_encoder(uint32_t seed);

/* A TAEHV of 8 channels: 4 frames a latent of 4 channels, 8 pixels. */
synth_file synth_taehv(uint32_t seed);
synth_file synth_taeh3(uint32_t seed); /* z 24, factor 16, pieces of 17 frames */

/* A SeedVR2 VideoAutoencoderKL of three levels of 32 channels: 1 frame, then 4 a latent of 4 channels, 4 pixels. */
synth_file synth_seedvr2(uint32_t seed);

/* Uniform in [0, 1), 24 bits; *state is any number and moves on. */
float synth_uniform(uint32_t *state);

#endif
