/* batch_bench.h - an engine on the mock driver, on one GPU or two, that is asked for pictures of any kind, place and number.
 * For tests that include tests/cuda/reference_kernels.h. */
#ifndef DV_TESTS_BATCH_BENCH_H
#define DV_TESTS_BATCH_BENCH_H

#include <stdlib.h>

#include "core/tiles/pictures.h"
#include "tests/cuda/reference_kernels.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_convnets.h"

typedef struct bench {
    dv_services services;
    dv_gpu *gpus[2];
    dv_engine *engine;
    float *data;
    dv_log log;
} bench;

bool bench_open(bench *b, dv_tensors *t, int32_t n_gpus);
void bench_close(bench *b, const char *where);

typedef struct ask_for {
    dv_stage stage;
    int64_t c, n, h, w;
    bool in_device, out_device, ordered, pixels; /* pixels: of four values, of which three are the picture's */
    dv_tiling tiling;
} ask_for;

/* The whole of the output's memory, what is not of a picture included; NULL: it failed. To be freed. */
char *run(bench *b, const ask_for *q, uint64_t *bytes);

dv_tile_schedule schedule_of(bench *b, const ask_for *q);

/* Two networks that see all of a picture: through means, and through norms. */
dv_tensors *cugan(void);

dv_tensors *plksr(void);

#endif
