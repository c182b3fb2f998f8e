/* sse2.h - libobs's headers ask for SIMDe where the compiler is not Microsoft's; for x86-64 the instructions themselves do. */
#include <emmintrin.h>
