// swin_wgmma_ptx.cuh - wgmma with the left operand in registers: d[64][N] (+)= a[64][16] * b[N][16]^T. sm_90a only.
#pragma once

#include "kernels/cuda/conv/conv_wgmma_ptx.cuh"

#define SWIN_PRODUCT_32(TYPE)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                \
                 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}"                                                        \
                 : WGMMA_D8(0), WGMMA_D8(8)                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SWIN_PRODUCT_96(TYPE)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "          \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "          \
                 "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                                    \
                 "}, {%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}"                                                        \
                 : WGMMA_D32(0), WGMMA_D8(32), WGMMA_D8(40)                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SWIN_PRODUCT_192(TYPE)                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %101, 0;\n"                                                         \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "          \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "          \
                 "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "          \
                 "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "          \
                 "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "          \
                 "%92, %93, %94, %95"                                                                                  \
                 "}, {%96, %97, %98, %99}, %100, p, 1, 1, 0;\n}"                                                       \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64)                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SWIN_PRODUCT_256(TYPE)                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"                                                         \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "          \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "          \
                 "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "          \
                 "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "          \
                 "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "          \
                 "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "            \
                 "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "          \
                 "%123, %124, %125, %126, %127"                                                                        \
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}"                                                   \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

namespace swin {

template <class T, int N>
__device__ __forceinline__ void product(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {
#define SWIN_CASE(n)                                                                                                   \
    if constexpr (N == n && T::DTYPE == CONV_BF16) {                                                                   \
        SWIN_PRODUCT_##n("bf16");                                                                                      \
    } else if constexpr (N == n) {                                                                                     \
        SWIN_PRODUCT_##n("f16");                                                                                       \
    }
    SWIN_CASE(32)
    SWIN_CASE(96)
    SWIN_CASE(192)
    SWIN_CASE(256)
#undef SWIN_CASE
    if constexpr (N == 64) {
        wgmma_64<T>(d, a, b, accumulate);
    }
}

// wgmma reads its registers until it ends. Call this after the wait, because the compiler has no knowledge of these
// reads.
template <int N> __device__ __forceinline__ void keep(uint32_t (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
    }
}

// Rows of 64 bytes with the 64-byte swizzle
__device__ __forceinline__ uint64_t narrow_operand(uint32_t at) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(512 >> 4) << 32 | 2ull << 62;
}

} // namespace swin
