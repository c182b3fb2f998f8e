/* run_cpu.c - instances on the CPU: every step is a parallel loop over its kernel's units, under watch. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/exec/run_priv.h"
#include "kernels/dtype.h"

davy_result dv_cpu_instance_create(dv_instance *i) {
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

void dv_cpu_instance_release(dv_instance *i) {
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

/* The first write to a page can take a thousand times as long as any other, and a unit of a kernel may write to thousands
 * of pages: where that is done here, a few pieces at a time, the run can still be cancelled at once. */
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
    dv_profile_add(services->profile, step->label, kernel, dv_now_ns() - t0, step->flops, step->bytes);
    return r;
}

/* Nothing is gained by copying beside the steps here: what is fetched is so as early, what is written back as late as it
 * may. */
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
    const dv_args args = dv_norm_stats_args(i, k, part, partial);
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

double dv_convert_cost(const dvk_convert_args *args) {
    return 2.0 * (double)(args->view.h * args->view.w * args->view.c);
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
    return r == DAVY_OK ? convert(services, op, &s, watch) : r;
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
