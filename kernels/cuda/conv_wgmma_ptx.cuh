/* conv_wgmma_ptx.cuh - the instructions of sm_90a that the convolutions alone use: matrices of 8 x 8 between registers and
 * shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_PTX_CUH
#define DVK_CUDA_CONV_WGMMA_PTX_CUH

#include "kernels/cuda/conv_wgmma_numbers.cuh"
#include "kernels/cuda/hopper_wgmma.cuh"

/* accumulate 0: d is overwritten. */
template <class T, int N> CONV_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
    wgmma_product<T::DTYPE != CONV_F16, N>(d, a, b, accumulate);
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
