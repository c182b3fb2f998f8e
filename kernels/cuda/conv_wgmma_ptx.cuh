/* conv_wgmma_ptx.cuh - the instructions of sm_90a that the convolutions use: warpgroup products, bulk copies, barriers in
 * shared memory, matrices of 8 x 8 between registers and shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_PTX_CUH
#define DVK_CUDA_CONV_WGMMA_PTX_CUH

#include "kernels/cuda/conv_wgmma_numbers.cuh"

/* ---- products: d[64][N] += a[64][16] * b[N][16]^T, both in shared memory ---- */

#define WGMMA_D4(i)  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WGMMA_D8(i)  WGMMA_D4(i), WGMMA_D4((i) + 4)
#define WGMMA_D32(i) WGMMA_D8(i), WGMMA_D8((i) + 8), WGMMA_D8((i) + 16), WGMMA_D8((i) + 24)

#define WGMMA_24(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %14, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n24k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"                                                    \
                 "}, %12, %13, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D8(0), WGMMA_D4(8)                                                                            \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_48(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23"                                                                                       \
                 "}, %24, %25, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D8(0), WGMMA_D8(8), WGMMA_D8(16)                                                              \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_96(TYPE)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {"                                      \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47"                                                              \
                 "}, %48, %49, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D8(32), WGMMA_D8(40)                                                            \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_144(TYPE)                                                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %74, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n144k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71"                                     \
                 "}, %72, %73, p, 1, 1, 0, 0;\n}"                                                                      \
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D8(64)                                                           \
                 : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_192(TYPE)                                                                                                \
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

#define WGMMA_256(TYPE)                                                                                                \
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

/* accumulate 0: d is overwritten. */
template <class T, int N> CONV_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
    enum { F16 = T::DTYPE == CONV_F16 };
#define WGMMA_CASE(n)                                                                                                  \
    if constexpr (N == n && F16) {                                                                                     \
        WGMMA_##n("f16");                                                                                              \
    } else if constexpr (N == n) {                                                                                     \
        WGMMA_##n("bf16");                                                                                             \
    }
    WGMMA_CASE(24)
    WGMMA_CASE(48)
    WGMMA_CASE(96)
    WGMMA_CASE(144)
    WGMMA_CASE(192)
    WGMMA_CASE(256)
#undef WGMMA_CASE
}

CONV_DEVICE void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

CONV_DEVICE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> CONV_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Without it the compiler may move reads of sums above the wait, and then it serialises all products. */
template <int N> CONV_DEVICE void wgmma_pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

/* Rows of 128 bytes, exchanged by the 128-byte swizzle; groups of eight rows `group` bytes apart. */
CONV_DEVICE uint64_t wgmma_operand(uint32_t at, uint32_t group) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(group >> 4) << 32 | 1ull << 62;
}

template <int N> CONV_DEVICE void set_registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> CONV_DEVICE void set_registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- barriers ---- */

CONV_DEVICE void barrier_init(uint32_t at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals));
}

CONV_DEVICE void barrier_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

CONV_DEVICE void barrier_expect(uint32_t at, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

CONV_DEVICE bool barrier_passed(uint32_t at, uint32_t parity) {
    uint32_t ok;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok)
                 : "r"(at), "r"(parity)
                 : "memory");
    return ok;
}

CONV_DEVICE void barrier_wait(uint32_t at, uint32_t parity) {
    uint32_t ok;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ok)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!ok);
}

CONV_DEVICE void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Ordinary writes to shared memory become visible to copies and products. */
CONV_DEVICE void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- bulk copies ---- */

CONV_DEVICE void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

CONV_DEVICE void copy_in(uint32_t to, const void *map, int c, int x, int y, int n, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier)
                 : "memory");
}

CONV_DEVICE void copy_out(const void *map, int c, int x, int y, int n, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(c), "r"(x), "r"(y), "r"(n), "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N copies out still read shared memory. */
template <int N> CONV_DEVICE void copy_out_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

CONV_DEVICE void copy_out_done() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

CONV_DEVICE void map_prefetch(const void *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- launches one behind the other ---- */

CONV_DEVICE void wait_for_launch_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

CONV_DEVICE void let_next_launch_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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
