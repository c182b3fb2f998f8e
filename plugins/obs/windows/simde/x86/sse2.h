/* sse2.h - stands in for SIMDe, which libobs's headers include for compilers other than Microsoft's. x86-64 has SSE2 itself. */
#include <emmintrin.h>
