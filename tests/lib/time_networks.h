/* time_networks.h - networks of clips for test_time.c: made-up weights, the graph, and the expected result from
 * plain loops over all frames. */
#ifndef DV_TESTS_TIME_NETWORKS_H
#define DV_TESTS_TIME_NETWORKS_H

#include <stdio.h>
#include <string.h>

#include "core/block/upsampler.h"
#include "tests/lib/check.h"
#include "tests/lib/clip_reference.h"
#include "tests/lib/fake_clips.h"

enum { HEIGHT = 9, WIDTH = 10 };

extern int64_t channels; /* of the current network; 12 is no multiple of 8, so frames are gathered */

typedef struct network {
    const char *name;
    int64_t channels, in_c;
    int64_t first, step; /* frames of a clip's first slice, and the multiple for later slices */
    int64_t first_out, step_out;
    dv_tensors *(*weights)(void);
    void (*build)(dv_graph *g, dv_value x);
    clip (*reference)(const dv_tensors *weights, clip x);
    bool by_frame; /* a part of it can run frame by frame */
    bool second;   /* the slice right behind a first slice of `first` frames is computed differently from later ones */
} network;

/* As in SeedVR2: the first frame is repeated before the clip, frames are normalised, and time is halved and doubled. */
dv_tensors *weights_causal(void);

dv_value act_of_norm(dv_graph *g, dv_value x, const char *name);
clip clip_normed(const dv_tensors *t, const clip *x, const char *gamma, const char *beta);

extern const network time_networks[6];

#endif
