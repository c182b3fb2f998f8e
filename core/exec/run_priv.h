/* run_priv.h - what run.c and run_cuda.c share: programs and instances. run.c calls run_cuda.c, which calls nothing of it. */
#ifndef DV_RUN_PRIV_H
#define DV_RUN_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/exec/run.h"

typedef struct dv_cuda dv_cuda; /* run_cuda.c: queues, events, captured steps of an instance */

struct dv_instance {
    dv_program *program; /* not referenced: the run that took the instance holds the program */
    void *block;         /* arena, then scratch; of the host or of the GPU */
    void *state;         /* of a clip, the caller's */
    void *offloaded;     /* the part of it in the host's memory, where the block is not */
    bool lent;           /* so is the block */
    bool fresh;          /* on the CPU: nothing has been written into the arena yet */
    uint64_t bytes;      /* all that the instance holds */
    char *scratch;       /* of the host */
    dvk_args *args;      /* of steps */
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
    const void **weights; /* under the lock until `loaded` */
    bool loaded;
    dv_instance *idle;
    uint64_t idle_bytes;
};

/* Statistics of a part of what norm k is of. */
static inline dvk_args dv_norm_stats_args(const dv_instance *i, int64_t k, const dvk_view *part, float *partial) {
    return (dvk_args){.stats = {.x = *part, .partial = partial, .groups = i->program->plan->norms[k].groups}};
}

/* The step of norm k; of norm -1 the first, of that behind the last the one behind all that dv_instance_run runs. */
static inline int64_t dv_norm_step(const dv_instance *i, int64_t k) {
    const dv_plan *plan = i->program->plan;
    return k < 0 ? 0 : k < plan->n_norms ? plan->norms[k].step : plan->n_steps - (plan->direct ? 1 : 0);
}

/* Of run_cuda.c: the memory of an instance whose program is set; release takes whatever there is, also after a failure, and
 * waits for the work that uses it. */
davy_result dv_cuda_instance_create(dv_instance *i);
void dv_cuda_instance_release(dv_instance *i);

#endif
