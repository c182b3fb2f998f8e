/* call.c - see call.h. */
#include "core/calls/call.h"

#include <inttypes.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/host/buffer.h"
#include "core/host/context.h"

#define STREAM_POLL_NS 100000ull

enum { PASS_PARTS = 1000 };

void dv_call_clear(dv_call *c) {
    dv_gpu_event_release(c->after);
    dv_buffer_release(c->in_buffer);
    dv_buffer_release(c->out_buffer);
    dv_model_release(c->model);
}

/* ---- progress and cancellation ---- */

static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    dv_call *c = user;
    const uint64_t now = dv_now_ns();
    if (c->job != NULL) {
        dv_job_report(c->job, stage, done, total);
    }
    /* The engine limits the rate of calls for each picture; this limits it for the whole call. */
    if (c->run.progress == NULL || (c->progress_ns != 0 && done < total && now - c->progress_ns < DV_PROGRESS_NS)) {
        return 0;
    }
    c->progress_ns = now;
    return c->run.progress(c->run.progress_user, stage, done, total);
}

static int32_t is_cancelled(void *user) {
    const dv_call *c = user;
    return dv_job_cancelled(c->job) ? 1 : 0;
}

dv_control dv_call_control(dv_call *c, int64_t index, int64_t share, int64_t count) {
    dv_control control = {.deadline_ns = c->deadline_ns};
    if (c->run.progress != NULL || c->job != NULL) {
        control.progress = on_progress;
        control.progress_user = c;
    }
    if (c->job != NULL) {
        control.cancelled = is_cancelled;
        control.cancelled_user = c;
    }
    if (count > 1) {
        control.base = (uint64_t)index * PASS_PARTS;
        control.share = (uint64_t)share * PASS_PARTS;
        control.total = (uint64_t)count * PASS_PARTS;
    }
    return control;
}

/* ---- one pass ---- */

/* Pictures [first, first + n) of a clip. */
static dvk_image image_of(const dv_pixels *p, int64_t first, int64_t n, int32_t channels, const int32_t *map) {
    dvk_image image = dv_pixels_image(p, first, channels, map);
    if (n != 1) {
        image.n = n;
        image.sn = p->st;
    }
    return image;
}

dv_work dv_call_work(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    const int32_t *map_in = c->op == DAVY_OP_VAE_DECODE ? NULL : c->colours_in.map;
    const int32_t *map_out = c->op == DAVY_OP_VAE_ENCODE ? NULL : c->colours_out.map;
    return (dv_work){.stage = c->stage,
                     .in = image_of(&c->in, stretch->in, stretch->n_in, c->in_channels, map_in),
                     .out = image_of(&c->out, stretch->out, stretch->n_out, c->out_channels, map_out),
                     .in_mul = c->map_in.mul,
                     .in_add = c->map_in.add,
                     .out_mul = c->map_out.mul,
                     .out_add = c->map_out.add,
                     .out_lo = c->map_out.lo,
                     .out_hi = c->map_out.hi,
                     .out_clamp = c->map_out.clamp,
                     .grey = c->grey,
                     .in_device = c->in.on_device,
                     .out_device = c->out.on_device,
                     .stream = c->run.stream,
                     .stream_ordered = (c->run.flags & DAVY_RUN_STREAM_ORDERED) != 0,
                     .tiling = c->tiling,
                     .control = *control};
}

davy_result dv_call_compute(dv_call *c, const dv_stretch *stretch, const dv_work *work) {
    return stretch->clip != NULL ? dv_model_clip_run(c->model, stretch->clip, work, stretch->tail)
                                 : dv_model_run(c->model, work);
}

/* ---- what is allowed ---- */

davy_result dv_call_check_stream(const dv_call *c, bool job) {
    const davy_run *run = &c->run;
    const bool loads = c->op == 0;
    const bool ordered = (run->flags & DAVY_RUN_STREAM_ORDERED) != 0;
    if ((ordered || run->stream != NULL) && !dv_context_on_gpu(dv_model_context(c->model))) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: stream needs a context on a GPU; this context computes on the CPU");
    }
    if (ordered && (job || loads || run->stream == NULL)) {
        return dv_fail(DAVY_E_INVALID, "run: STREAM_ORDERED %s",
                       job     ? "and a job exclude each other"
                       : loads ? "is not allowed in model_load, which waits for the weights"
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
        dv_gpu_queue *q = NULL; /* if the device is lost, taking a queue reports that error instead */
        const davy_result r = dv_gpu_queue_take(first, NULL, &q);
        dv_gpu_queue_give(q);
        return r < 0 ? r
                     : dv_fail(DAVY_E_INVALID, "%s: 0x%" PRIx64 " is not memory of cuda:%d with %" PRIu64 " bytes",
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

davy_result dv_call_output_gpu(const dv_call *c, const davy_tensor *out, dv_gpu **gpu) {
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
                   "output: memory is %d, which this context cannot allocate; use HOST, or CUDA on a GPU",
                   (int)out->memory);
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
    c->run.stream = NULL; /* the job computes on its own stream */
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
            dv_sleep_ns(STREAM_POLL_NS);
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

/* ---- pixels in CUDA memory ---- */

dv_gpu *dv_call_gpu(const dv_call *c) {
    return dv_context_services(dv_model_context(c->model))->gpus[0];
}

dvk_convert_args dv_call_rows(void *block, const dvk_image *image, int64_t y, int64_t rows) {
    const int64_t c = image->channels;
    dvk_convert_args args = {.image = *image, .mul = 1.0f};
    args.image.data = (char *)image->data + y * image->sh;
    args.image.h = rows;
    args.view = (dvk_view){.data = block,
                           .dtype = DVK_F32,
                           .n = 1,
                           .h = rows,
                           .w = image->w,
                           .c = c,
                           .sn = c * image->w * rows,
                           .sh = c * image->w,
                           .sw = c};
    return args;
}

davy_result dv_call_convert(dv_gpu_queue *q, const char *op, const dvk_convert_args *args) {
    const dvk_cuda_caps *caps = dv_gpu_caps(q->gpu);
    const dvk_cuda_kernel *kernel = dvk_cuda_choose(op, args, caps, DVK_COMPUTES_F32);
    if (kernel == NULL || (kernel->scratch_bytes != NULL && kernel->scratch_bytes(args, caps) > 0)) {
        return dv_fail(DAVY_E_INTERNAL, "op %s: there is no kernel that works without scratch memory", op);
    }
    return dv_gpu_check(q->gpu, kernel->enqueue(args, NULL, &q->base), op);
}

davy_result dv_call_finish(const dv_call *c, dv_gpu_queue *q, davy_result r) {
    const bool wait = (c->run.flags & DAVY_RUN_STREAM_ORDERED) == 0;
    const davy_result waited = wait ? dv_gpu_queue_wait(q, NULL, NULL) : DAVY_OK;
    dv_gpu_queue_give(q);
    return r < 0 ? r : waited;
}

davy_result dv_call_gather(const dv_call *c, int64_t picture, float *to) {
    const int32_t *map = c->op == DAVY_OP_VAE_DECODE ? NULL : c->colours_in.map;
    const dvk_image image = dv_pixels_image(&c->in, picture, c->in_channels, map);
    const dvk_convert_args args = dv_call_rows(to, &image, 0, image.h);
    dv_gpu_queue *q = NULL;
    const davy_result r = dv_gpu_queue_take(dv_call_gpu(c), c->run.stream, &q);
    return r < 0 ? r : dv_call_finish(c, q, dv_call_convert(q, "load", &args));
}
