/* watch.h - progress of one run, weighted by estimated cost, its cancellation and its deadline. Only the calling thread uses
 * a dv_watch. Every loop of the run calls its tick between two pieces of work. */
#ifndef DV_WATCH_H
#define DV_WATCH_H

#include "core/base/os.h"
#include "core/base/pool.h"

#define DV_PROGRESS_NS 50000000ull /* between two progress calls: 20 a second */

/* A run's callbacks and deadline. All members are optional. */
typedef struct dv_control {
    davy_progress_fn progress; /* on the calling thread, at most 20 times a second */
    void *progress_user;
    int32_t (*cancelled)(void *user); /* polled at least every 100 ms; non-zero: DAVY_E_CANCELLED */
    void *cancelled_user;
    uint64_t deadline_ns; /* dv_now_ns time; 0: none; then DAVY_E_TIMEOUT */
    /* For a run inside a larger job: reported done = base + share * part of this run. total 0: this run alone, 0..1000. */
    uint64_t base, share, total;
} dv_control;

typedef struct dv_watch {
    const dv_control *control;
    const char *stage;
    double total, done; /* cost: of the run, of finished loops */
    double loop_cost;   /* of the current loop */
    uint64_t last_ns;   /* of the last progress call */
    davy_result result;
} dv_watch;

/* ---- deadlines, for any thread ---- */

/* The dv_now_ns time that is timeout_ns from now; UINT64_MAX: never. */
uint64_t dv_deadline(uint64_t timeout_ns);
/* dv_control.deadline_ns of a run with this timeout_ns; 0 stays 0: none. */
uint64_t dv_control_deadline(uint64_t timeout_ns);
/* Returns false at once if deadline_ns (dv_deadline) has passed. Otherwise waits for a signal, the deadline or poll_ns
 * (UINT64_MAX: no such limit), and returns true. */
bool dv_cond_wait_until(dv_cond *c, dv_mutex *m, uint64_t deadline_ns, uint64_t poll_ns);

/* ---- one run ---- */

void dv_watch_begin(dv_watch *w, const dv_control *control, const char *stage, double total);
/* Runs a loop of `cost` under watch: DAVY_OK, DAVY_E_CANCELLED or DAVY_E_TIMEOUT. */
davy_result dv_watch_loop(dv_watch *w, dv_pool *pool, const dv_loop *loop, double cost);
/* Adds work of `cost` that was done outside a loop. */
void dv_watch_advance(dv_watch *w, double cost);
/* Checks for cancellation and deadline once, outside a loop. */
davy_result dv_watch_poll(dv_watch *w);
/* Reports full progress, if this run is the last of its job. */
davy_result dv_watch_end(dv_watch *w);

#endif
