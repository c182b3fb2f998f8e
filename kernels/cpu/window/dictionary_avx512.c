/* dictionary_avx512.c - "similarity", "mix" and "refine" on AVX-512. */
#define DICTIONARY_LANES 16
#include "kernels/cpu/window/dictionary_tmpl.h"

DICTIONARY(similarity, avx512, "cpu/avx512", DVK_CPU_AVX512);
DICTIONARY(mix, avx512, "cpu/avx512", DVK_CPU_AVX512);
DICTIONARY(refine, avx512, "cpu/avx512", DVK_CPU_AVX512);
