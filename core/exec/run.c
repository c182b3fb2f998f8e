/* run.c - programs and their instances, whatever they run on. See run.h. */
#include <string.h>

#include "core/base/error.h"
#include "core/exec/run_priv.h"

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

uint64_t dv_plan_workspace(const dv_plan *plan, int32_t n_threads) {
    return dv_align_up(plan->arena_bytes, 64) + plan->scratch_bytes * (uint64_t)n_threads;
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

static void release_instance(dv_instance *i) {
    if (i != NULL) {
        (i->program->gpu != NULL ? dv_cuda_instance_release : dv_cpu_instance_release)(i);
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

/* block: NULL, or the caller's */
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
        r = (p->gpu != NULL ? dv_cuda_instance_create : dv_cpu_instance_create)(i);
    }
    if (r != DAVY_OK) {
        release_instance(i);
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

void dv_instance_drop(dv_instance *i) {
    release_instance(i);
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
        release_instance(i); /* without the lock: it may call the host's free */
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

dv_args dv_norm_stats_args(const dv_instance *i, int64_t k, const dvk_view *part, float *partial) {
    return (dv_args){.stats = {.x = *part, .partial = partial, .groups = i->program->plan->norms[k].groups}};
}

int64_t dv_norm_step(const dv_instance *i, int64_t k) {
    const dv_plan *plan = i->program->plan;
    return k < 0 ? 0 : k < plan->n_norms ? plan->norms[k].step : plan->n_steps - (plan->direct ? 1 : 0);
}
