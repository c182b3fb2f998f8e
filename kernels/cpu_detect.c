/* cpu_detect.c - detects usable instruction sets. The processor must have them and the system must save their registers
 * (XCR0). On Linux, AMX needs one request, because its 8 KiB of tile state enlarge every signal frame. Windows needs no
 * request. The answer never changes, so concurrent first calls compute the same word without a lock. */
#if defined(__linux__)
#define _DEFAULT_SOURCE 1 /* syscall() */
#endif

#include <stdatomic.h>

#if defined(DVK_X86)
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "kernels/kernel.h"

#if defined(DVK_X86)

enum { /* bits of XCR0: registers that the system saves */
       XCR0_YMM = 0x6,
       XCR0_ZMM = 0xe6,
       XCR0_TILES = 0x60000
};

enum { /* Linux: arch_prctl request that enables a state component, and the component of tile data */
       ARCH_REQ_XCOMP_PERM = 0x1023,
       XFEATURE_TILEDATA = 18
};

static int allow_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
#elif defined(_WIN32)
    return 1;
#else
    return 0;
#endif
}

static uint32_t detect(void) {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return 0;
    }
    const unsigned fma_f16c_avx_osxsave = (1u << 12) | (1u << 29) | (1u << 28) | (1u << 27);
    if ((c & fma_f16c_avx_osxsave) != fma_f16c_avx_osxsave) {
        return 0;
    }
    const uint64_t xcr0 = (uint64_t)_xgetbv(0);
    if ((xcr0 & XCR0_YMM) != XCR0_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 5))) {
        return 0;
    }
    const unsigned leaf7_d = d;
    const unsigned avx512_f_dq_bw_vl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    if ((b & avx512_f_dq_bw_vl) != avx512_f_dq_bw_vl || (xcr0 & XCR0_ZMM) != XCR0_ZMM) {
        return DVK_CPU_AVX2;
    }
    const uint32_t with_512 = DVK_CPU_AVX2 | DVK_CPU_AVX512 | (c & (1u << 11) ? DVK_CPU_VNNI : 0);
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 5))) {
        return with_512;
    }
    const uint32_t with_bf16 = with_512 | DVK_CPU_AVX512BF16;
    const unsigned amx_bf16_tile = (1u << 22) | (1u << 24);
    if ((leaf7_d & amx_bf16_tile) != amx_bf16_tile || (xcr0 & XCR0_TILES) != XCR0_TILES || !allow_tiles()) {
        return with_bf16;
    }
    return with_bf16 | DVK_CPU_AMX;
}

#else

static uint32_t detect(void) {
    return 0;
}

#endif

uint32_t dvk_cpu_detect(void) {
    static const uint32_t known = 0x80000000u; /* marks a finished answer: 0 is a valid one */
    static _Atomic uint32_t answer;
    uint32_t word = atomic_load_explicit(&answer, memory_order_relaxed);
    if (word == 0) {
        word = detect() | known;
        atomic_store_explicit(&answer, word, memory_order_relaxed);
    }
    return word & ~known;
}
