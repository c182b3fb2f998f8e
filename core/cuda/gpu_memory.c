/* gpu_memory.c - device memory under a budget, and pinned host memory. An allocation claims its bytes before it calls the
 * driver, so that two threads together cannot exceed the budget. */
#include "core/base/error.h"
#include "core/cuda/gpu_priv.h"

enum { ALIGN_BYTES = 256 };

davy_result gpu_memory_open(dv_gpu *g, uint64_t budget_bytes) {
    davy_result r = gpu_enter(g, "opening the device");
    if (r < 0) {
        return r;
    }
    const dv_driver *cu = g->cu;
    size_t free_bytes = 0;
    size_t total = 0;
    int pools = 0;
    cu_result c = cu->memory_info(&free_bytes, &total);
    c = c != CU_OK ? c : cu->stream_create(&g->memory_stream, CU_STREAM_NON_BLOCKING);
    cu->device_attribute(&pools, CU_DEVICE_MEMORY_POOLS, g->device);
    if (c == CU_OK && !g->from_host && pools != 0 && cu->pool_create != NULL && cu->pool_destroy != NULL &&
        cu->pool_trim != NULL && cu->pool_set != NULL && cu->pool_get != NULL && cu->pool_alloc != NULL &&
        cu->pool_free != NULL) {
        const cu_pool_props props = {.alloc_type = 1, .location_type = 1, .location_id = g->device};
        uint64_t keep = UINT64_MAX; /* until dv_gpu_trim */
        if (cu->pool_create(&g->pool, &props) == CU_OK) {
            cu->pool_set(g->pool, CU_POOL_RELEASE_THRESHOLD, &keep);
        } else {
            g->pool = NULL;
        }
    }
    gpu_leave(g);
    r = dv_gpu_check(g, c, "opening the device");
    g->automatic_budget = free_bytes / 10 * 9;
    atomic_store(&g->budget, budget_bytes != 0 ? budget_bytes : g->automatic_budget);
    return r;
}

void gpu_memory_close(dv_gpu *g) {
    if (g->memory_stream != NULL) {
        g->cu->stream_sync(g->memory_stream);
        g->cu->stream_destroy(g->memory_stream);
    }
    if (g->pool != NULL) {
        g->cu->pool_destroy(g->pool);
    }
}

static bool claim(dv_gpu *g, uint64_t bytes, uint64_t *in_use) {
    const uint64_t budget = atomic_load(&g->budget);
    uint64_t total = atomic_load(&g->total);
    uint64_t sum = 0;
    do {
        if (!dv_add_u64(total, bytes, &sum) || sum > budget) {
            *in_use = total;
            return false;
        }
    } while (!atomic_compare_exchange_weak(&g->total, &total, sum));
    return true;
}

static void note_peak(dv_gpu *g) {
    const uint64_t now = atomic_load(&g->total);
    uint64_t peak = atomic_load(&g->peak);
    while (now > peak && !atomic_compare_exchange_weak(&g->peak, &peak, now)) {
    }
}

/* Waits for memory_stream, so that every stream can use the memory at once. The wait is short: the stream has no other work. */
static cu_result alloc_by_driver(dv_gpu *g, uint64_t bytes, cu_address *out) {
    if (g->pool == NULL) {
        return g->cu->memory_alloc(out, (size_t)bytes);
    }
    cu_result c = g->cu->pool_alloc(out, (size_t)bytes, g->pool, g->memory_stream);
    if (c == CU_OUT_OF_MEMORY && g->cu->pool_trim(g->pool, 0) == CU_OK) { /* it may hold blocks of other sizes */
        c = g->cu->pool_alloc(out, (size_t)bytes, g->pool, g->memory_stream);
    }
    return c != CU_OK ? c : g->cu->stream_sync(g->memory_stream);
}

static void give_back(dv_gpu *g, cu_address p, uint64_t bytes) {
    if (g->from_host) {
        g->host.device_free(g->host.user, g->index, p, bytes, g->memory_stream);
    } else if (g->pool != NULL) {
        gpu_note(g, g->cu->pool_free(p, g->memory_stream));
    } else {
        gpu_note(g, g->cu->memory_free(p));
    }
}

static cu_result alloc_by_host(dv_gpu *g, uint64_t bytes, cu_address *out) {
    *out = g->host.device_alloc(g->host.user, g->index, bytes, g->memory_stream);
    if (*out == 0) {
        return CU_OUT_OF_MEMORY;
    }
    const cu_result c = g->cu->stream_sync(g->memory_stream);
    if (c != CU_OK) {
        give_back(g, *out, bytes);
    }
    return c;
}

static davy_result refuse(const dv_gpu *g, uint64_t bytes, const char *what, uint64_t free_bytes, uint64_t total) {
    if (g->from_host) {
        return dv_fail_in(DAVY_E_NOMEM_DEVICE, DAVY_DOMAIN_CUDA, CU_OUT_OF_MEMORY,
                          "%s: the host's device_alloc returned no memory for %llu bytes on cuda:%d", what,
                          (unsigned long long)bytes, (int)g->index);
    }
    return dv_fail_in(DAVY_E_NOMEM_DEVICE, DAVY_DOMAIN_CUDA, CU_OUT_OF_MEMORY,
                      "%s: cuda:%d has too little free memory; %llu bytes are needed, %llu of %llu are free", what,
                      (int)g->index, (unsigned long long)bytes, (unsigned long long)free_bytes,
                      (unsigned long long)total);
}

static davy_result take_block(dv_gpu *g, uint64_t bytes, const char *what, cu_address *out) {
    const uint64_t size = bytes > 0 ? bytes : 1;
    size_t free_bytes = 0;
    size_t total = 0;
    davy_result r = gpu_enter(g, what);
    if (r < 0) {
        return r;
    }
    const int mode = gpu_capture_aside(g);
    const cu_result c = g->from_host ? alloc_by_host(g, size, out) : alloc_by_driver(g, size, out);
    if (c == CU_OUT_OF_MEMORY) {
        g->cu->memory_info(&free_bytes, &total);
    }
    gpu_capture_back(g, mode);
    gpu_leave(g);
    if (c == CU_OUT_OF_MEMORY) {
        return refuse(g, bytes, what, free_bytes, total);
    }
    r = dv_gpu_check(g, c, what);
    if (r == DAVY_OK && *out % ALIGN_BYTES != 0) {
        give_back(g, *out, size);
        r = dv_fail(DAVY_E_INVALID, "%s: the host's device_alloc returned memory that is not aligned to %d bytes", what,
                    (int)ALIGN_BYTES);
    }
    return r;
}

davy_result dv_gpu_alloc(dv_gpu *g, dv_mem_kind kind, uint64_t bytes, const char *what, void **out) {
    uint64_t in_use = 0;
    cu_address p = 0;
    if (!claim(g, bytes, &in_use)) {
        return dv_fail(DAVY_E_BUDGET,
                       "%s: %llu bytes are needed on cuda:%d, but %llu bytes of the memory budget of %llu are in use",
                       what, (unsigned long long)bytes, (int)g->index, (unsigned long long)in_use,
                       (unsigned long long)atomic_load(&g->budget));
    }
    const davy_result r = take_block(g, bytes, what, &p);
    if (r < 0) {
        atomic_fetch_sub(&g->total, bytes);
        return r;
    }
    atomic_fetch_add(&g->used[kind], bytes);
    note_peak(g);
    *out = (void *)(uintptr_t)p;
    return DAVY_OK;
}

void dv_gpu_free(dv_gpu *g, dv_mem_kind kind, void *p, uint64_t bytes) {
    if (p == NULL) {
        return;
    }
    atomic_fetch_sub(&g->used[kind], bytes);
    atomic_fetch_sub(&g->total, bytes);
    if (g->process != dv_process_id()) {
        return;
    }
    if (gpu_enter_cu(g) == CU_OK) {
        const int mode = gpu_capture_aside(g);
        give_back(g, gpu_address(p), bytes > 0 ? bytes : 1);
        gpu_capture_back(g, mode);
        gpu_leave(g);
    } else if (g->from_host) { /* the device is lost, but the host may still count its allocations */
        give_back(g, gpu_address(p), bytes > 0 ? bytes : 1);
    }
}

uint64_t dv_gpu_used(dv_gpu *g, dv_mem_kind kind) {
    return atomic_load(&g->used[kind]);
}

uint64_t dv_gpu_peak(dv_gpu *g) {
    return atomic_load(&g->peak);
}

uint64_t dv_gpu_budget(dv_gpu *g) {
    return atomic_load(&g->budget);
}

void dv_gpu_set_budget(dv_gpu *g, uint64_t bytes) {
    atomic_store(&g->budget, bytes != 0 ? bytes : g->automatic_budget);
}

uint64_t dv_gpu_cached(dv_gpu *g) {
    uint64_t reserved = 0;
    uint64_t used = 0;
    if (g->pool == NULL || g->process != dv_process_id() || gpu_enter_cu(g) != CU_OK) {
        return 0;
    }
    const bool known = g->cu->pool_get(g->pool, CU_POOL_RESERVED, &reserved) == CU_OK &&
                       g->cu->pool_get(g->pool, CU_POOL_USED, &used) == CU_OK;
    gpu_leave(g);
    return known && reserved > used ? reserved - used : 0;
}

bool dv_gpu_owns(dv_gpu *g, const void *p, uint64_t bytes) {
    if (p == NULL || g->process != dv_process_id() || gpu_enter_cu(g) != CU_OK) {
        return false;
    }
    bool owns = true;
    const cu_address ends[] = {gpu_address(p), gpu_address(p) + (bytes > 0 ? bytes - 1 : 0)};
    for (size_t i = 0; i < DV_ARRAY_LEN(ends) && owns; i++) {
        unsigned type = 0;
        unsigned managed = 0;
        int device = -1;
        owns = g->cu->pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, ends[i]) == CU_OK;
        if (owns && type == CU_MEMORY_DEVICE) {
            g->cu->pointer_attribute(&managed, CU_POINTER_MANAGED, ends[i]);
            g->cu->pointer_attribute(&device, CU_POINTER_DEVICE, ends[i]);
            owns = managed != 0 || device == g->device;
        }
    }
    gpu_leave(g);
    return owns;
}

/* ---- pinned host memory. cuMemHostAlloc takes half a second per GiB, because one thread faults in every page. For large blocks
 * several threads touch the pages here, and the driver only registers them. Freed blocks are kept for requests of about the same
 * size, until memory is short or dv_gpu_trim frees them. ---- */

enum { LARGE_BYTES = 16 << 20, MOST_THREADS = 16, PAGE = 4096 };

typedef struct gpu_pinned { /* idle */
    dv_pinned block;
    struct gpu_pinned *next;
} gpu_pinned;

/* ---- idle blocks ---- */

/* The smallest block that is large enough and at most an eighth larger; NULL: none. */
static gpu_pinned *take_idle(dv_gpu *g, uint64_t bytes) {
    gpu_pinned **best = NULL;
    dv_mutex_lock(g->lock);
    for (gpu_pinned **at = &g->pinned; *at != NULL; at = &(*at)->next) {
        const uint64_t has = (*at)->block.bytes;
        if (has >= bytes && has - bytes <= bytes / 8 && (best == NULL || has < (*best)->block.bytes)) {
            best = at;
        }
    }
    gpu_pinned *found = best != NULL ? *best : NULL;
    if (found != NULL) {
        *best = found->next;
        g->pinned_idle -= found->block.bytes;
    }
    dv_mutex_unlock(g->lock);
    return found;
}

/* False: the idle blocks would exceed a quarter of the physical memory, or there is no memory for the list entry. */
static bool keep_idle(dv_gpu *g, const dv_pinned *block) {
    const uint64_t most = dv_memory_total() / 4;
    gpu_pinned *idle = dv_calloc(1, sizeof *idle);
    if (idle == NULL) {
        return false;
    }
    idle->block = *block;
    dv_mutex_lock(g->lock);
    const bool fits = block->bytes <= most && g->pinned_idle <= most - block->bytes;
    if (fits) {
        idle->next = g->pinned;
        g->pinned = idle;
        g->pinned_idle += block->bytes;
    }
    dv_mutex_unlock(g->lock);
    if (!fits) {
        dv_free(idle);
    }
    return fits;
}

static void free_block(dv_gpu *g, const dv_pinned *block) {
    const bool alive = g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK;
    if (alive) {
        gpu_note(g, block->registered ? g->cu->host_unregister(block->data) : g->cu->host_free(block->data));
        gpu_leave(g);
    }
    if (block->registered) {
        dv_aligned_free(block->data);
    }
    if (g->heap != NULL) {
        dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, block->bytes);
    }
}

uint64_t dv_gpu_unpin_idle(dv_gpu *g) {
    uint64_t bytes = 0;
    if (g->process != dv_process_id()) { /* a forked child: another thread may have held the lock at the fork */
        return 0;
    }
    dv_mutex_lock(g->lock);
    gpu_pinned *all = g->pinned;
    g->pinned = NULL;
    g->pinned_idle = 0;
    dv_mutex_unlock(g->lock);
    while (all != NULL) {
        gpu_pinned *next = all->next;
        bytes += all->block.bytes;
        free_block(g, &all->block);
        dv_free(all);
        all = next;
    }
    return bytes;
}

/* ---- blocks ---- */

static davy_result claim_host(dv_gpu *g, uint64_t bytes, const char *what) {
    davy_result r = g->heap != NULL ? dv_heap_claim(g->heap, DV_MEM_WORKSPACE, bytes, what) : DAVY_OK;
    if (r < 0 && dv_gpu_unpin_idle(g) > 0) {
        r = dv_heap_claim(g->heap, DV_MEM_WORKSPACE, bytes, what);
    }
    return r;
}

typedef struct pages {
    volatile char *from, *to;
    dv_thread *thread;
} pages;

static void touch(void *arg) {
    const pages *part = arg;
    for (volatile char *p = part->from; p < part->to; p += PAGE) {
        *p = 0;
    }
}

static void touch_all(char *data, uint64_t bytes) {
    pages parts[MOST_THREADS] = {{0}};
    const int32_t n = (int32_t)dv_min(dv_cpu_count(), MOST_THREADS);
    for (int32_t i = 0; i < n; i++) {
        parts[i].from = data + bytes / PAGE * (uint64_t)i / (uint64_t)n * PAGE;
        parts[i].to = i + 1 < n ? data + bytes / PAGE * (uint64_t)(i + 1) / (uint64_t)n * PAGE : data + bytes;
        if (i + 1 == n || dv_thread_start(touch, &parts[i], "davy-pages", &parts[i].thread) != DAVY_OK) {
            touch(&parts[i]);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (parts[i].thread != NULL) {
            dv_thread_join(parts[i].thread);
        }
    }
}

/* Call inside the context. Allocates and registers the process's own pages. *out NULL: not possible, use cuMemHostAlloc. */
static void register_pages(dv_gpu *g, uint64_t bytes, void **out) {
    *out = NULL;
    if (g->cu->host_register == NULL || g->cu->host_unregister == NULL || bytes < LARGE_BYTES) {
        return;
    }
    void *p = dv_memory_available() > bytes ? dv_aligned_alloc(bytes, PAGE) : NULL;
    if (p == NULL) {
        return;
    }
    touch_all(p, bytes);
    if (g->cu->host_register(p, (size_t)bytes, CU_HOST_PORTABLE) == CU_OK) {
        *out = p;
    } else {
        dv_aligned_free(p);
    }
}

static davy_result pin_pages(dv_gpu *g, uint64_t bytes, const char *what, dv_pinned *out) {
    const davy_result r = gpu_enter(g, what);
    cu_result c = CU_OK;
    *out = (dv_pinned){.bytes = bytes};
    if (r < 0) {
        return r;
    }
    const int mode = gpu_capture_aside(g);
    register_pages(g, bytes, &out->data);
    out->registered = out->data != NULL;
    if (!out->registered) {
        c = g->cu->host_alloc(&out->data, (size_t)bytes, CU_HOST_PORTABLE);
    }
    gpu_capture_back(g, mode);
    gpu_leave(g);
    return c == CU_OUT_OF_MEMORY
               ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c,
                            "%s: the driver cannot pin %llu bytes of host memory", what, (unsigned long long)bytes)
               : dv_gpu_check(g, c, what);
}

davy_result dv_gpu_pin(dv_gpu *g, uint64_t bytes, const char *what, dv_pinned *out) {
    gpu_pinned *idle = take_idle(g, bytes);
    if (idle != NULL) {
        *out = idle->block;
        dv_free(idle);
        return DAVY_OK;
    }
    dv_pinned block;
    davy_result r = claim_host(g, bytes, what);
    if (r < 0) {
        return r;
    }
    r = pin_pages(g, bytes, what, &block);
    if (r == DAVY_E_NOMEM_HOST && dv_gpu_unpin_idle(g) > 0) {
        r = pin_pages(g, bytes, what, &block);
    }
    if (r == DAVY_OK) {
        *out = block;
    } else if (g->heap != NULL) {
        dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, bytes);
    }
    return r;
}

void dv_gpu_unpin(dv_gpu *g, dv_pinned *block) {
    if (block->data != NULL && (g->process != dv_process_id() || !keep_idle(g, block))) {
        free_block(g, block);
    }
    *block = (dv_pinned){0};
}

/* ---- direct copies between two gpus. Only davy's own pool becomes accessible to the peer. cuCtxEnablePeerAccess would change
 * how the host's memory in the same context is mapped. ---- */

/* Gives `g` access to the pool of `from`. False: not possible, and copies go through host memory at a tenth of the speed. */
static bool open_way(dv_gpu *g, const dv_gpu *from) {
    const dv_driver *cu = g->cu;
    int can = 0;
    if (cu->peer_can == NULL || cu->pool_access == NULL || from->pool == NULL ||
        cu->peer_can(&can, g->device, from->device) != CU_OK || can == 0) {
        return false;
    }
    const cu_access access = {.location_type = 1, .location_id = g->device, .flags = CU_ACCESS_READ_WRITE};
    return cu->pool_access(from->pool, &access, 1) == CU_OK;
}

void dv_gpu_reach(dv_gpu *g, dv_gpu *from) {
    const uint64_t bit = from->index < 64 ? (uint64_t)1 << from->index : 0;
    if (g == from || (atomic_load(&g->reached) & bit) != 0 || gpu_enter_cu(g) != CU_OK) {
        return;
    }
    const bool direct = open_way(g, from);
    gpu_leave(g);
    atomic_fetch_or(&g->reached, bit);
    dv_logf(&g->log, DAVY_LOG_DEBUG, "copies from cuda:%d to cuda:%d %s", (int)from->index, (int)g->index,
            direct ? "are direct" : "go through host memory");
}
