/* norm_avx512.c - "group_norm_stats" on AVX-512. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/norm/norm_tmpl.h"

const dvk_kernel dvk_group_norm_stats_avx512 = {
    .op = "group_norm_stats",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = gn_cost,
    .units = gn_units,
    .scratch_bytes = gn_scratch_bytes,
    .run = gn_run,
};
