/* fake_weights.h - lists of tensors without files, for tests of graphs and architectures. They have names and
 * shapes only, or also numbers that depend on the tensor's name. Two graphs of the same weights then read the same
 * numbers. */
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

/* <name>.weight [o, i, k, k] and optionally <name>.bias [o] */
void fake_conv(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t k, int bias);

void fake_norm(dv_tensors *t, const char *name, int64_t n);
void fake_done(dv_tensors *t);

/* Fills every tensor with numbers in [-0.5, 0.5) / sqrt(inputs). The tensors use *data: free it after them. */
int fake_fill(dv_tensors *t, float **data);

#endif
