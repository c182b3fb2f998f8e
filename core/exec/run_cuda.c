/* run_cuda.c - see run_cuda.h. */
#include "core/exec/run_cuda_priv.h"

#include "core/base/error.h"

/* ---- creation ---- */

davy_result dv_cuda_instance_create(dv_instance *i) {
    dv_gpu *gpu = i->program->gpu;
    const dv_plan *plan = i->program->plan;
    const uint64_t bytes = dv_plan_workspace(plan, 1);
    i->cuda = dv_calloc(1, sizeof *i->cuda);
    if (i->cuda == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "run: out of memory");
    }
    davy_result r = i->lent ? DAVY_OK : dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, bytes, "workspace", &i->block);
    if (r == DAVY_OK) {
        i->bytes = i->lent ? 0 : bytes;
        r = dv_gpu_queue_take(gpu, NULL, &i->cuda->own);
    }
    return r == DAVY_OK ? dv_gpu_event_create(gpu, false, &i->cuda->done) : r;
}

static void wait_for_all(dv_instance *i) {
    dv_cuda *c = i->cuda;
    if (c->own != NULL && c->done != NULL) {
        dv_gpu_event_wait(c->own, c->done); /* it may have been on a queue of the host */
        dv_gpu_queue_wait(c->own, NULL, NULL);
    }
    for (int k = 0; k < DV_SIDE_QUEUES; k++) {
        if (c->side[k] != NULL) {
            dv_gpu_queue_wait(c->side[k], NULL, NULL);
        }
    }
}

void dv_instance_settle(dv_instance *i) {
    wait_for_all(i);
}

static void release_times(dv_cuda *c) {
    for (int64_t k = 0; k < c->with_events; k++) {
        dv_gpu_event_release(c->times[k].from);
        dv_gpu_event_release(c->times[k].to);
    }
    dv_free(c->times);
}

static void release_transfers(dv_instance *i) {
    dv_cuda *c = i->cuda;
    for (int64_t k = 0; c->transferred != NULL && k < 2 * i->program->plan->n_transfers; k++) {
        if (c->transferred[k] != NULL) {
            dv_gpu_event_release(c->transferred[k]);
        }
    }
    dv_free(c->transferred);
}

void dv_cuda_instance_release(dv_instance *i) {
    dv_cuda *c = i->cuda;
    dv_gpu *gpu = i->program->gpu;
    if (c == NULL) {
        return;
    }
    wait_for_all(i);
    uint64_t slots = 0;
    for (int k = 0; k < DV_SLOTS; k++) {
        slots += c->slots[k].bytes;
        if (c->slots[k].data != NULL) {
            dv_gpu_free(gpu, DV_MEM_WORKSPACE, c->slots[k].data, c->slots[k].bytes);
        }
        if (c->events[k] != NULL) {
            dv_gpu_event_release(c->events[k]);
        }
    }
    if (i->block != NULL && !i->lent) {
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, i->block, i->bytes - slots);
    }
    if (c->graph != NULL) {
        dv_gpu_graph_release(c->graph);
    }
    release_transfers(i);
    release_times(c);
    if (c->done != NULL) {
        dv_gpu_event_release(c->done);
    }
    for (int k = 0; k < DV_SIDE_QUEUES; k++) {
        if (c->side[k] != NULL) {
            dv_gpu_queue_give(c->side[k]);
        }
    }
    if (c->own != NULL) {
        dv_gpu_queue_give(c->own);
    }
    dv_free(c);
}

/* ---- what it lends ---- */

dv_gpu_queue *dv_instance_queue(const dv_instance *i) {
    return i->cuda->queue;
}

davy_result dv_instance_memory(dv_instance *i, int32_t slot, uint64_t bytes, void **out) {
    dv_lent_memory *m = &i->cuda->slots[slot];
    davy_result r = DAVY_OK;
    if (m->bytes < bytes) {
        if (m->data != NULL) {
            wait_for_all(i);
            r = i->cuda->queue != NULL ? dv_gpu_queue_wait(i->cuda->queue, NULL, NULL) : DAVY_OK;
            dv_gpu_free(i->program->gpu, DV_MEM_WORKSPACE, m->data, m->bytes);
            i->bytes -= m->bytes;
            *m = (dv_lent_memory){0};
        }
        r = r == DAVY_OK ? dv_gpu_alloc(i->program->gpu, DV_MEM_WORKSPACE, bytes, "workspace", &m->data) : r;
        if (r != DAVY_OK) {
            return r;
        }
        m->bytes = bytes;
        i->bytes += bytes;
    }
    *out = m->data;
    return r;
}

davy_result dv_instance_event(dv_instance *i, int32_t slot, dv_gpu_event **out) {
    dv_gpu_event **e = &i->cuda->events[slot];
    const davy_result r = *e == NULL ? dv_gpu_event_create(i->program->gpu, false, e) : DAVY_OK;
    *out = *e;
    return r;
}

davy_result dv_instance_side_queue(dv_instance *i, int32_t index, dv_gpu_queue **out) {
    dv_gpu_queue **q = &i->cuda->side[index];
    const davy_result r = *q == NULL ? dv_gpu_queue_take(i->program->gpu, NULL, q) : DAVY_OK;
    *out = *q;
    return r;
}

/* ---- waiting ---- */

enum { POLL_NS = 10000000, PAUSE_NS = 1000000, LEAST_NS = 20000, LATE_NS = 400000 };

/* How long to sleep before the next look; 0: not at all. */
static uint64_t pause_for(const dv_cuda *c, uint64_t passed) {
    const uint64_t early = c->took_ns / 8 * 7;
    if (passed < early) { /* a sleep lasts some 70 us longer than asked for */
        const uint64_t left = early - passed;
        return left < 4 * LEAST_NS ? 0 : left < PAUSE_NS ? left : PAUSE_NS;
    }
    if (passed < c->took_ns / 4 * 5 + LATE_NS) {
        return 0;
    }
    return (uint64_t)dv_max(LEAST_NS, dv_min((int64_t)(passed / 16), PAUSE_NS));
}

davy_result dv_instance_await(dv_instance *i, dv_gpu_event *event, uint64_t since_ns, davy_result (*poll)(void *user),
                              void *user) {
    uint64_t polled = dv_now_ns();
    for (;;) {
        bool ready = false;
        davy_result r = dv_gpu_event_ready(event, &ready);
        const uint64_t now = dv_now_ns();
        if (r != DAVY_OK || ready) {
            i->cuda->took_ns = now - since_ns;
            return r;
        }
        if (now - polled >= POLL_NS) {
            r = poll(user);
            if (r != DAVY_OK) {
                return r;
            }
            polled = now;
        }
        const uint64_t pause = pause_for(i->cuda, now - since_ns);
        if (pause > 0) {
            dv_sleep_ns(pause);
        }
    }
}

/* ---- begin and end ---- */

davy_result dv_instance_begin(dv_instance *i, void *stream) {
    dv_cuda *c = i->cuda;
    davy_result r = stream != NULL ? dv_gpu_queue_take(i->program->gpu, stream, &c->foreign) : DAVY_OK;
    if (r != DAVY_OK) {
        return r;
    }
    c->queue = c->foreign != NULL ? c->foreign : c->own;
    r = dv_gpu_event_wait(c->queue, c->done);
    if (r != DAVY_OK) {
        dv_instance_end(i);
    }
    return r;
}

void dv_instance_end(dv_instance *i) {
    dv_cuda *c = i->cuda;
    if (dv_gpu_event_record(c->done, c->queue) != DAVY_OK) { /* a lost device: nothing is at work any more */
        dv_gpu_queue_wait(c->queue, NULL, NULL);
    }
    if (c->foreign != NULL) {
        dv_gpu_queue_give(c->foreign);
    }
    c->foreign = c->queue = NULL;
}
