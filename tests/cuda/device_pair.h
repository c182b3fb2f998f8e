/* device_pair.h - the same engine on real GPUs and on the CPU. Without a GPU, tests that use it pass and do nothing. DAVY_TEST_GPUS: the
 * number of GPUs that are used. */
#ifndef DV_TESTS_DEVICE_PAIR_H
#define DV_TESTS_DEVICE_PAIR_H

#include <stdlib.h>

#include "core/cuda/gpu.h"
#include "core/tiles/pictures.h"
#include "core/base/profile.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/distance.h"

extern dv_gpu *gpus[DV_LANES];
extern int32_t n_gpus;

/* ---- the same weights twice ---- */

typedef struct pair {
    dv_services services[2]; /* for the CPU, for the GPUs */
    dv_engine *engine[2];
    float *data[2];
} pair;

bool open_pair(pair *p, dv_tensors *a, dv_tensors *b, davy_dtype compute);
void close_pair(pair *p);

/* ---- the GPUs ---- */

void open_gpus(void);
void close_gpus(void);

#endif
