// attention_out.cu - see attention_out.c. A cluster processes a key head. Its blocks share the positions and exchange
// their results. Each block then multiplies rows of W with the results of all heads of the key head. A block loads its
// part of W into registers before the launch waits.
#include "kernels/cuda/attention/attention_new.cuh"
#include "kernels/cuda/attention/attention_out.h"

namespace {

enum {
    D = DVK_OUT_DIM,
    BLOCKS = DVK_OUT_CLUSTER,
    PLANE = HEADS * D / 8,
    SHARE = 8 /* lanes of a row of W */,
    AT_ONCE = WARPS * 32 / SHARE
};

template <typename T> struct exchanged {
    fresh<T, D> own;
    __align__(16) float box[BLOCKS][HEADS][D]; // from every block
    float tops[BLOCKS][HEADS], sums[BLOCKS][HEADS];
    __align__(16) float y[2][PLANE][4]; // by eight channels: the first four, then the others
};

__device__ __forceinline__ void send4(float *mine, int rank, const float (&v)[4]) {
#if __CUDA_ARCH__ >= 900
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(mine)), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]),
                 "f"(v[3])
                 : "memory");
#endif
}

template <typename T> struct out {
    const dvk_attention_out_params &p;
    exchanged<T> &mem;
    uint4 w[DVK_OUT_PIECES]; // pieces of a row for each head of the key head, then of the next row
    step<T, D> work;

    __device__ __forceinline__ out(const dvk_attention_out_params &params, exchanged<T> &of)
        : p(params), mem(of), work(params.of, of.own) {
    }

    struct place {
        int row, head;

        __device__ __forceinline__ void next(int heads) {
            head = head + 1 < heads ? head + 1 : 0;
            row += head == 0 ? AT_ONCE : 0;
        }
    };

    __device__ __forceinline__ place first() const {
        return {(int)threadIdx.x / SHARE, 0};
    }

    // -1: no such row.
    __device__ __forceinline__ int row_of(place at) const {
        const int row = (int)blockIdx.x * p.rows + at.row;
        return at.row < p.rows && row < p.n ? row : -1;
    }

    __device__ __forceinline__ static int chunk_of(place at) {
        return at.head * SHARE + threadIdx.x % SHARE;
    }

    __device__ __forceinline__ void load_weights() {
        const unsigned char *from = p.w + (int64_t)work.k.first_head * D * 2;
        place at = first();
#pragma unroll
        for (int i = 0; i < DVK_OUT_PIECES; i++, at.next(work.k.heads)) {
            const int row = row_of(at);
            w[i] = row >= 0 ? __ldg((const uint4 *)(from + row * p.w_row) + chunk_of(at)) : make_uint4(0, 0, 0, 0);
        }
    }

    // Sends a warp's head to all blocks of the cluster.
    __device__ __forceinline__ void tell() {
        const auto j = work.k.join_warps();
        const int head = work.k.warp, lane = work.k.lane, rank = work.k.rank;
        cluster_wait();
        if (head < work.k.heads) {
            const int c = lane % 16 * 4;
            const float v[4] = {work.k.joined_value(j, c), work.k.joined_value(j, c + 1), work.k.joined_value(j, c + 2),
                                work.k.joined_value(j, c + 3)};
#pragma unroll
            for (int to = 0; to < BLOCKS; to += 2) {
                send4(mem.box[rank][head] + c, to + lane / 16, v);
            }
            if (lane < BLOCKS) {
                send(&mem.tops[rank][head], lane, j.top);
                send(&mem.sums[rank][head], lane, j.all);
            }
        }
        cluster_arrive();
        cluster_wait();
    }

    __device__ __forceinline__ void merge() {
        for (int i = threadIdx.x; i < work.k.heads * D; i += WARPS * 32) {
            const int head = i / D, c = i % D;
            float top = -INFINITY, all = 0.0f, value = 0.0f;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                top = fmaxf(top, mem.tops[b][head]);
            }
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                const float share = exp2_fast(mem.tops[b][head] - top);
                all = fmaf(share, mem.sums[b][head], all);
                value = fmaf(share, mem.box[b][head][work.k.place_of(c)], value);
            }
            mem.y[c / 4 % 2][i / 8][c % 4] = value / all;
        }
        __syncthreads();
    }

    template <int TYPE> __device__ __forceinline__ void multiply() const {
        float sum = 0.0f;
        place at = first();
#pragma unroll
        for (int i = 0; i < DVK_OUT_PIECES; i++, at.next(work.k.heads)) {
            raw8 v = {};
            v.a = w[i];
            float x[8];
            unpack<TYPE>(v, TYPE, x);
#pragma unroll
            for (int c = 0; c < 8; c++) {
                sum = fmaf(x[c], mem.y[c / 4][chunk_of(at)][c % 4], sum);
            }
            if (at.head + 1 < work.k.heads) { // uniform over all threads
                continue;
            }
#pragma unroll
            for (int l = 1; l < SHARE; l *= 2) {
                sum += __shfl_xor_sync(0xffffffffu, sum, l);
            }
            const int row = row_of(at);
            if (threadIdx.x % SHARE == 0 && row >= 0) {
                p.parts[(int64_t)work.k.kv * p.n + row] = sum;
            }
            sum = 0.0f;
        }
    }

    template <int TYPE> __device__ __forceinline__ void run() {
        load_weights();
        work.walk();
        tell();
        merge();
        multiply<TYPE>();
    }
};

} // namespace

#define OUT(NAME, T, TYPE)                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        NAME(const __grid_constant__ dvk_attention_out_params p) {                                                     \
        __shared__ exchanged<T> mem;                                                                                   \
        let_launch_behind_begin();                                                                                     \
        cluster_arrive();                                                                                              \
        out<T>(p, mem).template run<TYPE>();                                                                           \
    }

OUT(attention_out_f16_f16, __half, DVK_F16)
OUT(attention_out_f16_bf16, __half, DVK_BF16)
OUT(attention_out_bf16_f16, __nv_bfloat16, DVK_F16)
OUT(attention_out_bf16_bf16, __nv_bfloat16, DVK_BF16)
