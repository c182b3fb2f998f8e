/* golden_compare.h - what was computed against what was expected: a line of errors, and a check of the bound. */
#ifndef DV_TESTS_GOLDEN_COMPARE_H
#define DV_TESTS_GOLDEN_COMPARE_H

#include "abi/davy.h"
#include "golden_io.h"

void compare_arrays(davy_dtype precision, const char *what, const array *got, const array *expected);
/* Of an encoder that gives mean and log-variance in one. how: behind their names. */
void compare_moments(davy_dtype precision, const char *how, array *got, const array *mean, const array *logvar);

#endif
