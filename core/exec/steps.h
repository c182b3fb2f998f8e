/* steps.h - runs many short kernels in order on all threads, such as the 300 of a language model's token step.
 *
 * One dv_pool_run per kernel would cost some microseconds each: it takes a lock and may wake threads. Here the threads of a pool
 * enter once and stay. A counter distributes the units of a step. The thread that finishes the last unit opens the next step. If
 * a thread arrives late or never, the others do its share. */
#ifndef DV_STEPS_H
#define DV_STEPS_H

#include "core/base/pool.h"
#include "kernels/kernel.h"

typedef struct dv_parallel_step {
    const dvk_kernel *kernel;
    const void *args; /* may change between runs, also in size */
    bool alone;       /* too short to distribute: the thread that finished the step before runs it alone */
} dv_parallel_step;

typedef struct dv_steps dv_steps;

davy_result dv_steps_create(dv_pool *pool, const dv_parallel_step *steps, int64_t n,
                            dv_steps **out); /* copies the list */
void dv_steps_release(dv_steps *s);
davy_result dv_steps_run(
    dv_steps *s); /* on the calling thread and the pool's; one run at a time. Fails only with DAVY_E_NOMEM_HOST */

#endif
