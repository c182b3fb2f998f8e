/* fit_run.c - kcheck --fit: runs the timings of --bench and writes cost tables into the current folder. */
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/fit.h"

int kc_fit_processor(const kc_options *options) {
    kc_fit f = {0};
    kc_options o = *options;
    o.fit = &f;
    int r = kc_bench(&o);
    for (int i = 0; r == 0 && kc_fit_sets[i] != NULL; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s.def", kc_fit_sets[i]);
        FILE *out = fopen(path, "w");
        if (out == NULL) {
            fprintf(stderr, "kcheck: cannot write %s\n", path);
            r = 2;
            break;
        }
        const int any = kc_fit_write_cpu(out, &f, kc_fit_sets[i]);
        r = fclose(out) == 0 ? 0 : 2;
        if (any) {
            printf("%s: copy it to kernels/costs\n", path);
        } else {
            remove(path);
        }
    }
    kc_fit_free(&f);
    return r;
}

int kc_fit_gpu(const kc_options *options) {
    static dvk_cost_table table;
    static kc_fitted fitted[DVK_COSTS];
    kc_fit f = {0};
    kc_options o = *options;
    o.fit = &f;
    int r = kc_cuda_bench(&o);
    if (r == 0 && f.count > 0) {
        char name[64];
        char path[80];
        kc_fit_name(name, sizeof name, f.caps.sm, f.device);
        snprintf(path, sizeof path, "%s.def", name);
        kc_fit_cuda(&f, &f.caps, &table, &fitted);
        FILE *out = fopen(path, "w");
        if (out != NULL) {
            kc_fit_write_cuda(out, name, &table, (const kc_fitted(*)[DVK_COSTS]) & fitted);
            r = fclose(out) == 0 ? 0 : 2;
            printf("%s: copy it to kernels/costs; made from %d times\n", path, f.count);
        } else {
            fprintf(stderr, "kcheck: cannot write %s\n", path);
            r = 2;
        }
    }
    kc_fit_free(&f);
    return r;
}
