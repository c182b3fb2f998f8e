/* attention_avx2.c - "attention" on AVX2 and FMA. */
#include "kernels/cpu/conv_vec_avx2.h"

#include "kernels/cpu/attention_tmpl.h"

const dvk_kernel dvk_attention_avx2 = {
    .op = "attention",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = att_cost,
    .units = att_units,
    .scratch_bytes = att_scratch_bytes,
    .run = att_run,
};
