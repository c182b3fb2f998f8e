// swin_window_warps.cu - layer norm, queries, keys and values, attention in windows of 8 x 8, projection and residual
// of 64 channels in four heads of 16. Each warp processes a window without the other warps.
//
// The sums of one product are the operands of the next. Keys leave their product in the layout of the product with
// queries; values are transposed in between. Normalised pixels, queries and the results of the heads are kept in shared
// memory. Only the thread that wrote them reads them. Loops must be short, because each warp is at a different
// instruction.
#include "kernels/cuda/pixels/pixel_mma.cuh"
#include "kernels/cuda/window/swin.h"

#if __CUDA_ARCH__ >= 800

using namespace pixel;

namespace {

enum {
    SIDE = DVK_SWIN_WINDOW,
    DIM = DVK_SWIN_DIM / 2,
    HEADS = C / DIM,
    ROWS = 3 * DIM, // of a head's weights: queries, keys, values
    SPREAD = 2 * SIDE - 1,
    PIECE = 512, // bytes of a warp's operand of 16 by 16
    PIXELS = 3 * 4 // first normalised pixels; results of heads 0 to 2 precede them, those of head 3 overwrite the first
};

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Transposes an 8 x 8 matrix, of which a thread has two adjacent elements
__device__ __forceinline__ uint32_t transposed(uint32_t v) {
    uint32_t t;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
    return t;
}

struct tables {
    unsigned char *w_in, *w_out;                     // [head][ROWS] and [channel] lines
    float *positions, *queries, *out, *gamma, *beta; // biases: [head][SPREAD * SPREAD], [C], [C]
    unsigned char *warps;

    __device__ __forceinline__ explicit tables(unsigned char *at) {
        w_in = at;
        w_out = w_in + HEADS * ROWS * LINE;
        positions = (float *)(w_out + C * LINE);
        queries = positions + HEADS * DVK_SWIN_TABLE;
        out = queries + C;
        gamma = out + C;
        beta = gamma + C;
        warps = (unsigned char *)(beta + C);
    }

    // Matrices packed as in swin.h for heads of 16; the columns of the second are in the order of a thread's operands.
    __device__ __forceinline__ void load_matrices(const dvk_swin_params &p) const {
        for (int i = threadIdx.x; i < HEADS * ROWS * 8; i += blockDim.x) {
            const int row = i / 8, head = row / ROWS, octet = i % 8, in_head = row % ROWS;
            const int from = in_head / DIM * DVK_SWIN_DIM + in_head % DIM;
            *(uint4 *)(w_in + place(row, row & 1, octet)) =
                ((const uint4 *)p.w_in)[(head * 3 * DVK_SWIN_DIM + from) * 8 + ((octet ^ from) & 7)];
        }
        for (int i = threadIdx.x; i < C * C / 2; i += blockDim.x) {
            const int row = i / (C / 2), word = i % (C / 2), piece = word / 4, q = piece % 4, v = word % 4;
            const int from = channel_of(row), head = piece / 4 * 2 + v / 2;
            const int octet = ((v % 2) ^ (from >> 1)) & 3;
            *(uint32_t *)(w_out + place(row, row & 1, piece) + v * 4) =
                ((const uint32_t *)p.w_out)[(head * C + from) * (DVK_SWIN_DIM / 2) + octet * 4 + q];
        }
    }

    // A constant added to all keys does not change the softmax, so their bias is dropped. The bias of values is the
    // same in every sum, so it moves to the output bias.
    template <int TYPE> __device__ __forceinline__ void load_vectors(const dvk_swin_params &p) const {
        for (int i = threadIdx.x; i < HEADS * DVK_SWIN_TABLE; i += blockDim.x) {
            positions[i] = p.table != nullptr ? p.table[i] * 1.44269504f : 0.0f;
        }
        for (int i = threadIdx.x; i < C; i += blockDim.x) {
            queries[i] = p.b_in != nullptr ? p.b_in[i] : 0.0f;
            gamma[i] = p.gamma != nullptr ? p.gamma[i] : 1.0f;
            beta[i] = p.beta != nullptr ? p.beta[i] : 0.0f;
            float sum = p.b_out != nullptr ? p.b_out[i] : 0.0f;
            for (int k = 0; k < C && p.b_in != nullptr; k++) {
                const int octet = (k % DIM / 8 ^ i >> 1) & 3;
                const uint32_t w = ((const uint16_t *)p.w_out)[(k / DIM * C + i) * DVK_SWIN_DIM + octet * 8 + k % 8];
                sum = fmaf(f32_of(w, TYPE), p.b_in[2 * C + k], sum);
            }
            out[i] = sum;
        }
    }
};

template <int TYPE> struct attend {
    const dvk_swin_params &p;
    const tables &t;
    unsigned char *stage; // the warp's
    const int lane = threadIdx.x % 32, q = lane % 4, r = lane / 4;
    int x, y, n, cut; // of the thread's first pixel: that of row 0 and column r

    __device__ __forceinline__ void find(int window) {
        const int column = window % p.across, rest = window / p.across, row = rest % p.down;
        n = rest / p.down;
        y = p.grid ? row : row * SIDE + p.shift_y;
        x = p.grid ? r * p.across + column : column * SIDE + r + p.shift_x;
        x -= x >= p.w ? p.w : 0;
        cut = (p.shift_y > 0 && row == p.down - 1) | (p.shift_x > 0 && column == p.across - 1) << 1;
    }

    // Offset of the thread's pixel of row ty; a pitch fits into 32 bits.
    __device__ __forceinline__ int64_t offset_of(int ty, int64_t pitch) const {
        int at = y + (p.grid ? ty * p.down : ty);
        at -= at >= p.h ? p.h : 0;
        return (int64_t)((n * p.h + at) * p.w + x) * (int)pitch + q * 8;
    }

    // Operand i in shared memory
    __device__ __forceinline__ uint4 *waiting(int i) const {
        return (uint4 *)(stage + i * PIECE + lane * 16);
    }

    __device__ __forceinline__ void load_rows(const void *from, int64_t pitch, int m, uint4 (&v)[2][2]) const {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint16_t *at = (const uint16_t *)from + offset_of(2 * m + j, pitch);
            v[j][0] = *(const uint4 *)at;
            v[j][1] = *(const uint4 *)(at + 32);
        }
    }

    __device__ __forceinline__ void normalise(const uint4 (&v)[2][2], uint32_t (&a)[4][4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            set_row(a, i / 2, i % 2, v[i / 2][i % 2]);
        }
        float scale[2], left[2];
        deviations<TYPE>(a, p.eps, scale, left);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int c = i / 4 * 32 + q * 8 + i % 4 * 2; // of the pair in both rows
            const float2 gamma = *(const float2 *)(t.gamma + c), beta = *(const float2 *)(t.beta + c);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t &pair = a[i / 2][i % 2 * 2 + j];
                const float2 d = unpack2<TYPE>(pair);
                const float s = scale[j], shift = -left[j] * s;
                pair =
                    pack2<TYPE>(fmaf(fmaf(d.x, s, shift), gamma.x, beta.x), fmaf(fmaf(d.y, s, shift), gamma.y, beta.y));
            }
        }
    }

    __device__ __forceinline__ void load() const {
        uint4 raw[4][2][2];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            load_rows(p.x, p.x_pitch, m, raw[m]);
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint32_t a[4][4];
            normalise(raw[m], a);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                *waiting(PIXELS + m * 4 + k) = make_uint4(a[k][0], a[k][1], a[k][2], a[k][3]);
            }
        }
    }

    // Sixteen rows of a head's weights: [eight of them][32 channels]
    __device__ __forceinline__ void load_weights(int row, uint4 (&w)[2][2]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i / 2][i % 2] = *(const uint4 *)(t.w_in + place(row + i / 2 * 8 + r, r & 1, i % 2 * 4 + q));
        }
    }

    // Multiplies sixteen pixels with eight rows of weights
    static __device__ __forceinline__ void project(float (&d)[4], const uint32_t (&a)[4][4], const uint4 (&w)[2]) {
#pragma unroll
        for (int u = 0; u < 2; u++) {
            multiply<TYPE>(d, a[2 * u], w[u].x, w[u].y);
            multiply<TYPE>(d, a[2 * u + 1], w[u].z, w[u].w);
        }
    }

    // Stores queries as left operands, in the place of their later results; keys and values, eight of each, are right
    // operands.
    __device__ __forceinline__ void make_head(int head, uint32_t (&keys)[8][2], uint32_t (&values)[8][2]) const {
        uint4 wq[2][2], wk[2][2], wv[2][2];
        load_weights(head * ROWS, wq);
        load_weights(head * ROWS + DIM, wk);
        load_weights(head * ROWS + 2 * DIM, wv);
        const float2 bias[2] = {*(const float2 *)(t.queries + head * DIM + q * 2),
                                *(const float2 *)(t.queries + head * DIM + 8 + q * 2)};
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint32_t a[4][4], query[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint4 v = *waiting(PIXELS + m * 4 + k);
                a[k][0] = v.x, a[k][1] = v.y, a[k][2] = v.z, a[k][3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float dq[4] = {bias[i].x, bias[i].y, bias[i].x, bias[i].y}, dk[4] = {}, dv[4] = {};
                project(dq, a, wq[i]);
                project(dk, a, wk[i]);
                project(dv, a, wv[i]);
                query[2 * i] = pack2<TYPE>(dq[0], dq[1]);
                query[2 * i + 1] = pack2<TYPE>(dq[2], dq[3]);
                keys[2 * m][i] = pack2<TYPE>(dk[0], dk[1]);
                keys[2 * m + 1][i] = pack2<TYPE>(dk[2], dk[3]);
                values[2 * m][i] = transposed(pack2<TYPE>(dv[0], dv[1]));
                values[2 * m + 1][i] = transposed(pack2<TYPE>(dv[2], dv[3]));
            }
            *waiting(head * 4 + m) = make_uint4(query[0], query[1], query[2], query[3]);
        }
    }

    // Masks rows or columns of queries and keys on different sides of the picture's end
    __device__ __forceinline__ void mask(int m, float (&s)[8][4]) const {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int ty = 2 * m + i / 2 % 2, key = q * 2 + i % 2;
            const int differ = ((ty >= SIDE - p.shift_y) != (i / 4 >= SIDE - p.shift_y)) |
                               ((r >= SIDE - p.shift_x) != (key >= SIDE - p.shift_x)) << 1;
            s[i / 4][i % 4] += differ & cut ? -100.0f * 1.44269504f : 0.0f;
        }
    }

    // For rows 2 m and 2 m + 1 of queries. Key n * 8 + tx is in row n, so the bias of positions depends only on the
    // distance of the rows.
    __device__ __forceinline__ void weigh(int head, int m, const uint32_t (&keys)[8][2], uint32_t (&e)[4][4]) const {
        const uint4 v = *waiting(head * 4 + m);
        const uint32_t query[4] = {v.x, v.y, v.z, v.w};
        const float *from = t.positions + head * DVK_SWIN_TABLE + 2 * m * SPREAD + r - q * 2 + SIDE - 1;
        float2 positions[SIDE + 1]; // for keys n rows above the first of the queries, from 7 down to -1
#pragma unroll
        for (int i = 0; i <= SIDE; i++) {
            positions[i] = make_float2(from[i * SPREAD], from[i * SPREAD - 1]);
        }
        float s[8][4] = {};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            multiply<TYPE>(s[k], query, keys[k][0], keys[k][1]);
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float2 &add = positions[i / 2 % 2 - i / 4 + SIDE - 1];
            s[i / 4][i % 4] = fmaf(s[i / 4][i % 4], p.scale_log2, i % 2 ? add.y : add.x);
        }
        if (cut != 0) {
            mask(m, s);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float top = s[0][2 * j];
#pragma unroll
            for (int i = 1; i < 16; i++) {
                top = fmaxf(top, s[i / 2][2 * j + i % 2]);
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
#pragma unroll
            for (int k = 0; k < 8; k++) {
                e[k / 2][k % 2 * 2 + j] = pack2<TYPE>(exp2_fast(s[k][2 * j] - top), exp2_fast(s[k][2 * j + 1] - top));
            }
        }
    }

    // The head's 16 channels of 16 pixels, as a left operand; the same products sum the exponentials.
    __device__ __forceinline__ uint4 add_values(const uint32_t (&e)[4][4], const uint32_t (&values)[8][2]) const {
        const uint32_t ones = pack2<TYPE>(1.0f, 1.0f);
        float o[2][4] = {}, sum[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            multiply<TYPE>(o[0], e[k], values[2 * k][0], values[2 * k + 1][0]);
            multiply<TYPE>(o[1], e[k], values[2 * k][1], values[2 * k + 1][1]);
            multiply<TYPE>(sum, e[k], ones, ones);
        }
        const float first = act_reciprocal(sum[0]), second = act_reciprocal(sum[2]);
        return make_uint4(
            pack2<TYPE>(o[0][0] * first, o[0][1] * first), pack2<TYPE>(o[0][2] * second, o[0][3] * second),
            pack2<TYPE>(o[1][0] * first, o[1][1] * first), pack2<TYPE>(o[1][2] * second, o[1][3] * second));
    }

    __device__ __forceinline__ void attend_head(int head) const {
        uint32_t keys[8][2], values[8][2];
        make_head(head, keys, values);
#pragma unroll 1
        for (int m = 0; m < 4; m++) {
            uint32_t e[4][4];
            weigh(head, m, keys, e);
            *waiting(head * 4 + m) = add_values(e, values);
        }
    }

    __device__ __forceinline__ void put(int m, int j, int u, const float (&d)[TILES][4], const uint4 &res) const {
        float v[8], add[8];
        unpack<TYPE>(raw8{res, {}}, TYPE, add);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = d[u * 4 + i / 2][j * 2 + i % 2] + add[i];
        }
        *(uint4 *)((uint16_t *)p.y + offset_of(2 * m + j, p.y_pitch) + u * 32) = pack<TYPE>(v, TYPE).a;
    }

    __device__ __forceinline__ void store(int m) const {
        uint4 res[2][2] = {};
        uint32_t a[4][4];
        float d[TILES][4];
        if (p.res != nullptr) {
            load_rows(p.res, p.res_pitch, m, res);
        }
#pragma unroll
        for (int head = 0; head < HEADS; head++) {
            const uint4 v = *waiting(head * 4 + m);
            a[head][0] = v.x, a[head][1] = v.y, a[head][2] = v.z, a[head][3] = v.w;
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const float2 bias = *(const float2 *)(t.out + tile / 4 * 32 + q * 8 + tile % 4 * 2);
            const uint4 w[2] = {*(const uint4 *)(t.w_out + place(tile * 8 + r, r & 1, q)),
                                *(const uint4 *)(t.w_out + place(tile * 8 + r, r & 1, 4 + q))};
            d[tile][0] = d[tile][2] = bias.x, d[tile][1] = d[tile][3] = bias.y;
            project(d[tile], a, w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            put(m, i / 2, i % 2, d, res[i / 2][i % 2]);
        }
    }

    __device__ __forceinline__ void run() {
        const int warps = blockDim.x / 32;
        for (int window = threadIdx.x / 32 * gridDim.x + blockIdx.x; window < p.tiles; window += gridDim.x * warps) {
            find(window);
            load();
#pragma unroll 1
            for (int head = 0; head < HEADS; head++) {
                attend_head(head);
            }
#pragma unroll 1
            for (int m = 0; m < 4; m++) {
                store(m);
            }
        }
    }
};

template <int TYPE> __device__ __forceinline__ void attention(const dvk_swin_params &p) {
    extern __shared__ __align__(16) unsigned char shared[];
    const tables t(shared);
    t.load_matrices(p);
    t.load_vectors<TYPE>(p);
    __syncthreads();
    wait_for_launch_ahead();
    attend<TYPE> a = {p, t, t.warps + threadIdx.x / 32 * DVK_SWIN_WARP_BYTES};
    a.run();
}

} // namespace

extern "C" __global__ void __launch_bounds__(32 * DVK_SWIN_WARPS, 1)
    swin_window_warps_f16(const __grid_constant__ dvk_swin_params p) {
    attention<DVK_F16>(p);
}

extern "C" __global__ void __launch_bounds__(32 * DVK_SWIN_WARPS, 1)
    swin_window_warps_bf16(const __grid_constant__ dvk_swin_params p) {
    attention<DVK_BF16>(p);
}

#endif
