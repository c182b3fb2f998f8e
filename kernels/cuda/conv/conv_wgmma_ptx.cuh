/* conv_wgmma_ptx.cuh - the sm_90a instructions that only the convolutions use: 8 x 8 matrices between registers and
 * shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_PTX_CUH
#define DVK_CUDA_CONV_WGMMA_PTX_CUH

#include "kernels/cuda/conv/conv_wgmma_numbers.cuh"
#include "kernels/cuda/common/hopper_wgmma.cuh"

/* accumulate 0: d is overwritten. */
template <class T, int N> CONV_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
    wgmma_product<T::DTYPE != CONV_F16, N>(d, a, b, accumulate);
}

/* d[64][64] (+)= a[64][16] * b[64][16]^T with a in registers, in the order of packed fragments of a sum. */
#define WGMMA_64_REGISTERS(TYPE)                                                                                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "          \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                          \
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"                                                        \
                 : WGMMA_D32(0)                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

template <class T> CONV_DEVICE void wgmma_64(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int accumulate) {
    if constexpr (T::DTYPE == CONV_F16) {
        WGMMA_64_REGISTERS("f16");
    } else {
        WGMMA_64_REGISTERS("bf16");
    }
}

/* ---- four 8 x 8 matrices between fragments and rows of shared memory ---- */

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
