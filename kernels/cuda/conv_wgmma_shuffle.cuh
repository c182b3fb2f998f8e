/* conv_wgmma_shuffle.cuh - how a row of 64 output pixels leaves registers where each becomes R x R of C channels, which lie
 * without gaps: in f32, or as a caller's picture. The order of the output channels is chosen (conv_wgmma_rows.c) so that what a thread has of a pixel are
 * whole pieces of up to 16 bytes of the enlarged rows, and pieces that are neighbours belong to lanes that are: whole
 * lines are written, and nothing has to be turned in shared memory. */
#ifndef DVK_CUDA_CONV_WGMMA_SHUFFLE_CUH
#define DVK_CUDA_CONV_WGMMA_SHUFFLE_CUH

#include "kernels/cuda/conv_wgmma_epilogue.cuh"
#include "kernels/cuda/convert.cuh"

template <int OUTPUTS, int R, int C> struct row_shuffler {
    enum {
        ROW = R * C, /* floats of an enlarged row that a pixel becomes */
        PIECE = DVK_ROWS_PIECE(R, C),
        PIECES = ROW / PIECE,
        PITCH = DVK_ROWS_PIECE_PITCH(R, C, OUTPUTS), /* of rows, in pieces; a thread has every fourth */
        MOVES = OUTPUTS / 4 / PIECE,
        TURN = 4 * PIECE % C * (PITCH == PIECES) /* from a thread's piece to its next: channels that it begins later */
    };
    const dvk_conv_rows &p;
    uint32_t table;
    int first; /* pixel of this warp's sixteen */

    static __device__ __forceinline__ void write(float *to, const float (&v)[PIECE]) {
        if constexpr (PIECE == 4) {
            *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        } else if constexpr (PIECE == 2) {
            *(float2 *)to = make_float2(v[0], v[1]);
        } else {
            *to = v[0];
        }
    }

    __device__ __forceinline__ void store_picture(int n, int y, int64_t element, const float (&v)[PIECE]) const {
        const dvk_convert_params &image = p.picture;
        dvk_convert_params row = image;
        row.image += n * image.sn + y * image.sh;
#define STORE_PIECE(T) store_piece<T, PIECE>(row, element, v)
        BY_IMAGE_TYPE(image, STORE_PIECE)
#undef STORE_PIECE
    }

    /* Of the pixel of the smaller picture whose nearest neighbours these are: the channels in a thread's order. */
    __device__ __forceinline__ void skip(int n, int y, int x, float (&v)[C]) const {
        const dvk_conv_view &r = p.epi.res[0];
        const int64_t at = offset_of(r, n, y, x);
        int c = (threadIdx.x & 3) * PIECE % C;
#pragma unroll
        for (int k = 0; k < C; k++) {
            v[k] = load_element(r, at + c);
            c = c + 1 == C ? 0 : c + 1;
        }
    }

    struct residual {}; /* is read as it is needed */

    __device__ __forceinline__ void bring_first(int, int, int, residual &) const {
    }

    __device__ __forceinline__ void store(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                          const residual &) const {
        const int lane = threadIdx.x & 31;
        const dvk_conv_view &v = p.epi.y;
        float *rows = (float *)v.data + (n * v.sn + (int64_t)y * R * v.sh);
        float add[2][C] = {};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int pixel = x + first + lane / 4 + 8 * h;
            if (p.epi.n_res && pixel < p.out_w) {
                skip(n, y, pixel, add[h]);
            }
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
                float out[PIECE];
#pragma unroll
                for (int e = 0; e < PIECE; e++) {
                    const int s = t * PIECE + e;
                    out[e] = fmaf(p.epi.alpha, sum[s / 2 * 4 + h * 2 + s % 2] + bias[e], add[h][(t * TURN + e) % C]);
                }
                if (pixel < p.out_w && i < R && piece < PIECES) {
                    if (p.stores) {
                        store_picture(n, y * R + i, pixel * ROW + piece * PIECE, out);
                    } else {
                        write(rows + (i * v.sh + pixel * ROW + piece * PIECE), out);
                    }
                }
            }
        }
    }
};

#endif
