/* hopper_cluster.cuh - sm_90a instructions between the blocks of a cluster. */
#ifndef DVK_CUDA_HOPPER_CLUSTER_CUH
#define DVK_CUDA_HOPPER_CLUSTER_CUH

#include "kernels/cuda/common/hopper_ptx.cuh"

HOPPER_DEVICE uint32_t cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

HOPPER_DEVICE void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Maps a shared memory address to the same address in block `rank`. */
HOPPER_DEVICE uint32_t cluster_place(uint32_t at, uint32_t rank) {
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* Arrives at the barrier at the same address in block `rank`. */
HOPPER_DEVICE void cluster_barrier_arrive(uint32_t at, uint32_t rank) {
    asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [r];\n}" ::"r"(at),
                 "r"(rank)
                 : "memory");
}

/* Multicast copy to the same address in both blocks; it arrives at the barrier of each. */
HOPPER_DEVICE void copy_in_to_both(uint32_t to, const void *map, int c, int x, int y, int n, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

#endif
