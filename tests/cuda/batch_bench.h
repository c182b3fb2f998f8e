/* batch_bench.h - an engine on the mock driver, with one GPU or two, that computes pictures of any layout, place and number. For tests
 * that include tests/cuda/reference_kernels.h. */
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
    bool in_device, out_device, ordered, pixels; /* pixels: four values each, three of them the picture's */
    dv_tiling tiling;
} ask_for;

/* Returns all of the output's memory, gaps included; NULL: it failed. The caller frees it. */
char *run(bench *b, const ask_for *q, uint64_t *bytes);

dv_tile_schedule schedule_of(bench *b, const ask_for *q);

/* Two networks that see the whole picture: by means, and by norms. */
dv_tensors *cugan(void);

dv_tensors *plksr(void);

#endif
