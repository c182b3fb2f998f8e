/* conv_wgmma_ptx.cuh - the instructions of sm_90a that the convolutions alone use: their warpgroup products, matrices of
 * 8 x 8 between registers and shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_PTX_CUH
#define DVK_CUDA_CONV_WGMMA_PTX_CUH

#include "kernels/cuda/conv_wgmma_numbers.cuh"
#include "kernels/cuda/hopper_ptx.cuh"

/* ---- products: d[64][N] += a[64][16] * b[N][16]^T, both in shared memory ---- */

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
template <class T, int N> CONV_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
    enum { F16 = T::DTYPE == CONV_F16 };
#define WGMMA_CASE(n)                                                                                                  \
    if constexpr (N == n && F16) {                                                                                     \
        WGMMA_##n("f16");                                                                                              \
    } else if constexpr (N == n) {                                                                                     \
        WGMMA_##n("bf16");                                                                                             \
    }
    WGMMA_CASE(24)
    WGMMA_CASE(32)
    WGMMA_CASE(48)
    WGMMA_CASE(64)
    WGMMA_CASE(96)
    WGMMA_CASE(144)
    WGMMA_CASE(192)
    WGMMA_CASE(256)
#undef WGMMA_CASE
}

/* ---- four matrices of 8 x 8 between fragments and the rows of shared memory ---- */

CONV_DEVICE void matrices_store(uint32_t at, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]), "r"(m[1]),
                 "r"(m[2]), "r"(m[3])
                 : "memory");
}

CONV_DEVICE void matrices_load(uint32_t at, uint32_t (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

CONV_DEVICE void matrices_store_transposed(uint32_t at, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

CONV_DEVICE void matrices_load_transposed(uint32_t at, uint32_t (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

#endif
