/* vlm_mock.c - see vlm_mock.h. */
#include "tests/cuda/vlm_mock.h"

bool vlm_mock_start(pair *p, bool qwen3, dvk_dtype compute, dv_vlm_format format) {
    *p = (pair){.device = NULL};
    dv_gpu_use_modules(mock_modules, 2);
    vlm_chooses = true;
    bool ok = CHECK(fixture_start(&p->cpu, qwen3)) && CHECK(fixture_start(&p->gpu, qwen3));
    heap = p->gpu.heap;
    p->device = open_gpu(0);
    p->cpu.model.compute = p->gpu.model.compute = compute;
    p->gpu.model.gpu = p->device;
    const dv_vlm_format on_cpu = format == DV_VLM_NARROW ? DV_VLM_AS_STORED : format;
    ok = ok && CHECK_OK(fixture_load(&p->cpu, on_cpu)) && CHECK_OK(fixture_load(&p->gpu, format));
    CHECK(dv_gpu_used(p->device, DV_MEM_WEIGHTS) > 0 && dv_heap_used(heap, DV_MEM_WORKSPACE) < (16u << 20));
    return ok;
}

void vlm_mock_end(pair *p, const char *where) {
    fixture_end(&p->cpu);
    dv_vlm_weights_release(p->gpu.model.weights);
    p->gpu.model.weights = NULL;
    CHECK(dv_gpu_used(p->device, DV_MEM_WORKSPACE) == 0 && dv_gpu_used(p->device, DV_MEM_WEIGHTS) == 0);
    close_gpu(p->device, where);
    fixture_end(&p->gpu);
    vlm_chooses = false;
    vlm_calls_free();
}
