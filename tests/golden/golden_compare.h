/* golden_compare.h - compares computed with expected values: a line of errors, and a check of the bound. */
#ifndef DV_TESTS_GOLDEN_COMPARE_H
#define DV_TESTS_GOLDEN_COMPARE_H

#include "abi/davy.h"
#include "golden_io.h"

void compare_arrays(davy_dtype precision, const char *what, const array *got, const array *expected);
/* For an encoder whose output holds mean and log-variance together. how: printed after their names. */
void compare_moments(davy_dtype precision, const char *how, array *got, const array *mean, const array *logvar);

#endif
