/* hopper_cluster.cuh - instructions of sm_90a between the two blocks of a cluster. */
#ifndef DVK_CUDA_HOPPER_CLUSTER_CUH
#define DVK_CUDA_HOPPER_CLUSTER_CUH

#include "kernels/cuda/hopper_ptx.cuh"

HOPPER_DEVICE uint32_t cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

HOPPER_DEVICE void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* At the barrier in the same place of block `rank`. */
HOPPER_DEVICE void cluster_barrier_arrive(uint32_t at, uint32_t rank) {
    asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [r];\n}" ::"r"(at),
                 "r"(rank)
                 : "memory");
}

/* Into the same place of both blocks, whose barriers hear of it. */
HOPPER_DEVICE void copy_bulk_to_both(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

#endif
