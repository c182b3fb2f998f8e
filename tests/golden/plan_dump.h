/* plan_dump.h - the two parts of plan_dump, and the machines that both make plans for. */
#ifndef DV_TESTS_PLAN_DUMP_H
#define DV_TESTS_PLAN_DUMP_H

#include "core/arch/arch.h"
#include "tests/lib/gpus.h"

/* about an RTX 4090 and an RTX 5090 */
static const dvk_cuda_caps ada = {.sm = 89,
                                  .processors = 128,
                                  .shared_bytes = 99 << 10,
                                  .l2_bytes = 72 << 20,
                                  .memory_gbs = 950,
                                  .tensor_tflops = 165,
                                  .simt_tflops = 80};
static const dvk_cuda_caps blackwell = {.sm = 120,
                                        .processors = 170,
                                        .shared_bytes = 99 << 10,
                                        .l2_bytes = 96 << 20,
                                        .memory_gbs = 1700,
                                        .tensor_tflops = 210,
                                        .simt_tflops = 100};

enum {
    AVX2 = DVK_CPU_AVX2,
    AVX512 = AVX2 | DVK_CPU_AVX512,
    WIDEST = AVX512 | DVK_CPU_AVX512BF16 | DVK_CPU_AMX | DVK_CPU_VNNI
};

typedef struct dump_model {
    const dv_tensors *tensors;
    const dv_arch *arch;
    _Alignas(16) unsigned char cfg[DV_ARCH_CONFIG_BYTES];
} dump_model;

const char *dump_stage_name(dv_stage stage);
void dump_result(davy_result r);

/* plan_dump_plans.c: the graphs of a stage, and their plans for every target. */
void dump_plans(const dump_model *m, dv_stage stage);

#endif
