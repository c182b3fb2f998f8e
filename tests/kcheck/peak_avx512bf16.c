/* peak_avx512bf16.c - rate of the pairwise bf16 dot product with f32 sums. */
#include <immintrin.h>

#include "tests/kcheck/kcheck.h"

enum { CHAINS = 12 };

static void steps(int64_t count, float *sink) {
    const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    __m512 sums[CHAINS];
    for (int j = 0; j < CHAINS; j++) {
        sums[j] = _mm512_set1_ps((float)j);
    }
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm512_dpbf16_ps(sums[j], factor, factor);
        }
    }
    for (int j = 0; j < CHAINS; j++) {
        _mm512_storeu_ps(sink, _mm512_add_ps(_mm512_loadu_ps(sink), sums[j]));
    }
}

const kc_peak kc_peak_avx512bf16 = {.cpu = DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_AVX512BF16,
                                    .compute = DVK_BF16,
                                    .flops = CHAINS * 16 * 4,
                                    .steps = steps};
