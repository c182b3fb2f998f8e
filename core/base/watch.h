/* watch.h - one run seen from outside: progress weighted by estimated cost, cancellation, deadline. Used by the calling
 * thread only; its tick is what every loop of the run calls between two pieces of work. */
#ifndef DV_WATCH_H
#define DV_WATCH_H

#include "core/base/pool.h"

#define DV_PROGRESS_NS 50000000ull /* between two progress calls: 20 a second */

/* How a run is watched and stopped. All members optional. */
typedef struct dv_control {
    davy_progress_fn progress; /* throttled by the engine to 20 calls a second, on the calling thread */
    void *progress_user;
    int32_t (*cancelled)(void *user); /* polled at least every 100 ms; non-zero: DAVY_E_CANCELLED */
    void *cancelled_user;
    uint64_t deadline_ns; /* dv_now_ns time; 0: none; then DAVY_E_TIMEOUT */
    /* Progress of a larger job: reported done = base + share * part of this run. total 0: this run alone, 0..1000. */
    uint64_t base, share, total;
} dv_control;

typedef struct dv_watch {
    const dv_control *control;
    const char *stage;
    double total, done; /* cost: of the run, of finished loops */
    double loop_cost;   /* of the loop going on */
    uint64_t last_ns;   /* of the last progress call */
    davy_result result;
} dv_watch;

void dv_watch_begin(dv_watch *w, const dv_control *control, const char *stage, double total);
/* Runs a loop of `cost` under watch: DAVY_OK, DAVY_E_CANCELLED or DAVY_E_TIMEOUT. */
davy_result dv_watch_loop(dv_watch *w, dv_pool *pool, const dv_loop *loop, double cost);
/* Work of `cost` that was done elsewhere. */
void dv_watch_advance(dv_watch *w, double cost);
/* Asks once, without a loop. */
davy_result dv_watch_poll(dv_watch *w);
/* The closing report: everything done. */
davy_result dv_watch_end(dv_watch *w);

#endif
