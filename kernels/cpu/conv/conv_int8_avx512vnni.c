/* conv_int8_avx512vnni.c - convolutions with products of 8-bit integers on AVX-512 with VNNI. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#include "kernels/cpu/conv/conv_int8_vec.h"

#include "kernels/cpu/conv/conv_int8_tmpl.h"

const dvk_kernel dvk_conv2d_int8_avx512vnni = {
    .op = "conv2d",
    .variant = "cpu/int8/avx512vnni",
    .cpu = DVK_CPU_AVX512 | DVK_CPU_VNNI,
    I8_FUNCTIONS,
};
