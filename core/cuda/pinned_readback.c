/* pinned_readback.c - small answers of a device. */
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

struct dv_gpu_readback {
    dv_gpu *gpu;
    void *host; /* pinned */
    cu_event done;
    uint32_t bytes;
    bool sleeps; /* the host, as the last answer was long in coming */
};

davy_result dv_gpu_readback_create(dv_gpu *g, uint32_t bytes, dv_gpu_readback **out) {
    dv_gpu_readback *m = dv_calloc(1, sizeof *m);
    if (m == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for an answer of the device");
    }
    m->gpu = g;
    m->bytes = bytes;
    davy_result r = gpu_enter(g, "an answer of the device");
    if (r == DAVY_OK) {
        cu_result c = g->cu->host_alloc(&m->host, bytes, CU_HOST_PORTABLE);
        const bool no_memory = c == CU_OUT_OF_MEMORY;
        c = c != CU_OK ? c : g->cu->event_create(&m->done, CU_EVENT_BLOCKING | CU_EVENT_NO_TIMING);
        gpu_leave(g);
        r = no_memory ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c, "%u bytes could not be pinned", bytes)
                      : dv_gpu_check(g, c, "an answer of the device");
    }
    if (r < 0) {
        dv_gpu_readback_release(m);
        return r;
    }
    *out = m;
    return DAVY_OK;
}

void dv_gpu_readback_release(dv_gpu_readback *m) {
    if (m == NULL) {
        return;
    }
    dv_gpu *g = m->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        if (m->done != NULL) {
            g->cu->event_destroy(m->done);
        }
        if (m->host != NULL) {
            g->cu->host_free(m->host);
        }
        gpu_leave(g);
    }
    dv_free(m);
}

davy_result dv_gpu_readback_send(dv_gpu_readback *m, dv_gpu_queue *q, const void *device) {
    dv_gpu *g = m->gpu;
    davy_result r = gpu_enter(g, "an answer of the device");
    if (r == DAVY_OK) {
        cu_result c = g->cu->copy_any(gpu_address(m->host), gpu_address(device), m->bytes, q->stream);
        c = c != CU_OK ? c : g->cu->event_record(m->done, q->stream);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "an answer of the device");
    }
    return r;
}

davy_result dv_gpu_readback_read(dv_gpu_readback *m, void *out) {
    dv_gpu *g = m->gpu;
    const uint64_t begin = dv_now_ns();
    const uint64_t busy_ns = m->sleeps ? 0 : ANSWER_SPIN_NS;
    davy_result r = gpu_enter(g, "an answer of the device");
    if (r == DAVY_OK) {
        cu_result c = g->cu->event_query(m->done);
        while (c == CU_NOT_READY && dv_now_ns() - begin < busy_ns) {
            c = g->cu->event_query(m->done);
        }
        if (c == CU_NOT_READY) { /* sleeps until the device says so */
            c = g->cu->event_sync(m->done);
        }
        gpu_leave(g);
        r = dv_gpu_check(g, c, "an answer of the device");
    }
    m->sleeps = dv_now_ns() - begin > ANSWER_SPIN_NS;
    if (r == DAVY_OK) {
        memcpy(out, m->host, m->bytes);
    }
    return r;
}
