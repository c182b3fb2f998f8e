/* conv_wgmma_edges_sm90.cu - conv_wgmma_rows for strips of a few rows, which small pictures have on many
 * multiprocessors. The first two and the last two rows of input are multiplied only with the rows of taps that
 * contribute to the strip's output. It supports only the needs of dense blocks: 32 output channels and a slope. */
#include "kernels/cuda/conv/conv_wgmma_row.cuh"
#include "kernels/cuda/conv/conv_wgmma_rows.cuh"

namespace {

enum { OUTPUTS = 32, GROUPS = 3 };

template <class T, int LAST> struct strip_worker {
    const dvk_conv_rows &p;
    consumer<T, OUTPUTS> in;
    const row_writer<T, OUTPUTS, true> out;
    finished<OUTPUTS> done;
    float sum[OUTPUTS * 3 / 2];

    __device__ __forceinline__ void store() const {
        if (done.y >= 0) {
            out.template write<DVK_WGMMA_SLOPE, 0>(done.n, done.y, done.x, done.sum, {});
        }
    }

    /* Multiplies a row of input with COUNT rows of taps, and stores the previously completed row meanwhile. */
    template <int FROM, int COUNT> __device__ __forceinline__ void take(const strip &s, int row) {
        const int full = LAST == 4 ? p.chunks : p.chunks - 1;
#pragma unroll 1
        for (int chunk = 0; chunk < full; chunk++) {
            in.template start<4, FROM, COUNT, false>(s, row, chunk, sum);
            if (LAST == 4 && chunk + 1 == full) {
                store();
            }
            in.wait();
        }
        if (LAST != 4) {
            in.template start<LAST, FROM, COUNT, false>(s, row, full, sum);
            store();
            in.wait();
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        in.free_used();
    }

    __device__ __forceinline__ void move_up(const strip &s, int row) {
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) {
            done.sum[i] = copy_of(sum[i]);
            sum[i] = copy_of(sum[OUTPUTS / 2 + i]);
            sum[OUTPUTS / 2 + i] = copy_of(sum[OUTPUTS + i]);
            sum[OUTPUTS + i] = copy_of(0);
        }
        wgmma_pin(sum);
        done.n = s.n;
        done.y = s.line(row, s.rows);
        done.x = s.x0;
    }

    /* The sums begin with the strip's first row of output and run until it is complete. */
    __device__ __forceinline__ void go_down(const strip &s) {
#pragma unroll
        for (int i = 0; i < OUTPUTS * 3 / 2; i++) {
            sum[i] = 0;
        }
        wgmma_pin(sum);
        take<2, 1>(s, 0);
        done.y = -1;
        take<1, 2>(s, 1);
#pragma unroll 1
        for (int row = 2; row < s.rows; row++) {
            take<0, 3>(s, row);
            move_up(s, row - 2);
        }
        if (s.rows > 1) {
            take<0, 2>(s, s.rows);
            move_up(s, s.rows - 2);
        }
        take<0, 1>(s, s.rows + 1);
        move_up(s, s.rows - 1);
    }
};

template <class T, int LAST> struct multiplier {
    static __device__ __forceinline__ void run(const dvk_conv_rows &p, const layout &at, int group) {
        const int warp = threadIdx.x / 32 & 3;
        strip_worker<T, LAST> w = {p, {p, at, group, {}, -1}, {p, at.staging(p, group, warp), warp * 16, at.table}};
        w.done.y = -1;
        wait_for_launch_before();
        barrier_wait(at.weights(), 0);
        for (int job = blockIdx.x * GROUPS + group; job < p.jobs; job += gridDim.x * GROUPS) {
            w.go_down(strip_of(p, job));
        }
        w.store();
        if ((threadIdx.x & 31) == 0) {
            copy_out_done();
        }
    }
};

} // namespace

#define EDGES_KERNEL(name, T, LAST)                                                                                    \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)                                                \
        name(const __grid_constant__ dvk_conv_rows p) {                                                                \
        convolve<multiplier<T, LAST>, GROUPS>(p);                                                                      \
    }

EDGES_KERNEL(conv_edges_bf16_2, wgmma_bfloat, 2)
EDGES_KERNEL(conv_edges_bf16_4, wgmma_bfloat, 4)
EDGES_KERNEL(conv_edges_f16_2, wgmma_half, 2)
EDGES_KERNEL(conv_edges_f16_4, wgmma_half, 4)
