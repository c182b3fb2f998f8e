/* check.c - kcheck --test. All cases run in a child process that keeps its place and its counts in shared memory, so
 * that a crash is one failed case: the parent reports it and starts another child behind it. Where there is no fork, a
 * crash ends the program. */
#if !defined(_WIN32)
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "tests/kcheck/kcheck.h"

enum { MAX_KERNELS = 128 };

typedef struct kernel_sum {
    int64_t passed, failed;
    double max_abs, l2;
    int64_t non_finite;
} kernel_sum;

typedef struct progress {     /* shared between parent and child */
    int suite, index, kernel; /* the case that runs now */
    int done;
    char text[160];
    kernel_sum sums[MAX_KERNELS];
} progress;

static uint64_t case_seed(uint64_t seed, int suite, int index) {
    kc_rng rng = {.state = seed ^ ((uint64_t)suite << 48) ^ (uint64_t)index};
    return kc_next(&rng);
}

static void report(const kc_options *o, const progress *now, const char *what, const char *why) {
    const dvk_kernel *k = dvk_kernels[now->kernel];
    printf("%s %s %s case %d (%s): %s; repeat with --seed %llu\n", what, k->op, k->variant, now->index, now->text, why,
           (unsigned long long)o->seed);
}

static void run_modes(const dvk_kernel *k, kc_problem *p, kc_result *result) {
    static const kc_mode modes[] = {KC_SHUFFLED, KC_TWO_THREADS, KC_PLAIN};
    kc_memory memory;
    kc_prepare(&memory, k, p);
    const int n_modes = strcmp(k->variant, "ref") == 0 ? 1 : 3; /* the reference's own result came from KC_PLAIN */
    for (int m = 0; m < n_modes && !result->failed; m++) {
        kc_restore(p);
        kc_execute(&memory, k, p, modes[m]);
        if (!kc_untouched(p, result)) {
            break;
        }
        if (m == 0) {
            kc_compare(p, k, result);
        }
        for (int i = 0; i < p->n_outputs; i++) {
            kc_buffer *b = p->outputs[i].buffer;
            if (m == 0) {
                memcpy(b->after_run, b->start, b->bytes);
            } else if (memcmp(b->after_run, b->start, b->bytes) != 0) {
                result->failed = 1;
                snprintf(result->why, sizeof result->why, "the result depends on the order of units or on the thread");
            }
        }
    }
    kc_finish(&memory);
}

static void note(const kc_options *o, progress *now, const kc_result *r) {
    kernel_sum *s = &now->sums[now->kernel];
    s->passed += !r->failed;
    s->failed += r->failed;
    s->max_abs = r->max_abs > s->max_abs ? r->max_abs : s->max_abs;
    s->l2 = r->l2 > s->l2 ? r->l2 : s->l2;
    s->non_finite += r->non_finite;
    if (r->failed) {
        report(o, now, "FAIL", r->why);
    } else if (o->verbose) {
        char numbers[96];
        snprintf(numbers, sizeof numbers, "max-abs %.3g, l2 %.3g, %lld not finite", r->max_abs, r->l2,
                 (long long)r->non_finite);
        report(o, now, "ok", numbers);
    }
}

static int wanted(const kc_options *o, int suite, int kernel, const kc_problem *p) {
    const dvk_kernel *k = dvk_kernels[kernel];
    return strcmp(k->op, kc_suites[suite]->op) == 0 && kc_selected(o, k) &&
           (p == NULL || k->supports == NULL || k->supports(&p->args));
}

/* One problem on every variant from kernel number `first` on. */
static void run_case(const kc_options *o, progress *now, int suite, int index, int first) {
    kc_problem p = {.rng = {.state = case_seed(o->seed, suite, index)}};
    kc_suites[suite]->build(&p, index);
    kc_snapshot(&p);
    now->suite = suite;
    now->index = index;
    memcpy(now->text, p.text, sizeof now->text);
    const dvk_kernel *ref = dvk_find(kc_suites[suite]->op, "ref");
    now->kernel = first;
    for (int i = 0; i < dvk_kernel_count; i++) {
        now->kernel = dvk_kernels[i] == ref && first == 0 ? i : now->kernel; /* whose crash it would be */
    }
    kc_memory memory;
    kc_prepare(&memory, ref, &p);
    kc_execute(&memory, ref, &p, KC_PLAIN);
    kc_finish(&memory);
    kc_keep_reference(&p);
    for (int k = first; k < dvk_kernel_count; k++) {
        if (wanted(o, suite, k, &p)) {
            kc_result result = {0};
            now->kernel = k;
            run_modes(dvk_kernels[k], &p, &result);
            note(o, now, &result);
        }
    }
    kc_release(&p);
}

static void run_from(const kc_options *o, progress *now) {
    int index = now->index;
    int first = now->kernel;
    for (int s = now->suite; s < kc_suite_count; s++, index = 0, first = 0) {
        int any = 0;
        for (int k = 0; k < dvk_kernel_count; k++) {
            any |= wanted(o, s, k, NULL);
        }
        for (; any && index < kc_suites[s]->count(); index++, first = 0) {
            run_case(o, now, s, index, first);
        }
    }
    now->done = 1;
    fflush(stdout);
}

#if defined(_WIN32)
static progress *shared_progress(void) {
    return calloc(1, sizeof(progress));
}

static void run_all(const kc_options *o, progress *now) {
    run_from(o, now);
}
#else
static progress *shared_progress(void) {
    void *m = mmap(NULL, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return m == MAP_FAILED ? NULL : m;
}

static void run_all(const kc_options *o, progress *now) {
    while (!now->done) {
        fflush(stdout);
        const pid_t child = fork();
        if (child < 0) {
            run_from(o, now);
            return;
        }
        if (child == 0) {
            run_from(o, now);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!now->done) {
            char why[64];
            snprintf(why, sizeof why, WIFSIGNALED(status) ? "crashed with signal %d" : "ended with status %d",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            report(o, now, "FAIL", why);
            now->sums[now->kernel].failed++;
            now->kernel++;
        }
    }
}
#endif

int kc_check(const kc_options *o) {
    progress *now = shared_progress();
    if (now == NULL || dvk_kernel_count > MAX_KERNELS) {
        fputs("kcheck: no shared memory, or more kernels than it has room for\n", stderr);
        return 2;
    }
    run_all(o, now);
    printf("%-18s %-24s %8s %8s %12s %12s %12s\n", "op", "variant", "passed", "failed", "max-abs", "l2", "not finite");
    int64_t passed = 0;
    int64_t failed = 0;
    for (int k = 0; k < dvk_kernel_count; k++) {
        const kernel_sum *s = &now->sums[k];
        if (s->passed + s->failed > 0) {
            printf("%-18s %-24s %8lld %8lld %12.3g %12.3g %12lld\n", dvk_kernels[k]->op, dvk_kernels[k]->variant,
                   (long long)s->passed, (long long)s->failed, s->max_abs, s->l2, (long long)s->non_finite);
        }
        passed += s->passed;
        failed += s->failed;
    }
    printf("seed %llu\n%lld passed, %lld failed\n", (unsigned long long)o->seed, (long long)passed, (long long)failed);
    return failed > 0 || passed == 0;
}
