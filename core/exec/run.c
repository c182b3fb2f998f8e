/* run.c - programs and instances on any device, and the runs of an instance on the CPU. There every step is a parallel loop over
 * its kernel's units, with progress and cancelling by a watch. See run.h. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/exec/run_priv.h"
#include "kernels/dtype.h"

/* ---- instances on the CPU ---- */

static davy_result create_on_cpu(dv_instance *i) {
    const dv_services *services = i->program->services;
    const dv_plan *plan = i->program->plan;
    const uint64_t bytes = dv_plan_workspace(plan, dv_pool_threads(services->pool));
    const davy_result r =
        i->lent ? DAVY_OK : dv_heap_alloc(services->heap, DV_MEM_WORKSPACE, bytes, "workspace", &i->block);
    if (r == DAVY_OK) {
        i->bytes = i->lent ? 0 : bytes;
        i->scratch = (char *)i->block + dv_align_up(plan->arena_bytes, 64);
        i->fresh = !i->lent;
    }
    return r;
}

static void release_on_cpu(dv_instance *i) {
    if (!i->lent) {
        dv_heap_free(i->program->services->heap, DV_MEM_WORKSPACE, i->block, i->bytes);
    }
}

/* ---- fresh memory ---- */

enum { PAGE = 4096, PIECE = 1 << 21, TOGETHER = 16 };

typedef struct fresh_pieces {
    char *memory;
    int64_t bytes;
} fresh_pieces;

static void touch_pieces(void *user, int64_t first, int64_t last, int32_t worker) {
    const fresh_pieces *f = user;
    (void)worker;
    for (int64_t at = first * PIECE; at < dv_min(last * PIECE, f->bytes); at += PAGE) {
        f->memory[at] = 0;
    }
}

/* The first write to a page can take a thousand times as long as a later one, and one unit of a kernel may write to thousands of
 * pages. Touching the pages here, a few pieces at a time, keeps the run cancellable. */
static davy_result touch(dv_instance *i, dv_watch *watch) {
    const int64_t bytes = (int64_t)i->program->plan->arena_bytes;
    davy_result r = DAVY_OK;
    for (int64_t at = 0; r == DAVY_OK && at < bytes; at += TOGETHER * PIECE) {
        fresh_pieces f = {.memory = (char *)i->block + at, .bytes = dv_min(bytes - at, TOGETHER * PIECE)};
        const dv_loop loop = {.units = (f.bytes + PIECE - 1) / PIECE, .run = touch_pieces, .user = &f};
        r = dv_watch_loop(watch, i->program->services->pool, &loop, 0.0);
    }
    i->fresh = r != DAVY_OK;
    return r;
}

/* ---- steps ---- */

typedef struct step_loop {
    const dvk_kernel *kernel;
    const void *args;
    char *scratch;
    uint64_t scratch_bytes;
} step_loop;

static void run_units(void *user, int64_t first, int64_t last, int32_t worker) {
    const step_loop *s = user;
    s->kernel->run(s->args, first, last, s->scratch + s->scratch_bytes * (uint64_t)worker);
}

static davy_result run_step(const dv_services *services, const dv_step *step, step_loop *s, dv_watch *watch) {
    const dv_loop loop = {.units = step->units, .run = run_units, .user = s};
    if (services->profile == NULL || !dv_profile_on(services->profile)) {
        return dv_watch_loop(watch, services->pool, &loop, step->cost);
    }
    char kernel[96];
    snprintf(kernel, sizeof kernel, "%s %s", s->kernel->op, s->kernel->variant);
    const uint64_t t0 = dv_now_ns();
    const davy_result r = dv_watch_loop(watch, services->pool, &loop, step->cost);
    dv_profile_add(
        services->profile,
        &(dv_profile_run){
            .step = step->label, .kernel = kernel, .ns = dv_now_ns() - t0, .flops = step->flops, .bytes = step->bytes});
    return r;
}

/* On the CPU, copying beside the steps gains nothing. A fetch is done where it may begin, a write-back where it must be finished. */
static void transfer(const dv_instance *i, const dv_transfer *t) {
    char *ring = (char *)i->block + t->at, *kept = (char *)i->offloaded + t->host_at;
    for (uint64_t row = 0; row < t->rows; row++) {
        char *here = ring + row * t->pitch, *there = kept + row * t->row_bytes;
        memcpy(t->to_host ? there : here, t->to_host ? here : there, (size_t)t->row_bytes);
    }
}

static void transfer_state(const dv_instance *i, int64_t step, const dv_sync **at) {
    const dv_plan *plan = i->program->plan;
    for (; *at != plan->syncs + 2 * plan->n_transfers && (*at)->step == step; (*at)++) {
        const dv_transfer *t = &plan->transfers[(*at)->transfer];
        if (t->to_host != (*at)->begins) {
            transfer(i, t);
        }
    }
}

static davy_result run_steps(dv_instance *i, int64_t first, int64_t n, dv_watch *watch) {
    const dv_plan *plan = i->program->plan;
    const dv_sync *sync = plan->syncs;
    davy_result r = i->fresh ? touch(i, watch) : DAVY_OK;
    for (int64_t k = first; r == DAVY_OK && k < n; k++) {
        transfer_state(i, k, &sync);
        step_loop s = {.kernel = plan->steps[k].kernel.cpu,
                       .args = &i->args[k],
                       .scratch = i->scratch,
                       .scratch_bytes = plan->scratch_bytes};
        r = run_step(i->program->services, &plan->steps[k], &s, watch);
    }
    transfer_state(i, n, &sync);
    return r;
}

davy_result dv_instance_run(dv_instance *i, dv_watch *watch) {
    return run_steps(i, 0, i->program->plan->n_steps, watch);
}

davy_result dv_instance_run_to_mean(dv_instance *i, int32_t k, dv_watch *watch) {
    return run_steps(i, 0, i->program->plan->means[k].step, watch);
}

davy_result dv_instance_mean(dv_instance *i, int32_t k, const dvk_view *part, float *out, dv_watch *watch) {
    const dv_plan *plan = i->program->plan;
    const dvk_kernel *kernel = plan->means[k].kernel.cpu;
    dvk_pool_args args = {.x = *part};
    args.y = (dvk_view){.data = out, .dtype = DVK_F32, .n = 1, .h = 1, .w = 1, .c = part->c};
    args.y.sn = args.y.sh = args.y.sw = part->c;
    const dv_step step = {.label = "mean",
                          .units = kernel->units(&args),
                          .bytes = (uint64_t)(part->h * part->w * part->c) * dvk_dtype_size(part->dtype)};
    step_loop s = {.kernel = kernel, .args = &args, .scratch = i->scratch, .scratch_bytes = plan->scratch_bytes};
    return run_step(i->program->services, &step, &s, watch);
}

davy_result dv_instance_run_to_norm(dv_instance *i, int64_t k, dv_watch *watch) {
    return run_steps(i, dv_norm_step(i, k - 1), dv_norm_step(i, k), watch);
}

davy_result dv_instance_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial, dv_watch *watch) {
    const dv_plan *plan = i->program->plan;
    const dvk_kernel *kernel = plan->norms[k].kernel.cpu;
    const dvk_args args = dv_norm_stats_args(i, k, part, partial);
    const dv_step step = {.label = "statistics",
                          .units = kernel->units(&args),
                          .bytes = (uint64_t)(part->h * part->w * part->c) * dvk_dtype_size(part->dtype)};
    step_loop s = {.kernel = kernel, .args = &args, .scratch = i->scratch, .scratch_bytes = plan->scratch_bytes};
    return run_step(i->program->services, &step, &s, watch);
}

typedef struct copied_pieces {
    char *to;
    const char *from;
    int64_t bytes;
} copied_pieces;

static void copy_pieces(void *user, int64_t first, int64_t last, int32_t worker) {
    const copied_pieces *c = user;
    (void)worker;
    memcpy(c->to + first * PIECE, c->from + first * PIECE, (size_t)(dv_min(last * PIECE, c->bytes) - first * PIECE));
}

davy_result dv_instance_live(dv_instance *i, int64_t k, void *kept, bool back, dv_watch *watch) {
    const dv_plan *plan = i->program->plan;
    char *there = kept;
    davy_result r = DAVY_OK;
    for (int64_t n = plan->norms[k].first_live; r == DAVY_OK && n < plan->norms[k].end_live; n++) {
        char *here = (char *)i->block + plan->live[n].at;
        copied_pieces c = {
            .to = back ? here : there, .from = back ? there : here, .bytes = (int64_t)plan->live[n].bytes};
        const dv_loop loop = {.units = dv_div_up(c.bytes, PIECE), .run = copy_pieces, .user = &c};
        r = dv_watch_loop(watch, i->program->services->pool, &loop, 0.0);
        there += c.bytes;
    }
    return r;
}

static davy_result convert(const dv_services *services, const char *op, step_loop *s, dv_watch *watch) {
    const dvk_convert_args *args = s->args;
    const uint64_t bytes = (uint64_t)(args->view.h * args->view.w * args->view.c) *
                           (dvk_dtype_size(args->view.dtype) + dvk_dtype_size(args->image.dtype));
    const dv_step step = {.label = op, .units = s->kernel->units(args), .bytes = bytes, .cost = dv_convert_cost(args)};
    return run_step(services, &step, s, watch);
}

davy_result dv_convert_run(dv_instance *i, const char *op, const dvk_convert_args *args, dv_watch *watch) {
    const dv_services *services = i->program->services;
    const uint64_t scratch = i->program->plan->scratch_bytes;
    const dvk_kernel *kernel = dvk_choose(op, args, services->cpu, DVK_F32);
    if (kernel == NULL || (kernel->scratch_bytes != NULL && kernel->scratch_bytes(args) > scratch)) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op %s within %llu bytes of scratch", op,
                       (unsigned long long)scratch);
    }
    const davy_result r = i->fresh ? touch(i, watch) : DAVY_OK;
    step_loop s = {.kernel = kernel, .args = args, .scratch = i->scratch, .scratch_bytes = scratch};
    return r < 0 ? r : convert(services, op, &s, watch);
}

davy_result dv_convert_alone(const dv_services *services, const char *op, const dvk_convert_args *args,
                             dv_watch *watch) {
    const dvk_kernel *kernel = dvk_choose(op, args, services->cpu, DVK_F32);
    if (kernel == NULL) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op %s", op);
    }
    step_loop s = {.kernel = kernel, .args = args};
    s.scratch_bytes = dv_align_up(kernel->scratch_bytes != NULL ? kernel->scratch_bytes(args) : 0, 64);
    s.scratch = dv_calloc(s.scratch_bytes * (uint64_t)dv_pool_threads(services->pool) + 1, 1);
    const davy_result r =
        s.scratch != NULL ? convert(services, op, &s, watch) : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", op);
    dv_free(s.scratch);
    return r;
}

/* ---- programs ---- */

davy_result dv_program_create(const dv_program_desc *desc, dv_program **out) {
    dv_program *p = dv_calloc(1, sizeof *p);
    if (p == NULL) {
        dv_plan_release(desc->plan);
        return dv_fail(DAVY_E_NOMEM_HOST, "program: out of memory");
    }
    p->services = desc->services;
    p->gpu = dv_store_gpu(desc->store);
    p->store = dv_store_ref(desc->store);
    p->stage = desc->stage;
    p->plan = desc->plan;
    atomic_init(&p->refs, 1);
    p->lock = dv_mutex_create();
    p->weights = dv_calloc((uint64_t)p->plan->n_weights + 1, sizeof *p->weights);
    if (p->lock == NULL || p->weights == NULL) {
        dv_program_release(p);
        return dv_fail(DAVY_E_NOMEM_HOST, "program: out of memory");
    }
    *out = p;
    return DAVY_OK;
}

dv_program *dv_program_ref(dv_program *p) {
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void dv_program_release(dv_program *p) {
    if (p == NULL || atomic_fetch_sub(&p->refs, 1) != 1) {
        return;
    }
    if (p->lock != NULL) {
        dv_program_trim(p, 0);
    }
    dv_mutex_release(p->lock);
    dv_free((void *)(uintptr_t)p->weights);
    dv_plan_release(p->plan);
    dv_store_release(p->store);
    dv_free(p);
}

const dv_plan *dv_program_plan(const dv_program *p) {
    return p->plan;
}

davy_result dv_program_load(dv_program *p, dv_watch *watch) {
    dv_mutex_lock(p->lock);
    const bool loaded = p->loaded;
    dv_mutex_unlock(p->lock);
    if (loaded) {
        return DAVY_OK;
    }
    const uint64_t count = (uint64_t)p->plan->n_weights + 1;
    const void **weights = dv_calloc(count, sizeof *weights);
    if (weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    const davy_result r = dv_store_bind(p->store, p->stage, p->plan, watch, weights);
    if (r == DAVY_OK) {
        dv_mutex_lock(p->lock);
        if (!p->loaded) {
            memcpy(p->weights, weights, count * sizeof *weights);
            p->loaded = true;
        }
        dv_mutex_unlock(p->lock);
    }
    dv_free((void *)(uintptr_t)weights);
    return r;
}

/* ---- instances ---- */

void dv_instance_drop(dv_instance *i) {
    if (i != NULL) {
        (i->program->gpu != NULL ? dv_cuda_instance_release : release_on_cpu)(i);
        dv_free(i->args);
        dv_free(i);
    }
}

static void fill_pointers(dv_instance *i) {
    const dv_plan *plan = i->program->plan;
    for (int64_t s = 0; s < plan->n_steps; s++) {
        const dv_step *step = &plan->steps[s];
        i->args[s] = step->args;
        for (int64_t b = step->first_bind; b < step->first_bind + step->n_binds; b++) {
            const dv_bind *bind = &plan->binds[b];
            const void *p = bind->kind == DV_BIND_ARENA   ? (const char *)i->block + bind->at
                            : bind->kind == DV_BIND_STATE ? (const char *)i->state + bind->at
                                                          : (const char *)i->program->weights[bind->at] + bind->within;
            memcpy((char *)&i->args[s] + bind->field, &p, sizeof p);
        }
    }
}

/* block: the caller's memory, or NULL to allocate */
static davy_result create_instance(dv_program *p, void *block, void *state, dv_instance **out) {
    dv_instance *i = dv_calloc(1, sizeof *i);
    if (i == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "run: out of memory");
    }
    i->program = p;
    i->block = block;
    i->state = state;
    i->lent = block != NULL;
    i->args = dv_calloc((uint64_t)p->plan->n_steps + 1, sizeof *i->args);
    davy_result r = DAVY_OK;
    if (i->args == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "run: out of memory");
    } else {
        r = (p->gpu != NULL ? dv_cuda_instance_create : create_on_cpu)(i);
    }
    if (r < 0) {
        dv_instance_drop(i);
        return r;
    }
    fill_pointers(i);
    *out = i;
    return DAVY_OK;
}

davy_result dv_program_take(dv_program *p, dv_instance **out) {
    dv_mutex_lock(p->lock);
    dv_instance *i = p->idle;
    if (i != NULL) {
        p->idle = i->next;
        p->idle_bytes -= i->bytes;
    }
    dv_mutex_unlock(p->lock);
    if (i == NULL) {
        return create_instance(p, NULL, NULL, out);
    }
    *out = i;
    return DAVY_OK;
}

davy_result dv_program_lend(dv_program *p, void *block, void *state, dv_instance **out) {
    return create_instance(p, block, state, out);
}

void dv_instance_set_offloaded(dv_instance *i, void *offloaded) {
    i->offloaded = offloaded;
}

void dv_program_give(dv_program *p, dv_instance *i) {
    if (i == NULL) {
        return;
    }
    dv_mutex_lock(p->lock);
    i->next = p->idle;
    p->idle = i;
    p->idle_bytes += i->bytes;
    dv_mutex_unlock(p->lock);
}

uint64_t dv_program_trim(dv_program *p, uint64_t keep_bytes) {
    for (;;) {
        dv_mutex_lock(p->lock);
        dv_instance *i = p->idle_bytes > keep_bytes ? p->idle : NULL;
        if (i != NULL) {
            p->idle = i->next;
            p->idle_bytes -= i->bytes;
        }
        const uint64_t left = p->idle_bytes;
        dv_mutex_unlock(p->lock);
        if (i == NULL) {
            return left;
        }
        dv_instance_drop(i); /* without the lock: it may call the host's free */
    }
}

dvk_view dv_instance_input(const dv_instance *i) {
    return dv_view_at(i->program->plan->input, i->block, i->program->plan->input_at);
}

dvk_view dv_instance_output(const dv_instance *i) {
    return dv_view_at(i->program->plan->output, i->block, i->program->plan->output_at);
}

dvk_view dv_instance_mean_of(const dv_instance *i, int32_t k) {
    const dv_plan_mean *m = &i->program->plan->means[k];
    return dv_view_at(m->x, i->block, m->x_at);
}

void *dv_instance_given(const dv_instance *i, int32_t k) {
    return (char *)i->block + i->program->plan->means[k].given_at;
}

dvk_view dv_instance_norm_of(const dv_instance *i, int64_t k) {
    const dv_plan_norm *m = &i->program->plan->norms[k];
    return dv_view_at(m->x, i->block, m->x_at);
}

void *dv_instance_given_norm(const dv_instance *i, int64_t k) {
    return (char *)i->block + i->program->plan->norms[k].given_at;
}
