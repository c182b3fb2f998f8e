/* oneshot_device.c - calls whose tensors lie in CUDA memory or whose work goes on the host's stream: what is allowed, and
 * what waits for what. */
#include <inttypes.h>

#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/calls/oneshot.h"
#include "core/base/os.h"

#define LOOK_NS 100000ull

/* ---- what is allowed ---- */

davy_result dv_call_check_stream(const dv_call *c, bool job) {
    const davy_run *run = &c->run;
    const bool loads = c->op == 0;
    const bool ordered = (run->flags & DAVY_RUN_STREAM_ORDERED) != 0;
    if ((ordered || run->stream != NULL) && !dv_context_on_gpu(dv_model_context(c->model))) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: there are no streams on the CPU");
    }
    if (ordered && (job || loads || run->stream == NULL)) {
        return dv_fail(DAVY_E_INVALID, "run: STREAM_ORDERED %s",
                       job     ? "and a job exclude each other"
                       : loads ? "means nothing to model_load, which returns when the weights are there"
                               : "needs a stream; (void *)1 is CUDA's default stream");
    }
    return DAVY_OK;
}

davy_result dv_call_check_reach(const dv_call *c, const dv_pixels *p, const char *name) {
    const davy_context *ctx = dv_model_context(c->model);
    if (!p->on_device || p->data == NULL) {
        return DAVY_OK;
    }
    if (!dv_context_on_gpu(ctx)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: memory of a CUDA device, but the context computes on the CPU", name);
    }
    dv_gpu *first = dv_context_services(ctx)->gpus[0];
    if (p->device != dv_gpu_index(first)) {
        return dv_fail(dv_context_gpu(ctx, p->device) != NULL ? DAVY_E_UNSUPPORTED : DAVY_E_INVALID,
                       "%s: memory of cuda:%d, expected cuda:%d, the context's first GPU", name, (int)p->device,
                       (int)dv_gpu_index(first));
    }
    if (!dv_gpu_owns(first, (const void *)(uintptr_t)p->first, p->last - p->first)) {
        dv_gpu_queue *q = NULL; /* of a lost device nothing is known any more */
        const davy_result r = dv_gpu_queue_take(first, NULL, &q);
        dv_gpu_queue_give(q);
        return r < 0 ? r
                     : dv_fail(DAVY_E_INVALID, "%s: 0x%" PRIx64 " is no CUDA memory of cuda:%d with %" PRIu64 " bytes",
                               name, p->first, (int)p->device, p->last - p->first);
    }
    return DAVY_OK;
}

davy_result dv_call_check_ordered(const dv_call *c) {
    if ((c->run.flags & DAVY_RUN_STREAM_ORDERED) == 0) {
        return DAVY_OK;
    }
    if (!c->in.on_device || !c->out.on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: STREAM_ORDERED needs input and output in CUDA memory, the %s is not",
                       c->in.on_device ? "output" : "input");
    }
    return DAVY_OK;
}

davy_result dv_call_check_wish(const dv_call *c, const davy_tensor *out, dv_gpu **gpu) {
    const davy_context *ctx = dv_model_context(c->model);
    *gpu = NULL;
    if (out->memory == 0 || out->memory == DAVY_MEMORY_HOST || out->memory == DAVY_MEMORY_BUFFER) {
        return DAVY_OK;
    }
    if (out->memory == DAVY_MEMORY_CUDA && dv_context_on_gpu(ctx)) {
        dv_gpu *first = dv_context_services(ctx)->gpus[0];
        *gpu = out->device == dv_gpu_index(first) ? first : NULL;
        return *gpu != NULL ? DAVY_OK
                            : dv_fail(DAVY_E_INVALID, "output: device is %d, expected %d, the context's first GPU",
                                      (int)out->device, (int)dv_gpu_index(first));
    }
    const bool known = out->memory > 0 && out->memory <= DAVY_MEMORY_BUFFER;
    return dv_fail(known ? DAVY_E_UNSUPPORTED : DAVY_E_INVALID,
                   "output: the library allocates no memory of kind %d here", (int)out->memory);
}

/* ---- streams ---- */

davy_result dv_call_mark_stream(dv_call *c) {
    dv_gpu_queue *q = NULL;
    dv_gpu *gpu = NULL;
    if (c->run.stream == NULL) {
        return DAVY_OK;
    }
    gpu = dv_context_services(dv_model_context(c->model))->gpus[0];
    davy_result r = dv_gpu_queue_take(gpu, c->run.stream, &q);
    if (r < 0) {
        return r;
    }
    r = dv_gpu_event_create(gpu, false, &c->after);
    r = r < 0 ? r : dv_gpu_event_record(c->after, q);
    dv_gpu_queue_give(q);
    c->run.stream = NULL; /* the job's own work goes on a stream of its own */
    return r;
}

davy_result dv_call_await_stream(dv_call *c) {
    bool ready = c->after == NULL;
    while (!ready) {
        const davy_result r = dv_gpu_event_ready(c->after, &ready);
        if (r < 0) {
            return r;
        }
        if (dv_job_cancelled(c->job)) {
            return dv_fail(DAVY_E_CANCELLED, "the job was cancelled while it waited for its stream");
        }
        if (c->deadline_ns != 0 && dv_now_ns() >= c->deadline_ns) {
            return dv_fail(DAVY_E_TIMEOUT, "the job's stream was not ready within the time given");
        }
        if (!ready) {
            dv_sleep_ns(LOOK_NS);
        }
    }
    return DAVY_OK;
}

davy_result dv_call_keep_buffers(const dv_call *c) {
    davy_result r = DAVY_OK;
    if (c->in_buffer != NULL) {
        r = dv_buffer_busy(c->in_buffer, c->run.stream);
    }
    return r == DAVY_OK && c->out_buffer != NULL ? dv_buffer_busy(c->out_buffer, c->run.stream) : r;
}
