/* manifest_names.h - names and shapes from the manifest of a golden case, as tensors without numbers. */
#ifndef DV_TESTS_MANIFEST_NAMES_H
#define DV_TESTS_MANIFEST_NAMES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_weights.h"

dv_json *read_json(const char *path);
dv_tensors *tensors_of_case(const dv_json *manifest);

/* The case is beside the golden runner, or in DAVY_SHARED. NULL: not found; the check counts as skipped. */
dv_tensors *names_of(const char *name);

#endif
