/* conv_wgmma_rows_sm90.cu - convolutions of 3 x 3 with few output channels on the tensor cores of Hopper. A warpgroup
 * processes a strip of 64 pixels, one row of input after the other. Each row is multiplied at once with the weights of
 * all three rows of taps: d[64 pixels][3 x outputs] += x[row][64][k] * w[3 x outputs][k]^T. The sums hold three thirds
 * side by side: the contributions to the output row above, to the same row and to the one below. After each row of
 * input the first third is complete, and the others move up. The narrow products become three times as wide, and a
 * pixel of input is loaded once.
 *
 * The weights stay in shared memory. Every warpgroup has a separate ring buffer of slots, 66 pixels of 64 channels
 * each. */
#include "kernels/cuda/conv/conv_wgmma_gate.cuh"
#include "kernels/cuda/conv/conv_wgmma_row.cuh"
#include "kernels/cuda/conv/conv_wgmma_rows.cuh"
#include "kernels/cuda/conv/conv_wgmma_shuffle.cuh"

namespace {

/* The writer of a warp's rows; SHUFFLE: 16 * factor + channels, 0: none. */
template <class T, int OUTPUTS, int SHUFFLE>
CONV_DEVICE auto way_out(const dvk_conv_rows &p, const layout &at, int group) {
    const int warp = threadIdx.x / 32 & 3;
    if constexpr (SHUFFLE != 0) {
        return row_shuffler<OUTPUTS, SHUFFLE / 16, SHUFFLE % 16>{p, at.table, warp * 16};
    } else {
        return row_writer<T, OUTPUTS>{p, at.staging(p, group, warp), warp * 16, at.table};
    }
}

template <class T, int OUTPUTS, int GROUPS, int LAST, int SHUFFLE> struct multiplier {
    static __device__ __forceinline__ void run(const dvk_conv_rows &p, const layout &at, int group) {
        const auto out = way_out<T, OUTPUTS, SHUFFLE>(p, at, group);
        typename decltype(way_out<T, OUTPUTS, SHUFFLE>(p, at, group))::residual residual = {};
        consumer<T, OUTPUTS> in = {p, at, group, {}, -1};
        const int full = LAST == 4 ? p.chunks : p.chunks - 1;
        finished<OUTPUTS> done;
        done.y = -1;
        wait_for_launch_before();
        barrier_wait(at.weights(), 0);
        for (int job = blockIdx.x * GROUPS + group; job < p.jobs; job += gridDim.x * GROUPS) {
            const strip s = strip_of(p, job);
            float sum[OUTPUTS * 3 / 2];
#pragma unroll
            for (int i = 0; i < OUTPUTS * 3 / 2; i++) {
                sum[i] = 0;
            }
            wgmma_pin(sum);
#pragma unroll 1
            for (int row = 0; row < s.rows + 2; row++) {
                if (done.y >= 0) {
                    out.bring_first(done.n, done.y, done.x, residual);
                }
#pragma unroll 1
                for (int chunk = 0; chunk < full; chunk++) {
                    in.template start<4>(s, row, chunk, sum);
                    if (LAST == 4 && chunk + 1 == full && done.y >= 0) {
                        out.store(done.n, done.y, done.x, done.sum,
                                  residual); /* overlaps the products of the next row */
                    }
                    in.wait();
                }
                if (LAST != 4) {
                    in.template start<LAST>(s, row, full, sum);
                    if (done.y >= 0) {
                        out.store(done.n, done.y, done.x, done.sum, residual);
                    }
                    in.wait();
                }
                wgmma_wait<0>();
                wgmma_pin(sum);
                in.free_used();
#pragma unroll
                for (int i = 0; i < OUTPUTS / 2; i++) {
                    done.sum[i] = sum[i];
                    sum[i] = sum[OUTPUTS / 2 + i];
                    sum[OUTPUTS / 2 + i] = sum[OUTPUTS + i];
                    sum[OUTPUTS + i] = 0;
                }
                wgmma_pin(sum);
                done.n = s.n;
                done.y = row >= 2 ? s.y0 + row - 2 : -1;
                done.x = s.x0;
            }
        }
        if (done.y >= 0) {
            out.bring_first(done.n, done.y, done.x, residual);
            out.store(done.n, done.y, done.x, done.sum, residual);
        }
        if (SHUFFLE == 0 && (threadIdx.x & 31) == 0) {
            copy_out_done();
        }
    }
};

} // namespace

#define ROWS_KERNEL(name, T, OUTPUTS, GROUPS, LAST, SHUFFLE)                                                           \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)                                                \
        name(const __grid_constant__ dvk_conv_rows p) {                                                                \
        convolve<multiplier<T, OUTPUTS, GROUPS, LAST, SHUFFLE>, GROUPS>(p);                                            \
    }

/* By output channels, warpgroups, and the input channels of the last chunk in units of 16. */
#define ROWS_KERNELS(OUTPUTS, GROUPS, LAST)                                                                            \
    ROWS_KERNEL(conv_rows_bf16_##OUTPUTS##_##LAST, wgmma_bfloat, OUTPUTS, GROUPS, LAST, 0)                             \
    ROWS_KERNEL(conv_rows_f16_##OUTPUTS##_##LAST, wgmma_half, OUTPUTS, GROUPS, LAST, 0)

/* With a shuffle by R to C channels. */
#define ROWS_SHUFFLED(OUTPUTS, GROUPS, LAST, R, C)                                                                     \
    ROWS_KERNEL(conv_rows_bf16_##OUTPUTS##_##LAST##_x##R, wgmma_bfloat, OUTPUTS, GROUPS, LAST, 16 * R + C)             \
    ROWS_KERNEL(conv_rows_f16_##OUTPUTS##_##LAST##_x##R, wgmma_half, OUTPUTS, GROUPS, LAST, 16 * R + C)

/* With a 1x1 convolution of the result as gate. */
#define ROWS_GATED(name, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(GATE_GROUPS * 128 + 128, 1)                                           \
        name(const __grid_constant__ dvk_conv_rows p) {                                                                \
        convolve<gated_multiplier<T>, GATE_GROUPS>(p);                                                                 \
    }

ROWS_KERNELS(8, 5, 4)
ROWS_KERNELS(16, 5, 4)
ROWS_KERNELS(32, 3, 2)
ROWS_KERNELS(32, 3, 4)
ROWS_KERNELS(48, 3, 3)
ROWS_KERNELS(48, 3, 4)
ROWS_KERNELS(64, 2, 1)
ROWS_KERNELS(64, 2, 3)
ROWS_KERNELS(64, 2, 4)
ROWS_SHUFFLED(16, 5, 2, 2, 3)
ROWS_SHUFFLED(16, 5, 4, 2, 3)
ROWS_SHUFFLED(32, 3, 2, 3, 3)
ROWS_SHUFFLED(32, 3, 4, 3, 3)
ROWS_SHUFFLED(48, 3, 3, 4, 3)
ROWS_SHUFFLED(48, 3, 4, 4, 3)
ROWS_GATED(conv_rows_bf16_gated, wgmma_bfloat)
ROWS_GATED(conv_rows_f16_gated, wgmma_half)
