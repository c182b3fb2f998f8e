/* exec.c - runs a kernel on a problem in every way that a runner may: units one by one in any order, ranges of them on
 * two threads with separate scratch, all at once. Scratch starts as NaN patterns, so that reads of uninitialised
 * scratch are detected. */
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
#else
#include <pthread.h>
#endif

#include "tests/kcheck/kcheck.h"

typedef struct half {
    const dvk_kernel *kernel;
    const void *args;
    void *scratch;
    int64_t first, last;
} half;

#if defined(_WIN32)
static DWORD WINAPI run_half(LPVOID p) {
    const half *h = p;
    h->kernel->run(h->args, h->first, h->last, h->scratch);
    return 0;
}

static int beside(half *other, half *own) {
    HANDLE t = CreateThread(NULL, 0, run_half, other, 0, NULL);
    run_half(own);
    if (t == NULL) {
        return 0;
    }
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
    return 1;
}
#else
static void *run_half(void *p) {
    const half *h = p;
    h->kernel->run(h->args, h->first, h->last, h->scratch);
    return NULL;
}

static int beside(half *other, half *own) {
    pthread_t t;
    const int started = pthread_create(&t, NULL, run_half, other) == 0;
    run_half(own);
    if (started) {
        pthread_join(t, NULL);
    }
    return started;
}
#endif

enum { MAX_WORKERS = 16 };

typedef struct span {
    void (*run)(void *ctx, int64_t first, int64_t last);
    void *ctx;
    int64_t first, last;
} span;

#if defined(_WIN32)
void kc_wide(int64_t count, void (*run)(void *ctx, int64_t first, int64_t last), void *ctx) {
    run(ctx, 0, count);
}
#else
static void *run_span(void *p) {
    const span *s = p;
    s->run(s->ctx, s->first, s->last);
    return NULL;
}

void kc_wide(int64_t count, void (*run)(void *ctx, int64_t first, int64_t last), void *ctx) {
    const int workers = count < 2 * MAX_WORKERS ? 1 : MAX_WORKERS;
    pthread_t threads[MAX_WORKERS];
    span spans[MAX_WORKERS];
    int started = 0;
    for (int i = 0; i < workers; i++) {
        spans[i] = (span){.run = run, .ctx = ctx, .first = count * i / workers, .last = count * (i + 1) / workers};
    }
    while (started < workers - 1 && pthread_create(&threads[started], NULL, run_span, &spans[started]) == 0) {
        started++;
    }
    for (int i = started; i < workers; i++) {
        run_span(&spans[i]);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
}
#endif

static void *aligned_block(kc_problem *guard, size_t bytes) {
    unsigned char *data = NULL;
    kc_buffer *b = kc_alloc(guard, (bytes + 63) / 64 * 64, &data);
    memset(b->start, 0xff, b->bytes);
    return (void *)(data - (uintptr_t)data % 64); /* not exact if there are no guard pages */
}

static void in_random_order(kc_rng *rng, int64_t count, void (*f)(void *ctx, int64_t i), void *ctx) {
    int64_t *order = malloc((size_t)count * sizeof *order);
    if (order == NULL) {
        exit(2);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = kc_below(rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int64_t i = 0; i < count; i++) {
        f(ctx, order[i]);
    }
    free(order);
}

typedef struct step {
    const dvk_kernel *kernel;
    const kc_problem *problem;
    void *memory;
} step;

static void pack_one(void *ctx, int64_t i) {
    const step *s = ctx;
    s->kernel->pack(&s->problem->args, s->problem->w_source, s->memory, i, i + 1);
}

static void run_one(void *ctx, int64_t i) {
    const step *s = ctx;
    s->kernel->run(&s->problem->args, i, i + 1, s->memory);
}

void kc_prepare(kc_memory *m, const dvk_kernel *k, kc_problem *p) {
    *m = (kc_memory){.guard.rng = p->rng};
    if (p->w_slot != NULL) {
        *p->w_slot = p->w_source;
        if (k->pack != NULL) {
            m->packed = aligned_block(&m->guard, k->packed_bytes(&p->args));
            step s = {.kernel = k, .problem = p, .memory = m->packed};
            in_random_order(&m->guard.rng, k->pack_units(&p->args), pack_one, &s);
            *p->w_slot = m->packed;
        }
    }
    const size_t bytes = k->scratch_bytes != NULL ? k->scratch_bytes(&p->args) : 0;
    for (int i = 0; i < 2 && bytes > 0; i++) {
        m->scratch[i] = aligned_block(&m->guard, bytes);
    }
}

void kc_execute(const kc_memory *m, const dvk_kernel *k, kc_problem *p, kc_mode mode) {
    const int64_t units = k->units(&p->args);
    if (mode == KC_SHUFFLED) {
        kc_rng rng = p->rng;
        step s = {.kernel = k, .problem = p, .memory = m->scratch[0]};
        in_random_order(&rng, units, run_one, &s);
    } else if (mode == KC_TWO_THREADS) {
        half a = {.kernel = k, .args = &p->args, .scratch = m->scratch[0], .first = 0, .last = units / 2};
        half b = {.kernel = k, .args = &p->args, .scratch = m->scratch[1], .first = units / 2, .last = units};
        if (!beside(&a, &b)) {
            run_half(&a);
        }
    } else {
        k->run(&p->args, 0, units, m->scratch[0]);
    }
}

static void run_range(void *ctx, int64_t first, int64_t last) {
    const step *s = ctx;
    const dvk_kernel *k = s->kernel;
    const size_t bytes = k->scratch_bytes != NULL ? k->scratch_bytes(&s->problem->args) : 0;
    void *scratch = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && scratch == NULL) {
        exit(2);
    }
    k->run(&s->problem->args, first, last, scratch);
    free(scratch);
}

const dvk_kernel *kc_reference_of(const char *op, dvk_dtype compute, const char *variant) {
    return dvk_find(op, compute == DVK_INT8 && strcmp(variant, "ref/int8") != 0 ? "ref/int8" : "ref");
}

void kc_reference(kc_problem *p, const dvk_kernel *ref) {
    step s = {.kernel = ref, .problem = p};
    kc_memory memory;
    kc_restore(p);
    kc_prepare(&memory, s.kernel, p);
    kc_wide(s.kernel->units(&p->args), run_range, &s);
    kc_finish(&memory);
    kc_keep_reference(p);
    kc_restore(p);
}

void kc_finish(kc_memory *m) {
    kc_release(&m->guard);
}
