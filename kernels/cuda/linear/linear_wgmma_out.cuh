// linear_wgmma_out.cuh - the epilogue of a warpgroup's 64 rows. Of every eight columns a thread has the two at 2 (lane
// % 4), in rows lane / 4 and lane / 4 + 8 of its warp's sixteen. 32 columns at a time go through shared memory and are
// stored by bulk copies, which clip at the edges of y.
#pragma once

#include "kernels/cuda/linear/linear_many.cuh"
#include "kernels/cuda/linear/linear_wgmma.h"
#include "kernels/cuda/linear/linear_wgmma_ptx.cuh"

struct linear_spot { // of a warpgroup
    int row, column;
};

// AHEAD: chunks whose residuals are in flight.
template <int BN, bool GLU, int AHEAD> struct linear_outlet {
    enum { OUT = GLU ? BN / 2 : BN, CHUNKS = OUT / DVK_LINEAR_CHUNK };
    const dvk_linear_wgmma &p;
    const uint32_t at, biases; // shared memory of this warpgroup: two halves; 256 floats
    const int group;
    int half = 0;
    float2 res[AHEAD][8];
    float bias[2];

    __device__ __forceinline__ linear_outlet(const dvk_linear_wgmma &params, uint32_t out, uint32_t bias_at, int which)
        : p(params), at(out), biases(bias_at), group(which) {
    }

    // Row and column of pair i of chunk c within the tile.
    static __device__ __forceinline__ int row_of(int i) {
        return (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7) + (i & 1) * 8;
    }
    static __device__ __forceinline__ int column_of(int c, int i) {
        return c * DVK_LINEAR_CHUNK + i / 2 * 8 + 2 * (threadIdx.x & 3);
    }

    __device__ __forceinline__ void bring_bias(const linear_spot &t) {
        const int thread = threadIdx.x & 127;
        bias[0] = linear_bias(p.out, t.column + thread);
        bias[1] = linear_bias(p.out, t.column + thread + (GLU ? p.second : 128));
    }

    __device__ __forceinline__ void bring_residual(const linear_spot &t, int c) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = t.row + row_of(i), column = t.column + column_of(c, i);
            float2 v = make_float2(0.0f, 0.0f);
            if (row < p.out.m && column < p.out.n) {
                const int64_t from = row * p.out.res_row + column;
                if (p.out.res_form == DVK_F32) {
                    v = *(const float2 *)((const float *)p.out.res + from);
                } else {
                    v.x = __uint_as_float(*(const uint32_t *)((const uint16_t *)p.out.res + from));
                }
            }
            res[c % AHEAD][i] = v;
        }
    }

    // Runs while the last products are in flight.
    __device__ __forceinline__ void prepare(const linear_spot &t) {
        if (p.out.res != nullptr) {
#pragma unroll
            for (int c = 0; c < AHEAD && c < CHUNKS; c++) {
                bring_residual(t, c);
            }
        }
    }

    __device__ __forceinline__ void add_residual(int c, float (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float2 r = res[c % AHEAD][i];
            if (p.out.res_form != DVK_F32) {
                r = linear_unpack(__float_as_uint(r.x), p.out.res_form);
            }
            v[2 * i] += r.x, v[2 * i + 1] += r.y;
        }
    }

    static __device__ __forceinline__ float2 bias_at(uint32_t from) {
        float2 b;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(b.x), "=f"(b.y) : "r"(from));
        return b;
    }

    __device__ __forceinline__ void finish(const linear_spot &t, int c, const float (&sum)[BN / 2], float (&v)[16]) {
        const float *s = sum + c * 16, *other = s + BN / 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 b = bias_at(biases + 4 * column_of(c, i));
            v[2 * i] = s[2 * i] + b.x, v[2 * i + 1] = s[2 * i + 1] + b.y;
        }
        linear_activate(v, p.out.act);
        if (GLU) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float2 b = bias_at(biases + 4 * (column_of(c, i) + BN / 2));
                v[2 * i] *= other[2 * i] + b.x, v[2 * i + 1] *= other[2 * i + 1] + b.y;
            }
        }
        if (p.out.res != nullptr) {
            add_residual(c, v);
            if (c + AHEAD < CHUNKS) {
                bring_residual(t, c + AHEAD);
            }
        }
    }

    // Rows of 64 bytes with the 64-byte swizzle.
    __device__ __forceinline__ void write_16(uint32_t to, const float (&v)[16]) const {
        const int lane = threadIdx.x & 31, row = row_of(0) - lane / 4 + (lane & 15);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const uint32_t spot = to + row * 64 + (((j + lane / 16) ^ (row >> 1 & 3)) * 16);
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(spot),
                         "r"(linear_pack(v[4 * j], v[4 * j + 1], p.out.y_form)),
                         "r"(linear_pack(v[4 * j + 2], v[4 * j + 3], p.out.y_form)),
                         "r"(linear_pack(v[4 * j + 4], v[4 * j + 5], p.out.y_form)),
                         "r"(linear_pack(v[4 * j + 6], v[4 * j + 7], p.out.y_form))
                         : "memory");
        }
    }

    // Rows of 128 bytes with the 128-byte swizzle.
    __device__ __forceinline__ void write_32(uint32_t to, const float (&v)[16]) const {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = row_of(i), piece = i / 2 * 2 + (threadIdx.x >> 1 & 1);
            const uint32_t spot = to + row * 128 + ((piece ^ (row & 7)) * 16) + (threadIdx.x & 1) * 8;
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(spot), "f"(v[2 * i]), "f"(v[2 * i + 1]) : "memory");
        }
    }

    // A bulk copy writes whole pieces of 16 bytes. If y ends within a piece, that piece is stored element by element.
    __device__ __forceinline__ void write_edge(uint32_t from, int row0, int column0, bool wide) const {
#pragma unroll 1
        for (int i = threadIdx.x & 127; i < 64 * DVK_LINEAR_CHUNK; i += 128) {
            const int r = i / DVK_LINEAR_CHUNK, c = i % DVK_LINEAR_CHUNK;
            if (row0 + r >= p.out.m || column0 + c >= p.out.n) {
                continue;
            }
            const int64_t to = (row0 + r) * p.out.y_row + column0 + c;
            if (wide) {
                const uint32_t spot = from + r * 128 + ((c / 4 ^ (r & 7)) * 16) + c % 4 * 4;
                uint32_t v;
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(spot) : "memory");
                ((uint32_t *)p.out.y)[to] = v;
            } else {
                const uint32_t spot = from + r * 64 + ((c / 8 ^ (r >> 1 & 3)) * 16) + c % 8 * 2;
                uint16_t v;
                asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(spot) : "memory");
                ((uint16_t *)p.out.y)[to] = v;
            }
        }
    }

    // Stores a chunk from shared memory; all threads call it.
    __device__ __forceinline__ void send(const linear_spot &t, int c, uint32_t from, bool wide) const {
        const int column = t.column + c * DVK_LINEAR_CHUNK;
        if (p.ragged && column + DVK_LINEAR_CHUNK > p.out.n) {
            write_edge(from, t.row, column, wide);
        } else if ((threadIdx.x & 127) == 0) {
            matrix_out(&p.y, column, t.row, from);
        }
    }

    __device__ __forceinline__ void store(const linear_spot &t, const float (&sum)[BN / 2]) {
        const int thread = threadIdx.x & 127;
        const bool wide = p.out.y_form == DVK_F32; // a half holds one chunk, otherwise two
        if (thread < BN / 2 || !GLU) {
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(biases + 4 * thread), "f"(bias[0]) : "memory");
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(biases + 4 * (thread + (GLU ? BN / 2 : 128))), "f"(bias[1])
                         : "memory");
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float v[16];
            const uint32_t to = at + half * (DVK_LINEAR_OUT / 2);
            if (wide || c % 2 == 0) {
                if (thread == 0) {
                    copy_out_read<1>();
                }
                named_barrier(1 + group, 128);
            }
            finish(t, c, sum, v);
            if (wide) {
                write_32(to, v);
            } else {
                write_16(to + c % 2 * 4096, v);
            }
            if (wide || c % 2 == 1 || c == CHUNKS - 1) {
                fence_async();
                named_barrier(1 + group, 128);
                if (!wide && c % 2 == 1) {
                    send(t, c - 1, to, wide);
                }
                send(t, c, wide ? to : to + c % 2 * 4096, wide);
                if (thread == 0) {
                    matrix_out_commit();
                }
                half ^= 1;
            }
        }
    }
};
