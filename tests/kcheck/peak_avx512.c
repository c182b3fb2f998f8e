/* peak_avx512.c - multiply-add rate with AVX-512: twelve independent chains, more than latency times ports. */
#include <immintrin.h>

#include "tests/kcheck/kcheck.h"

enum { CHAINS = 12 };

static void steps(int64_t count, float *sink) {
    const __m512 factor = _mm512_set1_ps(0.999f);
    const __m512 term = _mm512_set1_ps(0.5f);
    __m512 sums[CHAINS];
    for (int j = 0; j < CHAINS; j++) {
        sums[j] = _mm512_set1_ps((float)j);
    }
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm512_fmadd_ps(sums[j], factor, term);
        }
    }
    for (int j = 0; j < CHAINS; j++) {
        _mm512_storeu_ps(sink, _mm512_add_ps(_mm512_loadu_ps(sink), sums[j]));
    }
}

const kc_peak kc_peak_avx512 = {
    .cpu = DVK_CPU_AVX2 | DVK_CPU_AVX512, .compute = DVK_F32, .flops = CHAINS * 16 * 2, .steps = steps};
