/* fake_weights.h - lists of tensors without files, for tests of graphs and architectures: names and shapes only, or
 * with numbers that follow from the tensor's name, so that two graphs of the same weights see the same numbers. */
#ifndef DV_TESTS_FAKE_WEIGHTS_H
#define DV_TESTS_FAKE_WEIGHTS_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file/tensors.h"
#include "core/base/mem.h"

dv_tensors *fake_new(void);
void fake_add(dv_tensors *t, int32_t ndim, const int64_t *shape, const char *fmt, ...);
void fake_vector(dv_tensors *t, const char *name, int64_t n);

/* <name>.weight [o, i, k, k] and, if asked for, <name>.bias [o] */
void fake_conv(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t k, int bias);

void fake_norm(dv_tensors *t, const char *name, int64_t n);
void fake_done(dv_tensors *t);

/* Gives every tensor numbers in [-0.5, 0.5) over sqrt(inputs). *data is theirs: free it after the tensors. */
int fake_fill(dv_tensors *t, float **data);

#endif
