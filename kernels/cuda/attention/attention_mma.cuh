// attention_mma.cuh - building blocks of attention on mma.sync: fragments, tile loads, 16-bit conversions.
#pragma once

#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/common/elem.cuh"

namespace attention {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { ASYNC_COPIES = 0 };
#else
enum { ASYNC_COPIES = 1 };
#endif

__device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void ldmatrix4_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// d[16 x 8] = a[16 x 16] b[16 x 8] + (ADD ? d : 0)
template <bool ADD>
__device__ __forceinline__ void mma(__half, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const float c[4] = {ADD ? d[0] : 0.0f, ADD ? d[1] : 0.0f, ADD ? d[2] : 0.0f, ADD ? d[3] : 0.0f};
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

template <bool ADD>
__device__ __forceinline__ void mma(__nv_bfloat16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    const float c[4] = {ADD ? d[0] : 0.0f, ADD ? d[1] : 0.0f, ADD ? d[2] : 0.0f, ADD ? d[3] : 0.0f};
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    __trap(); // the host never selects bf16 on these devices
#endif
}

// 16 bytes of global memory to shared memory, or zeros.
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
#else
    uint4 x = make_uint4(0, 0, 0, 0);
    if (valid) {
        x = *(const uint4 *)from;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING> __device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Loads tokens first .. first + ROWS - 1, channels c0 .. c0 + COLS - 1 of a head that begins at `head`, into rows of
// PITCH elements. Zeros past `count` tokens and past `dim` channels. A thread's pieces of 8 channels are in one column.
template <int ROWS, int COLS, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void load_tile(T *to, const T *head, int pitch, int first, int count, int c0, int dim) {
    constexpr int POWER = COLS >= 512   ? 512
                          : COLS >= 256 ? 256
                          : COLS >= 128 ? 128
                          : COLS >= 64  ? 64
                          : COLS >= 32  ? 32
                                        : 16;
    constexpr int PIECES = POWER / 8, DOWN = THREADS / PIECES;
    const int row = threadIdx.x / PIECES, c = threadIdx.x % PIECES * 8;
    const int rows = c0 + c < dim ? count - first - row : 0;
    const T *from = head + (int64_t)(first + row) * pitch + c0 + c;
    const uint32_t at = shared_address(to + row * PITCH + c);
#pragma unroll
    for (int i = 0; i < ROWS; i += DOWN) {
        if (i + DOWN <= ROWS || row + i < ROWS) {
            copy16(at + i * PITCH * 2, i < rows ? from + (int64_t)i * pitch : head, i < rows);
        }
    }
    if constexpr (POWER < COLS) {
        load_tile<ROWS, COLS - POWER, PITCH, THREADS>(to + POWER, head, pitch, first, count, c0 + POWER, dim);
    }
}

} // namespace attention
