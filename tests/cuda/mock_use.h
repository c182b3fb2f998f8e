/* mock_use.h - set-up and final checks of tests on the mock. MOCK_FOLDER: the folder of the built mock libraries. */
#ifndef DV_TESTS_MOCK_USE_H
#define DV_TESTS_MOCK_USE_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/cuda/mock_driver.h"
#include "tests/lib/last_error.h"

extern mock_state *m; /* of the library in use */

int32_t last_native(void);

#define OK(call)    CHECKF((call) == DAVY_OK, "%s: %s", #call, last_error())
#define SAYS(words) CHECKF(strstr(last_error(), words) != NULL, "\"%s\" is not in: %s", words, last_error())

void *mock_symbol(const char *name);
void mock_call(const char *name);
void mock_use(const char *path);

extern const dvk_cuda_module mock_modules[2];

void balanced(const char *where);

extern dv_heap *heap;

dv_gpu *open_gpu(uint64_t budget);

/* Checks that no object of the mock is left. */
void close_gpu(dv_gpu *g, const char *where);

dvk_launch launch_of(const char *module, const char *function);

#endif
