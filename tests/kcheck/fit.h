/* fit.h - kcheck --fit: from measured times to tables of costs (kernels/costs). */
#ifndef KCHECK_FIT_H
#define KCHECK_FIT_H

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "tests/kcheck/kcheck.h"

typedef struct kc_sample { /* a kernel's time on one problem */
    const dvk_kernel *cpu; /* one of the two */
    const dvk_cuda_kernel *cuda;
    dvk_args args; /* pointers are only looked at as cost functions do */
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

/* How far costs are from times, as the median of the larger over the smaller; 1: not at all. */
typedef struct kc_fitted {
    int cases; /* 0: too few, nothing was fitted */
    double before, after;
} kc_fitted;

/* Factors for what every kernel's launch, work and memory take, so that costs come as near to the times as they can. table:
 * begins as that of caps, complete. fitted: of every term, that of its kernel. */
void kc_fit_cuda(const kc_fit *f, const dvk_cuda_caps *caps, dvk_cost_table *table, kc_fitted (*fitted)[DVK_COSTS]);

/* As a .def file, those kernels that were fitted. */
void kc_fit_write_cuda(FILE *out, const char *name, const dvk_cost_table *table, const kc_fitted (*fitted)[DVK_COSTS]);

/* "sm90_H100" of "NVIDIA H100 80GB HBM3": the name of a device's table. */
void kc_fit_name(char *to, size_t bytes, int32_t sm, const char *device);

/* The table of an instruction set with every kernel's terms scaled by one factor, those of the kernels that were measured;
 * 0: none was. */
int kc_fit_write_cpu(FILE *out, const kc_fit *f, const char *set);
extern const char *const kc_fit_sets[]; /* NULL ends them */

/* fit_run.c: --fit of the processor and of the GPU; exit status */
int kc_fit_processor(const kc_options *options);
int kc_fit_gpu(const kc_options *options);

#endif
