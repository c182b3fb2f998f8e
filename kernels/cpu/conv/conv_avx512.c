/* conv_avx512.c - the direct convolution on AVX-512. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/conv/conv_direct_tmpl.h"

const dvk_kernel dvk_conv2d_avx512 = {
    .op = "conv2d",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = direct_cost,
    .units = direct_units,
    .scratch_bytes = direct_scratch_bytes,
    .run = direct_run,
    .packed_bytes = direct_packed_bytes,
    .pack_units = direct_pack_units,
    .pack = direct_pack,
};
