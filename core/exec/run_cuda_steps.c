/* run_cuda_steps.c - an instance's work on a GPU: its steps one by one, timed while a profile is on, or as a captured graph,
 * and the copies of a clip's state beside them. */
#include <stdio.h>

#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/exec/run_cuda_priv.h"
#include "kernels/dtype.h"

/* ---- times ---- */

bool dv_instance_timed(const dv_instance *i) {
    return i->program->services->profile != NULL && dv_profile_on(i->program->services->profile);
}

/* The next entry, with events. */
static davy_result next_time(dv_instance *i, dv_timed **out) {
    dv_cuda *c = i->cuda;
    dv_timed *times = dv_grow(c->times, c->n_times + 1, &c->cap_times, sizeof *times);
    if (times == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "profile: out of memory");
    }
    c->times = times;
    dv_timed *t = &times[c->n_times];
    if (c->n_times == c->with_events) {
        *t = (dv_timed){0};
        davy_result r = dv_gpu_event_create(i->program->gpu, true, &t->from);
        if (r == DAVY_OK) {
            r = dv_gpu_event_create(i->program->gpu, true, &t->to);
            if (r != DAVY_OK) {
                dv_gpu_event_release(t->from);
            }
        }
        if (r != DAVY_OK) {
            return r;
        }
        c->with_events++;
    }
    c->n_times++;
    *out = t;
    return DAVY_OK;
}

davy_result dv_instance_collect(dv_instance *i) {
    dv_cuda *c = i->cuda;
    davy_result r = c->n_times > 0 ? dv_gpu_queue_wait(c->queue, NULL, NULL) : DAVY_OK;
    for (int64_t k = 0; r == DAVY_OK && k < c->n_times; k++) {
        const dv_timed *t = &c->times[k];
        char kernel[96];
        float ms = 0.0f;
        r = dv_gpu_event_ms(t->from, t->to, &ms);
        snprintf(kernel, sizeof kernel, "%s %s", dv_kernel_op(t->kernel), dv_kernel_variant(t->kernel));
        dv_profile_add(i->program->services->profile, t->label, kernel, (uint64_t)((double)ms * 1e6), t->flops,
                       t->bytes);
    }
    c->n_times = 0;
    return r;
}

/* ---- steps ---- */

static davy_result enqueue(dv_instance *i, dv_gpu_queue *q, const dv_step *step, const void *args) {
    const dvk_cuda_kernel *k = step->kernel.cuda;
    dv_timed *t = NULL;
    davy_result r = DAVY_OK;
    const bool time = dv_instance_timed(i) && q == i->cuda->queue;
    if (time) {
        r = next_time(i, &t);
        if (r != DAVY_OK) {
            return r;
        }
        t->label = step->label;
        t->kernel = step->kernel;
        t->flops = step->flops;
        t->bytes = step->bytes;
        r = dv_gpu_event_record(t->from, q);
    }
    if (r == DAVY_OK) {
        r = dv_gpu_check(i->program->gpu, k->enqueue(args, (char *)i->block + step->scratch_at, &q->base), step->label);
    }
    return r == DAVY_OK && time ? dv_gpu_event_record(t->to, q) : r;
}

/* ---- transfers ---- */

static davy_result make_transfers(dv_instance *i) {
    dv_cuda *c = i->cuda;
    const int64_t events = 2 * i->program->plan->n_transfers;
    c->transferred = dv_calloc((uint64_t)events, sizeof(dv_gpu_event *));
    davy_result r = c->transferred != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "run: out of memory");
    for (int64_t k = 0; r == DAVY_OK && k < events; k++) {
        r = dv_gpu_event_create(i->program->gpu, false, &c->transferred[k]);
    }
    return r;
}

/* Each way has a queue of its own. */
static davy_result begin_transfer(dv_instance *i, dv_gpu_queue *q, const dv_transfer *t, dv_gpu_event **events) {
    dv_gpu_queue *side = NULL;
    char *ring = (char *)i->block + t->at, *kept = (char *)i->offloaded + t->host_at;
    davy_result r = dv_instance_side_queue(i, t->to_host ? 1 : 0, &side);
    r = r == DAVY_OK ? dv_gpu_event_record(events[0], q) : r;
    r = r == DAVY_OK ? dv_gpu_event_wait(side, events[0]) : r;
    if (r == DAVY_OK) {
        r = t->to_host ? dv_gpu_copy_2d(side, kept, t->row_bytes, ring, t->pitch, t->row_bytes, t->rows)
                       : dv_gpu_copy_2d(side, ring, t->pitch, kept, t->row_bytes, t->row_bytes, t->rows);
    }
    return r == DAVY_OK ? dv_gpu_event_record(events[1], side) : r;
}

static davy_result enqueue_transfers(dv_instance *i, dv_gpu_queue *q, int64_t step, const dv_sync **at) {
    const dv_plan *plan = i->program->plan;
    davy_result r = DAVY_OK;
    for (; r == DAVY_OK && *at != plan->syncs + 2 * plan->n_transfers && (*at)->step == step; (*at)++) {
        dv_gpu_event **events = &i->cuda->transferred[2 * (*at)->transfer];
        r = (*at)->begins ? begin_transfer(i, q, &plan->transfers[(*at)->transfer], events)
                          : dv_gpu_event_wait(q, events[1]);
    }
    return r;
}

static davy_result enqueue_steps(dv_instance *i, dv_gpu_queue *q, int64_t first, int64_t n) {
    const dv_plan *plan = i->program->plan;
    const dv_sync *sync = plan->syncs;
    davy_result r = plan->n_transfers > 0 && i->cuda->transferred == NULL ? make_transfers(i) : DAVY_OK;
    for (int64_t k = first; r == DAVY_OK && k < n; k++) {
        r = enqueue_transfers(i, q, k, &sync);
        r = r == DAVY_OK ? enqueue(i, q, &plan->steps[k], &i->args[k]) : r;
    }
    return r == DAVY_OK ? enqueue_transfers(i, q, n, &sync) : r;
}

static int64_t all_steps(const dv_instance *i) {
    return i->program->plan->n_steps - (i->program->plan->direct ? 1 : 0);
}

/* Not fatal: a driver that refuses to capture still runs the steps. */
static void capture(dv_instance *i) {
    dv_cuda *c = i->cuda;
    c->refused = true;
    if (dv_gpu_capture_begin(c->own) != DAVY_OK) {
        return;
    }
    const davy_result enqueued = enqueue_steps(i, c->own, 0, all_steps(i));
    const davy_result ended = dv_gpu_capture_end(c->own, &c->graph);
    c->refused = enqueued != DAVY_OK || ended != DAVY_OK || c->graph == NULL;
    if (c->refused && c->graph != NULL) {
        dv_gpu_graph_release(c->graph);
        c->graph = NULL;
    }
}

davy_result dv_instance_enqueue(dv_instance *i) {
    dv_cuda *c = i->cuda;
    const bool timed_run = dv_instance_timed(i);
    if (c->ran && c->graph == NULL && !c->refused && !timed_run) {
        capture(i);
    }
    c->ran = true;
    return c->graph != NULL && !timed_run ? dv_gpu_graph_launch(c->graph, c->queue)
                                          : enqueue_steps(i, c->queue, 0, all_steps(i));
}

davy_result dv_instance_enqueue_to_mean(dv_instance *i, int32_t k) {
    return enqueue_steps(i, i->cuda->queue, 0, i->program->plan->means[k].step);
}

davy_result dv_instance_enqueue_mean(dv_instance *i, int32_t k, const dvk_view *part, void *out) {
    dvk_pool_args args = {.x = *part};
    args.y = (dvk_view){.data = out, .dtype = DVK_F32, .n = 1, .h = 1, .w = 1, .c = part->c};
    args.y.sn = args.y.sh = args.y.sw = part->c;
    const dv_step step = {.kernel = i->program->plan->means[k].kernel,
                          .label = "mean",
                          .bytes = (uint64_t)(part->h * part->w * part->c) * dvk_dtype_size(part->dtype)};
    return enqueue(i, i->cuda->queue, &step, &args);
}

davy_result dv_instance_enqueue_to_norm(dv_instance *i, int64_t k) {
    return enqueue_steps(i, i->cuda->queue, dv_norm_step(i, k - 1), dv_norm_step(i, k));
}

davy_result dv_instance_enqueue_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial) {
    const dv_args args = dv_norm_stats_args(i, k, part, partial);
    const dv_step step = {.kernel = i->program->plan->norms[k].kernel,
                          .label = "statistics",
                          .bytes = (uint64_t)(part->h * part->w * part->c) * dvk_dtype_size(part->dtype)};
    return enqueue(i, i->cuda->queue, &step, &args);
}

davy_result dv_instance_enqueue_live(dv_instance *i, int64_t k, void *kept, bool back) {
    const dv_plan *plan = i->program->plan;
    char *at = kept;
    davy_result r = DAVY_OK;
    for (int64_t n = plan->norms[k].first_live; r == DAVY_OK && n < plan->norms[k].end_live; n++) {
        char *here = (char *)i->block + plan->live[n].at;
        r = dv_gpu_copy(i->cuda->queue, back ? here : at, i->program->gpu, back ? at : here, plan->live[n].bytes);
        at += plan->live[n].bytes;
    }
    return r;
}

davy_result dv_instance_enqueue_op(dv_instance *i, dv_gpu_queue *q, const char *op, const void *args, const char *label,
                                   uint64_t bytes) {
    const dvk_cuda_caps *caps = dv_gpu_caps(i->program->gpu);
    const dv_step step = {
        .kernel.cuda = dvk_cuda_choose(op, args, caps, DVK_COMPUTES_F32), .label = label, .bytes = bytes};
    const dvk_cuda_kernel *k = step.kernel.cuda;
    if (k == NULL || (k->scratch_bytes != NULL && k->scratch_bytes(args, caps) > 0)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "no CUDA kernel for op %s of this picture", op);
    }
    return enqueue(i, q, &step, args);
}

/* The result to memory of its own, and from there into a picture that the kernel does not store itself. */
static davy_result enqueue_apart(dv_instance *i, dv_gpu_queue *q, dv_args *last, const dvk_convert_args *args,
                                 uint64_t bytes) {
    const dv_plan *plan = i->program->plan;
    const dvk_view *y = &plan->output;
    dvk_convert_args store = *args;
    davy_result r =
        dv_instance_memory(i, DV_SLOT_RESULT, (uint64_t)(y->n * y->sn) * dvk_dtype_size(y->dtype), &store.view.data);
    last->conv.epi.store = NULL;
    last->conv.y.data = store.view.data;
    r = r == DAVY_OK ? enqueue(i, q, &plan->steps[plan->n_steps - 1], last) : r;
    return r == DAVY_OK ? dv_instance_enqueue_op(i, q, "store", &store, "store", bytes) : r;
}

davy_result dv_instance_enqueue_store(dv_instance *i, dv_gpu_queue *q, const dvk_convert_args *args, uint64_t bytes) {
    const dv_plan *plan = i->program->plan;
    if (!plan->direct) {
        return dv_instance_enqueue_op(i, q, "store", args, "store", bytes);
    }
    const dv_step *step = &plan->steps[plan->n_steps - 1];
    dv_args last = i->args[plan->n_steps - 1];
    last.conv.epi.store = args;
    return step->kernel.cuda->stores(&last, dv_gpu_caps(i->program->gpu)) ? enqueue(i, q, step, &last)
                                                                          : enqueue_apart(i, q, &last, args, bytes);
}
