/* steps.h - many short kernels one behind the other on all threads, such as the 300 of a language model's token step.
 *
 * A loop per kernel would cost some microseconds each (dv_pool_run takes a lock and may wake threads). Here the threads
 * of a pool enter once and stay: a step's units are handed out by a counter, and the thread that finishes its last unit opens
 * the next one. A thread that comes late, or never, only leaves the others more to do. */
#ifndef DV_STEPS_H
#define DV_STEPS_H

#include "core/base/pool.h"
#include "kernels/kernel.h"

typedef struct dv_parallel_step {
    const dvk_kernel *kernel;
    const void *args; /* may change between runs, also in size */
    bool alone;       /* quicker than handing it out: done by the thread that finished the step before */
} dv_parallel_step;

typedef struct dv_steps dv_steps;

davy_result dv_steps_create(dv_pool *pool, const dv_parallel_step *steps, int64_t n,
                            dv_steps **out); /* copies the list */
void dv_steps_release(dv_steps *s);
davy_result
dv_steps_run(dv_steps *s); /* on the calling thread and the pool's; one run at a time. Fails only for memory */

#endif
