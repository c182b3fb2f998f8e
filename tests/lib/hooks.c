/* hooks.c - see hooks.h. */
#include "tests/lib/hooks.h"

#include <stdatomic.h>

#include "core/base/os.h"

/* ---- memory runs out ---- */

static _Atomic int64_t fail_after = -1; /* negative: off */

void dv_alloc_fail_after(int64_t n) {
    atomic_store(&fail_after, n < 0 ? -1 : n);
}

/* Counts down to 0 and stays there: from then on every allocation fails. */
static bool fails(void) {
    int64_t n = atomic_load_explicit(&fail_after, memory_order_relaxed);
    while (n > 0 && !atomic_compare_exchange_weak(&fail_after, &n, n - 1)) {
    }
    return n == 0;
}

void *__real_dv_os_calloc(size_t bytes);
void *__wrap_dv_os_calloc(size_t bytes);
void *__real_dv_os_realloc(void *p, size_t bytes);
void *__wrap_dv_os_realloc(void *p, size_t bytes);
void *__real_dv_aligned_alloc(uint64_t bytes, uint64_t align);
void *__wrap_dv_aligned_alloc(uint64_t bytes, uint64_t align);

void *__wrap_dv_os_calloc(size_t bytes) {
    return fails() ? NULL : __real_dv_os_calloc(bytes);
}

void *__wrap_dv_os_realloc(void *p, size_t bytes) {
    return fails() ? NULL : __real_dv_os_realloc(p, bytes);
}

void *__wrap_dv_aligned_alloc(uint64_t bytes, uint64_t align) {
    return fails() ? NULL : __real_dv_aligned_alloc(bytes, align);
}

/* ---- device code ---- */

static const dvk_cuda_module *test_modules;
static int32_t n_test_modules;

void dv_gpu_use_modules(const dvk_cuda_module *modules, int32_t count) {
    test_modules = modules;
    n_test_modules = count;
}

const dvk_cuda_module *__real_dvk_cuda_modules(int32_t *count);
const dvk_cuda_module *__wrap_dvk_cuda_modules(int32_t *count);

const dvk_cuda_module *__wrap_dvk_cuda_modules(int32_t *count) {
    if (test_modules == NULL) {
        return __real_dvk_cuda_modules(count);
    }
    *count = n_test_modules;
    return test_modules;
}
