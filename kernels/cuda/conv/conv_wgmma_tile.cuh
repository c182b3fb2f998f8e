/* conv_wgmma_tile.cuh - stores the sums of a tile. A thread has channels lane / 4 and lane / 4 + 8 of its warp's
 * sixteen, and of each row of the tile the pixels 2 * (lane % 4) and the next. Pieces of 8 x 8 pixels are transposed to
 * pixels of 128 bytes in shared memory and stored by bulk copies. Residuals are loaded into the same buffers by bulk
 * copies. */
#ifndef DVK_CUDA_CONV_WGMMA_TILE_CUH
#define DVK_CUDA_CONV_WGMMA_TILE_CUH

#include "kernels/cuda/conv/conv_wgmma_sums.cuh"

struct conv_tile {
    int n, y0, x0, phase;
    int c0;    /* first of the 64 output channels */
    int chunk; /* tile, counted over all pictures */
};

/* The tile and first channel of job `j` for a warpgroup. */
CONV_DEVICE conv_tile tile_of(const dvk_conv_wgmma &p, int j, int group) {
    conv_tile t;
    const int per_tile = p.blocks * p.phases;
    int at = j / per_tile;
    const int which = j - at * per_tile;
    t.phase = which / p.blocks;
    const int block = which - t.phase * p.blocks;
    t.c0 = p.split ? block * 64 : block * 128 + group * 64;
    at = p.split ? 2 * at + group : at;
    const int row = at / p.tiles_x;
    t.x0 = (at - row * p.tiles_x) * DVK_WGMMA_TILE_W;
    t.n = row / p.tiles_y;
    t.y0 = (row - t.n * p.tiles_y) * DVK_WGMMA_TILE_H;
    t.chunk = at; /* of the statistics: [n][tile][phase] */
    return t;
}

/* Store paths that the launches of a kernel can take; other paths are not compiled. BARE: residuals, gates and curves
 * are rare, so short code is better than fast code. */
enum { WAY_OWN = 1, WAY_SUMS = 2, WAY_PIXELS = 4, WAY_TIMES = 8, WAY_BARE = 16 };

struct output_ring {
    uint32_t at, barriers;
    int group;
    int slot = 0;
    uint32_t parity = 0;
    uint32_t patch = 0;  /* the patch with the first residual */
    float total[2] = {}; /* of the thread's two channels, over all tiles */

    __device__ __forceinline__ void bring_residuals(const dvk_conv_wgmma &p, const conv_tile &t, int piece,
                                                    int entry) const {
        barrier_expect(barriers + 8 * entry, (p.epi.n_res - p.own) * DVK_WGMMA_PIECE);
        for (int i = p.own; i < p.epi.n_res; i++) {
            copy_in(at + entry * p.entry_bytes + (i - p.own) * DVK_WGMMA_PIECE, &p.res[i], t.c0, t.x0,
                    t.y0 + piece * DVK_WGMMA_PIECE_H, t.n, barriers + 8 * entry);
        }
    }

    /* While the products of the tile are in flight: loads residuals of as many pieces as fit. */
    __device__ __forceinline__ void prefetch(const dvk_conv_wgmma &p, const conv_tile &t, int thread) const {
        if (p.epi.n_res == p.own || p.epilogue >= DVK_WGMMA_PIXELS || thread != 0) {
            return;
        }
        copy_out_read<0>();
        for (int i = 0; i < p.entries && i < DVK_WGMMA_PIECES; i++) {
            bring_residuals(p, t, i, slot + i < p.entries ? slot + i : slot + i - p.entries);
        }
        for (int i = p.entries; i < DVK_WGMMA_PIECES; i++) { /* the others are prefetched into L2 */
            for (int k = p.own; k < p.epi.n_res; k++) {
                copy_ahead(&p.res[k], t.c0, t.x0, t.y0 + i * DVK_WGMMA_PIECE_H, t.n);
            }
        }
    }

    /* Address of this lane's row of four matrices of the patch, from row `row` of the tile on. */
    __device__ __forceinline__ uint32_t of_patch(const dvk_conv_wgmma &p, int row) const {
        const int lane = threadIdx.x & 31, octet = (threadIdx.x >> 5 & 3) * 2 + (lane >> 3 & 1);
        const int pixel = (row + (lane >> 4) + p.pad_top) * p.pitch + (lane & 7) + p.pad_left;
        return patch + pixel * 128 + ((octet ^ (pixel & 7)) * 16);
    }

    /* Computes piece `i`, rows from HIGH * i on of the tile, with its residuals at `from`. */
    template <class T, int KIND, int RES, int COUNT, int OWN, int HIGH = DVK_WGMMA_PIECE_H>
    __device__ __forceinline__ void piece(const dvk_conv_wgmma &p, const conv_channels &c, uint32_t to, uint32_t from,
                                          const float *sum, int i, conv_sums &sums) const {
        const dvk_conv_epi &e = p.epi;
        const int res = RES == RES_OF_LAUNCH ? e.n_res : RES;
        const bool own = OWN && (RES != RES_OF_LAUNCH || p.own);
#pragma unroll
        for (int j = 0; j < HIGH; j += 2, to += 2048, from += 2048) {
            uint32_t m[4], r[2][4] = {};
            if (res > 0) {
                matrices_load_transposed(own ? of_patch(p, i * HIGH + j) : from, r[0]);
            }
            if (res > 1) {
                matrices_load_transposed(own ? from : from + DVK_WGMMA_PIECE, r[1]);
            }
            if (by_octets(KIND) || KIND == KIND_OF_LAUNCH) {
                float v[8];
#pragma unroll
                for (int q = 0; q < 8; q++) {
                    v[q] = sum[j * 4 + q] + c.bias[q / 2 & 1];
                }
                if (KIND == KIND_OF_LAUNCH) {
                    const float s0 = c.slope[0], s1 = c.slope[1], slope[8] = {s0, s0, s1, s1, s0, s0, s1, s1};
                    finish_seldom<T>(e, p.epilogue, v, slope, r);
                } else {
                    finish_octet<T, KIND, RES>(e, v, r);
                }
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    m[q] = T::pack(v[2 * q], v[2 * q + 1]);
                }
            }
            /* matrix: channels 8 * (q & 1), row j + q / 2 */
#pragma unroll
            for (int q = 0; q < 4 && !by_octets(KIND) && KIND != KIND_OF_LAUNCH; q++) {
                const float *s = sum + j * 4 + q * 2;
                const float2 r0 = T::unpack(r[0][q]), r1 = T::unpack(r[1][q]);
                const float a = finish<KIND, RES>(e, s[0], c.bias[q & 1], c.slope[q & 1], r0.x, r1.x);
                const float b = finish<KIND, RES>(e, s[1], c.bias[q & 1], c.slope[q & 1], r0.y, r1.y);
                m[q] = T::pack(a, b);
                if (COUNT >= SUM_WHOLE) {
                    sums.add_plain<COUNT == SUM_WHOLE>(a, b, q & 1, i * DVK_WGMMA_PIECE_H + j + q / 2);
                }
            }
            matrices_store_transposed(to, m);
#pragma unroll
            for (int q = 0; q < 4 && (COUNT == COUNT_WHOLE || COUNT == COUNT_EDGE); q++) {
                const float2 stored = T::unpack(m[q]);
                if (i == 0 && j == 0 && q < 2) {
                    sums.begin(stored.x, q, threadIdx.x & 31, e.group_channels);
                }
                sums.add<COUNT == COUNT_WHOLE>(stored, q & 1, i * HIGH + j + q / 2);
            }
        }
    }

    /* Stores piece `i`, whose sums begin at `sum`, through its entry of the ring. */
    template <class T, int KIND, int RES, int COUNT, int OWN>
    __device__ __forceinline__ void leave(const dvk_conv_wgmma &p, const conv_tile &t, int thread,
                                          const conv_channels &channels, uint32_t mine, const float *sum, int i,
                                          conv_sums &sums) {
        const uint32_t entry = at + slot * p.entry_bytes;
        const bool brought = RES == RES_OF_LAUNCH ? p.epi.n_res > p.own : RES > OWN;
        if (brought) {
            barrier_wait(barriers + 8 * slot, parity);
        } else if (i == 0 || i >= p.entries) {
            if (thread == 0) {
                i == 0 ? copy_out_read<0>() : copy_out_read<1>();
            }
            named_barrier(1 + group, 128);
        }
        piece<T, KIND, RES, COUNT, OWN>(p, channels, entry + mine, entry + mine, sum, i, sums);
        fence_async();
        named_barrier(1 + group, 128);
        if (thread == 0) {
            copy_out(&p.y[t.phase], t.c0, t.x0, t.y0 + i * DVK_WGMMA_PIECE_H, t.n, entry);
            if (brought && i + p.entries - 1 < DVK_WGMMA_PIECES && i > 0) {
                copy_out_read<1>(); /* the previous piece has freed its entry for a later one */
                bring_residuals(p, t, i + p.entries - 1, slot > 0 ? slot - 1 : p.entries - 1);
            }
        }
        if (++slot == p.entries) {
            slot = 0;
            parity ^= 1;
        }
    }

    /* RES residuals, of which OWN come from the patch. SELDOM: the code of one piece serves all four; their sums are
     * moved to the first registers. */
    template <class T, int KIND, int RES, int COUNT, int OWN = 0, bool SELDOM = false>
    __device__ __forceinline__ void write(const dvk_conv_wgmma &p, const conv_tile &t, int thread, float (&sum)[128],
                                          conv_sums &sums) {
        enum { EACH = 128 / DVK_WGMMA_PIECES };
        const int lane = thread & 31, warp = thread >> 5;
        const conv_channels channels(p.epi, t.c0 + warp * 16 + lane / 4);
        /* this lane's row of a store of four matrices: pixel lane % 8 of row j + lane / 16, channels 8 * (lane / 8 & 1) */
        const uint32_t mine = ((lane >> 4) * 8 + (lane & 7)) * 128 + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
        if constexpr (SELDOM) {
#pragma unroll 1
            for (int i = 0; i < DVK_WGMMA_PIECES; i++) {
                leave<T, KIND, RES, COUNT, OWN>(p, t, thread, channels, mine, sum, i, sums);
#pragma unroll
                for (int k = 0; k < 128 - EACH; k++) {
                    sum[k] = sum[k + EACH];
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < DVK_WGMMA_PIECES; i++) {
                leave<T, KIND, RES, COUNT, OWN>(p, t, thread, channels, mine, sum + i * EACH, i, sums);
            }
        }
    }

    /* Mean and M2 of the groups of a thread's two channels, over `count` pixels and channels. A group is 1 to 16
     * channels, all within a warp. */
    static __device__ __forceinline__ void moments(const conv_sums &sums, int per, float count, float (&mean)[2],
                                                   float (&m2)[2]) {
        const float inverse = __fdividef(1.0f, fmaxf(count, 1.0f));
        float s[2] = {sums.s[0][0] + sums.s[0][1], sums.s[1][0] + sums.s[1][1]};
        float q[2] = {sums.q[0][0] + sums.q[0][1], sums.q[1][0] + sums.q[1][1]};
        group_sum(s, per);
        group_sum(q, per);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float delta = s[i] * inverse;
            mean[i] = sums.pivot[i] + delta, m2[i] = fmaxf(fmaf(-delta, s[i], q[i]), 0.0f);
        }
    }

    /* {count, mean, M2} of every group of the tile. */
    static __device__ __forceinline__ void statistics(const dvk_conv_wgmma &p, const conv_tile &t, int thread, int wide,
                                                      int high, const conv_sums &sums) {
        const int lane = thread & 31, warp = thread >> 5, per = p.epi.group_channels;
        const float count = (float)(wide * high * per);
        float mean[2], m2[2];
        moments(sums, per, count, mean, m2);
        const int c = t.c0 + warp * 16 + lane / 4;
        const int64_t row = (int64_t)t.chunk * p.phases + t.phase;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if ((lane & 3) == 0 && (c + i * 8) % per == 0 && c + i * 8 < p.epi.c_out && t.n < p.n) {
                float *out = p.epi.stats + (row * p.epi.groups + (c + i * 8) / per) * 3;
                out[0] = count, out[1] = mean[i], out[2] = m2[i];
            }
        }
    }

    static __device__ __forceinline__ void group_sum(float (&s)[2], int per) {
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            if (d < 4 || d < per * 4) {
                s[0] += __shfl_xor_sync(0xffffffffu, s[0], d);
                s[1] += __shfl_xor_sync(0xffffffffu, s[1], d);
            }
        }
        if (per == 16) {
            s[0] += s[1];
            s[1] = s[0];
        }
    }

    /* Every epilogue of op.h: four rows of sums at a time through shared memory, then element by element. */
    __device__ __forceinline__ void any(const dvk_conv_wgmma &p, const conv_tile &t, int thread,
                                        const float (&sum)[128]) const {
        const int lane = thread & 31, c = (thread >> 5) * 16 + lane / 4;
        const int count = min(p.epi.c_out - t.c0, 64);
        float *rows;
        asm("{\n.reg .u64 a;\ncvt.u64.u32 a, %1;\ncvta.shared.u64 %0, a;\n}" : "=l"(rows) : "r"(at));
#pragma unroll 1
        for (int r = 0; r < 8; r++) {
            named_barrier(1 + group, 128);
#pragma unroll
            for (int i = 0; i < 128; i++) { /* registers cannot be indexed at run time */
                const int q = i % 16;       /* row q / 4, channels 8 * (q / 2 & 1), pixel q & 1 */
                const int pixel = q / 4 * 8 + 2 * (lane & 3) + (q & 1);
                if (i / 16 == r) {
                    rows[pixel * 64 + ((c + 8 * (q / 2 & 1)) ^ (lane & 3) * 8)] = sum[i];
                }
            }
            named_barrier(1 + group, 128);
#pragma unroll 1
            for (int item = thread; item < 32 * count; item += 128) {
                const int pixel = item / count, channel = item - pixel * count;
                const conv_spot s = {t.n, t.y0 + r * 4 + pixel / 8, t.x0 + pixel % 8, t.phase};
                if (s.y < p.out_h && s.x < p.out_w && t.n < p.n) {
                    finish_element(p.epi, rows[pixel * 64 + (channel ^ (pixel >> 1 & 3) * 8)], s, t.c0 + channel);
                }
            }
        }
    }

    /* A shuffle by two to pixels of 16 bytes; only the first channels are real. All warps have the same channels, and
     * each computes those of its quarter of the tile: four times as many pixels, one per lane. */
    template <class T>
    __device__ __forceinline__ void pixels(const dvk_conv_wgmma &p, const conv_tile &t, int thread,
                                           const float (&sum)[128]) const {
        enum { ROWS = DVK_WGMMA_TILE_H / 4, SUMS = 32 };
        const dvk_conv_epi &e = p.epi;
        const int lane = thread & 31, warp = thread >> 5, pitch = e.c_out;
        const conv_channels of(e, lane / 4);
        float *values;
        asm("{\n.reg .u64 a;\ncvt.u64.u32 a, %1;\ncvta.shared.u64 %0, a;\n}"
            : "=l"(values)
            : "r"(at + warp * ROWS * DVK_WGMMA_TILE_W * pitch * 4));
        __syncwarp();
        float mine[SUMS];
#pragma unroll
        for (int quarter = 0; quarter < 4; quarter++) {
#pragma unroll
            for (int i = 0; i < SUMS && quarter == warp; i++) { /* registers cannot be indexed at run time */
                mine[i] = sum[quarter * SUMS + i];
            }
        }
#pragma unroll
        for (int i = 0; i < SUMS; i++) { /* row i / 4, channel lane / 4 + 8 * (i / 2 & 1) */
            const int c = lane / 4 + 8 * (i / 2 & 1), pixel = i / 4 * 8 + 2 * (lane & 3) + (i & 1);
            const float slope = e.act ? of.slope[i / 2 & 1] : 1.0f;
            if (c < pitch) {
                values[pixel * pitch + c] = finish<DVK_WGMMA_SLOPE, 0>(e, mine[i], of.bias[i / 2 & 1], slope, 0, 0);
            }
        }
        __syncwarp();
        const int column = lane & 15, part = (lane >> 4) * 2 + (lane & 1), x = t.x0 + column / 2;
        uint16_t *to =
            (uint16_t *)e.y.data + offset_of(e.y, t.n, 2 * (t.y0 + warp * ROWS) + (lane >> 4), 2 * t.x0 + column);
#pragma unroll 2
        for (int row = 0; row < ROWS; row++, to += 2 * e.y.sh) {
            float v[4] = {};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (4 * c < pitch) {
                    v[c] = values[(row * 8 + column / 2) * pitch + 4 * c + part];
                }
            }
            if (t.y0 + warp * ROWS + row < p.out_h && x < p.out_w && t.n < p.n) {
                *(uint4 *)to = make_uint4(T::pack(v[0], v[1]), T::pack(v[2], v[3]), 0, 0);
            }
        }
    }

    /* 1 for kinds and numbers of residuals without specialised code. */
    template <int WAYS> static __device__ __forceinline__ bool is_seldom(const dvk_conv_wgmma &p) {
        const int res = p.epi.n_res;
        const bool bare = WAYS & WAY_BARE;
        switch (p.epilogue) {
        case DVK_WGMMA_LINEAR:
            return (WAYS & WAY_OWN) && p.own ? res == 2 : bare && res > 0;
        case DVK_WGMMA_SLOPE:
            return res > (bare ? 0 : 1);
        case DVK_WGMMA_SLOPE_LAST:
            return bare || res != 1;
        case DVK_WGMMA_SILU:
            return res > 0;
        default:
            return false;
        }
    }

    template <class T, int WAYS>
    __device__ __forceinline__ void write_and_count(const dvk_conv_wgmma &p, const conv_tile &t, int thread,
                                                    float (&sum)[128]) {
        const int wide = min(p.out_w - t.x0, DVK_WGMMA_TILE_W), high = min(p.out_h - t.y0, DVK_WGMMA_TILE_H);
        const bool whole = wide == DVK_WGMMA_TILE_W && high == DVK_WGMMA_TILE_H;
        conv_sums sums(high, wide, 2 * (thread & 3));
        if (p.epi.n_res > 0 && whole) {
            write<T, DVK_WGMMA_LINEAR, 1, COUNT_WHOLE, 0, WAYS & WAY_BARE>(p, t, thread, sum, sums);
        } else if (whole) {
            write<T, DVK_WGMMA_LINEAR, 0, COUNT_WHOLE>(p, t, thread, sum, sums);
        } else {
            write<T, KIND_OF_LAUNCH, RES_OF_LAUNCH, COUNT_EDGE, 0, true>(p, t, thread, sum, sums);
        }
        statistics(p, t, thread, wide, high, sums);
    }

    template <class T>
    __device__ __forceinline__ void write_and_sum(const dvk_conv_wgmma &p, const conv_tile &t, int thread,
                                                  float (&sum)[128]) {
        const int wide = min(p.out_w - t.x0, DVK_WGMMA_TILE_W), high = min(p.out_h - t.y0, DVK_WGMMA_TILE_H);
        conv_sums sums(t.n < p.n ? high : 0, wide, 2 * (thread & 3));
        if (wide == DVK_WGMMA_TILE_W && high == DVK_WGMMA_TILE_H && t.n < p.n) {
            write<T, DVK_WGMMA_SLOPE, 0, SUM_WHOLE>(p, t, thread, sum, sums);
        } else {
            write<T, DVK_WGMMA_SLOPE, 0, SUM_EDGE, 0, true>(p, t, thread, sum, sums);
        }
        total[0] += sums.s[0][0] + sums.s[0][1];
        total[1] += sums.s[1][0] + sums.s[1][1];
    }

    /* After the last tile. All tiles of a warpgroup have the same channels. */
    __device__ __forceinline__ void store_sums(const dvk_conv_wgmma &p, int thread) const {
        const int lane = thread & 31, c = (p.split ? 0 : group * 64) + (thread >> 5) * 16 + lane / 4;
        float *row = p.sums + (int64_t)(p.split ? 2 * blockIdx.x + group : blockIdx.x) * p.epi.c_out;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float s = total[i] + __shfl_xor_sync(0xffffffffu, total[i], 1);
            s += __shfl_xor_sync(0xffffffffu, s, 2);
            if ((lane & 3) == 0 && c + 8 * i < p.epi.c_out) {
                row[c + 8 * i] = s;
            }
        }
    }

    template <class T, int WAYS>
    __device__ __forceinline__ void store(const dvk_conv_wgmma &p, const conv_tile &t, int thread, float (&sum)[128]) {
        enum { BARE = WAYS & WAY_BARE };
        conv_sums none(0, 0, 0);
        if (is_seldom<WAYS>(p)) {
            write<T, KIND_OF_LAUNCH, RES_OF_LAUNCH, COUNT_NONE, WAYS & WAY_OWN, true>(p, t, thread, sum, none);
            return;
        }
        switch (p.epilogue) {
        case DVK_WGMMA_LINEAR:
            if ((WAYS & WAY_OWN) && p.own) {
                write<T, DVK_WGMMA_LINEAR, 1, COUNT_NONE, 1>(p, t, thread, sum, none);
            } else if (BARE || p.epi.n_res == 0) {
                write<T, DVK_WGMMA_LINEAR, 0, COUNT_NONE>(p, t, thread, sum, none);
            } else if (p.epi.n_res == 1) {
                write<T, DVK_WGMMA_LINEAR, BARE ? 0 : 1, COUNT_NONE>(p, t, thread, sum, none);
            } else {
                write<T, DVK_WGMMA_LINEAR, BARE ? 0 : 2, COUNT_NONE>(p, t, thread, sum, none);
            }
            break;
        case DVK_WGMMA_STATISTICS:
            write_and_count<T, WAYS>(p, t, thread, sum);
            break;
        case DVK_WGMMA_SLOPE:
            if ((WAYS & WAY_SUMS) && p.sums) {
                write_and_sum<T>(p, t, thread, sum);
            } else if (BARE || p.epi.n_res == 0) {
                write<T, DVK_WGMMA_SLOPE, 0, COUNT_NONE>(p, t, thread, sum, none);
            } else {
                write<T, DVK_WGMMA_SLOPE, BARE ? 0 : 1, COUNT_NONE>(p, t, thread, sum, none);
            }
            break;
        case DVK_WGMMA_SLOPE_LAST:
            if (!BARE) {
                write<T, DVK_WGMMA_SLOPE_LAST, 1, COUNT_NONE>(p, t, thread, sum, none);
            }
            break;
        case DVK_WGMMA_SILU:
            write<T, DVK_WGMMA_SILU, 0, COUNT_NONE>(p, t, thread, sum, none);
            break;
        case DVK_WGMMA_GATE:
            write<T, DVK_WGMMA_GATE, 1, COUNT_NONE, 0, BARE>(p, t, thread, sum, none);
            break;
        case DVK_WGMMA_CURVE:
            write<T, DVK_WGMMA_CURVE, 0, COUNT_NONE, 0, true>(p, t, thread, sum, none);
            break;
        case DVK_WGMMA_TIMES:
            if (WAYS & WAY_TIMES) {
                write<T, DVK_WGMMA_TIMES, RES_OF_LAUNCH, COUNT_NONE, 0, true>(p, t, thread, sum, none);
            }
            break;
        case DVK_WGMMA_PIXELS:
            if (WAYS & WAY_PIXELS) {
                pixels<T>(p, t, thread, sum);
            }
            break;
        default:
            any(p, t, thread, sum);
        }
    }
};

#endif
