/* vlm_kinds.c - see vlm_kinds.h. */
#include "tests/lib/vlm_kinds.h"

bool kind_start(fixture *f, const kind *k) {
    const bool ok = CHECK(fixture_start(f, k->qwen3));
    f->model.compute = k->compute;
    f->model.cpu &= ~k->cpu;
    return ok && CHECK_OK(fixture_load(f, k->format));
}

const kind kinds[] = {
    {.compute = DVK_F32},
    {.compute = DVK_F32, .qwen3 = true, .chunk = 7},
    {.compute = DVK_BF16, .format = DV_VLM_NARROW, .qwen3 = true},
    {.compute = DVK_BF16, .format = DV_VLM_BF16, .chunk = 5},
    {.compute = DVK_BF16, .format = DV_VLM_INT8},
    {.compute = DVK_BF16, .format = DV_VLM_INT4, .qwen3 = true},
    {.compute = DVK_F32, .format = DV_VLM_INT4},
    {.compute = DVK_BF16, .format = DV_VLM_BF16, .cpu = ~(uint32_t)DVK_CPU_AVX2},
    {.compute = DVK_BF16, .format = DV_VLM_INT8, .qwen3 = true, .cpu = ~(uint32_t)DVK_CPU_AVX2},
    {.compute = DVK_F32, .cpu = ~(uint32_t)0},
};
