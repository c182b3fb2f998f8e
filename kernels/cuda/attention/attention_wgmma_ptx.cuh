// attention_wgmma_ptx.cuh - the two wgmma shapes of attention, and stores between the blocks of a cluster. sm_90a only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/common/hopper_cluster.cuh"

namespace hopper {

// Descriptor of a tile in shared memory with the 128-byte swizzle. Depth innermost: rows of 64 elements, eight rows per
// KiB. The bits of an address above 18 hold the block's rank in the cluster.
__device__ __forceinline__ uint64_t tile_of_rows(uint32_t address) {
    return wgmma_operand(address & 0x3ffff, 1024);
}

// Depth outermost: 64 contiguous columns, the next 64 `apart` bytes further.
__device__ __forceinline__ uint64_t tile_of_columns(uint32_t address, uint32_t apart) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define ATTENTION_PRODUCTS(T, TYPE)                                                                                    \
    /* d[64 x 64] (+)= a[64 x 16] b[64 x 16]^T, both in shared memory */                                               \
    __device__ __forceinline__ void wgmma_64(T, float(&d)[32], uint64_t a, uint64_t b, int accumulate) {               \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                                  \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "      \
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                      \
                     "}, %32, %33, p, 1, 1, 0, 0;\n}\n"                                                                \
                     : WGMMA_D32(0)                                                                                    \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }                                                                                                                  \
    /* d[64 x 256] += a[64 x 16] b[16 x 256], a in registers */                                                        \
    __device__ __forceinline__ void wgmma_256(T, float(&d)[128], const uint32_t *a, uint64_t b) {                      \
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "      \
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "      \
                     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "      \
                     "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "      \
                     "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "      \
                     "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "        \
                     "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "      \
                     "%123, %124, %125, %126, %127"                                                                    \
                     "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;\n"                                                \
                     : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }

ATTENTION_PRODUCTS(__half, "f16")
ATTENTION_PRODUCTS(__nv_bfloat16, "bf16")
#undef ATTENTION_PRODUCTS

// barrier: of any block of the cluster
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Copies a box of a tensor map of {channel, token, picture}
__device__ __forceinline__ void copy_box(uint32_t to, const void *map, int channel, int token, int picture,
                                         uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4}], [%5];" ::"r"(to),
                 "l"(map), "r"(channel), "r"(token), "r"(picture), "r"(barrier)
                 : "memory");
}

// Stores to another block of the cluster and counts the bytes at its barrier.
__device__ __forceinline__ void send4(uint32_t to, const uint32_t *v, uint32_t barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void send2(uint32_t to, float a, float b, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(barrier)
                 : "memory");
}

} // namespace hopper
