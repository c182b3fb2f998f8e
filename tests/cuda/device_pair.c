/* device_pair.c - see device_pair.h. */
#include "tests/cuda/device_pair.h"

dv_gpu *gpus[DV_LANES];
int32_t n_gpus;

/* ---- the same weights twice ---- */

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

bool open_pair(pair *p, dv_tensors *a, dv_tensors *b, davy_dtype compute) {
    *p = (pair){0};
    return open_half(p, 0, a, DAVY_DTYPE_F32) && open_half(p, 1, b, compute);
}

void close_pair(pair *p) {
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

void open_gpus(void) {
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

void close_gpus(void) {
    for (int32_t i = 0; i < n_gpus; i++) {
        dv_gpu_release(gpus[i]);
    }
    dv_heap_release(gpu_heap);
}
