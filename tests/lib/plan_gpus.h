/* plan_gpus.h - plans of made-up networks for GPUs that need not be installed. DAVY_SHOW_PLANS=1 prints them. */
#ifndef DV_TESTS_PLAN_GPUS_H
#define DV_TESTS_PLAN_GPUS_H

#include <stdlib.h>
#include <string.h>

#include "core/plan/plan.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/gpus.h"

typedef struct network {
    const char *name;
    dv_tensors *tensors;
    dv_stage stage;
    int64_t h, w;
} network;

dv_plan *plan_of(const network *n, const dvk_cuda_caps *caps, dvk_dtype compute);
int64_t count_op(const dv_plan *p, const char *op);

#endif
