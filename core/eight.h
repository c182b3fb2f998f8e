/* eight.h - which convolutions of a network multiply eight bits: chosen by what each of them does to a test picture, so that
 * the result stays close to that of 16 bits. Knows neither engines nor kernels. */
#ifndef DV_EIGHT_H
#define DV_EIGHT_H

#include "core/common.h"

/* What a test picture may lose: 50 dB from the result of 16 bits, over the range of the latter. Photographs are harder on a
 * network than the test picture, by 4 to 5 dB: 45 are left of them. */
#define DV_EIGHT_ERROR  1e-5 /* mean square error over the square of the range */
#define DV_EIGHT_MARGIN 0.9  /* errors of layers do not quite add up */

typedef struct dv_eight_layer {
    char *label;
    double flops;
    double error; /* of the result, with eight bits in this layer alone */
    bool on;
} dv_eight_layer;

typedef struct dv_eight {
    dv_eight_layer *layers;
    int64_t n, cap;
} dv_eight;

davy_result dv_eight_add(dv_eight *e, const char *label, double flops);
void dv_eight_clear(dv_eight *e);

bool dv_eight_has(const dv_eight *e, const char *label); /* that layer is on */
int64_t dv_eight_count(const dv_eight *e);               /* of those on */
void dv_eight_set(dv_eight *e, int64_t first, int64_t last, bool on);

/* Of the layers from `first` on: turns on those that do most for their error, until the errors add up to `error`. */
void dv_eight_pick(dv_eight *e, int64_t first, double error);
/* Turns a quarter of them off again, the worst ones. false: none was on. */
bool dv_eight_drop(dv_eight *e, int64_t first);

#endif
