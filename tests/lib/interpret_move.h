/* interpret_move.h - computes one element of fold, unfold or pad, in plain loops; for interpret.h. */
#ifndef DV_TESTS_INTERPRET_MOVE_H
#define DV_TESTS_INTERPRET_MOVE_H

#include "core/graph/graph.h"

float im_fold(const dv_node *node, const float *src, dv_shape x, dv_shape y, int64_t oy, int64_t ox, int64_t c);
float im_unfold(const dv_node *node, const float *src, dv_shape x, dv_shape y, int64_t oy, int64_t ox, int64_t c);
float im_pad(const dv_node *node, const float *src, dv_shape x, int64_t oy, int64_t ox, int64_t c);

#endif
