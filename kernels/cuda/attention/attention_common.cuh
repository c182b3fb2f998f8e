// attention_common.cuh - shared code of the attention kernels: exponentials with lazy maxima, rows held by four
// threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace attention {

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Exponentials of scores are relative to a `frame`, an earlier maximum of their row. The frame rises only if a score
// exceeds it by a factor of 2^8. This is rare after the first steps, and only then the sums are rescaled.
__device__ __forceinline__ float raised(float frame, float top) {
    return top > frame + 8.0f ? top : frame;
}

// A row without a finite score must not turn exp(-inf - -inf) into NaN.
__device__ __forceinline__ float from(float frame) {
    return frame == -INFINITY ? 0.0f : frame;
}

__device__ __forceinline__ uint32_t pack2(__half, float lo, float hi) {
    const __half2 h = __floats2half2_rn(lo, hi);
    return *(const uint32_t *)&h;
}

__device__ __forceinline__ uint32_t pack2(__nv_bfloat16, float lo, float hi) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *(const uint32_t *)&h;
}

__device__ __forceinline__ uint32_t times(__half, uint32_t x, float f) {
    const float2 v = __half22float2(*(const __half2 *)&x);
    return pack2(__half(), v.x * f, v.y * f);
}

__device__ __forceinline__ uint32_t times(__nv_bfloat16, uint32_t x, float f) {
    return pack2(__nv_bfloat16(), __uint_as_float(x << 16) * f, __uint_as_float(x & 0xffff0000u) * f);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

} // namespace attention
