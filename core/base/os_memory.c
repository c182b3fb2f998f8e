/* os_memory.c - the memory functions of os.h, for every system. mem.c calls them and counts failures; all other files
 * allocate through mem.c. */
#if !defined(_WIN32)
#define _GNU_SOURCE
#include <sys/mman.h>
#else
#include <malloc.h>
#endif
#include <stdlib.h>

#include "core/base/os.h"

void *dv_os_calloc(size_t bytes) {
    return calloc(bytes, 1);
}

void *dv_os_realloc(void *p, size_t bytes) {
    return realloc(p, bytes);
}

void dv_os_free(void *p) {
    free(p);
}

#if !defined(_WIN32)
void *dv_aligned_alloc(uint64_t bytes, uint64_t align) {
    const size_t huge = (size_t)2 << 20;
    const bool large = bytes >= 8 * huge; /* fewer page faults with huge pages, if the system has them */
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&p, large ? huge : (size_t)align, (size_t)bytes) != 0) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (large) {
        madvise(p, (size_t)bytes / huge * huge, MADV_HUGEPAGE);
    }
#endif
    return p;
}

void dv_aligned_free(void *p) {
    free(p);
}
#else
void *dv_aligned_alloc(uint64_t bytes, uint64_t align) {
    return bytes > SIZE_MAX / 2 ? NULL : _aligned_malloc((size_t)bytes, (size_t)align);
}

void dv_aligned_free(void *p) {
    _aligned_free(p);
}
#endif
