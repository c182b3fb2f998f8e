/* clip_bench.c - see clip_bench.h. */
#include "tests/cuda/clip_bench.h"

bool bench_open(bench *b, davy_dtype compute, bool gpu, uint64_t budget) {
    *b = (bench){0};
    dv_tensors *t = fake_seedvr2();
    const dv_gpu_desc of_gpu = {.budget_bytes = budget, .heap = heap, .log = &b->log};
    if (gpu && !CHECKF(dv_gpu_open(&of_gpu, &b->gpu) == DAVY_OK, "%s", last_error())) {
        return false;
    }
    b->services = (dv_services){.heap = heap, .log = &b->log, .gpus = &b->gpu, .n_gpus = gpu};
    const dv_engine_desc desc = {.services = &b->services, .tensors = t, .file_name = "mock", .compute = compute};
    return CHECK(fake_fill(t, &b->data)) && CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

void bench_close(bench *b, const char *where) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    if (b->gpu != NULL) {
        close_gpu(b->gpu, where);
    }
    free(b->data);
}
