/* stopping.c - cancelling work from any thread, and its latency; jobs that wait for other jobs. Runs under ThreadSanitizer
 * too. */
#include "tests/hosts/host/threads_host.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(SLOW_BUILD)
enum { SLOWNESS = 20, LEAST_SIDE = 900 };
#else
enum { SLOWNESS = 1, LEAST_SIDE = 2000 };
#endif

enum { STOP_MS = 150, ASKED_MS = 50, TRIES = 4, MOST_TRIES = 20 };
enum { WORK_MS = 400, MOST_SIDE = 4000 }; /* TRIES progress calls, 50 ms apart, are in the middle of the work */

typedef struct watch {
    pthread_t thread;
    int calls, elsewhere, stop_at;
} watch;

static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    watch *w = user;
    (void)stage;
    (void)done;
    (void)total;
    w->calls++;
    w->elsewhere += !pthread_equal(w->thread, pthread_self());
    return w->stop_at > 0 && w->calls >= w->stop_at;
}

typedef struct big_work {
    davy_context *ctx;
    davy_model *model;
    picture in, out, small;
    davy_tensor src, dst;
} big_work;

/* A picture of `side` x `side`. Returns the ns that its upscaling takes. */
static uint64_t big_try(big_work *b, int side) {
    picture_free(&b->in);
    picture_free(&b->out);
    b->in = picture_new(1, side, side, 3);
    b->out = picture_new(1, 2 * side, 2 * side, 3);
    b->src = host_tensor(&b->in);
    b->dst = host_tensor(&b->out);
    const uint64_t start = host_now_ns();
    IS(api->upscale(b->model, &b->src, &b->dst, NULL, NULL), DAVY_OK);
    return host_now_ns() - start;
}

/* Chooses a picture large enough to keep this machine busy for WORK_MS. */
static big_work big_begin(void) {
    big_work b = {.ctx = new_context(0)};
    b.model = new_model(b.ctx);
    b.small = picture_new(1, 32, 32, 3);
    IS(api->model_load(b.model, NULL, NULL), DAVY_OK);
    int side = LEAST_SIDE;
    while (big_try(&b, side) < WORK_MS * UINT64_C(1000000) && side < MOST_SIDE) {
        side += side / 2;
    }
    return b;
}

static void still_works(big_work *b, const char *after) {
    picture out = {0};
    const davy_result r = host_upscale(api, b->model, &b->small, NULL, &out);
    CHECKF(r == DAVY_OK, "after %s: %s", after, host_error(api));
    picture_free(&out);
}

static void big_end(big_work *b) {
    api->model_release(b->model);
    api->context_release(b->ctx);
    picture_free(&b->in);
    picture_free(&b->out);
    picture_free(&b->small);
}

static uint64_t slow_ms(unsigned ms) {
    return (uint64_t)ms * 1000000u * (unsigned)SLOWNESS;
}

/* Measures davy's own latency without that of other load: the best of a few tries, or of more if all were slow. */
static int once_more(int tries, uint64_t best_ns) {
    return tries < TRIES || (tries < MOST_TRIES && best_ns >= slow_ms(STOP_MS));
}

static void within(uint64_t best_ns, const char *what) {
    printf("  %s: stopped after %.1f ms\n", what, (double)best_ns * 1e-6);
    CHECKF(best_ns < slow_ms(STOP_MS), "%s took %.1f ms to stop", what, (double)best_ns * 1e-6);
}

static void cancel_job(big_work *b) {
    uint64_t best = UINT64_MAX;
    uint64_t best_asked = UINT64_MAX;
    for (int i = 0; once_more(i, best); i++) {
        davy_job *job = NULL;
        IS(api->upscale(b->model, &b->src, &b->dst, NULL, &job), DAVY_OK);
        host_sleep_ms(30 + 25 * (i % TRIES)); /* until the middle of the work */
        const uint64_t start = host_now_ns();
        IS(api->job_cancel(job), DAVY_OK);
        const uint64_t asked = host_now_ns() - start;
        const davy_result ended = api->job_wait(job, UINT64_MAX);
        const uint64_t took = host_now_ns() - start;
        if (ended == DAVY_OK) { /* this thread slept too long */
            api->job_release(job);
            continue;
        }
        IS(ended, DAVY_E_CANCELLED);
        best = took < best ? took : best;
        best_asked = asked < best_asked ? asked : best_asked;
        davy_error_info e = {.struct_size = sizeof e};
        IS(api->job_error(job, &e), DAVY_OK);
        CHECK(e.code == DAVY_E_CANCELLED && e.message[0] != '\0');
        IS(api->job_cancel(job), DAVY_OK); /* a second cancel is harmless */
        api->job_release(job);
    }
    within(best, "job_cancel");
    CHECKF(best_asked < slow_ms(ASKED_MS), "job_cancel waited %.1f ms", (double)best_asked * 1e-6);
    still_works(b, "job_cancel");
}

/* A finished job stays finished. */
static void cancel_too_late(big_work *b) {
    picture out = picture_new(1, 64, 64, 3);
    davy_tensor src = host_tensor(&b->small), dst = host_tensor(&out);
    davy_job *job = NULL;
    IS(api->upscale(b->model, &src, &dst, NULL, &job), DAVY_OK);
    IS(api->job_wait(job, UINT64_MAX), DAVY_OK);
    IS(api->job_cancel(job), DAVY_OK);
    IS(api->job_wait(job, 0), DAVY_OK);
    api->job_release(job);
    picture_free(&out);
}

static void cancel_by_callback(big_work *b) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; once_more(i, best); i++) {
        watch w = {.thread = pthread_self(), .stop_at = 1 + i % TRIES};
        const davy_run run = {.struct_size = sizeof run, .progress = on_progress, .progress_user = &w};
        const uint64_t start = host_now_ns();
        IS(api->upscale(b->model, &b->src, &b->dst, &run, NULL), DAVY_E_CANCELLED);
        const uint64_t took = host_now_ns() - start;
        CHECKF(w.calls == w.stop_at, "asked to stop at call %d, called %d times", w.stop_at, w.calls);
        CHECKF(w.elsewhere == 0, "progress of a blocking call came on another thread");
        best = took / (unsigned)w.stop_at < best ? took / (unsigned)w.stop_at : best;
    }
    within(best, "a progress callback");
    still_works(b, "a callback that cancels");
}

static void progress_rate(big_work *b) {
    watch w = {.thread = pthread_self()};
    const davy_run run = {
        .struct_size = sizeof run, .progress = on_progress, .progress_user = &w, .timeout_ns = UINT64_C(3000000000)};
    const uint64_t start = host_now_ns();
    const davy_result r = api->upscale(b->model, &b->src, &b->dst, &run, NULL);
    const double seconds = (double)(host_now_ns() - start) * 1e-9;
    CHECK(r == DAVY_OK || r == DAVY_E_TIMEOUT);
    printf("  progress: %d calls in %.2f s\n", w.calls, seconds);
    CHECKF(w.calls <= (int)(seconds * 20) + 2, "%d progress calls in %.2f s", w.calls, seconds);
    CHECKF(w.calls >= 1, "no progress in %.2f s", seconds);
}

static void timeout(big_work *b) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; once_more(i, best); i++) {
        const uint64_t limit = 40u * 1000000u;
        const davy_run run = {.struct_size = sizeof run, .timeout_ns = limit};
        const uint64_t start = host_now_ns();
        IS(api->upscale(b->model, &b->src, &b->dst, &run, NULL), DAVY_E_TIMEOUT);
        const uint64_t took = host_now_ns() - start;
        CHECKF(took >= limit, "timed out before its time");
        best = took - limit < best ? took - limit : best;
    }
    within(best, "a timeout");
    still_works(b, "a timeout");
    const davy_run enough = {.struct_size = sizeof enough, .timeout_ns = UINT64_MAX};
    picture out = {0};
    IS(host_upscale(api, b->model, &b->small, &enough, &out), DAVY_OK);
    picture_free(&out);
}

typedef struct waiter {
    davy_job *job;
    davy_result result;
} waiter;

static void *wait_for(void *arg) {
    waiter *w = arg;
    do {
        davy_job_info info = {.struct_size = sizeof info};
        api->job_info(w->job, &info);
        w->result = api->job_wait(w->job, 5000000);
    } while (w->result == DAVY_PENDING);
    return NULL;
}

/* Several threads wait for, query and cancel one job at once. All get the same result. */
static void many_waiters(big_work *b) {
    davy_job *job = NULL;
    IS(api->upscale(b->model, &b->src, &b->dst, NULL, &job), DAVY_OK);
    waiter w[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (waiter){.job = job};
        CHECK(pthread_create(&threads[i], NULL, wait_for, &w[i]) == 0);
    }
    host_sleep_ms(20);
    IS(api->job_cancel(job), DAVY_OK);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(w[i].result == DAVY_E_CANCELLED);
    }
    api->job_release(job);
}

/* More jobs than workers: all end, also those cancelled before they start. */
static void queue(big_work *b) {
    enum { JOBS = 12 };
    davy_job *jobs[JOBS] = {0};
    picture outs[JOBS];
    picture want = {0};
    IS(host_upscale(api, b->model, &b->small, NULL, &want), DAVY_OK);
    davy_job *first = NULL;
    IS(api->upscale(b->model, &b->src, &b->dst, NULL, &first), DAVY_OK);
    for (int i = 0; i < JOBS; i++) {
        outs[i] = picture_new(1, 64, 64, 3);
        davy_tensor src = host_tensor(&b->small), dst = host_tensor(&outs[i]);
        const davy_run run = {.struct_size = sizeof run, .priority = i % 3};
        IS(api->upscale(b->model, &src, &dst, &run, &jobs[i]), DAVY_OK); /* descriptors are copied */
    }
    IS(api->job_cancel(jobs[JOBS - 1]), DAVY_OK);
    IS(api->job_cancel(first), DAVY_OK);
    for (int i = 0; i < JOBS; i++) {
        const davy_result r = api->job_wait(jobs[i], UINT64_MAX);
        if (r == DAVY_OK) {
            CHECK(same(&outs[i], &want));
        } else {
            CHECKF(i == JOBS - 1 && r == DAVY_E_CANCELLED, "job %d: %s", i, api->result_name(r));
        }
        api->job_release(jobs[i]);
        picture_free(&outs[i]);
    }
    CHECK(api->job_wait(first, UINT64_MAX) == DAVY_E_CANCELLED);
    api->job_release(first);
    picture_free(&want);
}

/* A job's timeout also counts while it waits for other jobs. */
static void timeout_in_queue(big_work *b) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; once_more(i, best); i++) {
        const uint64_t limit = 10u * 1000000u;
        const davy_run run = {.struct_size = sizeof run, .timeout_ns = limit};
        picture out = picture_new(1, 64, 64, 3);
        davy_tensor src = host_tensor(&b->small), dst = host_tensor(&out);
        davy_job *first = NULL, *late = NULL;
        IS(api->upscale(b->model, &b->src, &b->dst, NULL, &first), DAVY_OK);
        const uint64_t start = host_now_ns();
        IS(api->upscale(b->model, &src, &dst, &run, &late), DAVY_OK);
        IS(api->job_wait(late, UINT64_MAX), DAVY_E_TIMEOUT);
        const uint64_t took = host_now_ns() - start;
        CHECKF(took >= limit, "timed out before its time");
        best = took - limit < best ? took - limit : best;
        IS(api->job_wait(first, 0), DAVY_PENDING);
        api->job_release(late);
        api->job_release(first);
        picture_free(&out);
    }
    within(best, "a timeout in the queue");
}

int main(void) {
    api = host_load();
    file = synth_compact(24, 4, 2, 17);
    big_work b = big_begin();
    if (b.model != NULL) {
        cancel_job(&b);
        cancel_too_late(&b);
        cancel_by_callback(&b);
        progress_rate(&b);
        timeout(&b);
        timeout_in_queue(&b);
        many_waiters(&b);
        queue(&b);
    }
    big_end(&b);
    free(file.data);
    return check_done();
}
