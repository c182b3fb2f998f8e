/* int8.h - the choice of the convolutions that multiply 8-bit integers. It rests on each layer's effect on a test
 * picture; the result must stay close to the 16-bit one. Independent of engines and kernels. */
#ifndef DV_INT8_H
#define DV_INT8_H

#include "core/base/common.h"

/* The tolerated error on the test picture: 50 dB from the 16-bit result, relative to that result's range. Photographs
 * lose 4 to 5 dB more than the test picture, so 45 dB remain for them. */
#define DV_INT8_ERROR  1e-5 /* mean square error over the square of the range */
#define DV_INT8_MARGIN 0.9  /* the layers' errors do not quite add up */

typedef struct dv_int8_layer {
    char *label;
    double flops;
    double error; /* of the result, with 8 bits in this layer only */
    bool on;
} dv_int8_layer;

typedef struct dv_int8 {
    dv_int8_layer *layers;
    int64_t n, cap;
} dv_int8;

davy_result dv_int8_add(dv_int8 *e, const char *label, double flops);
void dv_int8_clear(dv_int8 *e);

bool dv_int8_has(const dv_int8 *e, const char *label); /* whether that layer is on */
int64_t dv_int8_count(const dv_int8 *e);               /* number of layers that are on */
void dv_int8_set(dv_int8 *e, int64_t first, int64_t last, bool on);

/* Turns on layers from `first` on, those with the most operations per error first, until the errors add up to
 * `error`. */
void dv_int8_pick(dv_int8 *e, int64_t first, double error);
/* Turns off a quarter of the layers that are on, the worst first. False: none was on. */
bool dv_int8_drop(dv_int8 *e, int64_t first);

#endif
