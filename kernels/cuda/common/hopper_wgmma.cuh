/* hopper_wgmma.cuh - wgmma: d[64][N] (+)= a[64][16] * b[N][16]^T, both operands in shared memory. sm_90a only. */
#ifndef DVK_CUDA_HOPPER_WGMMA_CUH
#define DVK_CUDA_HOPPER_WGMMA_CUH

#include "kernels/cuda/common/hopper_ptx.cuh"

#define WGMMA_24(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %14, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n24k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"                                                    \
                 "}, %12, %13, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D8(0), WGMMA_D4(8)                                                                            \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_32(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                \
                 "}, %16, %17, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D8(0), WGMMA_D8(8)                                                                            \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_48(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23"                                                                                       \
                 "}, %24, %25, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D8(0), WGMMA_D8(8), WGMMA_D8(16)                                                              \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_64(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "          \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                          \
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0)                                                                                        \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_96(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47"                                                              \
                 "}, %48, %49, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D8(32), WGMMA_D8(40)                                                            \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_128(TYPE)                                                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63"                                                                             \
                 "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D32(32)                                                                         \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_144(TYPE)                                                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %74, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n144k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71"                                     \
                 "}, %72, %73, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D8(64)                                                           \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_192(TYPE)                                                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "     \
                 "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"            \
                 "}, %96, %97, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64)                                                          \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_256(TYPE)                                                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                         \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "     \
                 "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "     \
                 "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "       \
                 "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"            \
                 "}, %128, %129, p, 1, 1, 0, 0;\n}"                                                                    \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)                                           \
                 : "l"(a), "l"(b), "r"(accumulate))

/* accumulate 0: d is overwritten. */
template <bool BF16, int N>
HOPPER_DEVICE void wgmma_product(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
#define WGMMA_CASE(n)                                                                                                  \
    if constexpr (N == n && BF16) {                                                                                    \
        WGMMA_##n("bf16");                                                                                             \
    } else if constexpr (N == n) {                                                                                     \
        WGMMA_##n("f16");                                                                                              \
    }
    WGMMA_CASE(24)
    WGMMA_CASE(32)
    WGMMA_CASE(48)
    WGMMA_CASE(64)
    WGMMA_CASE(96)
    WGMMA_CASE(128)
    WGMMA_CASE(144)
    WGMMA_CASE(192)
    WGMMA_CASE(256)
#undef WGMMA_CASE
}

#endif
