/* run_cuda.c - an instance on a GPU: its slots of memory and events, and its steps. The steps are enqueued one by one, timed while
 * a profile is on, or launched as a captured graph. The copies of a clip's state run beside them. See run_cuda.h. */
#include "core/exec/run_cuda.h"

#include <stdio.h>

#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/exec/run_priv.h"
#include "kernels/dtype.h"

enum { DV_SIDE_QUEUES = 3 };

typedef struct dv_timed { /* one op of a profiled run */
    const char *label;
    dv_kernel kernel;
    uint64_t flops, bytes;
    dv_gpu_event *from, *to;
} dv_timed;

typedef struct dv_lent_memory {
    void *data;
    uint64_t bytes;
} dv_lent_memory;

struct dv_cuda {
    dv_gpu_queue *own, *queue, *foreign; /* queue: `own` or `foreign`, set between begin and end */
    dv_gpu_queue *side[DV_SIDE_QUEUES];
    dv_gpu_event *done; /* behind the last work that uses the instance */
    dv_gpu_event *events[DV_SLOTS];
    dv_lent_memory slots[DV_SLOTS];
    dv_gpu_replay replay;       /* of all steps */
    uint64_t took_ns;           /* duration of the last run that was waited for; 0: unknown */
    dv_gpu_event **transferred; /* two for each of the plan's transfers: it may begin, it is done */
    dv_timed *times;            /* the events are kept for the next run */
    int64_t n_times, cap_times, with_events;
};

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
    return r < 0 ? r : dv_gpu_event_create(gpu, false, &i->cuda->done);
}

void dv_instance_settle(dv_instance *i) {
    dv_cuda *c = i->cuda;
    if (c->own != NULL && c->done != NULL) {
        dv_gpu_event_wait(c->own, c->done); /* the last work may have been on a stream of the host */
        dv_gpu_queue_wait(c->own, NULL, NULL);
    }
    for (int k = 0; k < DV_SIDE_QUEUES; k++) {
        if (c->side[k] != NULL) {
            dv_gpu_queue_wait(c->side[k], NULL, NULL);
        }
    }
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
    dv_instance_settle(i);
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
    dv_gpu_replay_reset(&c->replay);
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

/* ---- slots and queues ---- */

dv_gpu_queue *dv_instance_queue(const dv_instance *i) {
    return i->cuda->queue;
}

davy_result dv_instance_memory(dv_instance *i, int32_t slot, uint64_t bytes, void **out) {
    dv_lent_memory *m = &i->cuda->slots[slot];
    davy_result r = DAVY_OK;
    if (m->bytes < bytes) {
        if (m->data != NULL) {
            dv_instance_settle(i);
            r = i->cuda->queue != NULL ? dv_gpu_queue_wait(i->cuda->queue, NULL, NULL) : DAVY_OK;
            dv_gpu_free(i->program->gpu, DV_MEM_WORKSPACE, m->data, m->bytes);
            i->bytes -= m->bytes;
            *m = (dv_lent_memory){0};
        }
        r = r < 0 ? r : dv_gpu_alloc(i->program->gpu, DV_MEM_WORKSPACE, bytes, "workspace", &m->data);
        if (r < 0) {
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

/* How long to sleep before the next query; 0: no sleep. */
static uint64_t pause_for(const dv_cuda *c, uint64_t passed) {
    const uint64_t early = c->took_ns / 8 * 7;
    if (passed < early) { /* a sleep lasts about 70 us longer than requested */
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
    if (r < 0) {
        return r;
    }
    c->queue = c->foreign != NULL ? c->foreign : c->own;
    r = dv_gpu_event_wait(c->queue, c->done);
    if (r < 0) {
        dv_instance_end(i);
    }
    return r;
}

void dv_instance_end(dv_instance *i) {
    dv_cuda *c = i->cuda;
    if (dv_gpu_event_record(c->done, c->queue) != DAVY_OK) { /* on a lost device this wait returns at once */
        dv_gpu_queue_wait(c->queue, NULL, NULL);
    }
    if (c->foreign != NULL) {
        dv_gpu_queue_give(c->foreign);
    }
    c->foreign = c->queue = NULL;
}

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
            if (r < 0) {
                dv_gpu_event_release(t->from);
            }
        }
        if (r < 0) {
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
        dv_profile_add(i->program->services->profile, &(dv_profile_run){.step = t->label,
                                                                        .kernel = kernel,
                                                                        .ns = (uint64_t)((double)ms * 1e6),
                                                                        .flops = t->flops,
                                                                        .bytes = t->bytes});
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
        if (r < 0) {
            return r;
        }
        t->label = step->label;
        t->kernel = step->kernel;
        t->flops = step->flops;
        t->bytes = step->bytes;
        r = dv_gpu_event_record(t->from, q);
    }
    r = r < 0 ? r
              : dv_gpu_check(i->program->gpu, k->enqueue(args, (char *)i->block + step->scratch_at, &q->base),
                             step->label);
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

/* Fetches use side queue 0, write-backs side queue 1. */
static davy_result begin_transfer(dv_instance *i, dv_gpu_queue *q, const dv_transfer *t, dv_gpu_event **events) {
    dv_gpu_queue *side = NULL;
    char *ring = (char *)i->block + t->at, *kept = (char *)i->offloaded + t->host_at;
    davy_result r = dv_instance_side_queue(i, t->to_host ? 1 : 0, &side);
    r = r < 0 ? r : dv_gpu_event_record(events[0], q);
    r = r < 0 ? r : dv_gpu_event_wait(side, events[0]);
    if (r == DAVY_OK) {
        const dv_gpu_rows rows = {.dst = t->to_host ? kept : ring,
                                  .dst_pitch = t->to_host ? t->row_bytes : t->pitch,
                                  .src = t->to_host ? ring : kept,
                                  .src_pitch = t->to_host ? t->pitch : t->row_bytes,
                                  .row_bytes = t->row_bytes,
                                  .rows = t->rows};
        r = dv_gpu_copy_2d(side, &rows);
    }
    return r < 0 ? r : dv_gpu_event_record(events[1], side);
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
        r = r < 0 ? r : enqueue(i, q, &plan->steps[k], &i->args[k]);
    }
    return r < 0 ? r : enqueue_transfers(i, q, n, &sync);
}

static int64_t all_steps(const dv_instance *i) {
    return i->program->plan->n_steps - (i->program->plan->direct ? 1 : 0);
}

static davy_result enqueue_all(void *user, dv_gpu_queue *q) {
    dv_instance *i = user;
    return enqueue_steps(i, q, 0, all_steps(i));
}

davy_result dv_instance_enqueue(dv_instance *i) {
    dv_cuda *c = i->cuda;
    if (dv_instance_timed(i)) {
        c->replay.ran = true;
        return enqueue_all(i, c->queue);
    }
    c->replay.enqueue = enqueue_all;
    c->replay.user = i;
    return dv_gpu_replay_run(&c->replay, c->own, c->queue);
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
    const dvk_args args = dv_norm_stats_args(i, k, part, partial);
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

davy_result dv_instance_enqueue_op(dv_instance *i, dv_gpu_queue *q, const char *op, const void *args, uint64_t bytes) {
    const dvk_cuda_caps *caps = dv_gpu_caps(i->program->gpu);
    const dv_step step = {
        .kernel.cuda = dvk_cuda_choose(op, args, caps, DVK_COMPUTES_F32), .label = op, .bytes = bytes};
    const dvk_cuda_kernel *k = step.kernel.cuda;
    if (k == NULL || (k->scratch_bytes != NULL && k->scratch_bytes(args, caps) > 0)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "no CUDA kernel for op %s of this picture", op);
    }
    return enqueue(i, q, &step, args);
}

/* The last kernel cannot store this picture: its result goes to a slot, and a "store" converts it from there. */
static davy_result enqueue_apart(dv_instance *i, dv_gpu_queue *q, dvk_args *last, const dvk_convert_args *args,
                                 uint64_t bytes) {
    const dv_plan *plan = i->program->plan;
    const dvk_view *y = &plan->output;
    dvk_convert_args store = *args;
    davy_result r =
        dv_instance_memory(i, DV_SLOT_RESULT, (uint64_t)(y->n * y->sn) * dvk_dtype_size(y->dtype), &store.view.data);
    last->conv.epi.store = NULL;
    last->conv.y.data = store.view.data;
    r = r < 0 ? r : enqueue(i, q, &plan->steps[plan->n_steps - 1], last);
    return r < 0 ? r : dv_instance_enqueue_op(i, q, "store", &store, bytes);
}

davy_result dv_instance_enqueue_store(dv_instance *i, dv_gpu_queue *q, const dvk_convert_args *args, uint64_t bytes) {
    const dv_plan *plan = i->program->plan;
    if (!plan->direct) {
        return dv_instance_enqueue_op(i, q, "store", args, bytes);
    }
    const dv_step *step = &plan->steps[plan->n_steps - 1];
    dvk_args last = i->args[plan->n_steps - 1];
    last.conv.epi.store = args;
    return step->kernel.cuda->stores(&last, dv_gpu_caps(i->program->gpu)) ? enqueue(i, q, step, &last)
                                                                          : enqueue_apart(i, q, &last, args, bytes);
}
