/* interpret_dictionary.h - the ops of a dictionary of tokens for interpret.h, in plain loops. */
#ifndef DV_TESTS_INTERPRET_DICTIONARY_H
#define DV_TESTS_INTERPRET_DICTIONARY_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"

typedef struct id_operands {
    const dv_node *node;
    const float *in[3];
    dv_shape shapes[3];
    const float *weight, *bias;
} id_operands;

/* Loops over pictures; all may share one picture's tokens. Returns 0 for another op. */
int id_node(const id_operands *o, dv_shape y, float *out);

#endif
