/* engine_fixture.h - an engine with fake or shipped weights and its own services, and runs of it on generated pictures. */
#ifndef DV_TESTS_ENGINE_FIXTURE_H
#define DV_TESTS_ENGINE_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "core/tiles/engine.h"
#include "core/base/error.h"
#include "core/base/os.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_networks.h"

typedef struct fixture {
    dv_services services;
    dv_engine *engine;
    float *data; /* of fake weights */
} fixture;

typedef struct fixture_spec {
    dv_tensors *tensors; /* fake: taken over. NULL: path */
    const char *path;
    int32_t threads;
    uint32_t cpu;
    uint64_t budget;
    davy_dtype compute;
} fixture_spec;

void engine_fixture_close(fixture *f);
dv_tensors *open_weights(const char *path);

/* Returns 0 after a failed check. */
int engine_fixture_open(fixture *f, const fixture_spec *spec);

/* A picture of waves: a shift or a swap of axes changes it. */
float *made_up(int64_t c, int64_t h, int64_t w);

dvk_image planes(void *data, int64_t c, int64_t h, int64_t w);

typedef struct result {
    float *data; /* [c][h][w] */
    int64_t c, h, w;
    davy_plan_info info;
} result;

typedef struct question {
    dv_stage stage;
    int64_t c, h, w;
    dv_tiling tiling;
    dv_control control;
    bool grey;
} question;

/* The network's output for a generated picture. r->data is NULL unless the result is DAVY_OK. */
davy_result ask(const fixture *f, const question *q, result *r);

int same_bits(const result *a, const result *b);

/* ||a - b|| / ||b||; huge if they cannot be compared. */
double relative(const result *a, const result *b);

/* ---- networks ---- */

#define MODEL "packaging/models/davy-live-x2.safetensors"

dv_tensors *small_kl(void);
dv_tensors *small_rrdb(int64_t in);

/* A network with a reach of 13 pixels. It is narrow, because the portable kernels are slow. */
dv_tensors *narrow(void);

#endif
