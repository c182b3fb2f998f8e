// attention_kv.cuh - shared code of attention over a cache: the keys that a query sees.
#pragma once

#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/attention/attention_kv.h"
#include "kernels/cuda/norm/rows.cuh"

namespace attention {

__device__ __forceinline__ int form_of(__half) {
    return DVK_ROWS_F16;
}

__device__ __forceinline__ int form_of(__nv_bfloat16) {
    return DVK_ROWS_BF16;
}

struct span { // of positions
    int first, last;
};

// The last bound at or before a position. The whole warp calls it.
__device__ __forceinline__ int bound_of(const dvk_attention_kv_params &p, int position) {
    int low = 0, high = p.n_bounds - 1;
    while (high - low > 1) {
        const int step = (high - low + 31) / 32, at = low + (int)(threadIdx.x % 32) * step;
        const uint32_t before = __ballot_sync(0xffffffffu, at < high && p.bounds[at] <= position);
        low += max(__popc(before) - 1, 0) * step;
        high = min(low + step, high);
    }
    return low;
}

// `bound`: that of this query or of an earlier one.
__device__ __forceinline__ span visible(const dvk_attention_kv_params &p, int query, int bound) {
    const int position = p.in.position != nullptr ? p.in.position[query] : p.past + query;
    if (p.bounds != nullptr) {
        int next = p.bounds[bound + 1];
        while (next <= position && bound + 2 < p.n_bounds) {
            bound++;
            next = p.bounds[bound + 1];
        }
        return {p.bounds[bound], next};
    }
    if (!p.causal && p.in.position == nullptr) {
        return {0, p.keys};
    }
    return {p.window > 0 && position + 1 > p.window ? position + 1 - p.window : 0, position + 1};
}

__device__ __forceinline__ int bound_before(const dvk_attention_kv_params &p, int query) {
    return p.bounds != nullptr ? bound_of(p, p.past + query) : 0;
}

// The whole warp calls it for one query.
__device__ __forceinline__ span visible(const dvk_attention_kv_params &p, int query) {
    return visible(p, query, bound_before(p, query));
}

// The keys of a query, cut into at most p.splits pieces, `used` of them not empty. Pieces begin at multiples of 16.
struct pieces {
    span seen;
    int start, piece, used;

    __device__ __forceinline__ pieces(const dvk_attention_kv_params &p, int query) : seen(visible(p, query)) {
        start = seen.first & ~15;
        piece = (seen.last - start + p.splits - 1) / p.splits;
        piece = (piece + DVK_ATTENTION_KV_PIECE - 1) / DVK_ATTENTION_KV_PIECE * DVK_ATTENTION_KV_PIECE;
        used = (seen.last - start + piece - 1) / piece;
    }

    __device__ __forceinline__ int end(int i) const {
        return min(start + (i + 1) * piece, seen.last);
    }
};

} // namespace attention
