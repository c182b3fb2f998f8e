/* mem.h - host memory: small allocations, and a heap that counts its bytes against a budget.
 *
 * Small bookkeeping (structs, names, node lists) uses dv_calloc and the functions below it. Weights and workspace are
 * large and belong to a context: they use a dv_heap, which may call the host's own allocator. All other memory comes from
 * the memory functions of os.h, where tests make allocations fail (tests/lib/hooks.h). */
#ifndef DV_MEM_H
#define DV_MEM_H

#include "core/base/common.h"

void *dv_calloc(uint64_t count, uint64_t size); /* NULL on overflow or out of memory */
void *dv_realloc(void *p, uint64_t count, uint64_t size);
void dv_free(void *p);
char *dv_strdup(const char *s);
char *dv_strndup(const char *s, size_t n);
char *dv_sprintf(const char *fmt, ...) DV_PRINTF(1, 2); /* freed with dv_free */

/* Grows an array of `size`-byte elements to hold at least `need`; returns the new base or NULL (old one still valid). */
void *dv_grow(void *base, int64_t need, int64_t *capacity, uint64_t size);

/* Number of dv_calloc and dv_realloc calls that failed in this process. A caller compares two readings: if the number
 * grew, memory ran out in between and a result may be incomplete. */
uint64_t dv_alloc_failures(void);

typedef enum dv_mem_kind { DV_MEM_WEIGHTS = 0, DV_MEM_WORKSPACE = 1, DV_MEM_KINDS = 2 } dv_mem_kind;

/* Large, 64-byte aligned blocks under a budget. Thread-safe. */
typedef struct dv_heap dv_heap;

/* host: NULL or the context's callbacks (copied). budget_bytes 0: no budget. NULL: out of memory. */
dv_heap *dv_heap_create(const davy_host *host, uint64_t budget_bytes);
void dv_heap_release(dv_heap *heap);

/* Allocates a block with undefined contents. DAVY_E_BUDGET: it would exceed the budget, and nothing changes.
 * DAVY_E_NOMEM_HOST: the system refuses. The message begins with `what`. */
davy_result dv_heap_alloc(dv_heap *heap, dv_mem_kind kind, uint64_t bytes, const char *what, void **out);
void dv_heap_free(dv_heap *heap, dv_mem_kind kind, void *p, uint64_t bytes);

/* Counts memory of another allocator (pinned by a driver) against the budget. */
davy_result dv_heap_claim(dv_heap *heap, dv_mem_kind kind, uint64_t bytes, const char *what);
void dv_heap_unclaim(dv_heap *heap, dv_mem_kind kind, uint64_t bytes);

uint64_t dv_heap_used(dv_heap *heap, dv_mem_kind kind);
uint64_t dv_heap_peak(dv_heap *heap);
uint64_t dv_heap_budget(dv_heap *heap);
void dv_heap_set_budget(dv_heap *heap, uint64_t budget_bytes);

#endif
