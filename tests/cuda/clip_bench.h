/* clip_bench.h - an engine with a small VAE for clips, on the mock driver or on the CPU. */
#ifndef DV_TESTS_CLIP_BENCH_H
#define DV_TESTS_CLIP_BENCH_H

#include "tests/cuda/reference_kernels.h"
#include "tests/lib/fake_clips.h"

typedef struct bench {
    dv_services services;
    dv_gpu *gpu;
    dv_engine *engine;
    float *data;
    dv_log log;
} bench;

bool bench_open(bench *b, davy_dtype compute, bool gpu, uint64_t budget);
void bench_close(bench *b, const char *where);

#endif
