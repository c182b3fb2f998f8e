/* mem.c - counted host memory.
 *
 * The heap takes no lock. An allocation adds its bytes to one atomic total before it calls the system, so that two threads
 * together cannot exceed the budget. Reports use one further counter for each kind. */
#include "core/base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"

enum { BLOCK_ALIGN = 64 };

static _Atomic uint64_t failures;

struct dv_heap {
    _Atomic uint64_t total;
    _Atomic uint64_t used[DV_MEM_KINDS];
    _Atomic uint64_t peak;
    _Atomic uint64_t budget; /* 0: none */
    davy_host host;
    bool from_host;
};

uint64_t dv_alloc_failures(void) {
    return atomic_load(&failures);
}

static void *counted(void *p) {
    if (p == NULL) {
        atomic_fetch_add(&failures, 1);
    }
    return p;
}

void *dv_calloc(uint64_t count, uint64_t size) {
    uint64_t bytes = 0;
    if (!dv_mul_u64(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        return counted(NULL);
    }
    return counted(dv_os_calloc(bytes > 0 ? (size_t)bytes : 1));
}

void *dv_realloc(void *p, uint64_t count, uint64_t size) {
    uint64_t bytes = 0;
    if (!dv_mul_u64(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        return counted(NULL);
    }
    return counted(dv_os_realloc(p, bytes > 0 ? (size_t)bytes : 1));
}

void dv_free(void *p) {
    dv_os_free(p);
}

char *dv_strndup(const char *s, size_t n) {
    size_t len = 0;
    while (len < n && s[len] != '\0') {
        len++;
    }
    char *out = dv_calloc((uint64_t)len + 1, 1);
    if (out != NULL) {
        memcpy(out, s, len);
    }
    return out;
}

char *dv_strdup(const char *s) {
    return dv_strndup(s, strlen(s));
}

char *dv_sprintf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return NULL;
    }
    char *out = dv_calloc((uint64_t)n + 1, 1);
    if (out != NULL) {
        va_start(ap, fmt);
        vsnprintf(out, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return out;
}

void *dv_grow(void *base, int64_t need, int64_t *capacity, uint64_t size) {
    if (base != NULL && need <= *capacity) {
        return base;
    }
    if (need < 0 || need > INT64_MAX / 2) {
        return NULL;
    }
    const int64_t room = dv_max(dv_max(need, *capacity + *capacity / 2), 8);
    void *grown = dv_realloc(base, (uint64_t)room, size);
    if (grown != NULL) {
        *capacity = room;
    }
    return grown;
}

dv_heap *dv_heap_create(const davy_host *host, uint64_t budget_bytes) {
    dv_heap *heap = dv_calloc(1, sizeof *heap);
    if (heap == NULL) {
        return NULL;
    }
    if (host != NULL) {
        heap->host = *host;
        heap->from_host = host->alloc != NULL && host->free != NULL;
    }
    atomic_init(&heap->budget, budget_bytes);
    return heap;
}

void dv_heap_release(dv_heap *heap) {
    dv_free(heap);
}

/* Adds bytes to the total. false: the sum would exceed the budget, and *in_use is the unchanged total. */
static bool claim(dv_heap *heap, uint64_t bytes, uint64_t *in_use) {
    const uint64_t budget = atomic_load(&heap->budget);
    uint64_t total = atomic_load(&heap->total);
    uint64_t sum = 0;
    do {
        if (!dv_add_u64(total, bytes, &sum) || (budget != 0 && sum > budget)) {
            *in_use = total;
            return false;
        }
    } while (!atomic_compare_exchange_weak(&heap->total, &total, sum));
    return true;
}

static void note_peak(dv_heap *heap) {
    const uint64_t now = atomic_load(&heap->total);
    uint64_t peak = atomic_load(&heap->peak);
    while (now > peak && !atomic_compare_exchange_weak(&heap->peak, &peak, now)) {
    }
}

/* The counted size, so that the host never allocates more than the budget. Zero becomes one byte, because an allocator
 * may return NULL for zero bytes. */
static size_t block_bytes(uint64_t bytes) {
    return bytes > 0 ? (size_t)bytes : 1;
}

static void *take_block(dv_heap *heap, uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    return heap->from_host ? heap->host.alloc(heap->host.user, block_bytes(bytes), BLOCK_ALIGN)
                           : dv_aligned_alloc(block_bytes(bytes), BLOCK_ALIGN);
}

static void give_block(dv_heap *heap, void *p, uint64_t bytes) {
    if (heap->from_host) {
        heap->host.free(heap->host.user, p, block_bytes(bytes));
    } else {
        dv_aligned_free(p);
    }
}

static davy_result claim_or_fail(dv_heap *heap, uint64_t bytes, const char *what) {
    uint64_t in_use = 0;
    if (claim(heap, bytes, &in_use)) {
        return DAVY_OK;
    }
    return dv_fail(DAVY_E_BUDGET, "%s: %llu bytes are needed, but %llu bytes of the memory budget of %llu are in use",
                   what, (unsigned long long)bytes, (unsigned long long)in_use,
                   (unsigned long long)atomic_load(&heap->budget));
}

davy_result dv_heap_claim(dv_heap *heap, dv_mem_kind kind, uint64_t bytes, const char *what) {
    const davy_result r = claim_or_fail(heap, bytes, what);
    if (r == DAVY_OK) {
        atomic_fetch_add(&heap->used[kind], bytes);
        note_peak(heap);
    }
    return r;
}

void dv_heap_unclaim(dv_heap *heap, dv_mem_kind kind, uint64_t bytes) {
    atomic_fetch_sub(&heap->used[kind], bytes);
    atomic_fetch_sub(&heap->total, bytes);
}

davy_result dv_heap_alloc(dv_heap *heap, dv_mem_kind kind, uint64_t bytes, const char *what, void **out) {
    const davy_result r = claim_or_fail(heap, bytes, what);
    if (r < 0) {
        return r;
    }
    void *p = take_block(heap, bytes);
    if (p == NULL) {
        atomic_fetch_sub(&heap->total, bytes);
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: %llu bytes could not be allocated", what, (unsigned long long)bytes);
    }
    if ((uintptr_t)p % BLOCK_ALIGN != 0) {
        give_block(heap, p, bytes);
        atomic_fetch_sub(&heap->total, bytes);
        return dv_fail(DAVY_E_INVALID, "%s: the host's alloc returned memory that is not aligned to %d bytes", what,
                       (int)BLOCK_ALIGN);
    }
    atomic_fetch_add(&heap->used[kind], bytes);
    note_peak(heap);
    *out = p;
    return DAVY_OK;
}

void dv_heap_free(dv_heap *heap, dv_mem_kind kind, void *p, uint64_t bytes) {
    if (p == NULL) {
        return;
    }
    give_block(heap, p, bytes);
    dv_heap_unclaim(heap, kind, bytes);
}

uint64_t dv_heap_used(dv_heap *heap, dv_mem_kind kind) {
    return atomic_load(&heap->used[kind]);
}

uint64_t dv_heap_peak(dv_heap *heap) {
    return atomic_load(&heap->peak);
}

uint64_t dv_heap_budget(dv_heap *heap) {
    return atomic_load(&heap->budget);
}

void dv_heap_set_budget(dv_heap *heap, uint64_t budget_bytes) {
    atomic_store(&heap->budget, budget_bytes);
}
