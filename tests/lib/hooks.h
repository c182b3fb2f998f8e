/* hooks.h - what tests of internals put in front of functions of the library. The linker does it (--wrap, in CMakeLists.txt:
 * dv_internal); the library itself has no such switch. */
#ifndef TESTS_HOOKS_H
#define TESTS_HOOKS_H

#include "kernels/cuda/cuda.h"

/* After n more successful allocations every allocation of davy's own fails; negative turns it off. */
void dv_alloc_fail_after(int64_t n);

/* Another table of device code than the library's; NULL: that one again. */
void dv_gpu_use_modules(const dvk_cuda_module *modules, int32_t count);

#endif
