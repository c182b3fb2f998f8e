/* children.c - runs cases in a child process, sums their results, prints the table. */
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

uint64_t kc_case_seed(uint64_t seed, int number, int index) {
    kc_rng rng = {.state = seed ^ ((uint64_t)number << 48) ^ (uint64_t)index};
    return kc_next(&rng);
}

static void report(const kc_options *o, const kc_runner *r, const kc_progress *now, const char *what, const char *why) {
    printf("%s %s %s case %d (%s): %s; repeat with --seed %llu\n", what, r->op(now->entry), r->variant(now->entry),
           now->index, now->text, why, (unsigned long long)o->seed);
}

void kc_note(const kc_options *o, const kc_runner *r, kc_progress *now, const kc_result *result) {
    kc_sum *s = &now->sums[now->entry];
    s->passed += !result->failed;
    s->failed += result->failed;
    s->max_abs = result->max_abs > s->max_abs ? result->max_abs : s->max_abs;
    s->l2 = result->l2 > s->l2 ? result->l2 : s->l2;
    s->non_finite += result->non_finite;
    if (result->failed) {
        report(o, r, now, "FAIL", result->why);
    } else if (o->verbose) {
        char numbers[96];
        snprintf(numbers, sizeof numbers, "max-abs %.3g, l2 %.3g, %lld not finite", result->max_abs, result->l2,
                 (long long)result->non_finite);
        report(o, r, now, "ok", numbers);
    }
}

#if defined(_WIN32)
static kc_progress *shared_progress(void) {
    return calloc(1, sizeof(kc_progress));
}

static void run_all(const kc_options *o, const kc_runner *r, kc_progress *now) {
    r->run(o, now);
    now->done = 1;
}
#else
static kc_progress *shared_progress(void) {
    void *m = mmap(NULL, sizeof(kc_progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return m == MAP_FAILED ? NULL : m;
}

static void run_child(const kc_options *o, const kc_runner *r, kc_progress *now) {
    r->run(o, now);
    now->done = 1;
    fflush(stdout);
}

static void run_all(const kc_options *o, const kc_runner *r, kc_progress *now) {
    while (!now->done) {
        fflush(stdout);
        const pid_t child = fork();
        if (child < 0) {
            run_child(o, r, now);
            return;
        }
        if (child == 0) {
            run_child(o, r, now);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!now->done && !(WIFEXITED(status) && WEXITSTATUS(status) == KC_AGAIN)) {
            char why[64];
            snprintf(why, sizeof why, WIFSIGNALED(status) ? "crashed with signal %d" : "ended with status %d",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            report(o, r, now, "FAIL", why);
            now->sums[now->entry].failed++;
            now->entry++;
        }
    }
}
#endif

int kc_run(const kc_options *o, const kc_runner *r) {
    kc_progress *now = shared_progress();
    if (now == NULL || r->entries() > KC_MAX_ENTRIES) {
        fputs("kcheck: cannot map shared memory, or there are more than KC_MAX_ENTRIES kernels\n", stderr);
        return 2;
    }
    run_all(o, r, now);
    if (now->skipped[0] != '\0') {
        printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", now->skipped);
        return 0;
    }
    printf("%-18s %-24s %8s %8s %12s %12s %12s\n", "op", "variant", "passed", "failed", "max-abs", "l2", "not finite");
    int64_t passed = 0;
    int64_t failed = 0;
    for (int k = 0; k < r->entries(); k++) {
        const kc_sum *s = &now->sums[k];
        if (s->passed + s->failed > 0) {
            printf("%-18s %-24s %8lld %8lld %12.3g %12.3g %12lld\n", r->op(k), r->variant(k), (long long)s->passed,
                   (long long)s->failed, s->max_abs, s->l2, (long long)s->non_finite);
        }
        passed += s->passed;
        failed += s->failed;
    }
    printf("seed %llu\n%lld passed, %lld failed\n", (unsigned long long)o->seed, (long long)passed, (long long)failed);
    return failed > 0 || passed == 0;
}
