/* completion_ring.c - numbers that kernels write into the host's memory. */
#include <stdatomic.h>
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"
#include "kernels/lm.h"

enum { MARKS = 2 };

struct dv_gpu_completion_ring {
    dv_gpu *gpu;
    uint64_t *ring; /* pinned */
    cu_event done[MARKS];
    uint32_t marked[MARKS]; /* which number */
    bool sleeps;            /* the host, as the last number was long in coming */
};

davy_result dv_gpu_completion_ring_create(dv_gpu *g, dv_gpu_completion_ring **out) {
    dv_gpu_completion_ring *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for an answer of the device");
    }
    t->gpu = g;
    void *ring = NULL;
    davy_result r = gpu_enter(g, "an answer of the device");
    if (r == DAVY_OK) {
        cu_result c = g->cu->host_alloc(&ring, DVK_COMPLETION_SLOTS * sizeof *t->ring, CU_HOST_PORTABLE);
        const bool no_memory = c == CU_OUT_OF_MEMORY;
        for (int i = 0; c == CU_OK && i < MARKS; i++) {
            c = g->cu->event_create(&t->done[i], CU_EVENT_BLOCKING | CU_EVENT_NO_TIMING);
        }
        gpu_leave(g);
        r = no_memory ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c, "memory for an answer could not be pinned")
                      : dv_gpu_check(g, c, "an answer of the device");
    }
    t->ring = ring;
    if (r < 0) {
        dv_gpu_completion_ring_release(t);
        return r;
    }
    memset(t->ring, 0, DVK_COMPLETION_SLOTS * sizeof *t->ring);
    *out = t;
    return DAVY_OK;
}

void dv_gpu_completion_ring_release(dv_gpu_completion_ring *t) {
    if (t == NULL) {
        return;
    }
    dv_gpu *g = t->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        for (int i = 0; i < MARKS && t->done[i] != NULL; i++) {
            g->cu->event_destroy(t->done[i]);
        }
        if (t->ring != NULL) {
            g->cu->host_free(t->ring);
        }
        gpu_leave(g);
    }
    dv_free(t);
}

uint64_t *dv_gpu_completion_ring_data(const dv_gpu_completion_ring *t) {
    return t->ring;
}

static cu_result mark(dv_gpu_completion_ring *t, dv_gpu_queue *q, uint32_t i) {
    t->marked[i % MARKS] = i;
    return t->gpu->cu->event_record(t->done[i % MARKS], q->stream);
}

davy_result dv_gpu_completion_ring_mark(dv_gpu_completion_ring *t, dv_gpu_queue *q, uint32_t i) {
    dv_gpu *g = t->gpu;
    davy_result r = t->sleeps ? gpu_enter(g, "an answer of the device") : DAVY_OK;
    if (r == DAVY_OK && t->sleeps) {
        const cu_result c = mark(t, q, i);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "an answer of the device");
    }
    return r;
}

static bool is_told(const dv_gpu_completion_ring *t, uint32_t i, int32_t *number) {
    const uint64_t told =
        atomic_load_explicit((_Atomic uint64_t *)&t->ring[i % DVK_COMPLETION_SLOTS], memory_order_acquire);
    const uint32_t low = (uint32_t)told;
    memcpy(number, &low, sizeof low);
    return (uint32_t)(told >> 32) == i;
}

/* Sleeps until the kernel has ended; what was not marked in time, until all that is enqueued has. */
static davy_result sleep_for(dv_gpu_completion_ring *t, dv_gpu_queue *q, uint32_t i) {
    dv_gpu *g = t->gpu;
    davy_result r = gpu_enter(g, "an answer of the device");
    if (r == DAVY_OK) {
        cu_result c = t->marked[i % MARKS] == i ? CU_OK : mark(t, q, i);
        c = c != CU_OK ? c : g->cu->event_sync(t->done[i % MARKS]);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "an answer of the device");
    }
    return r;
}

davy_result dv_gpu_completion_ring_read(dv_gpu_completion_ring *t, dv_gpu_queue *q, uint32_t i, int32_t *number) {
    const uint64_t begin = dv_now_ns();
    const uint64_t busy_ns = t->sleeps ? 0 : ANSWER_SPIN_NS;
    uint64_t waited = 0;
    davy_result r = DAVY_OK;
    while (!is_told(t, i, number) && waited <= busy_ns) {
        waited = dv_now_ns() - begin;
    }
    if (waited > busy_ns) {
        r = sleep_for(t, q, i);
        waited = dv_now_ns() - begin;
    }
    t->sleeps = waited > ANSWER_SPIN_NS;
    return r < 0 || is_told(t, i, number) ? r : dv_fail(DAVY_E_INTERNAL, "the device has answered nothing");
}
