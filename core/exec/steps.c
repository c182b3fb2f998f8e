/* steps.c - all threads walk through a list of steps; `open` is the step whose units they take now. */
#include "core/exec/steps.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#define CPU_RELAX() _mm_pause()
#else
#define CPU_RELAX() ((void)0)
#endif

enum {
    PIECES = 4,   /* per thread and step: enough to balance threads of different speed */
    SPINS = 4000, /* reads of `open` before the thread yields: about 50 us */
    SCRATCH_ALIGN = 64
};

typedef struct counters { /* of one step, alone in its cache lines */
    _Atomic int64_t next;
    char apart[120];
    _Atomic int64_t done;
    char behind[120];
} counters;

struct dv_steps {
    dv_pool *pool;
    dv_parallel_step *steps;
    int64_t *units;
    counters *counts;
    void *scratch; /* [threads][scratch_bytes] */
    int64_t scratch_bytes;
    int64_t n;
    int32_t threads;
    _Atomic int64_t open;
};

void dv_steps_release(dv_steps *s) {
    if (s != NULL) {
        dv_aligned_free(s->scratch);
        dv_aligned_free(s->counts);
        dv_free(s->units);
        dv_free(s->steps);
        dv_free(s);
    }
}

davy_result dv_steps_create(dv_pool *pool, const dv_parallel_step *steps, int64_t n, dv_steps **out) {
    dv_steps *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "steps: out of memory");
    }
    s->pool = pool;
    s->n = n;
    s->threads = dv_pool_threads(pool);
    s->steps = dv_calloc((uint64_t)dv_max(1, n), sizeof *s->steps);
    s->units = dv_calloc((uint64_t)dv_max(1, n), sizeof *s->units);
    s->counts = dv_aligned_alloc((uint64_t)dv_max(1, n) * sizeof *s->counts, SCRATCH_ALIGN);
    if (s->steps == NULL || s->units == NULL || s->counts == NULL) {
        dv_steps_release(s);
        return dv_fail(DAVY_E_NOMEM_HOST, "steps: out of memory");
    }
    memcpy(s->steps, steps, (size_t)n * sizeof *steps);
    *out = s;
    return DAVY_OK;
}

static void *scratch_of(const dv_steps *s, int32_t worker) {
    return s->scratch_bytes > 0 ? (char *)s->scratch + worker * s->scratch_bytes : NULL;
}

/* Runs the steps from `at` on that are done alone, then opens the next one. */
static int64_t advance(dv_steps *s, int64_t at, int32_t worker) {
    while (at < s->n && (s->steps[at].alone || s->units[at] == 0)) {
        const dv_parallel_step *step = &s->steps[at];
        if (s->units[at] > 0) {
            step->kernel->run(step->args, 0, s->units[at], scratch_of(s, worker));
        }
        at++;
    }
    atomic_store_explicit(&s->open, at, memory_order_release);
    return at;
}

static int64_t wait_behind(dv_steps *s, int64_t at) {
    int spins = 0;
    int64_t now = atomic_load_explicit(&s->open, memory_order_acquire);
    while (now == at) {
        if (++spins > SPINS) {
            dv_thread_yield();
        } else {
            CPU_RELAX();
        }
        now = atomic_load_explicit(&s->open, memory_order_acquire);
    }
    return now;
}

/* One thread walks through all steps. */
static void walk(void *user, int64_t first, int64_t last, int32_t worker) {
    dv_steps *s = user;
    (void)first;
    (void)last;
    int64_t at = atomic_load_explicit(&s->open, memory_order_acquire);
    while (at < s->n) {
        const dv_parallel_step *step = &s->steps[at];
        counters *c = &s->counts[at];
        const int64_t units = s->units[at];
        const int64_t piece = dv_max(1, units / (PIECES * (int64_t)s->threads));
        const int64_t from = atomic_fetch_add_explicit(&c->next, piece, memory_order_relaxed);
        if (from >= units) {
            at = wait_behind(s, at);
            continue;
        }
        const int64_t to = dv_min(from + piece, units);
        step->kernel->run(step->args, from, to, scratch_of(s, worker));
        if (atomic_fetch_add_explicit(&c->done, to - from, memory_order_acq_rel) + to - from == units) {
            at = advance(s, at + 1, worker);
        }
    }
}

/* Counts units and scratch again, because the arguments may have changed in size. */
static davy_result prepare(dv_steps *s) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const dv_parallel_step *step = &s->steps[i];
        s->units[i] = step->kernel->units(step->args);
        atomic_store_explicit(&s->counts[i].next, 0, memory_order_relaxed);
        atomic_store_explicit(&s->counts[i].done, 0, memory_order_relaxed);
        if (step->kernel->scratch_bytes != NULL) {
            bytes = dv_max(bytes, (int64_t)step->kernel->scratch_bytes(step->args));
        }
    }
    if (bytes > s->scratch_bytes) {
        bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
        dv_aligned_free(s->scratch);
        s->scratch_bytes = 0;
        s->scratch = dv_aligned_alloc((uint64_t)(bytes * s->threads), SCRATCH_ALIGN);
        if (s->scratch == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "steps: out of memory");
        }
        s->scratch_bytes = bytes;
    }
    return DAVY_OK;
}

davy_result dv_steps_run(dv_steps *s) {
    const davy_result r = prepare(s);
    if (r != DAVY_OK) {
        return r;
    }
    const uint32_t host_fp = dv_fp_flush_denormals();
    advance(s, 0, 0);
    const dv_loop loop = {.units = s->threads, .run = walk, .user = s};
    dv_pool_run(s->pool, &loop);
    dv_fp_restore(host_fp);
    return DAVY_OK;
}
