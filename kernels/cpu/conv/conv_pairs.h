/* conv_pairs.h - turns the f32 templates into bf16 ones for AVX512_BF16. A slot of four bytes holds channels 2i and 2i
 * + 1 of one pixel; one instruction multiplies and adds both. Compiled with the AVX512_BF16 flags only. */
#ifndef DVK_CONV_PAIRS_H
#define DVK_CONV_PAIRS_H

#include <cpuid.h>

#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/simd/conv_vec_avx512.h"

static inline __m512bh conv_as_pairs(conv_vec v) {
    __m512bh b;
    memcpy(&b, &v, sizeof b);
    return b;
}

#define CONV_MK_FMA(b, w, s) _mm512_dpbf16_ps(s, conv_as_pairs(b), conv_as_pairs(w))

/* Products per ns of one core: AMD (Zen 4 and 5) multiplies bf16 at twice the rate of f32, Intel at half of it. */
static inline double conv_pair_products(void) {
    unsigned top = 0, b = 0, c = 0, d = 0;
    const int amd = __get_cpuid(0, &top, &b, &c, &d) && c == 0x444d4163u; /* "cAMD" */
    return amd ? CPU_COST(conv2d, products_amd) : CPU_COST(conv2d, products_intel);
}

#endif
