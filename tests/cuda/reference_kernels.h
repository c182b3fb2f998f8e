/* reference_kernels.h - kernels for the mock driver that call the plain references: what is planned for a GPU is then computed
 * after all. For programs linked with -Wl,--wrap=dvk_cuda_choose; complete_kernels() comes first. */
#ifndef DV_TESTS_REFERENCE_KERNELS_H
#define DV_TESTS_REFERENCE_KERNELS_H

#include <stdlib.h>

#include "core/plan/plan.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

typedef struct call { /* kept for the whole test: a graph may come back to it */
    const char *op;
    dvk_args args;
    dvk_convert_args store;
    struct call *next;
} call;

extern call *calls;
extern bool fills; /* a step takes as long for one picture as for many, else as many times as long */

const dvk_kernel *reference(const char *op);
void run_reference(const char *op, const void *args);
double less(const void *args, const dvk_cuda_caps *caps);
void complete_kernels(void);

/* A program on the mock driver with these kernels begins and ends so. */
void reference_begin(void);

int reference_end(void);

#endif
