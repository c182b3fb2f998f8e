/* conv_wgmma_shuffle.cuh - stores a row of 64 output pixels if each becomes R x R pixels of C channels without gaps: in
 * f32, or as a caller's picture. conv_wgmma_rows.c chooses the order of the output channels. A thread then has whole
 * pieces of up to 16 bytes of the enlarged rows, and adjacent pieces belong to adjacent lanes. Whole cache lines are
 * written, without a transposition in shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_SHUFFLE_CUH
#define DVK_CUDA_CONV_WGMMA_SHUFFLE_CUH

#include "kernels/cuda/conv/conv_wgmma_epilogue.cuh"
#include "kernels/cuda/pixels/convert.cuh"

template <int OUTPUTS, int R, int C> struct row_shuffler {
    enum {
        ROW = R * C, /* floats of an enlarged row that a pixel becomes */
        PIECE = DVK_ROWS_PIECE(R, C),
        PIECES = ROW / PIECE,
        PITCH = DVK_ROWS_PIECE_PITCH(R, C, OUTPUTS), /* of rows, in pieces; a thread has every fourth */
        MOVES = OUTPUTS / 4 / PIECE,
        /* from a thread's piece to its next: difference of their first channels */
        TURN = 4 * PIECE % C * (PITCH == PIECES)
    };
    const dvk_conv_rows &p;
    uint32_t table;
    int first; /* pixel of this warp's sixteen */

    /* The two pixels of the smaller picture whose nearest neighbours a thread computes: their channels, in its order,
     * as stored. */
    struct residual {
        uint32_t raw[2][C];
    };

    template <class U> __device__ __forceinline__ void bring_as(const U *from, int x, residual &r) const {
        const int begin = (threadIdx.x & 3) * PIECE % C;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int pixel = x + first + (threadIdx.x & 31) / 4 + 8 * h;
            int c = begin;
#pragma unroll
            for (int k = 0; k < C; k++) {
                r.raw[h][k] = pixel < p.out_w ? from[pixel * p.epi.res[0].sw + c] : 0;
                c = c + 1 == C ? 0 : c + 1;
            }
        }
    }

    /* Called long before the row is stored. */
    __device__ __forceinline__ void bring_first(int n, int y, int x, residual &r) const {
        const dvk_conv_view &v = p.epi.res[0];
        if (p.epi.n_res && v.dtype == CONV_F32) {
            bring_as((const uint32_t *)v.data + offset_of(v, n, y, 0), x, r);
        } else if (p.epi.n_res) {
            bring_as((const uint16_t *)v.data + offset_of(v, n, y, 0), x, r);
        }
    }

    __device__ __forceinline__ float skip(uint32_t raw) const {
        const int type = p.epi.res[0].dtype;
        return type == CONV_F32   ? __uint_as_float(raw)
               : type == CONV_F16 ? wgmma_half::unpack(raw).x
                                  : wgmma_bfloat::unpack(raw).x;
    }

    /* Stores into rows of elements of `image`, or of f32; `from`: the first of the enlarged rows. */
    template <int TYPE, bool PICTURE>
    __device__ __forceinline__ void store_as(unsigned char *from, int64_t step, int x, const float (&sum)[OUTPUTS / 2],
                                             const residual &r) const {
        const int lane = threadIdx.x & 31;
        float add[2][C];
#pragma unroll
        for (int k = 0; k < 2 * C; k++) {
            add[k / C][k % C] = p.epi.n_res ? skip(r.raw[k / C][k % C]) : 0.0f;
        }
#pragma unroll
        for (int t = 0; t < MOVES; t++) {
            const int number = 4 * t + (lane & 3), i = number / PITCH, piece = number - i * PITCH;
            float bias[PIECE];
#pragma unroll
            for (int e = 0; e < PIECE; e++) {
                const int s = t * PIECE + e;
                asm volatile("ld.shared.f32 %0, [%1];"
                             : "=f"(bias[e])
                             : "r"(table + (s / 2 * 8 + (lane & 3) * 2 + s % 2) * 4));
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int pixel = x + first + lane / 4 + 8 * h;
                uint32_t out[PIECE];
#pragma unroll
                for (int e = 0; e < PIECE; e++) {
                    const int s = t * PIECE + e;
                    const float v =
                        fmaf(p.epi.alpha, sum[s / 2 * 4 + h * 2 + s % 2] + bias[e], add[h][(t * TURN + e) % C]);
                    out[e] = PICTURE ? stored<TYPE>(p.picture, v) : __float_as_uint(v);
                }
                if (pixel < p.out_w && i < R && piece < PIECES) {
                    write_piece<TYPE, PIECE>(from + i * step + (pixel * ROW + piece * PIECE) * size_of(TYPE), out);
                }
            }
        }
    }

    __device__ __forceinline__ void store(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                          const residual &r) const {
        const dvk_convert_params &image = p.picture;
        const dvk_conv_view &v = p.epi.y;
        if (!p.stores) {
            unsigned char *rows = (unsigned char *)((float *)v.data + (n * v.sn + (int64_t)y * R * v.sh));
            store_as<DVK_F32, false>(rows, v.sh * 4, x, sum, r);
            return;
        }
        unsigned char *rows = image.image + (n * image.sn + (int64_t)y * R * image.sh); /* strides in bytes */
#define STORE_ROWS(T) store_as<T, true>(rows, image.sh, x, sum, r)
        BY_IMAGE_TYPE(image, STORE_ROWS)
#undef STORE_ROWS
    }
};

#endif
