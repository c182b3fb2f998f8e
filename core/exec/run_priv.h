/* run_priv.h - programs and instances as run.c and run_cuda.c see them. run.c calls run_cuda.c, never the other way round. */
#ifndef DV_RUN_PRIV_H
#define DV_RUN_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/exec/run.h"

typedef struct dv_cuda dv_cuda; /* run_cuda.c: queues, events and captured steps of an instance */

struct dv_instance {
    dv_program *program; /* not referenced: the run that took the instance holds the program */
    void *block;         /* arena, then scratch; in host or GPU memory */
    void *state;         /* state of a clip; the caller owns it */
    void *offloaded;     /* the offloaded part of the state, in host memory */
    bool lent;           /* the caller owns the block, too */
    bool fresh;          /* on the CPU: nothing has been written into the arena yet */
    uint64_t bytes;      /* bytes that the instance owns */
    char *scratch;       /* on the CPU */
    dvk_args *args;      /* of each step */
    dv_instance *next;
    dv_cuda *cuda; /* NULL: on the CPU */
};

struct dv_program {
    const dv_services *services;
    dv_gpu *gpu; /* NULL: the CPU */
    dv_store *store;
    dv_stage stage;
    dv_plan *plan;
    _Atomic int32_t refs;
    dv_mutex *lock;
    const void **weights; /* under the lock until `loaded` is set */
    bool loaded;
    dv_instance *idle;
    uint64_t idle_bytes;
};

/* Arguments for the statistics of a part of norm k's value. */
static inline dvk_args dv_norm_stats_args(const dv_instance *i, int64_t k, const dvk_view *part, float *partial) {
    return (dvk_args){.stats = {.x = *part, .partial = partial, .groups = i->program->plan->norms[k].groups}};
}

/* The step of norm k. For k = -1 the first step, for k = n_norms the end of the steps, without the last step of a direct plan. */
static inline int64_t dv_norm_step(const dv_instance *i, int64_t k) {
    const dv_plan *plan = i->program->plan;
    return k < 0 ? 0 : k < plan->n_norms ? plan->norms[k].step : plan->n_steps - (plan->direct ? 1 : 0);
}

/* In run_cuda.c. create allocates the GPU resources of an instance whose program is set. release waits for the work that uses them
 * and frees them; it also accepts an instance whose create failed. */
davy_result dv_cuda_instance_create(dv_instance *i);
void dv_cuda_instance_release(dv_instance *i);

#endif
