/* conv_wgmma_gate.cuh - strips of rows of 64 channels with a gate: a 1x1 convolution of the result gates it (op.h, gate
 * 3). The packed sums of a completed row are the left operand of the gate's products. The row between the two
 * convolutions therefore stays in registers. The gate's products precede those of the next row of input, and the row is
 * stored during the latter. */
#ifndef DVK_CUDA_CONV_WGMMA_GATE_CUH
#define DVK_CUDA_CONV_WGMMA_GATE_CUH

#include "kernels/cuda/conv/conv_wgmma_row.cuh"
#include "kernels/cuda/conv/conv_wgmma_rows.cuh"

namespace {

enum { GATE_C = 64, GATE_GROUPS = 2 };

/* Called by all consumer warpgroups; these weights do not depend on the preceding launch. Rows of 128 bytes, swizzled. */
template <class T> CONV_DEVICE void bring_gate(const dvk_conv_rows &p, const layout &at) {
    for (int octet = threadIdx.x; octet < GATE_C * GATE_C / 8; octet += GATE_GROUPS * 128) {
        const float *from = p.gate_w + octet * 8;
        const int row = octet / 8;
        shared_store(at.gate + row * 128 + ((octet ^ row) & 7) * 16,
                     make_uint4(T::pack(from[0], from[1]), T::pack(from[2], from[3]), T::pack(from[4], from[5]),
                                T::pack(from[6], from[7])));
    }
    fence_async();
    named_barrier(1 + GATE_GROUPS, GATE_GROUPS * 128);
}

template <class T> struct gated_row {
    const row_writer<T, GATE_C> &out;
    uint64_t weights;
    uint32_t arrived; /* barrier of this warp's residual */
    uint32_t parity = 0;
    uint32_t stored[4][4] = {};
    float gate[GATE_C / 2];
    int n = 0, y = -1, x = 0; /* y -1: no row */

    __device__ __forceinline__ gated_row(const row_writer<T, GATE_C> &writer, const layout &at, int group, int warp)
        : out(writer), weights(wgmma_operand(at.gate, 1024)), arrived(at.residual(group, warp)) {
    }

    /* The first third of the sums is complete. */
    __device__ __forceinline__ void take(const float (&sum)[GATE_C * 3 / 2]) {
#pragma unroll
        for (int o = 0; o < GATE_C / 8; o++) {
            const float2 bias = out.vectors.bias_of(o);
            stored[o / 2][o % 2 * 2] = T::pack(sum[o * 4] + bias.x, sum[o * 4 + 1] + bias.y);
            stored[o / 2][o % 2 * 2 + 1] = T::pack(sum[o * 4 + 2] + bias.x, sum[o * 4 + 3] + bias.y);
        }
    }

    /* Also runs without a row: a branch would serialise the products. */
    __device__ __forceinline__ void start() {
        if (y >= 0 && (threadIdx.x & 31) == 0) {
            copy_out_read<0>();
            barrier_expect(arrived, 16 * GATE_C * 2);
            copy_in(out.at, &out.p.res, 0, x + out.first, y, n, arrived);
            copy_ahead(&out.p.res, 0, x + out.first, y + 1, n);
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < GATE_C / 16; k++) {
            wgmma_64<T>(gate, stored[k], weights + 2 * k, k > 0);
        }
        wgmma_commit();
    }

    /* BEHIND: number of products started since. */
    template <int BEHIND> __device__ __forceinline__ void finish() {
        wgmma_wait<BEHIND>();
        wgmma_pin(gate);
        if (y >= 0) {
            barrier_wait(arrived, parity);
            parity ^= 1;
            out.write_gated(n, y, x, stored, gate);
        }
    }
};

template <class T> struct gated_multiplier {
    static __device__ __forceinline__ void run(const dvk_conv_rows &p, const layout &at, int group) {
        const int warp = threadIdx.x / 32 & 3;
        const row_writer<T, GATE_C> out = {p, at.staging(p, group, warp), warp * 16, at.table};
        gated_row<T> done(out, at, group, warp);
        consumer<T, GATE_C> in = {p, at, group, {}, -1};
        bring_gate<T>(p, at);
        wait_for_launch_before();
        barrier_wait(at.weights(), 0);
        for (int job = blockIdx.x * GATE_GROUPS + group; job < p.jobs; job += gridDim.x * GATE_GROUPS) {
            const strip s = strip_of(p, job);
            float sum[GATE_C * 3 / 2];
#pragma unroll
            for (int i = 0; i < GATE_C * 3 / 2; i++) {
                sum[i] = 0;
            }
            wgmma_pin(sum);
#pragma unroll 1
            for (int row = 0; row < s.rows + 2; row++) {
                done.start();
                in.template start<4, 0, 3, false>(s, row, 0, sum);
                done.template finish<1>();
                in.use();
                wgmma_wait<0>();
                wgmma_pin(sum);
                in.free_used();
                done.take(sum);
#pragma unroll
                for (int i = 0; i < GATE_C / 2; i++) {
                    sum[i] = copy_of(sum[GATE_C / 2 + i]);
                    sum[GATE_C / 2 + i] = copy_of(sum[GATE_C + i]);
                    sum[GATE_C + i] = copy_of(0);
                }
                wgmma_pin(sum);
                done.n = s.n;
                done.y = row >= 2 ? s.y0 + row - 2 : -1;
                done.x = s.x0;
            }
        }
        done.start();
        done.template finish<0>();
        if ((threadIdx.x & 31) == 0) {
            copy_out_done();
        }
    }
};

} // namespace

#endif
