/* linear_avx2.c - "linear" on AVX2. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/linear/linear_tmpl.h"

enum { LIN_INT_ROWS = 2 }; /* 4 integer sums, 4 floats, 6 registers for factors */

#include "kernels/cpu/linear/linear_int_tmpl.h"

const dvk_kernel dvk_linear_avx2 = {
    .op = "linear",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = lin_supports_f32,
    .cost = lin_cost_f32,
    .units = lin_units,
    .scratch_bytes = lin_scratch_f32,
    .run = lin_run_f32,
    .packed_bytes = lin_packed_bytes,
    .pack_units = lin_pack_units,
    .pack = lin_pack,
};

const dvk_kernel dvk_linear_avx2_q8 = {
    .op = "linear",
    .variant = "cpu/avx2/q8",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = lin_supports_q8,
    .cost = lin_cost_q8,
    .units = lin_units,
    .run = lin_run_q8,
    .packed_bytes = lin_packed_bytes,
    .pack_units = lin_pack_units,
    .pack = lin_pack,
};
