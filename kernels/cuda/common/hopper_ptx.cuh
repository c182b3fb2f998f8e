/* hopper_ptx.cuh - sm_90a instructions that several kernels share: wgmma ordering, mbarriers, bulk copies, dependent
 * launches. */
#ifndef DVK_CUDA_HOPPER_PTX_CUH
#define DVK_CUDA_HOPPER_PTX_CUH

#include <stdint.h>

#define HOPPER_DEVICE static __device__ __forceinline__

/* ---- products ---- */

/* Accumulators as operands of an asm statement: d[i] and the following ones. */
#define WGMMA_D4(i)  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WGMMA_D8(i)  WGMMA_D4(i), WGMMA_D4((i) + 4)
#define WGMMA_D32(i) WGMMA_D8(i), WGMMA_D8((i) + 8), WGMMA_D8((i) + 16), WGMMA_D8((i) + 24)

HOPPER_DEVICE void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

HOPPER_DEVICE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> HOPPER_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Prevents the compiler from moving reads of accumulators above the wait; otherwise it serialises all wgmma
 * instructions. */
template <int N> HOPPER_DEVICE void wgmma_pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

/* Descriptor of an operand with rows of 128 bytes and the 128-byte swizzle. Groups of eight rows are `group` bytes
 * apart. at: below 2^18. */
HOPPER_DEVICE uint64_t wgmma_operand(uint32_t at, uint32_t group) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(group >> 4) << 32 | 1ull << 62;
}

template <int N> HOPPER_DEVICE void set_registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> HOPPER_DEVICE void set_registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- barriers ---- */

HOPPER_DEVICE void barrier_init(uint32_t at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals));
}

HOPPER_DEVICE void barrier_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

HOPPER_DEVICE void barrier_expect(uint32_t at, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

HOPPER_DEVICE bool barrier_passed(uint32_t at, uint32_t parity) {
    uint32_t ok;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok)
                 : "r"(at), "r"(parity)
                 : "memory");
    return ok;
}

HOPPER_DEVICE void barrier_wait(uint32_t at, uint32_t parity) {
    uint32_t ok;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ok)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!ok);
}

HOPPER_DEVICE void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Makes ordinary writes to shared memory visible to bulk copies and wgmma. */
HOPPER_DEVICE void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- bulk copies ---- */

HOPPER_DEVICE void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Prefetches into the L2 cache. bytes: a multiple of 16 */
HOPPER_DEVICE void copy_bulk_ahead(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

HOPPER_DEVICE void copy_in(uint32_t to, const void *map, int c, int x, int y, int n, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier)
                 : "memory");
}

HOPPER_DEVICE void copy_ahead(const void *map, int c, int x, int y, int n) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(c), "r"(x),
                 "r"(y), "r"(n)
                 : "memory");
}

HOPPER_DEVICE void copy_out(const void *map, int c, int x, int y, int n, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(c), "r"(x), "r"(y), "r"(n), "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most N bulk stores still read shared memory. */
template <int N> HOPPER_DEVICE void copy_out_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

HOPPER_DEVICE void copy_out_done() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

HOPPER_DEVICE void map_prefetch(const void *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- dependent launches ---- */

HOPPER_DEVICE void wait_for_launch_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

HOPPER_DEVICE void let_next_launch_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

#endif
