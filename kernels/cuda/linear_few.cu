// linear_few.cu - see linear_few.c. A warp multiplies R rows of W at a time, each lane 16 bytes of every 512; several warps
// may share their rows. The first weights of a block, which no launch ahead has written, are on their way before the
// launch waits for those.
#include "kernels/cuda/linear_few.cuh"

template <int KIND, int M, int R> struct few {
    enum { U = R == 2 ? 4 : 2 }; // chunks of a row under way at a time

    const dvk_linear_few_params &p;
    int lane, part, group, step; // step: chunks from one of this lane's to the next
    int outputs;                 // of a group of warps
    few_chunk w[U][R];
    float sum[R * M];
    few_extras extras;

    __device__ few(const dvk_linear_few_params &of) : p(of) {
        lane = threadIdx.x & 31;
        part = (threadIdx.x >> 5) & (p.split - 1);
        group = (threadIdx.x >> 5) / p.split;
        step = 32 * p.split;
        outputs = p.glu ? R / 2 : R;
    }

    __device__ int groups() const {
        return FEW_WARPS / p.split;
    }

    // Row r of this warp's in a tile; the last one again where there are no more.
    __device__ int64_t row_of(int tile, int r) const {
        const int o = (tile * groups() + group) * outputs + (p.glu ? r % (R / 2) : r);
        return (o < p.n ? o : p.n - 1) + (int64_t)(p.glu && r >= R / 2 ? p.n : 0);
    }

    __device__ void load(int tile, int at, int end) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int chunk = at + lane + u * step;
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (chunk < end) {
                    w[u][r] = load_chunk<KIND>(p, row_of(tile, r), chunk);
                }
            }
        }
    }

    __device__ void multiply(const uint4 *x, int at, int first, int end) {
        const int row = x_row<KIND>(p.phase);
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int chunk = at + lane + u * step;
            if (chunk < end) {
                if constexpr (is_float<KIND>()) {
                    add_float<KIND, M, R>(w[u], x, row, p.phase, chunk - first, sum);
                } else {
                    add_blocks<KIND, M, R>(w[u], x, row, p.zero, chunk - first, sum);
                }
            }
        }
    }

    __device__ void look_ahead_rest(int tile) const {
        for (int at = start() + lane + U * step; at < p.chunks; at += step) {
            if (lane % 8 == 0) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    look_ahead(p.w + row_of(tile, r) * p.w_row + (int64_t)at * 16);
                }
            }
        }
    }

    __device__ void finish(int tile, float *sums) {
        const float mine = sum_lanes<R * M>(sum);
        constexpr int LANES = 32 / (R * M);
        if (lane % LANES == 0) {
            sums[(threadIdx.x >> 5) * 32 + lane / LANES] = mine;
        }
        __syncthreads();
        if (const int i = threadIdx.x; i < groups() * outputs * M) {
            const int t = i % M;
            const int at = i / M % outputs;
            const int of = i / M / outputs;
            const int o = (tile * groups() + of) * outputs + at;
            if (o < p.n && t < p.m) {
                float a = 0.0f;
                float b = 0.0f;
                for (int s = 0; s < p.split; s++) {
                    const float *from = sums + (of * p.split + s) * 32;
                    a += from[at * M + t];
                    b += p.glu ? from[(at + R / 2) * M + t] : 0.0f;
                }
                put_result(p, t, o, a, b, extras);
            }
        }
    }

    // A thread has one result of a tile at most.
    __device__ void prepare(int tile) {
        extras = {};
        if (p.bias != nullptr || p.res.data != nullptr) {
            const int of = threadIdx.x / M / outputs;
            const int o = (tile * groups() + of) * outputs + threadIdx.x / M % outputs;
            extras = extras_of(p, threadIdx.x % M, of < groups() ? o : p.n);
        }
    }

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < R * M; i++) {
            sum[i] = 0.0f;
        }
    }

    __device__ void stage(uint4 *x, int first, int count) const {
        if constexpr (is_float<KIND>()) {
            stage_float<KIND, M>(p, x, x_row<KIND>(p.phase), first, count);
        } else {
            stage_blocks<KIND, M>(p, x, first, count);
        }
    }

    __device__ int start() const {
        return 32 * part;
    }

    __device__ int batch() const {
        return U * step;
    }

    __device__ int outputs_of_tile() const {
        return groups() * outputs;
    }
};

template <int KIND, int M, int R> __device__ __forceinline__ void few_rows(const dvk_linear_few_params &p) {
    extern __shared__ uint4 x[];
    __shared__ float sums[2][FEW_WARPS * 32];
    few<KIND, M, R> work(p);
    walk(work, p, x, sums[0], FEW_WARPS * 32);
}

#define FEW(NAME, KIND, M, R)                                                                                          \
    extern "C" __global__ void __launch_bounds__(FEW_WARPS * 32, FEW_RESIDENT(R * M))                                  \
        linear_few_##NAME##_##M(const __grid_constant__ dvk_linear_few_params p) {                                     \
        few_rows<KIND, M, R>(p);                                                                                       \
    }
#define FEW_KIND(NAME, KIND, R)                                                                                        \
    FEW(NAME, KIND, 1, R)                                                                                              \
    FEW(NAME, KIND, 2, R)                                                                                              \
    FEW(NAME, KIND, 4, 4)                                                                                              \
    FEW(NAME, KIND, 8, 4)

FEW_KIND(f32, LIN_F32, 2)
FEW_KIND(f16, LIN_F16, 2)
FEW_KIND(bf16, LIN_BF16, 2)
FEW_KIND(bytes, LIN_BYTES, 2)
FEW_KIND(bytes_min, LIN_BYTES_MIN, 2)
FEW_KIND(halves, LIN_HALVES, 2)
FEW_KIND(nibbles, LIN_NIBBLES, 4)
FEW_KIND(nibbles_min, LIN_NIBBLES_MIN, 4)
