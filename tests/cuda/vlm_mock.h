/* vlm_mock.h - one captioning model loaded twice: on the CPU, and on the mock driver's device. */
#ifndef DV_TESTS_VLM_MOCK_H
#define DV_TESTS_VLM_MOCK_H

#include "tests/cuda/mock_use.h"
#include "tests/lib/vlm_fixture.h"
#include "tests/cuda/vlm_kernels.h"
#include "tests/lib/hooks.h"

typedef struct pair { /* the same model on both */
    fixture cpu, gpu;
    dv_gpu *device;
} pair;

bool vlm_mock_start(pair *p, bool qwen3, dvk_dtype compute, dv_vlm_format format);
void vlm_mock_end(pair *p, const char *where);

#endif
