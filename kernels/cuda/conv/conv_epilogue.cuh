/* conv_epilogue.cuh - from sums in shared memory to the output: the complete epilogue of op.h, the pixel shuffle, and
 * the statistics of the stored values. Everything is inlined; the branches are uniform. Aligned views of the kernel's
 * type have a fast path. All other cases run one channel at a time. */
#ifndef DVK_CUDA_CONV_EPILOGUE_CUH
#define DVK_CUDA_CONV_EPILOGUE_CUH

#include "kernels/cuda/conv/conv_common.cuh"

/* The first element of a view that belongs to the block; offsets from it fit 32 bits. */
CONV_DEVICE char *conv_origin(const dvk_conv_view &v, const conv_block &b, int step) {
    const int64_t y = (int64_t)b.y0 * step + (b.phase >> 1), x = (int64_t)b.x0 * step + (b.phase & 1);
    return (char *)v.data + (b.n * v.sn + y * v.sh + x * v.sw) * (v.dtype == CONV_F32 ? 4 : 2);
}

CONV_DEVICE int conv_pixel(const dvk_conv_view &v, int y, int x) {
    return y * (int)v.sh + x * (int)v.sw;
}

struct conv_out {
    char *y;
    const char *res[2];
    const float *bias, *slopes; /* in shared memory, of the block's channels */
};

CONV_DEVICE conv_out conv_out_of(const dvk_conv_epi &e, const conv_block &b, const float *vectors, int n) {
    conv_out o;
    o.y = conv_origin(e.y, b, e.shuffle * e.step);
    o.res[0] = e.n_res > 0 ? conv_origin(e.res[0], b, e.step) : nullptr;
    o.res[1] = e.n_res > 1 ? conv_origin(e.res[1], b, e.step) : nullptr;
    o.bias = vectors;
    o.slopes = vectors + n;
    return o;
}

/* Loads bias and slopes of N channels to shared memory, 0 if there are none. */
template <int N, int THREADS> CONV_DEVICE void conv_load_vectors(const dvk_conv_epi &e, int n0, float *vectors) {
    for (int i = threadIdx.x; i < N; i += THREADS) {
        const bool there = n0 + i < e.c_out;
        vectors[i] = there && e.bias ? e.bias[n0 + i] : 0.0f;
        vectors[N + i] = e.act == CONV_LRELU ? e.slope : there && e.act == CONV_PRELU ? e.slopes[n0 + i] : 0.0f;
    }
}

/* Channel c (of the image; n of the block) of pixel (y, x) of the block, from its sum. Returns the stored value. */
CONV_DEVICE float conv_epilogue1(const dvk_conv_epi &e, const conv_out &o, float sum, int y, int x, int c, int n) {
    float v[1] = {sum + o.bias[n]};
    if (e.gate) {
        const float r = conv_load1(o.res[0], e.res[0].dtype, conv_pixel(e.res[0], y, x) * e.step + c);
        v[0] = (v[0] + r) * (conv_sigmoid(v[0]) - 0.5f);
    } else {
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) { /* one copy of the activations */
            if ((e.act_last != 0) == pass) {
                conv_act(v, e.act, o.slopes + n);
            }
            if (pass == 0) {
                v[0] *= e.alpha;
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    if (k < e.n_res) {
                        const int at = conv_pixel(e.res[k], y, x) * e.step + c;
                        v[0] = fmaf(e.beta[k], conv_load1(o.res[k], e.res[k].dtype, at), v[0]);
                    }
                }
            }
        }
    }
    return conv_store1(o.y, e.y.dtype, conv_pixel(e.y, y, x) * e.step + c, v[0]);
}

/* Value of one channel before the shuffle. */
CONV_DEVICE float conv_shuffle_value(const dvk_conv_epi &e, const conv_out &o, float sum, int n) {
    float v[1] = {sum + o.bias[n]};
    v[0] *= e.act_last ? e.alpha : 1.0f;
    conv_act(v, e.act, o.slopes + n);
    return v[0] * (e.act_last ? 1.0f : e.alpha);
}

/* One pixel (i, j) of the r x r of a shuffled pixel: channels [c_from, c_to) of the result, whose sums begin at `sums`;
 * the first is n of the block. */
CONV_DEVICE void conv_epilogue_shuffled(const dvk_conv_epi &e, const conv_out &o, const float *sums, int y, int x,
                                        int i, int j, int c_from, int c_to, int n) {
    const int r = e.shuffle, rr = r * r, ij = i * r + j;
    const int at = conv_pixel(e.y, y * r + i, x * r + j);
    const int from = e.n_res ? conv_pixel(e.res[0], y, x) : 0;
    int c = c_from ? (c_from - ij + rr - 1) / rr : 0;
    const bool pairs = e.y.vec && e.y.dtype != CONV_F32;
    bool waits = false;
    float last = 0;
#pragma unroll 1
    for (int k = c * rr + ij - c_from; k < c_to - c_from; c++, k += rr) {
        float t = conv_shuffle_value(e, o, sums[k], n + k);
        if (e.n_res) {
            t += conv_load1(o.res[0], e.res[0].dtype, from + c);
        }
        if (waits) {
            *(uint32_t *)((uint16_t *)o.y + at + c - 1) =
                e.y.dtype == CONV_F16 ? conv_pack_f16(last, t) : conv_pack_bf16(last, t);
            waits = false;
        } else if (pairs && c % 2 == 0 && k + rr < c_to - c_from) {
            waits = true;
        } else {
            conv_store1(o.y, e.y.dtype, at + c, t);
        }
        last = t;
    }
}

/* ---- stores: a warp takes 16 pixels of 8 * OCTETS channels from shared memory ---- */

template <class T, int OCTETS_> struct conv_writer {
    enum {
        OCTETS = OCTETS_,
        PITCH = 8 * OCTETS_ + 8, /* of a pixel, in floats */
        SLOTS = (16 * OCTETS_ + 31) / 32,
        EACH = SLOTS == 4 ? 2 : 1, /* slots at a time */
        STATS = 32 % OCTETS_ == 0  /* a lane has fixed eight channels */
    };
    const dvk_conv_params &p;
    const conv_block &b;
    const conv_out &o;
    float *rows;
    int n0, n; /* first channel; of the block */
    conv_channel_sums sums[8];
    float count;

    __device__ __forceinline__ bool place(int m, int &y, int &x) const {
        y = m >> p.tile_w_log2;
        x = m & ((1 << p.tile_w_log2) - 1);
        return b.y0 + y < p.out_h && b.x0 + x < p.out_w;
    }

    __device__ __forceinline__ bool slot(int s, int m0, int &row, int &c, int &y, int &x) const {
        const int i = (threadIdx.x & 31) + s * 32;
        row = i / OCTETS, c = i % OCTETS * 8;
        return place(m0 + row, y, x) && n0 + c < p.epi.c_out && i < 16 * OCTETS;
    }

    __device__ __forceinline__ void add_stats(const float (&v)[8]) {
        if (count == 0) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sums[i].pivot = v[i];
            }
        }
        count += 1;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float d = v[i] - sums[i].pivot;
            sums[i].s += d;
            sums[i].q = fmaf(d, d, sums[i].q);
        }
    }

    /* Any types, alignment and number of channels: one at a time. */
    __device__ __forceinline__ void singly(int m0) {
#pragma unroll 1
        for (int k = threadIdx.x & 31; k < 16 * 8 * OCTETS; k += 32) {
            const int row = k / (8 * OCTETS), c = k % (8 * OCTETS);
            int y, x;
            if (place(m0 + row, y, x) && n0 + c < p.epi.c_out) {
                rows[row * PITCH + c] = conv_epilogue1(p.epi, o, rows[row * PITCH + c], y, x, n0 + c, n + c);
            }
        }
        if (STATS && p.epi.stats) {
            __syncwarp();
#pragma unroll 1
            for (int s = 0; s < SLOTS; s++) {
                int row, c, y, x;
                if (slot(s, m0, row, c, y, x)) {
                    const float4 u = *(const float4 *)(rows + row * PITCH + c);
                    const float4 w = *(const float4 *)(rows + row * PITCH + c + 4);
                    const float v[8] = {u.x, u.y, u.z, u.w, w.x, w.y, w.z, w.w};
                    add_stats(v);
                }
            }
        }
    }

    __device__ __forceinline__ void shuffled(int m0) {
        const int r = p.epi.shuffle, inverse = 65536 / r + 1; /* exact up to r = 16 */
        const int last = min(n0 + OCTETS * 8, p.epi.c_out);
#pragma unroll 1
        for (int k = threadIdx.x & 31; k < 16 * r * r; k += 32) {
            const int rest = r <= 16 ? k * inverse >> 16 : k / r, i = rest >> 4, j = k - rest * r, row = rest & 15;
            int y, x;
            if (place(m0 + row, y, x)) {
                conv_epilogue_shuffled(p.epi, o, rows + row * PITCH, y, x, i, j, n0, last, n);
            }
        }
    }

    __device__ __forceinline__ void fetch(uint4 (&raw)[T::RAW], int k, int y, int x, int c) const {
        const int at = conv_pixel(p.epi.res[k], y, x) * p.epi.step + n0 + c;
        const uint4 *from = (const uint4 *)((k ? o.res[1] : o.res[0]) + (int64_t)at * T::BYTES);
#pragma unroll
        for (int i = 0; i < T::RAW; i++) {
            raw[i] = from[i];
        }
    }

    /* The transcendental activations, which are long and rare, one slot after the other. */
    __device__ __forceinline__ void activate(float (&v)[EACH][8], const int (&c)[EACH]) const {
        const int act = p.epi.act;
        if (act >= CONV_GELU) {
#pragma unroll 1
            for (int s = 0; s < EACH; s++) {
                conv_curve(v[0], act);
#pragma unroll
                for (int i = 0; i < 8 && EACH == 2; i++) { /* registers cannot be indexed at run time */
                    const float first = v[0][i];
                    v[0][i] = v[EACH - 1][i], v[EACH - 1][i] = first;
                }
            }
        } else if (act >= CONV_SILU) {
            conv_act<8 * EACH, false>(*(float(*)[8 * EACH]) v, act, nullptr);
        } else if (act) {
#pragma unroll
            for (int s = 0; s < EACH; s++) {
                conv_slope(v[s], o.slopes + n + c[s]);
            }
        }
    }

    /* The first residuals of all slots are in `raw`. */
    __device__ __forceinline__ void residuals(float (&v)[EACH][8], uint4 (&raw)[SLOTS][T::RAW],
                                              const bool (&there)[EACH], const int (&y)[EACH], const int (&x)[EACH],
                                              const int (&c)[EACH]) const {
#pragma unroll 1
        for (int k = 0; k < p.epi.n_res; k++) {
#pragma unroll
            for (int s = 0; s < EACH; s++) {
                if (k > 0 && there[s]) {
                    fetch(raw[s], k, y[s], x[s], c[s]);
                }
            }
            const bool gate = p.epi.gate && k == 0;
            const float beta = p.epi.beta[k];
#pragma unroll
            for (int s = 0; s < EACH; s++) {
                float r[8];
                conv_unpack_raw<T>(raw[s], r);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    v[s][i] = gate ? (v[s][i] + r[i]) * (conv_sigmoid(v[s][i]) - 0.5f) : fmaf(beta, r[i], v[s][i]);
                }
            }
        }
    }

    /* epi.fast: the same as singly(), with all values of EACH slots side by side. The loads of the first residuals of
     * all slots are in flight together. */
    __device__ __forceinline__ void fast(int m0) {
        uint4 raw[SLOTS][T::RAW];
#pragma unroll
        for (int s = 0; s < SLOTS; s++) {
            int row, c, y, x;
            if (slot(s, m0, row, c, y, x) && p.epi.n_res) {
                fetch(raw[s], 0, y, x, c);
            }
        }
        const bool last = p.epi.act_last;
        const float before = last ? p.epi.alpha : 1.0f, after = last ? 1.0f : p.epi.alpha;
#pragma unroll 1
        for (int s0 = 0; s0 < SLOTS; s0 += EACH) {
            float v[EACH][8];
            bool there[EACH];
            int row[EACH], c[EACH], y[EACH], x[EACH];
#pragma unroll
            for (int s = 0; s < EACH; s++) {
                there[s] = slot(s0 + s, m0, row[s], c[s], y[s], x[s]);
                const int at = SLOTS * 32 == 16 * OCTETS || there[s] ? row[s] * PITCH + c[s] : 0;
#pragma unroll
                for (int i = 0; i < 8; i += 4) {
                    const float4 u = *(const float4 *)(rows + at + i);
                    const float4 w = *(const float4 *)(o.bias + n + c[s] + i);
                    v[s][i] = (u.x + w.x) * before, v[s][i + 1] = (u.y + w.y) * before;
                    v[s][i + 2] = (u.z + w.z) * before, v[s][i + 3] = (u.w + w.w) * before;
                }
            }
#pragma unroll 1
            for (int pass = 0; pass < 2; pass++) { /* one copy of the activations and of the residuals */
                if (last == (pass > 0)) {
                    activate(v, c);
#pragma unroll
                    for (int i = 0; i < 8 * EACH; i++) {
                        v[i / 8][i % 8] *= after;
                    }
                } else if (p.epi.n_res) {
                    residuals(v, raw, there, y, x, c);
                }
            }
#pragma unroll
            for (int s = 0; s < EACH; s++) {
                if (there[s]) {
                    const int at = conv_pixel(p.epi.y, y[s], x[s]) * p.epi.step + n0 + c[s];
                    conv_store_raw<T>(o.y + (int64_t)at * T::BYTES, v[s]);
                    if (STATS && p.epi.stats) {
                        add_stats(v[s]);
                    }
                }
            }
#pragma unroll
            for (int s = 0; s + EACH < SLOTS; s++) {
#pragma unroll
                for (int i = 0; i < T::RAW; i++) {
                    raw[s][i] = raw[s + EACH][i];
                }
            }
        }
    }

    /* epi.whole: shuffled() by 2 or 4 with whole pixels of eight channels, zeros behind the last real one. */
    __device__ __forceinline__ void whole(int m0) {
        const int log2 = p.epi.shuffle >> 1, r = p.epi.shuffle; /* 1 and 2 */
        const int channels = p.epi.c_out >> (2 * log2);
        const float before = p.epi.act_last ? p.epi.alpha : 1.0f, after = p.epi.act_last ? 1.0f : p.epi.alpha;
#pragma unroll 2
        for (int k = threadIdx.x & 31; k < 16 << (2 * log2); k += 32) {
            const int j = k & (r - 1), row = (k >> log2) & 15, i = k >> (log2 + 4);
            int y, x;
            if (place(m0 + row, y, x)) {
                float t[4], slopes[4], add[8] = {}, v[8] = {};
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const int at = ((c < channels ? c : 0) << (2 * log2)) + (i << log2) + j;
                    t[c] = (rows[row * PITCH + at] + o.bias[n + at]) * before;
                    slopes[c] = o.slopes[n + at];
                }
                conv_act(t, p.epi.act, slopes);
                if (p.epi.n_res) {
                    uint4 raw[T::RAW];
                    fetch(raw, 0, y, x, 0);
                    conv_unpack_raw<T>(raw, add);
                }
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    v[c] = c < channels ? fmaf(t[c], after, add[c]) : 0.0f;
                }
                conv_store_raw<T>(o.y + (int64_t)conv_pixel(p.epi.y, y * r + i, x * r + j) * T::BYTES, v);
            }
        }
    }

    /* Pixels m0 .. m0 + 15 of the block. */
    __device__ __forceinline__ void write(int m0) {
        if (p.epi.fast) {
            fast(m0);
        } else if (p.epi.whole && n0 == 0 && p.epi.c_out <= 8 * OCTETS) {
            whole(m0);
        } else if (p.epi.shuffle > 1) {
            shuffled(m0);
        } else {
            singly(m0);
        }
    }

    /* Called by all warps after their last write: `parts` has `n_rows` rows of `channels`; this warp's part begins at
     * `mine`. */
    __device__ __forceinline__ void finish(conv_moments *parts, conv_moments *mine, int n_rows, int channels) {
        if (!STATS || !p.epi.stats) {
            return;
        }
        const int lane = threadIdx.x & 31;
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            conv_moments m = conv_sums_moments(sums[0], count);
#pragma unroll
            for (int d = OCTETS; d < 32; d *= 2) {
                m = conv_merge_lanes(m, d);
            }
            if (lane < OCTETS) {
                mine[lane * 8 + i] = m;
            }
#pragma unroll
            for (int k = 0; k < 7; k++) {
                sums[k] = sums[k + 1];
            }
        }
        __syncthreads();
        conv_store_stats(p.epi, parts, n_rows, channels, b.n_tile * channels,
                         (b.n * p.phases + b.phase) * p.tiles.by + b.tile);
    }
};

#endif
