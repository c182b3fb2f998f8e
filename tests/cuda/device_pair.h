/* device_pair.h - an engine on real GPUs and the same on the CPU, for tests that pass without doing anything where there is
 * no GPU. DAVY_TEST_GPUS: how many are used. */
#ifndef DV_TESTS_DEVICE_PAIR_H
#define DV_TESTS_DEVICE_PAIR_H

#include <stdlib.h>

#include "core/cuda/gpu.h"
#include "core/tiles/pictures.h"
#include "core/base/profile.h"
#include "tests/unit/tiles/engine_fixture.h"

static dv_gpu *gpus[DV_LANES];
static int32_t n_gpus;

/* ---- the same weights twice ---- */

typedef struct pair {
    dv_services services[2]; /* of the CPU, of the GPUs */
    dv_engine *engine[2];
    float *data[2];
} pair;

static bool open_half(pair *p, int k, dv_tensors *t, davy_dtype compute) {
    dv_services *s = &p->services[k];
    s->cpu = dvk_cpu_detect();
    s->heap = dv_heap_create(NULL, 0);
    s->profile = dv_profile_create();
    if (k == 1) {
        s->gpus = gpus;
        s->n_gpus = n_gpus;
    }
    const dv_engine_desc desc = {.services = s, .tensors = t, .file_name = "pair", .compute = compute};
    return CHECK(fake_fill(t, &p->data[k])) && CHECK(dv_pool_create(4, &s->pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &p->engine[k]) == DAVY_OK, "engine: %s", last_error());
}

static bool open_pair(pair *p, dv_tensors *a, dv_tensors *b, davy_dtype compute) {
    *p = (pair){0};
    return open_half(p, 0, a, DAVY_DTYPE_F32) && open_half(p, 1, b, compute);
}

static void close_pair(pair *p) {
    for (int k = 0; k < 2; k++) {
        dv_engine_release(p->engine[k]);
        dv_pool_release(p->services[k].pool);
        dv_profile_release(p->services[k].profile);
        CHECK(dv_heap_used(p->services[k].heap, DV_MEM_WEIGHTS) == 0);
        CHECK(dv_heap_used(p->services[k].heap, DV_MEM_WORKSPACE) == 0);
        dv_heap_release(p->services[k].heap);
        free(p->data[k]);
    }
    for (int32_t i = 0; i < n_gpus; i++) {
        CHECK(dv_gpu_used(gpus[i], DV_MEM_WEIGHTS) == 0 && dv_gpu_used(gpus[i], DV_MEM_WORKSPACE) == 0);
    }
}

/* ---- the GPUs ---- */

static dv_heap *gpu_heap;

static void open_gpus(void) {
    static dv_log log;
    const int32_t have = dv_gpu_count(NULL, NULL, 0);
    const char *limit = getenv("DAVY_TEST_GPUS");
    const int32_t wanted = limit != NULL ? atoi(limit) : 1;
    gpu_heap = dv_heap_create(NULL, 0);
    for (int32_t i = 0; i < have && n_gpus < wanted; i++) {
        const dv_gpu_desc desc = {.index = i, .log = &log, .heap = gpu_heap};
        n_gpus += dv_gpu_open(&desc, &gpus[n_gpus]) == DAVY_OK;
    }
    if (n_gpus == 0) {
        printf("no GPU: nothing to test\n");
    }
}

static void close_gpus(void) {
    for (int32_t i = 0; i < n_gpus; i++) {
        dv_gpu_release(gpus[i]);
    }
    dv_heap_release(gpu_heap);
}

static double difference(const float *a, const float *b, int64_t n) {
    double d = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(d / norm);
}

#endif
