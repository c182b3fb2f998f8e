/* golden_check.h - the checks of the runner's other files; golden.c counts them. */
#ifndef DV_TESTS_GOLDEN_CHECK_H
#define DV_TESTS_GOLDEN_CHECK_H

#include <stdio.h>

#include "core/base/common.h"

int golden_check(int ok, const char *file, int line, const char *what, ...) DV_PRINTF(4, 5);

#define CHECK(cond)       golden_check((cond) != 0, __FILE__, __LINE__, "%s", #cond)
#define CHECKF(cond, ...) golden_check((cond) != 0, __FILE__, __LINE__, __VA_ARGS__)

#endif
