/* linear_wgmma_ptx.cuh - the sm_90a instructions that only "linear" uses. */
#ifndef DVK_CUDA_LINEAR_WGMMA_PTX_CUH
#define DVK_CUDA_LINEAR_WGMMA_PTX_CUH

#include "kernels/cuda/common/hopper_cluster.cuh"
#include "kernels/cuda/common/hopper_wgmma.cuh"

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

HOPPER_DEVICE float2 load_in_cluster(uint32_t at) {
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

#endif
