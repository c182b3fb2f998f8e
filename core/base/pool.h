/* pool.h - worker threads, and the parallel loop that computes every step of a run.
 *
 * The calling thread works too, so a loop always makes progress. Only the calling thread calls tick(), between two pieces
 * of work. tick() reports progress and may stop the loop. Several threads may run loops on one pool at once. */
#ifndef DV_POOL_H
#define DV_POOL_H

#include "core/base/common.h"

typedef struct dv_pool dv_pool;

davy_result dv_pool_create(int32_t n_threads, dv_pool **out); /* n_threads counts the caller: 1 starts none */
void dv_pool_release(dv_pool *pool);                          /* joins; no loop may be running */
int32_t dv_pool_threads(const dv_pool *pool);

typedef struct dv_loop {
    int64_t units;
    /* Work on units [first, last). worker is in [0, dv_pool_threads): index of private scratch. */
    void (*run)(void *user, int64_t first, int64_t last, int32_t worker);
    /* On the calling thread, often; done = units finished. Non-zero stops the loop early. NULL: none. */
    int32_t (*tick)(void *user, int64_t done);
    void *user;
} dv_loop;

/* Returns 0, or the non-zero result of tick. No thread works on the loop after the return. */
int32_t dv_pool_run(dv_pool *pool, const dv_loop *loop);

#endif
