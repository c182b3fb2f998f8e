/* gate_avx512.c - "depthwise", "multiply", "mean" and "resize" on AVX-512. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/pixels/gate_tmpl.h"

const dvk_kernel dvk_depthwise_avx512 = {
    .op = "depthwise",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .supports = dw_supports,
    .cost = dw_cost,
    .units = dw_units,
    .scratch_bytes = dw_scratch_bytes,
    .run = dw_run,
};

const dvk_kernel dvk_multiply_avx512 = {
    .op = "multiply",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = mu_cost,
    .units = mu_units,
    .scratch_bytes = mu_scratch_bytes,
    .run = mu_run,
};

const dvk_kernel dvk_mean_avx512 = {
    .op = "mean",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = me_cost,
    .units = me_units,
    .run = me_run,
};

const dvk_kernel dvk_resize_avx512 = {
    .op = "resize",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = rz_cost,
    .units = rz_units,
    .scratch_bytes = rz_scratch_bytes,
    .run = rz_run,
};
