/* dictionary_avx2.c - "similarity", "mix" and "refine" on AVX2. */
#define DICTIONARY_LANES 8
#include "kernels/cpu/window/dictionary_tmpl.h"

DICTIONARY(similarity, avx2, "cpu/avx2", DVK_CPU_AVX2);
DICTIONARY(mix, avx2, "cpu/avx2", DVK_CPU_AVX2);
DICTIONARY(refine, avx2, "cpu/avx2", DVK_CPU_AVX2);
