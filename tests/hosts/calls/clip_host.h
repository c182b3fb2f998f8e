/* clip_host.h - shared by the tests of video VAEs: frames and latents, calls, items through a sequence. Each test runs with two
 * networks: in TAEHV the first latent has four frames, in SeedVR2 one. */
#ifndef DV_TESTS_CLIP_HOST_H
#define DV_TESTS_CLIP_HOST_H

#include "tests/hosts/host.h"

enum { WIDTH = 24, HEIGHT = 16, Z = 4, LONGEST = 21, PIXELS = WIDTH * HEIGHT * 3 };

#define FOREVER UINT64_MAX

extern const davy_api *api;
extern davy_context *ctx;
extern davy_model *model; /* the network under test */
extern davy_model_info facts;
extern int first; /* frames of its first latent */

int latents_of(int frames);
int lh(void);
int lw(void);
size_t latent_bytes(int n);

/* Writes frame `number` of clip `clip` to p. Frames differ, and have no noise, so that networks do not saturate. */
void fill_frame(uint8_t *p, int clip, int number);

uint8_t *frames_of(int clips, int frames);
davy_tensor clip_tensor(void *data, davy_dtype dtype, int n, int t, int h, int w, int c);
davy_tensor pixels_tensor(uint8_t *data, int clips, int frames);
davy_tensor latent_tensor(float *data, int clips, int latents);
davy_result encode(uint8_t *pixels, int clips, int frames, float *latent, const davy_run *run);
davy_result decode(float *latent, int latents, uint8_t *pixels, const davy_run *run);

/* ---- sequences ---- */

davy_tensor one_latent(float *p);
davy_sequence *open_sequence(davy_op op, int32_t most, const davy_run *run);
davy_sequence_info info_of(davy_sequence *s);

typedef struct flow { /* all items of one side, packed */
    davy_op op;
    char *in, *out;
    int n_in, n_out;
    int hand_over;
} flow;

davy_tensor item_in(const flow *f, int i);
davy_result pull_one(davy_sequence *s, const flow *f, int i, uint64_t timeout_ns);

/* Pushes all items and pulls results, in one thread. Returns the number of results. */
int flow_through(davy_sequence *s, const flow *f);

/* ---- the networks ---- */

int clip_host_run(void (*all)(synth_file file));

#endif
