/* fit.h - kcheck --fit: makes cost tables (kernels/costs) from measured times. */
#ifndef KCHECK_FIT_H
#define KCHECK_FIT_H

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "tests/kcheck/kcheck.h"

typedef struct kc_sample { /* a kernel's time on one problem */
    const dvk_kernel *cpu; /* one of these two */
    const dvk_cuda_kernel *cuda;
    dvk_args args; /* only cost functions read it; its pointers are not dereferenced */
    double ns;
} kc_sample;

typedef struct kc_fit {
    kc_sample *samples;
    int count, room;
    dvk_cuda_caps caps; /* of the GPU that was timed, and its name */
    char device[128];
} kc_fit;

void kc_fit_add(kc_fit *f, const kc_sample *sample);
void kc_fit_free(kc_fit *f);

/* Distance of costs from times: the median of the larger over the smaller; 1: exact. */
typedef struct kc_fitted {
    int cases; /* 0: too few, nothing was fitted */
    double before, after;
} kc_fitted;

/* Computes factors for the launch, work and memory terms of every kernel, so that costs are as near to the times as
 * possible. table: starts as the complete table of caps. fitted: for every term, the result of its kernel. */
void kc_fit_cuda(const kc_fit *f, const dvk_cuda_caps *caps, dvk_cost_table *table, kc_fitted (*fitted)[DVK_COSTS]);

/* Writes the fitted kernels as a .def file. */
void kc_fit_write_cuda(FILE *out, const char *name, const dvk_cost_table *table, const kc_fitted (*fitted)[DVK_COSTS]);

/* Name of a device's table: "sm90_H100" for "NVIDIA H100 80GB HBM3". */
void kc_fit_name(char *to, size_t bytes, int32_t sm, const char *device);

/* Writes the table of an instruction set. The terms of every measured kernel are scaled by one factor. 0: no kernel was
 * measured. */
int kc_fit_write_cpu(FILE *out, const kc_fit *f, const char *set);
extern const char *const kc_fit_sets[]; /* NULL ends them */

/* fit_run.c: --fit of the processor and of the GPU; exit status */
int kc_fit_processor(const kc_options *options);
int kc_fit_gpu(const kc_options *options);

#endif
