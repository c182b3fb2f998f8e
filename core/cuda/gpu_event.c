/* gpu_event.c - events, and waiting for a queue without keeping a processor busy. */
#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

struct dv_gpu_event {
    dv_gpu *gpu;
    cu_event event;
};

davy_result dv_gpu_event_create(dv_gpu *g, bool timing, dv_gpu_event **out) {
    dv_gpu_event *e = dv_calloc(1, sizeof *e);
    if (e == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA event");
    }
    davy_result r = gpu_enter(g, "an event");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_create(&e->event, timing ? 0 : CU_EVENT_NO_TIMING);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "an event");
    }
    if (r < 0) {
        dv_free(e);
        return r;
    }
    e->gpu = g;
    *out = e;
    return DAVY_OK;
}

void dv_gpu_event_release(dv_gpu_event *e) {
    if (e == NULL) {
        return;
    }
    dv_gpu *g = e->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        g->cu->event_destroy(e->event);
        gpu_leave(g);
    }
    dv_free(e);
}

davy_result dv_gpu_event_record(dv_gpu_event *e, dv_gpu_queue *q) {
    dv_gpu *g = q->gpu;
    davy_result r = gpu_enter(g, "marking a stream");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_record(e->event, q->stream);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "marking a stream");
    }
    return r;
}

davy_result dv_gpu_event_wait(dv_gpu_queue *q, dv_gpu_event *e) {
    dv_gpu *g = q->gpu;
    davy_result r = gpu_enter(g, "one stream waiting for another");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->stream_wait(q->stream, e->event, 0);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "one stream waiting for another");
    }
    return r;
}

davy_result dv_gpu_event_ready(dv_gpu_event *e, bool *ready) {
    dv_gpu *g = e->gpu;
    davy_result r = gpu_enter(g, "work on the device");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_query(e->event);
        gpu_leave(g);
        *ready = c == CU_OK;
        r = dv_gpu_check(g, c == CU_NOT_READY ? CU_OK : c, "work on the device");
    }
    return r;
}

davy_result dv_gpu_event_ms(dv_gpu_event *from, dv_gpu_event *to, float *ms) {
    dv_gpu *g = from->gpu;
    davy_result r = gpu_enter(g, "time between events");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_ms(ms, from->event, to->event);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "time between events");
    }
    return r;
}

static davy_result look(dv_gpu_queue *q, bool *done) {
    dv_gpu *g = q->gpu;
    davy_result r = gpu_enter(g, "work on the device");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->stream_query(q->stream);
        gpu_leave(g);
        *done = c == CU_OK;
        r = dv_gpu_check(g, c == CU_NOT_READY ? CU_OK : c, "work on the device");
    }
    return r;
}

davy_result dv_gpu_queue_wait(dv_gpu_queue *q, davy_result (*poll)(void *user), void *user) {
    const uint64_t begin = dv_now_ns();
    const uint64_t poll_ns = 10000000;
    const uint64_t busy_ns = 400000; /* the system's sleeps are some 70 us longer than asked for */
    uint64_t polled = begin;
    for (;;) {
        bool done = false;
        davy_result r = look(q, &done);
        if (r < 0 || done) {
            return r;
        }
        const uint64_t now = dv_now_ns();
        if (poll != NULL && now - polled >= poll_ns) {
            r = poll(user);
            if (r != DAVY_OK) {
                return r;
            }
            polled = now;
        }
        if (now - begin > busy_ns) { /* so that a wait is at most a sixteenth longer than the work */
            dv_sleep_ns((uint64_t)dv_max(20000, dv_min((int64_t)(now - begin) / 16, 1000000)));
        }
    }
}
