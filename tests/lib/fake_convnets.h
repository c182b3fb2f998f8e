/* fake_convnets.h - tensor names and shapes of the newer convolutional upscalers, at any width. They follow the
 * tables of docs/arch; fake_networks.h has the older ones. */
#ifndef DV_TESTS_FAKE_CONVNETS_H
#define DV_TESTS_FAKE_CONVNETS_H

#include "tests/lib/fake_networks.h"

/* unshuffle 1: the first module is conv_1, else conv_1.1 */
dv_tensors *fake_spanf3(int64_t nf, int blocks, int64_t unshuffle, int64_t shuffle, int parts);

typedef struct fake_plksr_spec {
    int real, blocks, gates, layer_norm, samples;
    int64_t nf, scale, k;
    int64_t mixer[2]; /* kernels; 0: 3 */
    int large;        /* 0 one square, 1 four dilated, 2 rectangles */
} fake_plksr_spec;

dv_tensors *fake_plksr(fake_plksr_spec s);

/* [in, out, k, k], the bias [out] */
void fake_transposed(dv_tensors *t, const char *name, int64_t in, int64_t out, int64_t k);

typedef struct fake_cugan_spec {
    int64_t in, bottom, k; /* of the first network: input channels; channels and kernel of its last layer */
    int64_t out, final;    /* final: outputs of conv_final; 0: no such tensor */
    int pro;
} fake_cugan_spec;

/* Channels inside are divided by `by`. */
dv_tensors *fake_cugan_narrow(fake_cugan_spec s, int64_t by);

dv_tensors *fake_cugan(fake_cugan_spec s);
dv_tensors *fake_upconv7(void);

/* window 0: no position table */
dv_tensors *fake_omnisr(int64_t nf, int groups, int64_t window, int64_t scale);

#endif
