/* pointwise_avx512.c - "pointwise" on AVX-512. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/pixels/pointwise_tmpl.h"

const dvk_kernel dvk_pointwise_avx512 = {
    .op = "pointwise",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = pw_cost,
    .units = pw_units,
    .scratch_bytes = pw_scratch_bytes,
    .run = pw_run,
};
