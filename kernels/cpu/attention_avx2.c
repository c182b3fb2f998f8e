/* attention_avx2.c - "attention" and "attention_kv" on AVX2 and FMA. */
#include <math.h>

#include "kernels/cpu/conv_vec_avx2.h"

#include "kernels/cpu/attention_tmpl.h"

#include "kernels/cpu/attention_kv_tmpl.h"

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

const dvk_kernel dvk_attention_kv_avx2 = {
    .op = "attention_kv",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = akv_cost,
    .units = akv_units,
    .scratch_bytes = akv_scratch_bytes,
    .run = akv_run,
};
