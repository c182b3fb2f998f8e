/* int8.h - which convolutions of a network multiply eight bits: chosen by what each of them does to a test picture, so that
 * the result stays close to that of 16 bits. Knows neither engines nor kernels. */
#ifndef DV_INT8_H
#define DV_INT8_H

#include "core/base/common.h"

/* What a test picture may lose: 50 dB from the result of 16 bits, over the range of the latter. Photographs are harder on a
 * network than the test picture, by 4 to 5 dB: 45 are left of them. */
#define DV_INT8_ERROR  1e-5 /* mean square error over the square of the range */
#define DV_INT8_MARGIN 0.9  /* errors of layers do not quite add up */

typedef struct dv_int8_layer {
    char *label;
    double flops;
    double error; /* of the result, with eight bits in this layer alone */
    bool on;
} dv_int8_layer;

typedef struct dv_int8 {
    dv_int8_layer *layers;
    int64_t n, cap;
} dv_int8;

davy_result dv_int8_add(dv_int8 *e, const char *label, double flops);
void dv_int8_clear(dv_int8 *e);

bool dv_int8_has(const dv_int8 *e, const char *label); /* that layer is on */
int64_t dv_int8_count(const dv_int8 *e);               /* of those on */
void dv_int8_set(dv_int8 *e, int64_t first, int64_t last, bool on);

/* Of the layers from `first` on: turns on those that do most for their error, until the errors add up to `error`. */
void dv_int8_pick(dv_int8 *e, int64_t first, double error);
/* Turns a quarter of them off again, the worst ones. false: none was on. */
bool dv_int8_drop(dv_int8 *e, int64_t first);

#endif
