/* attention_avx512.c - "attention" and "attention_kv" on AVX-512. */
#include <math.h>

#include "kernels/cpu/conv_vec_avx512.h"

#include "kernels/cpu/attention_tmpl.h"

#include "kernels/cpu/attention_kv_tmpl.h"

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

const dvk_kernel dvk_attention_kv_avx512 = {
    .op = "attention_kv",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = akv_cost,
    .units = akv_units,
    .scratch_bytes = akv_scratch_bytes,
    .run = akv_run,
};
