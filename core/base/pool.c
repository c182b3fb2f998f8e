/* pool.c - worker threads that share the units of a loop.
 *
 * A `running` loop is on the stack of the thread that runs it. It is in the pool's list until its caller has taken the
 * last unit; workers find it there and attach. An atomic counter hands out the units in pieces. A thread doubles its piece
 * while pieces are quick, so that cheap units have little overhead. It halves a slow piece, so that the caller can call
 * tick() every few milliseconds. A worker without work spins for some microseconds, because the steps of a run follow each
 * other closely. Then it sleeps. */
#include "core/base/pool.h"

#include <stdatomic.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#define CPU_RELAX() _mm_pause()
#else
#define CPU_RELAX() ((void)0)
#endif

#define SPIN_NS        20000ull   /* longer than the gap between two steps, too short to be noticed */
#define PIECE_SHORT_NS 200000ull  /* a piece quicker than this is doubled */
#define PIECE_LONG_NS  2000000ull /* one slower than this is halved */
#define TICK_NS        5000000ull /* between two ticks while the caller waits for the last workers */

typedef struct running {
    const dv_loop *loop;
    _Atomic int64_t next; /* first unit that no thread has taken */
    _Atomic int64_t done;
    _Atomic int32_t stop;
    _Atomic int32_t attached; /* workers inside; changed under the lock only */
    struct running *link;
} running;

typedef struct worker {
    dv_pool *pool;
    dv_thread *thread;
    int32_t index;
} worker;

struct dv_pool {
    dv_mutex *lock;
    dv_cond *work;     /* a loop was added, or quit */
    dv_cond *finished; /* a loop's last worker detached */
    running *first;
    _Atomic uint64_t generation; /* of the list; a spinning worker polls it */
    int32_t sleepers;
    int32_t waiters;
    int32_t n_threads;
    int32_t n_started;
    bool quit;
    worker *workers;
};

/* Takes the loop's next piece, runs it and adapts *piece to its time. false: no units left, or the loop was stopped. */
static bool work_piece(const dv_pool *pool, running *r, int32_t index, int64_t *piece) {
    if (atomic_load_explicit(&r->stop, memory_order_relaxed) != 0) {
        return false;
    }
    const int64_t units = r->loop->units;
    const int64_t left = units - atomic_load_explicit(&r->next, memory_order_relaxed);
    if (left <= 0) {
        return false;
    }
    const int64_t take = dv_max(1, dv_min(*piece, left / (2 * (int64_t)pool->n_threads)));
    const int64_t first = atomic_fetch_add_explicit(&r->next, take, memory_order_relaxed);
    if (first >= units) {
        return false;
    }
    const int64_t last = dv_min(first + take, units);
    const uint64_t t0 = dv_now_ns();
    r->loop->run(r->loop->user, first, last, index);
    const uint64_t dt = dv_now_ns() - t0;
    if (dt < PIECE_SHORT_NS && take == *piece) {
        *piece = *piece * 2;
    } else if (dt > PIECE_LONG_NS && *piece > 1) {
        *piece = *piece / 2;
    }
    atomic_fetch_add_explicit(&r->done, last - first, memory_order_release);
    return true;
}

static bool has_work(const running *r) {
    return atomic_load_explicit(&r->stop, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&r->next, memory_order_relaxed) < r->loop->units;
}

/* Under the lock. Returns the loop with the fewest workers, so that two callers both get some. */
static running *find_work(const dv_pool *pool) {
    running *best = NULL;
    for (running *r = pool->first; r != NULL; r = r->link) {
        if (has_work(r) && (best == NULL || atomic_load(&r->attached) < atomic_load(&best->attached))) {
            best = r;
        }
    }
    return best;
}

/* Spins without the lock until the list changes, or for SPIN_NS. */
static void spin(const dv_pool *pool, uint64_t seen) {
    const uint64_t t0 = dv_now_ns();
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) {
                return;
            }
            CPU_RELAX();
        }
    } while (dv_now_ns() - t0 < SPIN_NS);
}

/* One worker's share of r. The lock is held before and after, but not during the work. */
static void attend(worker *w, running *r) {
    dv_pool *pool = w->pool;
    atomic_fetch_add(&r->attached, 1);
    dv_mutex_unlock(pool->lock);
    int64_t piece = 1;
    while (work_piece(pool, r, w->index, &piece)) {
    }
    dv_mutex_lock(pool->lock);
    /* After the subtraction r may no longer exist: its caller reads `attached` without the lock. */
    if (atomic_fetch_sub_explicit(&r->attached, 1, memory_order_acq_rel) == 1 && pool->waiters > 0) {
        dv_cond_broadcast(pool->finished);
    }
}

static void worker_main(void *arg) {
    worker *w = arg;
    dv_pool *pool = w->pool;
    dv_fp_flush_denormals();
    bool spun = false;
    dv_mutex_lock(pool->lock);
    while (!pool->quit) {
        running *r = find_work(pool);
        if (r != NULL) {
            attend(w, r);
            spun = false;
        } else if (!spun) {
            const uint64_t seen = atomic_load(&pool->generation);
            dv_mutex_unlock(pool->lock);
            spin(pool, seen);
            dv_mutex_lock(pool->lock);
            spun = true;
        } else {
            pool->sleepers++;
            dv_cond_wait(pool->work, pool->lock, UINT64_MAX);
            pool->sleepers--;
        }
    }
    dv_mutex_unlock(pool->lock);
}

void dv_pool_release(dv_pool *pool) {
    if (pool == NULL) {
        return;
    }
    if (pool->n_started > 0) {
        dv_mutex_lock(pool->lock);
        pool->quit = true;
        atomic_fetch_add(&pool->generation, 1);
        dv_cond_broadcast(pool->work);
        dv_mutex_unlock(pool->lock);
    }
    for (int32_t i = 0; i < pool->n_started; i++) {
        dv_thread_join(pool->workers[i].thread);
    }
    dv_free(pool->workers);
    dv_cond_release(pool->finished);
    dv_cond_release(pool->work);
    dv_mutex_release(pool->lock);
    dv_free(pool);
}

davy_result dv_pool_create(int32_t n_threads, dv_pool **out) {
    if (n_threads < 1 || n_threads > 1024) {
        return dv_fail(DAVY_E_INVALID, "n_threads: %d, expected 1 to 1024", (int)n_threads);
    }
    dv_pool *pool = dv_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "thread pool: out of memory");
    }
    pool->n_threads = n_threads;
    pool->lock = dv_mutex_create();
    pool->work = dv_cond_create();
    pool->finished = dv_cond_create();
    pool->workers = dv_calloc((uint64_t)n_threads, sizeof *pool->workers);
    const bool made = pool->lock != NULL && pool->work != NULL && pool->finished != NULL && pool->workers != NULL;
    davy_result r = made ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "thread pool: out of memory");
    for (int32_t i = 0; r == DAVY_OK && i < n_threads - 1; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i + 1;
        r = dv_thread_start(worker_main, w, "davy-worker", &w->thread);
        pool->n_started += r == DAVY_OK;
    }
    if (r < 0) {
        dv_pool_release(pool);
        return r;
    }
    *out = pool;
    return DAVY_OK;
}

int32_t dv_pool_threads(const dv_pool *pool) {
    return pool->n_threads;
}

static void publish(dv_pool *pool, running *r) {
    dv_mutex_lock(pool->lock);
    r->link = pool->first;
    pool->first = r;
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    const bool wake = pool->sleepers > 0;
    dv_mutex_unlock(pool->lock);
    if (wake) {
        dv_cond_broadcast(pool->work);
    }
}

/* No worker can attach after this. */
static void withdraw(dv_pool *pool, running *r) {
    dv_mutex_lock(pool->lock);
    running **at = &pool->first;
    while (*at != r) {
        at = &(*at)->link;
    }
    *at = r->link;
    dv_mutex_unlock(pool->lock);
}

/* The host's code behind tick() runs in the host's floating-point mode. */
static void call_tick(running *r, uint32_t host_fp, int32_t *answer) {
    if (r->loop->tick == NULL || *answer != 0) {
        return;
    }
    dv_fp_restore(host_fp);
    *answer = r->loop->tick(r->loop->user, atomic_load_explicit(&r->done, memory_order_acquire));
    dv_fp_flush_denormals();
    if (*answer != 0) {
        atomic_store_explicit(&r->stop, 1, memory_order_relaxed);
    }
}

static void wait_for_workers(dv_pool *pool, running *r, uint32_t host_fp, int32_t *answer) {
    const uint64_t t0 = dv_now_ns();
    while (atomic_load_explicit(&r->attached, memory_order_acquire) > 0) {
        if (dv_now_ns() - t0 < SPIN_NS) {
            CPU_RELAX();
            continue;
        }
        dv_mutex_lock(pool->lock);
        if (atomic_load(&r->attached) > 0) {
            pool->waiters++;
            dv_cond_wait(pool->finished, pool->lock, TICK_NS);
            pool->waiters--;
        }
        dv_mutex_unlock(pool->lock);
        call_tick(r, host_fp, answer);
    }
}

int32_t dv_pool_run(dv_pool *pool, const dv_loop *loop) {
    if (loop->units <= 0) {
        return 0;
    }
    running r = {.loop = loop};
    const bool shared = pool->n_started > 0 && loop->units > 1;
    const uint32_t host_fp = dv_fp_flush_denormals();
    int32_t answer = 0;
    if (shared) {
        publish(pool, &r);
    }
    int64_t piece = 1;
    while (work_piece(pool, &r, 0, &piece)) {
        call_tick(&r, host_fp, &answer);
    }
    if (shared) {
        withdraw(pool, &r);
        wait_for_workers(pool, &r, host_fp, &answer);
    }
    dv_fp_restore(host_fp);
    return answer;
}
