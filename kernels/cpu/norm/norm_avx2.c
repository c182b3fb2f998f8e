/* norm_avx2.c - "group_norm_stats" on AVX2 and FMA. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/norm/norm_tmpl.h"

const dvk_kernel dvk_group_norm_stats_avx2 = {
    .op = "group_norm_stats",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = gn_cost,
    .units = gn_units,
    .scratch_bytes = gn_scratch_bytes,
    .run = gn_run,
};
