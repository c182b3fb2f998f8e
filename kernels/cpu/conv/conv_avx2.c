/* conv_avx2.c - the direct convolution on AVX2. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/conv/conv_direct_tmpl.h"

const dvk_kernel dvk_conv2d_avx2 = {
    .op = "conv2d",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = direct_cost,
    .units = direct_units,
    .scratch_bytes = direct_scratch_bytes,
    .run = direct_run,
    .packed_bytes = direct_packed_bytes,
    .pack_units = direct_pack_units,
    .pack = direct_pack,
};
