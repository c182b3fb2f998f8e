// candidates.cu - see candidates.c. Values are mapped to integers of the same order, and the bound is found digit by
// digit.
#include "kernels/cuda/text/candidates.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

enum { THREADS = DVK_CANDIDATES_THREADS, EACH = DVK_CANDIDATE_PIECES / THREADS };

__device__ __forceinline__ uint32_t number_of(float v) {
    const uint32_t bits = __float_as_uint(v == 0.0f ? 0.0f : v);
    return isnan(v) ? 0u : bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ __forceinline__ float value_of(uint32_t number) {
    return __uint_as_float(number ^ ((number >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

// Two values of a piece; `none` behind the end.
__device__ __forceinline__ float2 load2(const dvk_candidates_params &p, int piece, float none) {
    const int at = piece * DVK_CANDIDATE_PIECE + (int)(threadIdx.x % 32) * 2;
    if (at + 1 < p.n) {
        return *(const float2 *)(p.x + at);
    }
    return make_float2(at < p.n ? p.x[at] : none, none);
}

__device__ __forceinline__ int up_to_lane(int sum) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, i);
        sum += (int)(threadIdx.x % 32) >= i ? other : 0;
    }
    return sum;
}

// Prefix sum over the threads of the block, and the total. All threads call it.
__device__ __forceinline__ int before(int count, int &all) {
    __shared__ int warps[THREADS / 32];
    const int sum = up_to_lane(count), warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 31) {
        warps[warp] = sum;
    }
    __syncthreads();
    const int own = warps[threadIdx.x % 32], sums = up_to_lane(own);
    all = __shfl_sync(0xffffffffu, sums, 31);
    return __shfl_sync(0xffffffffu, sums - own, warp) + sum - count;
}

// The `least`-th largest of the block's integers.
__device__ __forceinline__ uint32_t bound_of(const uint32_t (&own)[EACH], int pieces, int least) {
    __shared__ int counts[256];
    __shared__ int found[2]; // digit, and the remaining rank within it
    uint32_t bound = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < 256) {
            counts[threadIdx.x] = 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool same = shift == 24 || own[i] >> (shift + 8) == bound >> (shift + 8);
            if ((int)threadIdx.x * EACH + i < pieces && same) {
                atomicAdd(&counts[own[i] >> shift & 255], 1);
            }
        }
        __syncthreads();
        int all;
        const int mine = threadIdx.x < 256 ? counts[255 - threadIdx.x] : 0; // the largest digits first
        const int above = before(mine, all);
        if (above < least && least <= above + mine) {
            found[0] = 255 - (int)threadIdx.x;
            found[1] = least - above;
        }
        __syncthreads();
        bound |= (uint32_t)found[0] << shift;
        least = found[1];
    }
    return bound;
}

struct chosen {
    int16_t piece[DVK_CANDIDATE_PIECES]; // the pieces that reach the bound
    int start[DVK_CANDIDATE_PIECES];     // number of values of a piece that reach it, later their offset
};

__device__ __forceinline__ int choose(const dvk_candidates_params &p, chosen &mem, const uint32_t (&own)[EACH],
                                      uint32_t bound) {
    int reach = 0, used;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        reach += own[i] >= bound && (int)threadIdx.x * EACH + i < p.pieces;
    }
    int at = before(reach, used);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (own[i] >= bound && (int)threadIdx.x * EACH + i < p.pieces) {
            mem.piece[at++] = (int16_t)(threadIdx.x * EACH + i);
        }
    }
    __syncthreads();
    return used;
}

// One warp per piece: which of each lane's two values reach the bound.
struct reached {
    float2 v;
    int id;
    uint32_t first, second;

    __device__ __forceinline__ reached(const dvk_candidates_params &p, int piece, float low)
        : v(load2(p, piece, -INFINITY)) {
        id = piece * DVK_CANDIDATE_PIECE + (int)(threadIdx.x % 32) * 2;
        first = __ballot_sync(0xffffffffu, v.x >= low && id < p.n);
        second = __ballot_sync(0xffffffffu, v.y >= low && id + 1 < p.n);
    }
};

__device__ __forceinline__ int count_all(const dvk_candidates_params &p, chosen &mem, int used, float low) {
    for (int i = threadIdx.x / 32; i < used; i += THREADS / 32) {
        const reached r(p, mem.piece[i], low);
        if (threadIdx.x % 32 == 0) {
            mem.start[i] = __popc(r.first) + __popc(r.second);
        }
    }
    __syncthreads();
    int count = 0, all;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int n = (int)threadIdx.x * EACH + i;
        count += n < used ? mem.start[n] : 0;
    }
    int place = before(count, all);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int n = (int)threadIdx.x * EACH + i;
        if (n < used) {
            const int own = mem.start[n];
            mem.start[n] = place;
            place += own;
        }
    }
    __syncthreads();
    return all;
}

__device__ __forceinline__ void take(const dvk_candidates_params &p, const chosen &mem, int used, float low) {
    const uint32_t ahead = (1u << threadIdx.x % 32) - 1, own = 1u << threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < used && mem.start[i] < DVK_CANDIDATES; i += THREADS / 32) {
        const reached r(p, mem.piece[i], low);
        int to = mem.start[i] + __popc(r.first & ahead) + __popc(r.second & ahead);
        if ((r.first & own) != 0 && to < DVK_CANDIDATES) {
            p.to->id[to] = r.id;
            p.to->value[to] = r.v.x;
        }
        to += (r.first & own) != 0;
        if ((r.second & own) != 0 && to < DVK_CANDIDATES) {
            p.to->id[to] = r.id + 1;
            p.to->value[to] = r.v.y;
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(DVK_CANDIDATES_WARPS * 32)
    candidates_tops(const __grid_constant__ dvk_candidates_params p) {
    wait_for_launch_ahead();
    const int piece = blockIdx.x * DVK_CANDIDATES_WARPS + threadIdx.x / 32;
    if (piece >= p.pieces) {
        return;
    }
    const float2 v = load2(p, piece, -INFINITY);
    uint32_t top = max(number_of(v.x), number_of(v.y));
    const bool broken = __any_sync(0xffffffffu, isnan(v.x) || isnan(v.y));
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        top = max(top, __shfl_xor_sync(0xffffffffu, top, i));
    }
    if (threadIdx.x % 32 == 0) {
        p.tops[piece] = broken ? 0 : top;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) candidates_take(const __grid_constant__ dvk_candidates_params p) {
    __shared__ chosen mem;
    wait_for_launch_ahead();
    uint32_t own[EACH];
    bool broken = false;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int piece = (int)threadIdx.x * EACH + i;
        own[i] = piece < p.pieces ? p.tops[piece] : 0;
        broken = broken || (piece < p.pieces && own[i] == 0);
    }
    if (__syncthreads_or(broken)) {
        if (threadIdx.x == 0) {
            p.to->n = -1;
        }
        return;
    }
    const uint32_t bound = bound_of(own, p.pieces, p.least);
    const float low = value_of(bound);
    const int used = choose(p, mem, own, bound);
    const int all = count_all(p, mem, used, low);
    if (threadIdx.x == 0) {
        p.to->n = all;
        p.to->bound = low;
    }
    take(p, mem, used, low);
}
