/* check.c - kcheck --test: runs every problem on every kernel that supports it, against the reference of its precision. */
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/kcheck.h"

static void run_modes(const dvk_kernel *k, kc_problem *p, kc_result *result) {
    static const kc_mode modes[] = {KC_SHUFFLED, KC_TWO_THREADS, KC_PLAIN};
    kc_memory memory;
    kc_prepare(&memory, k, p);
#if defined(__SANITIZE_ADDRESS__)
    const int n_modes = 1; /* every order and every thread accesses the same memory */
#else
    const int n_modes = strcmp(k->variant, "ref") == 0 ? 1 : 3; /* the reference's own result came from KC_PLAIN */
#endif
    for (int m = 0; m < n_modes && !result->failed; m++) {
        kc_restore(p);
        kc_execute(&memory, k, p, modes[m]);
        if (!kc_untouched(p, result)) {
            break;
        }
        if (m == 0) {
            kc_compare(p, k->compute, k->variant, result);
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

static int wanted(const kc_options *o, int suite, int kernel, const kc_problem *p) {
    const dvk_kernel *k = dvk_kernels[kernel];
    return strcmp(k->op, kc_suites[suite]->op) == 0 && kc_selected(o, k) &&
           (p == NULL || k->supports == NULL || k->supports(&p->args));
}

static const char *op_of(int entry) {
    return dvk_kernels[entry]->op;
}

static const char *variant_of(int entry) {
    return dvk_kernels[entry]->variant;
}

static int entries(void) {
    return (int)dvk_kernel_count;
}

static void run_from(const kc_options *o, kc_progress *now);

static const kc_runner runner = {.run = run_from, .op = op_of, .variant = variant_of, .entries = entries};

static void refer(kc_problem *p, const dvk_kernel *ref) {
    kc_memory memory;
    kc_restore(p);
    kc_prepare(&memory, ref, p);
    kc_execute(&memory, ref, p, KC_PLAIN);
    kc_finish(&memory);
    kc_keep_reference(p);
}

/* Runs one problem on every kernel from number `first` on. */
static void run_case(const kc_options *o, kc_progress *now, int suite, int index, int first) {
    kc_problem p = {.rng = {.state = kc_case_seed(o->seed, kc_suites[suite]->number, index)}};
    kc_suites[suite]->build(&p, index);
    kc_snapshot(&p);
    now->suite = suite;
    now->index = index;
    memcpy(now->text, p.text, sizeof now->text);
    const dvk_kernel *known = NULL;
    for (int k = first; k < dvk_kernel_count; k++) {
        if (wanted(o, suite, k, &p)) {
            const dvk_kernel *ref =
                kc_reference_of(kc_suites[suite]->op, dvk_kernels[k]->compute, dvk_kernels[k]->variant);
            kc_result result = {0};
            now->entry = k; /* a crash here would be one of the reference, too */
            if (ref != known) {
                refer(&p, ref);
                known = ref;
            }
            run_modes(dvk_kernels[k], &p, &result);
            kc_note(o, &runner, now, &result);
        }
    }
    kc_release(&p);
}

static void run_from(const kc_options *o, kc_progress *now) {
    int index = now->index;
    int first = now->entry;
    for (int s = now->suite; s < kc_suite_count; s++, index = 0, first = 0) {
        int any = 0;
        for (int k = 0; k < dvk_kernel_count; k++) {
            any |= !kc_suites[s]->only_cuda && wanted(o, s, k, NULL);
        }
        for (; any && index < kc_suites[s]->count(); index++, first = 0) {
            run_case(o, now, s, index, first);
        }
    }
}

int kc_check(const kc_options *o) {
    return kc_run(o, &runner);
}
