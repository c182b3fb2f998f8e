/* linear_avx512.c - "linear" with activations in f32 on AVX-512. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/linear/linear_tmpl.h"

const dvk_kernel dvk_linear_avx512 = {
    .op = "linear",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
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
