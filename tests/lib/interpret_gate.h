/* interpret_gate.h - computes one element of an op of core/graph/build.c, in plain loops; for interpret.h. */
#ifndef DV_TESTS_INTERPRET_GATE_H
#define DV_TESTS_INTERPRET_GATE_H

#include <math.h>

#include "core/graph/graph.h"

float ig_depthwise(const dv_node *node, const float *x, dv_shape in, const float *w, int64_t oy, int64_t ox, int64_t c);
float ig_mean(const float *x, dv_shape in, int64_t c);
float ig_max(const dv_node *node, const float *x, dv_shape in, int64_t oy, int64_t ox, int64_t c);
float ig_resize(const float *v, dv_shape in, dv_shape out, int64_t oy, int64_t ox, int64_t c);
float ig_dysample(const dv_node *node, const float *v, dv_shape in, const float *offset, int64_t oy, int64_t ox,
                  int64_t c, int64_t channels);

#endif
