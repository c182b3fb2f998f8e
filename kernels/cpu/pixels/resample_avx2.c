/* resample_avx2.c - "upsample", "pixel_shuffle", "pixel_unshuffle" and "pad" on AVX2 and FMA. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/pixels/resample_tmpl.h"

const dvk_kernel dvk_upsample_avx2 = {
    .op = "upsample",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = rs_same_type,
    .cost = rs_cost,
    .units = up_units,
    .run = up_run,
};

const dvk_kernel dvk_pixel_shuffle_avx2 = {
    .op = "pixel_shuffle",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = rs_cost,
    .units = ps_units,
    .scratch_bytes = ps_scratch_bytes,
    .run = ps_run,
};

const dvk_kernel dvk_pixel_unshuffle_avx2 = {
    .op = "pixel_unshuffle",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = rs_same_type,
    .cost = rs_cost,
    .units = pu_units,
    .run = pu_run,
};

const dvk_kernel dvk_pad_avx2 = {
    .op = "pad",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .supports = pad_same_type,
    .cost = pad_cost,
    .units = pad_units,
    .run = pad_run,
};
