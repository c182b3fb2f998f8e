/* pointwise_avx2.c - "pointwise" on AVX2 and FMA. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/pixels/pointwise_tmpl.h"

const dvk_kernel dvk_pointwise_avx2 = {
    .op = "pointwise",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = pw_cost,
    .units = pw_units,
    .scratch_bytes = pw_scratch_bytes,
    .run = pw_run,
};
