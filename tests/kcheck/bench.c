/* bench.c - kcheck --bench: times each kernel on the shapes of real networks, on one core: a warm-up, then runs for 200
 * ms, and their median. Rates count useful work, so a Winograd kernel may exceed the peak. They are compared with the
 * measured multiply-add rate. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200112L /* clock_gettime */
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif

#include "tests/kcheck/fit.h"

enum { MAX_RUNS = 4000 };

static const kc_peak *const peaks[] = {
    &kc_peak_base,
#if defined(DVK_X86)
    &kc_peak_avx2, &kc_peak_avx512, &kc_peak_avx512bf16, &kc_peak_amx,
#endif
};

#if defined(_WIN32)
static double now_seconds(void) {
    LARGE_INTEGER ticks;
    LARGE_INTEGER per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
}
#else
static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* one thread works: other processes cost only cache */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measured(const kc_peak *peak) {
    float sink[64] = {0};
    double best = 0.0;
    for (int i = 0; i < 12; i++) {
        const int64_t steps = 400000;
        const double start = now_seconds();
        peak->steps(steps, sink);
        const double rate = (double)(steps * peak->flops) / (now_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* The best rate that a kernel of this precision could reach with the instruction sets of --cpu. */
static double peak_gflops(uint32_t cpu, dvk_dtype compute) {
    static double known[8];
    double best = 0.0;
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++) {
        if ((peaks[i]->cpu & ~cpu) == 0 && peaks[i]->compute == compute) {
            known[i] = known[i] > 0.0 ? known[i] : measured(peaks[i]);
            best = known[i] > best ? known[i] : best;
        }
    }
    return best;
}

static double median_seconds(const dvk_kernel *k, kc_problem *p) {
    static double times[MAX_RUNS];
    kc_memory memory;
    kc_prepare(&memory, k, p);
    kc_execute(&memory, k, p, KC_PLAIN);
    int runs = 0;
    const double start = now_seconds();
    double before = start;
    while (runs < MAX_RUNS && (runs < 3 || before - start < 0.2)) {
        kc_execute(&memory, k, p, KC_PLAIN);
        const double now = now_seconds();
        times[runs++] = now - before;
        before = now;
    }
    kc_finish(&memory);
    qsort(times, (size_t)runs, sizeof times[0], by_value);
    return times[runs / 2];
}

static void bench_one(const kc_options *o, FILE *csv, const dvk_kernel *k, kc_problem *p) {
    const double seconds = median_seconds(k, p);
    const double rate = (p->flops > 0.0 ? p->flops : p->bytes) / seconds * 1e-9;
    const double peak = peak_gflops(o->cpu, k->compute);
    if (o->fit != NULL) {
        kc_fit_add(o->fit, &(kc_sample){.cpu = k, .args = p->args, .ns = seconds * 1e9});
    }
    const double guess = k->cost != NULL ? k->cost(&p->args) * 1e-6 : 0.0;
    char share[32] = "";
    if (p->flops > 0.0 && peak > 0.0) {
        snprintf(share, sizeof share, "%5.1f %% of peak", 100.0 * rate / peak);
    }
    printf("%-16s %-24s %9.3f ms %8.1f %-7s %-16s cost() %9.3f  %s\n", k->op, k->variant, seconds * 1e3, rate,
           p->flops > 0.0 ? "GFLOP/s" : "GB/s", share, guess, p->text);
    fflush(stdout);
    if (csv != NULL) {
        fprintf(csv, "%s,%s,\"%s\",%.6f,%.3f,%s,%.3f\n", k->op, k->variant, p->text, seconds * 1e3, rate,
                p->flops > 0.0 ? "GFLOP/s" : "GB/s", peak);
    }
}

int kc_bench(const kc_options *o) {
    FILE *csv = NULL;
    if (o->csv != NULL) {
        csv = fopen(o->csv, "w");
        if (csv == NULL) {
            fprintf(stderr, "kcheck: cannot write %s\n", o->csv);
            return 2;
        }
        fputs("op,variant,case,median_ms,rate,unit,peak_gflops\n", csv);
    }
    printf("multiply-add peak of one core: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n", peak_gflops(o->cpu, DVK_F32),
           peak_gflops(o->cpu, DVK_BF16));
    for (int s = 0; s < kc_suite_count; s++) {
        for (int i = 0; !kc_suites[s]->only_cuda && i < kc_suites[s]->bench_count(); i++) {
            kc_problem p = {.rng = {.state = o->seed}};
            int built = 0;
            for (int k = 0; k < dvk_kernel_count; k++) {
                const dvk_kernel *kernel = dvk_kernels[k];
                const int is_ref = strcmp(kernel->variant, "ref") == 0;
                if (strcmp(kernel->op, kc_suites[s]->op) != 0 || !kc_selected(o, kernel)) {
                    continue;
                }
                if (!built) {
                    kc_suites[s]->bench_build(&p, i);
                    built = 1;
                }
                const int slow = is_ref && p.flops > 2e9; /* minutes of a slow reference are not informative */
                if (!slow && (kernel->supports == NULL || kernel->supports(&p.args))) {
                    bench_one(o, csv, kernel, &p);
                }
            }
            kc_release(&p);
        }
    }
    const int bad = csv != NULL && fclose(csv) != 0;
    return bad ? 2 : 0;
}
