/* vlm_kinds.h - the models of the fixture as processors and precisions make them differ. */
#ifndef DV_TESTS_VLM_KINDS_H
#define DV_TESTS_VLM_KINDS_H

#include "tests/lib/vlm_fixture.h"

typedef struct kind {
    bool qwen3;
    dv_vlm_format format;
    dvk_dtype compute;
    uint32_t cpu; /* instruction sets it may not use */
    int64_t chunk;
} kind;

bool kind_start(fixture *f, const kind *k);

extern const kind kinds[10];

#endif
