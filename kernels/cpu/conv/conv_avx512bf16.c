/* conv_avx512bf16.c - direct convolution on AVX512_BF16: bf16 products, f32 sums. The templates move pairs of input
 * channels as if they were floats; only the product instruction interprets them. */
#include "kernels/cpu/simd/conv_vec_avx512.h"

#define CONV_PAIRS    1
#define CONV_PRODUCTS conv_pair_products()

#include "kernels/cpu/conv/conv_pairs.h"
#include "kernels/cpu/conv/conv_direct_tmpl.h"

const dvk_kernel dvk_conv2d_avx512bf16 = {
    .op = "conv2d",
    .variant = "cpu/avx512bf16",
    .cpu = DVK_CPU_AVX512BF16,
    .compute = DVK_BF16,
    .cost = direct_cost,
    .units = direct_units,
    .scratch_bytes = direct_scratch_bytes,
    .run = direct_run,
    .packed_bytes = direct_packed_bytes,
    .pack_units = direct_pack_units,
    .pack = direct_pack,
};
