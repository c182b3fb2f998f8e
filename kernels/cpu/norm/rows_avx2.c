/* rows_avx2.c - "row_norm", "row_convert" and "rope" on AVX2. */
#include <math.h>

#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/norm/rows_tmpl.h"

const dvk_kernel dvk_row_norm_avx2 = {
    .op = "row_norm",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = norm_cost,
    .units = norm_units,
    .run = norm_run,
};

const dvk_kernel dvk_row_convert_avx2 = {
    .op = "row_convert",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = convert_cost,
    .units = convert_units,
    .run = convert_run,
};

const dvk_kernel dvk_rope_avx2 = {
    .op = "rope",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = rope_cost,
    .units = rope_units,
    .run = rope_run,
};
