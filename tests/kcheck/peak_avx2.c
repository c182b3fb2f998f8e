/* peak_avx2.c - multiply-add rate with AVX2 + FMA: twelve independent chains, more than latency times ports. */
#include <immintrin.h>

#include "tests/kcheck/kcheck.h"

enum { CHAINS = 12 };

static void steps(int64_t count, float *sink) {
    const __m256 factor = _mm256_set1_ps(0.999f);
    const __m256 term = _mm256_set1_ps(0.5f);
    __m256 sums[CHAINS];
    for (int j = 0; j < CHAINS; j++) {
        sums[j] = _mm256_set1_ps((float)j);
    }
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm256_fmadd_ps(sums[j], factor, term);
        }
    }
    for (int j = 0; j < CHAINS; j++) {
        _mm256_storeu_ps(sink, _mm256_add_ps(_mm256_loadu_ps(sink), sums[j]));
    }
}

const kc_peak kc_peak_avx2 = {.cpu = DVK_CPU_AVX2, .compute = DVK_F32, .flops = CHAINS * 8 * 2, .steps = steps};
