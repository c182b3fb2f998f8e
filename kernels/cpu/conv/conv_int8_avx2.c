/* conv_int8_avx2.c - convolutions with products of 8-bit integers on AVX2. It multiplies pairs of 16-bit numbers,
 * because vpmaddubsw would saturate. */
#include "kernels/cpu/simd/conv_vec_avx2.h"

#include "kernels/cpu/conv/conv_int8_vec.h"

#include "kernels/cpu/conv/conv_int8_tmpl.h"

const dvk_kernel dvk_conv2d_int8_avx2 = {
    .op = "conv2d",
    .variant = "cpu/int8/avx2",
    .cpu = DVK_CPU_AVX2,
    I8_FUNCTIONS,
};
