/* linear_avx512vnni.c - "linear" of integer weights and activations on AVX-512 with VNNI. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/linear/linear_out_tmpl.h"

enum { LIN_INT_ROWS = 6 }; /* 12 integer sums and 12 floats in 32 registers */

#include "kernels/cpu/linear/linear_int_tmpl.h"

const dvk_kernel dvk_linear_avx512vnni = {
    .op = "linear",
    .variant = "cpu/avx512vnni",
    .cpu = DVK_CPU_AVX512 | DVK_CPU_VNNI,
    .compute = DVK_F32,
    .supports = lin_supports_q8,
    .cost = lin_cost_q8,
    .units = lin_units,
    .run = lin_run_q8,
    .packed_bytes = lin_packed_bytes,
    .pack_units = lin_pack_units,
    .pack = lin_pack,
};
