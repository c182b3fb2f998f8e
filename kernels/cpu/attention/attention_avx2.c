/* attention_avx2.c - "attention", "attention_kv", "window_attention" and "channel_attention" on AVX2 and FMA. */
#include <math.h>

#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/attention/attention_tmpl.h"

#include "kernels/cpu/attention/attention_kv_tmpl.h"

#include "kernels/cpu/attention/attention_window_tmpl.h"

#include "kernels/cpu/attention/attention_channel_tmpl.h"

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

const dvk_kernel dvk_window_attention_avx2 = {
    .op = "window_attention",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = win_cost,
    .units = win_units,
    .scratch_bytes = win_scratch_bytes,
    .run = win_run_units,
};

const dvk_kernel dvk_channel_attention_avx2 = {
    .op = "channel_attention",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = cha_cost,
    .units = cha_units,
    .scratch_bytes = cha_scratch_bytes,
    .run = cha_run,
};
