/* interpret_window.h - the ops of transformers for interpret.h, in plain loops over the whole picture. Every pair
 * of pixels is tested for whether they attend to each other. */
#ifndef DV_TESTS_INTERPRET_WINDOW_H
#define DV_TESTS_INTERPRET_WINDOW_H

#include <math.h>
#include <stdlib.h>

#include "core/graph/graph.h"

void iw_layer_norm(const dv_node *node, const float *x, const float *gamma, const float *beta, dv_shape s, float *out);
void iw_attention(const dv_node *node, const float *q, const float *k, const float *v, dv_shape keys, dv_shape s,
                  float *out);
void iw_window_attention(const dv_node *node, const float *const qkv[3], const float *bias, dv_shape s, float *out);
void iw_channel_attention(const dv_node *node, const float *const qkv[3], const float *temperature, dv_shape s,
                          float *out);

#endif
