/* reference_kernels.h - kernels for the mock driver that call the plain references, so that GPU plans are really computed. For programs
 * linked with -Wl,--wrap=dvk_cuda_choose; call complete_kernels() first. */
#ifndef DV_TESTS_REFERENCE_KERNELS_H
#define DV_TESTS_REFERENCE_KERNELS_H

#include <stdlib.h>

#include "core/plan/plan.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

typedef struct call { /* kept for the whole test: a graph may run it again */
    const char *op;
    dvk_args args;
    dvk_convert_args store;
    struct call *next;
} call;

extern call *calls;
extern bool fills; /* true: a step takes the same time for one picture as for many; false: the time is proportional */

const dvk_kernel *reference(const char *op);
void run_reference(const char *op, const void *args);
double less(const void *args, const dvk_cuda_caps *caps);
void complete_kernels(void);

/* Begin and end of a program that runs these kernels on the mock driver. */
void reference_begin(void);

int reference_end(void);

#endif
