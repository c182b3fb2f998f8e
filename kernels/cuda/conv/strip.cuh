// strip.cuh - the loop of a warp over a strip of 14 pixels, two rows at a time, for kernels of a 1x1 and a depthwise
// 3x3 convolution. The rows of a product are sixteen pixels, two adjacent ones per thread. The first and the last are
// the halo.
#pragma once

#include "kernels/cuda/conv/norm_depthwise.h"
#include "kernels/cuda/pixels/pixel_mma.cuh"

#if __CUDA_ARCH__ >= 800

namespace pixel {

enum { WIDE = DVK_NORM_DEPTH_W };

// One pair of rows of a strip: hidden rows 2 * pair + 1 and + 2, which complete rows 2 * pair and + 1 of output. The
// extra pair before a strip's first completes none.
struct place_of_pair {
    int n, chunk, x0, pair;
    __device__ __forceinline__ place_of_pair(const dvk_norm_depthwise_params &p, int job) {
        const int chunks = p.hidden / p.at_once, strip = job / p.pairs;
        pair = job - strip * p.pairs - 1;
        chunk = strip % chunks;
        n = strip / chunks / p.strips;
        x0 = strip / chunks % p.strips * WIDE;
    }
};

template <int TYPE> struct strip {
    const dvk_norm_depthwise_params &p;
    unsigned char *const stage; // of the warp: pixels as stored
    const int lane = threadIdx.x % 32, q = lane % 4, r = lane / 4;

    uint32_t a[2][4][4];         // rows of the product: pixels
    uint32_t of_thread, outside; // hidden pixels outside the picture, of the thread and of the warp

    __device__ __forceinline__ strip(const dvk_norm_depthwise_params &params, unsigned char *warps)
        : p(params), stage(warps + threadIdx.x / 32 * params.warp_bytes) {
    }

    __device__ __forceinline__ void prefetch(const place_of_pair &at) const {
        const uint32_t to = (uint32_t)__cvta_generic_to_shared(stage);
        const int y = at.pair * 2 + 1, x = at.x0 - 1 + lane / 8, sh = (int)p.x.sh, sw = (int)p.x.sw;
        const uint16_t *from = (const uint16_t *)p.x.data + at.n * p.x.sn + lane % 8 * 8;
        const int first = y * sh + x * sw;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int line = i * 4 + lane / 8, row = y + i / 4, column = x + i % 4 * 4;
            const bool there = row >= 0 && row < p.h && column >= 0 && column < p.w;
            const int pixel = there ? first + i / 4 * sh + i % 4 * 4 * sw : 0;
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + place(line, line / 2 & 1, lane % 8)),
                "l"(from + pixel), "r"(there ? 16 : 0)
                : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    __device__ __forceinline__ void load() {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int m = i / 4, j = i / 2 % 2, u = i % 2;
            set_row(a[m], j, u, *(const uint4 *)(stage + place(m * 16 + r * 2 + j, r & 1, u * 4 + q)));
        }
        __syncwarp();
    }

    __device__ __forceinline__ void find_outside(const place_of_pair &at) {
        of_thread = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int y = at.pair * 2 + 1 + i / 2, x = at.x0 - 1 + r * 2 + i % 2;
            of_thread |= (y < 0 || y >= p.h || x < 0 || x >= p.w) << i;
        }
        outside = __ballot_sync(0xffffffffu, of_thread != 0);
    }

    // Data that only the same thread reads
    __device__ __forceinline__ uint4 *waiting(unsigned char *from, int i) const {
        return (uint4 *)(from + i * DVK_NORM_DEPTH_PIECE + lane * 16);
    }

    // The thread's first pixel of output in a view. The bits say which of its four, (row, neighbour), are written
    __device__ __forceinline__ uint16_t *pixel_of(const dvk_elem_view &v, const place_of_pair &at) const {
        const int pixel = at.pair * 2 * (int)v.sh + (at.x0 - 1 + r * 2) * (int)v.sw;
        return (uint16_t *)v.data + at.n * v.sn + q * 8 + pixel;
    }

    __device__ __forceinline__ uint32_t written(const place_of_pair &at) const {
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int in_strip = r * 2 + i % 2;
            const bool inside = in_strip > 0 && in_strip <= WIDE && at.x0 - 1 + in_strip < p.w;
            bits |= (inside && at.pair * 2 + i / 2 < p.h) << i;
        }
        return bits;
    }

    static __device__ __forceinline__ int step_to(const dvk_elem_view &v, int i) {
        return (i / 2 ? (int)v.sh : 0) + (i % 2 ? (int)v.sw : 0);
    }

    // Loops over the warp's share of all pairs. work(pair, whether it completes rows) finds its pixels in `a`.
    template <typename F> __device__ __forceinline__ void walk(F work) {
        const int first = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * p.each;
        const int last = min(first + p.each, p.total);
        place_of_pair at(p, first);
        bool ahead = true;
        if (first < last) {
            prefetch(at);
        }
        for (int job = first; job < last;) {
            place_of_pair following = at;
            following.pair++;
            job += !ahead;
            const bool begins = following.pair == p.pairs;
            if (begins) {
                following = place_of_pair(p, job);
            }
            find_outside(at);
            load();
            if (job < last) {
                prefetch(following);
            }
            work(at, !ahead);
            ahead = begins;
            at = following;
        }
    }
};

} // namespace pixel

#endif
