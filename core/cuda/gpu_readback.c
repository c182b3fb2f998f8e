/* gpu_readback.c - small results of a device: a few bytes copied to pinned memory (readback), and numbers that kernels write
 * directly to pinned memory (the completion ring). */
#include <stdatomic.h>
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu_priv.h"
#include "kernels/lm.h"

struct dv_gpu_readback {
    dv_gpu *gpu;
    void *host; /* pinned */
    cu_event done;
    uint32_t bytes;
    bool sleeps; /* the host sleeps without spinning, because the last answer took long */
};

davy_result dv_gpu_readback_create(dv_gpu *g, uint32_t bytes, dv_gpu_readback **out) {
    dv_gpu_readback *readback = dv_calloc(1, sizeof *readback);
    if (readback == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a device result");
    }
    readback->gpu = g;
    readback->bytes = bytes;
    davy_result r = gpu_enter(g, "reading a device result");
    if (r == DAVY_OK) {
        cu_result c = g->cu->host_alloc(&readback->host, bytes, CU_HOST_PORTABLE);
        const bool no_memory = c == CU_OUT_OF_MEMORY;
        c = c != CU_OK ? c : g->cu->event_create(&readback->done, CU_EVENT_BLOCKING | CU_EVENT_NO_TIMING);
        gpu_leave(g);
        r = no_memory ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c,
                                   "readback: the driver cannot pin %u bytes of host memory", bytes)
                      : dv_gpu_check(g, c, "reading a device result");
    }
    if (r < 0) {
        dv_gpu_readback_release(readback);
        return r;
    }
    *out = readback;
    return DAVY_OK;
}

void dv_gpu_readback_release(dv_gpu_readback *readback) {
    if (readback == NULL) {
        return;
    }
    dv_gpu *g = readback->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        if (readback->done != NULL) {
            g->cu->event_destroy(readback->done);
        }
        if (readback->host != NULL) {
            g->cu->host_free(readback->host);
        }
        gpu_leave(g);
    }
    dv_free(readback);
}

davy_result dv_gpu_readback_send(dv_gpu_readback *readback, dv_gpu_queue *q, const void *device) {
    dv_gpu *g = readback->gpu;
    davy_result r = gpu_enter(g, "reading a device result");
    if (r == DAVY_OK) {
        cu_result c = g->cu->copy_any(gpu_address(readback->host), gpu_address(device), readback->bytes, q->stream);
        c = c != CU_OK ? c : g->cu->event_record(readback->done, q->stream);
        r = gpu_leave_with(g, c, "reading a device result");
    }
    return r;
}

davy_result dv_gpu_readback_read(dv_gpu_readback *readback, void *out) {
    dv_gpu *g = readback->gpu;
    const uint64_t begin = dv_now_ns();
    const uint64_t busy_ns = readback->sleeps ? 0 : ANSWER_SPIN_NS;
    davy_result r = gpu_enter(g, "reading a device result");
    if (r == DAVY_OK) {
        cu_result c = g->cu->event_query(readback->done);
        while (c == CU_NOT_READY && dv_now_ns() - begin < busy_ns) {
            c = g->cu->event_query(readback->done);
        }
        if (c == CU_NOT_READY) { /* sleeps until the event completes */
            c = g->cu->event_sync(readback->done);
        }
        r = gpu_leave_with(g, c, "reading a device result");
    }
    readback->sleeps = dv_now_ns() - begin > ANSWER_SPIN_NS;
    if (r == DAVY_OK) {
        memcpy(out, readback->host, readback->bytes);
    }
    return r;
}

/* ---- the completion ring ---- */

enum { MARKS = 2 };

struct dv_gpu_completion_ring {
    dv_gpu *gpu;
    uint64_t *slots; /* pinned */
    cu_event done[MARKS];
    uint32_t marked[MARKS]; /* the number that each event follows */
    bool sleeps;            /* the host sleeps without spinning, because the last number took long */
};

davy_result dv_gpu_completion_ring_create(dv_gpu *g, dv_gpu_completion_ring **out) {
    dv_gpu_completion_ring *ring = dv_calloc(1, sizeof *ring);
    if (ring == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a device result");
    }
    ring->gpu = g;
    void *slots = NULL;
    davy_result r = gpu_enter(g, "reading a device result");
    if (r == DAVY_OK) {
        cu_result c = g->cu->host_alloc(&slots, DVK_COMPLETION_SLOTS * sizeof *ring->slots, CU_HOST_PORTABLE);
        const bool no_memory = c == CU_OUT_OF_MEMORY;
        for (int i = 0; c == CU_OK && i < MARKS; i++) {
            c = g->cu->event_create(&ring->done[i], CU_EVENT_BLOCKING | CU_EVENT_NO_TIMING);
        }
        gpu_leave(g);
        r = no_memory ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c,
                                   "completion ring: the driver cannot pin its host memory")
                      : dv_gpu_check(g, c, "reading a device result");
    }
    ring->slots = slots;
    if (r < 0) {
        dv_gpu_completion_ring_release(ring);
        return r;
    }
    memset(ring->slots, 0, DVK_COMPLETION_SLOTS * sizeof *ring->slots);
    *out = ring;
    return DAVY_OK;
}

void dv_gpu_completion_ring_release(dv_gpu_completion_ring *ring) {
    if (ring == NULL) {
        return;
    }
    dv_gpu *g = ring->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        for (int i = 0; i < MARKS && ring->done[i] != NULL; i++) {
            g->cu->event_destroy(ring->done[i]);
        }
        if (ring->slots != NULL) {
            g->cu->host_free(ring->slots);
        }
        gpu_leave(g);
    }
    dv_free(ring);
}

uint64_t *dv_gpu_completion_ring_data(const dv_gpu_completion_ring *ring) {
    return ring->slots;
}

static cu_result mark(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i) {
    ring->marked[i % MARKS] = i;
    return ring->gpu->cu->event_record(ring->done[i % MARKS], q->stream);
}

davy_result dv_gpu_completion_ring_mark(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i) {
    dv_gpu *g = ring->gpu;
    davy_result r = ring->sleeps ? gpu_enter(g, "reading a device result") : DAVY_OK;
    if (r == DAVY_OK && ring->sleeps) {
        const cu_result c = mark(ring, q, i);
        r = gpu_leave_with(g, c, "reading a device result");
    }
    return r;
}

static bool has_arrived(const dv_gpu_completion_ring *ring, uint32_t i, int32_t *number) {
    const uint64_t slot =
        atomic_load_explicit((_Atomic uint64_t *)&ring->slots[i % DVK_COMPLETION_SLOTS], memory_order_acquire);
    const uint32_t low = (uint32_t)slot;
    memcpy(number, &low, sizeof low);
    return (uint32_t)(slot >> 32) == i;
}

/* Sleeps until the kernel of number i has ended. Without a mark for i, sleeps until all enqueued work has ended. */
static davy_result sleep_for(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i) {
    dv_gpu *g = ring->gpu;
    davy_result r = gpu_enter(g, "reading a device result");
    if (r == DAVY_OK) {
        cu_result c = ring->marked[i % MARKS] == i ? CU_OK : mark(ring, q, i);
        c = c != CU_OK ? c : g->cu->event_sync(ring->done[i % MARKS]);
        r = gpu_leave_with(g, c, "reading a device result");
    }
    return r;
}

davy_result dv_gpu_completion_ring_read(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i, int32_t *number) {
    const uint64_t begin = dv_now_ns();
    const uint64_t busy_ns = ring->sleeps ? 0 : ANSWER_SPIN_NS;
    uint64_t waited = 0;
    davy_result r = DAVY_OK;
    while (!has_arrived(ring, i, number) && waited <= busy_ns) {
        waited = dv_now_ns() - begin;
    }
    if (waited > busy_ns) {
        r = sleep_for(ring, q, i);
        waited = dv_now_ns() - begin;
    }
    ring->sleeps = waited > ANSWER_SPIN_NS;
    return r < 0 || has_arrived(ring, i, number)
               ? r
               : dv_fail(DAVY_E_INTERNAL, "completion ring: the kernel wrote no number");
}
