/* gpu_pinned.c - host memory that the device copies from and to by itself. The driver's own takes half a second a GiB, as one
 * thread asks for every page: here several do, for large ones, before the driver gets them. What is given back is kept for who
 * asks for as much again, until memory is short or somebody trims. */
#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

enum { LARGE_BYTES = 16 << 20, MOST_THREADS = 16, PAGE = 4096 };

typedef struct gpu_pinned { /* idle */
    dv_pinned block;
    struct gpu_pinned *next;
} gpu_pinned;

/* ---- idle blocks ---- */

/* The smallest that is large enough and hardly larger; NULL: none. */
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

/* false: too much is kept, or there is no memory to note it. */
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
    if (g->process != dv_process_id()) { /* a forked child: the lock may be held for ever */
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

static davy_result claim(dv_gpu *g, uint64_t bytes, const char *what) {
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

/* Inside the context. Memory of the process's own; *out NULL: not so, the driver's has to do. */
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

static davy_result ask_driver(dv_gpu *g, uint64_t bytes, const char *what, dv_pinned *out) {
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
                            "%s: %llu bytes of the host's memory could not be pinned", what, (unsigned long long)bytes)
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
    davy_result r = claim(g, bytes, what);
    if (r < 0) {
        return r;
    }
    r = ask_driver(g, bytes, what, &block);
    if (r == DAVY_E_NOMEM_HOST && dv_gpu_unpin_idle(g) > 0) {
        r = ask_driver(g, bytes, what, &block);
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
