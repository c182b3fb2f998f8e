/* linear_wgmma_ptx.cuh - the instructions of sm_90a that "linear" alone uses. */
#ifndef DVK_CUDA_LINEAR_WGMMA_PTX_CUH
#define DVK_CUDA_LINEAR_WGMMA_PTX_CUH

#include "kernels/cuda/hopper_ptx.cuh"

/* ---- products: d[64][N] (+)= a[64][16] * b[N][16]^T, both in shared memory; accumulate 0: d is overwritten ---- */

#define LINEAR_WGMMA_128(TYPE)                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63"                                                                             \
                 "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D32(32)                                                                         \
                 : "l"(a), "l"(b), "r"(accumulate))

#define LINEAR_WGMMA_192(TYPE)                                                                                         \
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

#define LINEAR_WGMMA_256(TYPE)                                                                                         \
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

template <bool BF16, int N> HOPPER_DEVICE void linear_wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
#define LINEAR_CASE(n)                                                                                                 \
    if constexpr (N == n && BF16) {                                                                                    \
        LINEAR_WGMMA_##n("bf16");                                                                                      \
    } else if constexpr (N == n) {                                                                                     \
        LINEAR_WGMMA_##n("f16");                                                                                       \
    }
    LINEAR_CASE(128)
    LINEAR_CASE(192)
    LINEAR_CASE(256)
#undef LINEAR_CASE
}

/* ---- copies of boxes of a matrix ---- */

HOPPER_DEVICE void matrix_in(uint32_t to, const void *map, int column, int row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

HOPPER_DEVICE void matrix_out(const void *map, int column, int row, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(column), "r"(row), "r"(from)
                 : "memory");
}

HOPPER_DEVICE void matrix_out_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* ---- clusters ---- */

HOPPER_DEVICE uint32_t rank_in_cluster() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

HOPPER_DEVICE void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same place in another block. */
HOPPER_DEVICE uint32_t in_block(uint32_t at, uint32_t rank) {
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

HOPPER_DEVICE float2 load_in_cluster(uint32_t at) {
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

#endif
