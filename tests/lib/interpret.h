/* interpret.h - runs a graph node by node with plain loops, each value in its own memory, before or after fusion.
 * If both runs give the same numbers, fuse.c is right. It shares no code with the kernels. */
#ifndef DV_TESTS_INTERPRET_H
#define DV_TESTS_INTERPRET_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "tests/lib/interpret_dictionary.h"
#include "tests/lib/interpret_gate.h"
#include "tests/lib/interpret_move.h"
#include "tests/lib/interpret_window.h"

typedef struct interpreter {
    const dv_graph *g;
    float **values; /* NHWC, n = 1 */
    float **params;
    float **scale, **shift; /* per node, for group norms */
} interpreter;

size_t in_count(dv_shape s);
int in_params(interpreter *it);

/* Computes every value of the graph. Returns 0 if the weights cannot be read. Call in_release afterwards in either
 * case. */
int in_run(interpreter *it, const dv_graph *g, const float *input);

void in_release(interpreter *it);

/* input and output are NHWC. Returns 0 if the weights cannot be read. */
int interpret(const dv_graph *g, const float *input, float *output);

#endif
