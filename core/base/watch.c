/* watch.c - see watch.h. */
#include "core/base/watch.h"

#include "core/base/error.h"

uint64_t dv_deadline(uint64_t timeout_ns) {
    const uint64_t now = dv_now_ns();
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

uint64_t dv_control_deadline(uint64_t timeout_ns) {
    return timeout_ns == 0 ? 0 : dv_deadline(timeout_ns);
}

bool dv_cond_wait_until(dv_cond *c, dv_mutex *m, uint64_t deadline_ns, uint64_t poll_ns) {
    uint64_t left = UINT64_MAX;
    if (deadline_ns != UINT64_MAX) {
        const uint64_t now = dv_now_ns();
        if (now >= deadline_ns) {
            return false;
        }
        left = deadline_ns - now;
    }
    dv_cond_wait(c, m, left < poll_ns ? left : poll_ns);
    return true;
}

void dv_watch_begin(dv_watch *w, const dv_control *control, const char *stage, double total) {
    *w = (dv_watch){.control = control, .stage = stage, .total = total > 1.0 ? total : 1.0, .last_ns = dv_now_ns()};
}

static bool report(dv_watch *w, double part) {
    const dv_control *c = w->control;
    const double share = c->total > 0 ? (double)c->share : 1000.0;
    const uint64_t done = c->base * (c->total > 0) + (uint64_t)(share * (part < 1.0 ? part : 1.0));
    w->last_ns = dv_now_ns();
    return c->progress(c->progress_user, w->stage, done, c->total > 0 ? c->total : 1000) == 0;
}

static davy_result stop(dv_watch *w, davy_result code) {
    w->result =
        dv_fail(code, code == DAVY_E_TIMEOUT ? "%s: not finished within the timeout" : "%s: cancelled", w->stage);
    return w->result;
}

static davy_result look(dv_watch *w, double part) {
    const dv_control *c = w->control;
    if (w->result < 0) {
        return w->result;
    }
    if (c->cancelled != NULL && c->cancelled(c->cancelled_user) != 0) {
        return stop(w, DAVY_E_CANCELLED);
    }
    const uint64_t now = dv_now_ns();
    if (c->deadline_ns != 0 && now >= c->deadline_ns) {
        return stop(w, DAVY_E_TIMEOUT);
    }
    if (c->progress != NULL && now - w->last_ns >= DV_PROGRESS_NS && !report(w, part)) {
        return stop(w, DAVY_E_CANCELLED);
    }
    return DAVY_OK;
}

typedef struct watched_loop { /* the `user` of run() and tick() */
    dv_watch *watch;
    const dv_loop *loop;
} watched_loop;

static void run(void *user, int64_t first, int64_t last, int32_t worker) {
    const watched_loop *w = user;
    w->loop->run(w->loop->user, first, last, worker);
}

static int32_t tick(void *user, int64_t done) {
    const watched_loop *w = user;
    dv_watch *watch = w->watch;
    const double part = (double)done / (double)w->loop->units;
    return look(watch, (watch->done + watch->loop_cost * part) / watch->total);
}

davy_result dv_watch_loop(dv_watch *w, dv_pool *pool, const dv_loop *loop, double cost) {
    w->loop_cost = cost;
    watched_loop both = {.watch = w, .loop = loop};
    const dv_loop watched = {.units = loop->units, .run = run, .tick = tick, .user = &both};
    if (dv_pool_run(pool, &watched) != 0) {
        return w->result;
    }
    w->done += cost;
    return DAVY_OK;
}

void dv_watch_advance(dv_watch *w, double cost) {
    w->done += cost;
}

davy_result dv_watch_poll(dv_watch *w) {
    return look(w, w->done / w->total);
}

davy_result dv_watch_end(dv_watch *w) {
    const dv_control *c = w->control;
    const bool last = c->total == 0 || c->base + c->share >= c->total;
    return c->progress != NULL && last && !report(w, 1.0) ? stop(w, DAVY_E_CANCELLED) : DAVY_OK;
}
