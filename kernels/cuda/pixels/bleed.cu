// bleed.cu - a block computes 32 x 32 pixels and reads all pixels within their reach.
#include "kernels/cuda/pixels/bleed.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

constexpr int REACH = DVK_BLEED_REACH, TILE = 32, SIDE = TILE + 2 * REACH, AREA = SIDE * SIDE, THREADS = 256;
constexpr unsigned char NEVER = 255;

struct tile {
    float colour[3][AREA];
    unsigned char age[AREA]; // the pass in which a pixel received its colour; 0: it had one
};

__device__ __forceinline__ float element(const unsigned char *at, int type) {
    return type == DVK_U8    ? (float)*at
           : type == DVK_U16 ? (float)*(const uint16_t *)at
           : type == DVK_F32 ? *(const float *)at
                             : f32_of(*(const uint16_t *)at, type);
}

// The mean of the neighbours with a colour before this pass, in the host's order.
__device__ __forceinline__ void grow(const dvk_bleed_params &p, tile &t, int at, int pass) {
    float sum[3] = {0.0f, 0.0f, 0.0f};
    int n = 0;
    const int row = at / SIDE, column = at % SIDE;
    for (int y = max(row - 1, 0); y <= min(row + 1, SIDE - 1); y++) {
        for (int x = max(column - 1, 0); x <= min(column + 1, SIDE - 1); x++) {
            const int from = y * SIDE + x;
            if (t.age[from] < pass) {
                n++;
                for (int c = 0; c < p.colours; c++) {
                    sum[c] += t.colour[c][from];
                }
            }
        }
    }
    if (n > 0) {
        for (int c = 0; c < p.colours; c++) {
            t.colour[c][at] = __fdiv_rn(sum[c], (float)n);
        }
        t.age[at] = (unsigned char)pass;
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS) bleed(const __grid_constant__ dvk_bleed_params p) {
    __shared__ tile t;
    wait_for_launch_ahead();
    const int across = (p.w + TILE - 1) / TILE;
    const int y0 = (int)blockIdx.x / across * TILE - REACH, x0 = (int)blockIdx.x % across * TILE - REACH;
    const auto inside = [&](int i) {
        const int y = y0 + i / SIDE, x = x0 + i % SIDE;
        return y >= 0 && y < p.h && x >= 0 && x < p.w;
    };
    int hidden = 0;
    for (int i = threadIdx.x; i < AREA; i += THREADS) {
        t.age[i] = NEVER;
        if (inside(i)) {
            const unsigned char *at = p.image + (y0 + i / SIDE) * p.sh + (x0 + i % SIDE) * p.sw;
            const float alpha = __fadd_rn(__fmul_rn(element(at + p.alpha * p.sc, p.dtype), p.mul), p.add);
            for (int c = 0; c < p.colours; c++) {
                t.colour[c][i] = element(at + p.map[c] * p.sc, p.dtype);
            }
            t.age[i] = alpha > 0.0f ? 0 : NEVER;
            hidden |= !(alpha > 0.0f);
        }
    }
    hidden = __syncthreads_or(hidden);
    for (int pass = 1; hidden && pass <= REACH; pass++) {
        for (int i = threadIdx.x; i < AREA; i += THREADS) {
            if (t.age[i] > pass && inside(i)) {
                grow(p, t, i, pass);
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int at = (i / TILE + REACH) * SIDE + i % TILE + REACH;
        const int64_t pixel = (int64_t)(y0 + at / SIDE) * p.w + x0 + at % SIDE;
        for (int c = 0; inside(at) && c < p.colours; c++) {
            p.out[pixel * p.colours + c] = t.colour[c][at];
        }
    }
}
