// attention_kv_wgmma_ptx.cuh - wgmma of attention over a cache with the first operand in registers. sm_90a only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/common/hopper_wgmma.cuh"

namespace hopper {
#define ATTENTION_KV_PRODUCTS(T, TYPE)                                                                                 \
    /* d[64 x 64] += a[64 x 16] b[16 x 64], a in registers */                                                          \
    __device__ __forceinline__ void kv_values(T, float(&d)[32], const uint32_t *a, uint64_t b) {                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                                  \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                \
                     "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                            \
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                                     \
                     : WGMMA_D32(0)                                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }                                                                                                                  \
    /* d[64 x 80] += a[64 x 16] b[16 x 80], a in registers */                                                          \
    __device__ __forceinline__ void kv_values(T, float(&d)[40], const uint32_t *a, uint64_t b) {                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE " {"                                  \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                \
                     "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "                \
                     "%34, %35, %36, %37, %38, %39"                                                                    \
                     "}, {%40, %41, %42, %43}, %44, 1, 1, 1, 1;\n"                                                     \
                     : WGMMA_D32(0), WGMMA_D8(32)                                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }                                                                                                                  \
    /* d[64 x 96] += a[64 x 16] b[16 x 96], a in registers */                                                          \
    __device__ __forceinline__ void kv_values(T, float(&d)[48], const uint32_t *a, uint64_t b) {                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {"                                  \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                \
                     "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "                \
                     "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                            \
                     "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 1;\n"                                                     \
                     : WGMMA_D32(0), WGMMA_D8(32), WGMMA_D8(40)                                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }                                                                                                                  \
    /* d[64 x 128] += a[64 x 16] b[16 x 128], a in registers */                                                        \
    __device__ __forceinline__ void kv_values(T, float(&d)[64], const uint32_t *a, uint64_t b) {                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                \
                     "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "                \
                     "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "                \
                     "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                            \
                     "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"                                                     \
                     : WGMMA_D32(0), WGMMA_D32(32)                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }

ATTENTION_KV_PRODUCTS(__half, "f16")
ATTENTION_KV_PRODUCTS(__nv_bfloat16, "bf16")
#undef ATTENTION_KV_PRODUCTS

} // namespace hopper
