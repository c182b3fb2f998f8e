/* conv_wino_avx2.c - Winograd convolution on AVX2. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#define CONV_GROUP 12 /* tiles of a group come in multiples of this */

#include "kernels/cpu/conv/conv_wino_tmpl.h"

const dvk_kernel dvk_conv2d_avx2_winograd4 = {
    .op = "conv2d",
    .variant = "cpu/avx2/winograd4",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = wino_supports,
    .cost = wino_cost,
    .units = wino_units,
    .scratch_bytes = wino_scratch_bytes,
    .run = wino_run,
    .packed_bytes = wino_packed_bytes,
    .pack_units = wino_pack_units,
    .pack = wino_pack,
};
