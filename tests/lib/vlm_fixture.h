/* vlm_fixture.h - captioning models of a few thousand numbers, made of configurations and random tensors in memory. */
#ifndef DV_TESTS_VLM_FIXTURE_H
#define DV_TESTS_VLM_FIXTURE_H

#include <string.h>

#include "core/base/os.h"
#include "core/vlm/session.h"
#include "core/base/error.h"
#include "tests/lib/fake_weights.h"
#include "kernels/kernel.h"
#include "tests/lib/check.h"

/* Whether it held, as CHECK. */
#define CHECK_OK(result) fixture_ok(result, __FILE__, __LINE__)

bool fixture_ok(davy_result r, const char *file, int line);
void fixture_matrix(dv_tensors *t, const char *prefix, const char *name, int64_t n, int64_t k);
void fixture_biased(dv_tensors *t, const char *prefix, const char *name, int64_t n, int64_t k);
void fixture_norms(dv_tensors *t, const char *prefix, const char *const *names, int n, int64_t width);
void fixture_text(dv_tensors *t, const char *root, bool head_norms);

typedef struct fixture {
    dv_tensors *tensors;
    float *data;
    dv_heap *heap;
    dv_pool *pool;
    dv_vlm_model model;
} fixture;

davy_result fixture_config(const char *config, const char *picture, dv_vlm_config *out);

/* Tensors, heap, pool and configuration; the weights are not loaded yet. */
bool fixture_start(fixture *f, bool qwen3);

davy_result fixture_load(fixture *f, dv_vlm_format format);
void fixture_end(fixture *f);

#endif
