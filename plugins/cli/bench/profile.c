/* profile.c - prints a profile as two tables: time by kernel and time by step. */
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench/bench.h"

typedef struct row {
    const char *name;
    const char *kernel;
    double calls;
    double ms;
    double flops;
    double bytes;
    double ideal_ms; /* time at the GPU's peak of compute or bandwidth, the longer one; 0: unknown peaks */
} row;

static double number(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0.0;
}

static const char *word(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(v) ? v->valuestring : "?";
}

static int by_time(const void *a, const void *b) {
    const double x = ((const row *)a)->ms;
    const double y = ((const row *)b)->ms;
    return (x < y) - (x > y);
}

/* The share of the device's peak that a step reaches. On a GPU the peak is compute or bandwidth, whichever limits the step;
 * else it is --peak. */
static double share_of_peak(const row *r, double peak) {
    if (r->ms <= 0.0) {
        return 0.0;
    }
    return r->ideal_ms > 0.0 ? r->ideal_ms / r->ms : peak > 0.0 ? r->flops * 1e-6 / r->ms / peak : 0.0;
}

static void print_row(const row *r, const row *total, double runs, double peak) {
    const double seconds = r->ms * 1e-3;
    const double unit = total->ideal_ms > 0.0 ? 1e-12 : 1e-9;
    printf("%-42.42s %-32.32s %7.0f %9.3f %5.1f%% %9.3f %8.3f %8.1f %8.1f", r->name, r->kernel, r->calls / runs,
           r->ms / runs, total->ms > 0.0 ? 100.0 * r->ms / total->ms : 0.0, r->flops * 1e-9 / runs,
           r->bytes * 1e-9 / runs, seconds > 0.0 ? r->flops * unit / seconds : 0.0,
           seconds > 0.0 ? r->bytes * 1e-9 / seconds : 0.0);
    if (peak > 0.0 || total->ideal_ms > 0.0) {
        printf(" %5.1f%%", 100.0 * share_of_peak(r, peak));
    }
    printf("\n");
}

static void print_head(const char *title, const row *total, double peak) {
    const int gpu = total->ideal_ms > 0.0;
    printf("%-42s %-32s %7s %9s %6s %9s %8s %8s %8s%s\n", title, "kernel", "calls", "ms", "time", "GFLOP", "GB",
           gpu ? "TFLOP/s" : "GFLOP/s", "GB/s", gpu || peak > 0.0 ? "   peak" : "");
}

static void sum(row *into, const row *r) {
    into->calls += r->calls;
    into->ms += r->ms;
    into->flops += r->flops;
    into->bytes += r->bytes;
    into->ideal_ms += r->ideal_ms;
}

/* Sums the steps of each kernel into one row. Returns the number of rows. */
static size_t by_kernel(const row *steps, size_t n, row *out) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < m && strcmp(out[k].kernel, steps[i].kernel) != 0) {
            k++;
        }
        if (k == m) {
            const row fresh = {.name = "all steps of", .kernel = steps[i].kernel};
            out[m++] = fresh;
        }
        sum(&out[k], &steps[i]);
    }
    qsort(out, m, sizeof *out, by_time);
    return m;
}

static row row_of(const cJSON *item) {
    row r = {.name = word(item, "step"), .kernel = word(item, "kernel")};
    r.calls = number(item, "calls");
    r.ms = number(item, "ms");
    r.flops = number(item, "flops");
    r.bytes = number(item, "bytes");
    const double gflops = number(item, "peak_gflops");
    const double gbs = number(item, "peak_gbs");
    if (gflops > 0.0 && gbs > 0.0) {
        const double compute = r.flops * 1e-6 / gflops;
        const double memory = r.bytes * 1e-6 / gbs;
        r.ideal_ms = compute > memory ? compute : memory;
    }
    return r;
}

void bench_print_profile(const cJSON *profile, double runs, double peak) {
    const size_t n = (size_t)cJSON_GetArraySize(profile);
    row *steps = calloc(2 * n + 1, sizeof *steps);
    if (steps == NULL || n == 0) {
        free(steps);
        return;
    }
    row *kernels = steps + n;
    row total = {.name = "all", .kernel = ""};
    size_t i = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, profile) {
        const row r = row_of(item);
        steps[i++] = r;
        sum(&total, &r);
    }
    const size_t m = by_kernel(steps, n, kernels);
    print_head("by kernel, one run", &total, peak);
    for (i = 0; i < m; i++) {
        print_row(&kernels[i], &total, runs, peak);
    }
    print_head("by step, one run", &total, peak);
    for (i = 0; i < n; i++) {
        print_row(&steps[i], &total, runs, peak);
    }
    print_row(&total, &total, runs, peak);
    free(steps);
}
