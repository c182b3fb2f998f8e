/* rows_avx512.c - "row_norm", "row_convert" and "rope" on AVX-512. */
#include <math.h>

#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/norm/rows_tmpl.h"

const dvk_kernel dvk_row_norm_avx512 = {
    .op = "row_norm",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = norm_cost,
    .units = norm_units,
    .run = norm_run,
};

const dvk_kernel dvk_row_convert_avx512 = {
    .op = "row_convert",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = convert_cost,
    .units = convert_units,
    .run = convert_run,
};

const dvk_kernel dvk_rope_avx512 = {
    .op = "rope",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = rope_cost,
    .units = rope_units,
    .run = rope_run,
};
