/* attention_avx512.c - "attention" on AVX-512. */
#include "kernels/cpu/conv_vec_avx512.h"

#include "kernels/cpu/attention_tmpl.h"

const dvk_kernel dvk_attention_avx512 = {
    .op = "attention",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = att_cost,
    .units = att_units,
    .scratch_bytes = att_scratch_bytes,
    .run = att_run,
};
