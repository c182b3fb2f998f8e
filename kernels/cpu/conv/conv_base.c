/* conv_base.c - the direct convolution on any processor. */
#include "kernels/cpu/simd/conv_vec_base.h"

#include "kernels/cpu/conv/conv_direct_tmpl.h"

const dvk_kernel dvk_conv2d_base = {
    .op = "conv2d",
    .variant = "cpu/base",
    .cpu = 0,
    .compute = DVK_F32,
    .cost = direct_cost,
    .units = direct_units,
    .scratch_bytes = direct_scratch_bytes,
    .run = direct_run,
    .packed_bytes = direct_packed_bytes,
    .pack_units = direct_pack_units,
    .pack = direct_pack,
};
