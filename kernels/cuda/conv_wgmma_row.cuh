/* conv_wgmma_row.cuh - how a row of 64 output pixels leaves registers. */
#ifndef DVK_CUDA_CONV_WGMMA_ROW_CUH
#define DVK_CUDA_CONV_WGMMA_ROW_CUH

#include "kernels/cuda/conv_wgmma_epilogue.cuh"

/* A thread has of pixels lane / 4 and lane / 4 + 8 of its warp's sixteen the channels 2 * (lane % 4) and the next of every
 * eight. The warp turns them into whole pixels in shared memory of its own, where octet o of pixel x lies at o with some
 * bits exchanged, so that eight pixels meet no bank twice. */
template <class T, int OUTPUTS> struct row_writer {
    enum { OCTETS = OUTPUTS / 8, MOVES = OUTPUTS > 8 ? OUTPUTS / 16 : 1 };
    const dvk_conv_rows &p;
    uint32_t at, table; /* this warp's */
    int first;          /* of its pixels */

    static __device__ __forceinline__ uint32_t place(int pixel, int octet) {
        const int bits = OCTETS == 8 ? pixel & 7 : OCTETS == 4 ? pixel >> 1 & 3 : pixel >> 2 & 1;
        return (pixel * OCTETS + (octet ^ bits)) * 16;
    }

    /* The 16 bytes that this lane moves in move `i`. */
    struct move {
        uint32_t at;
        int pixel, c;
        bool real;
        __device__ __forceinline__ move(const row_writer &w, int x, int i) {
            const int unit = (threadIdx.x & 31) + 32 * i;
            const int in_warp = unit / OCTETS, octet = unit - in_warp * OCTETS;
            at = w.at + place(in_warp, octet);
            pixel = x + w.first + in_warp;
            c = octet * 8;
            real = pixel < w.p.out_w && c < w.p.epi.c_out;
        }
    };

    template <int KIND, int RES>
    __device__ __forceinline__ void write(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        const int lane = threadIdx.x & 31;
        uint32_t a[2][MOVES][4] = {};
#pragma unroll
        for (int k = 0; k < RES; k++) {
            const dvk_conv_view &v = p.epi.res[k];
            uint4 u[MOVES];
#pragma unroll
            for (int i = 0; i < MOVES; i++) {
                const move m(*this, x, i);
                u[i] = load_octet(v, n * v.sn + y * v.sh + m.pixel * v.sw + m.c, m.real);
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < MOVES; i++) {
                shared_store(move(*this, x, i).at, u[i]);
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < MOVES; i++) {
                matrices_load(at + place(lane & 15, 2 * i + (lane >> 4)), a[k][i]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < MOVES; i++) {
            uint32_t m[4];
#pragma unroll
            for (int q = 0; q < 4; q++) { /* matrix: pixels 8 * (q & 1), channels 8 * (2 * i + q / 2) */
                const float2 r0 = T::unpack(a[0][i][q]), r1 = T::unpack(a[1][i][q]);
                float2 bias, slope = make_float2(0, 0);
                const uint32_t c = table + ((2 * i + q / 2) * 8 + (lane & 3) * 2) * 4;
                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(bias.x), "=f"(bias.y) : "r"(c));
                if (KIND == DVK_WGMMA_SLOPE || KIND == DVK_WGMMA_SLOPE_LAST) {
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(slope.x), "=f"(slope.y) : "r"(c + 256));
                }
                const float *s = sum + (2 * i + q / 2) * 4 + (q & 1) * 2;
                m[q] = T::pack(finish<KIND, RES>(p.epi, s[0], bias.x, slope.x, r0.x, r1.x),
                               finish<KIND, RES>(p.epi, s[1], bias.y, slope.y, r0.y, r1.y));
            }
            matrices_store(at + place(lane & 15, 2 * i + (lane >> 4)), m);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < MOVES; i++) {
            const move m(*this, x, i);
            const uint4 u = shared_load(m.at);
            if (m.real) {
                const dvk_conv_view &v = p.epi.y;
                *(uint4 *)((uint16_t *)v.data + (n * v.sn + y * v.sh + m.pixel * v.sw + m.c)) = u;
            }
        }
    }

    template <int KIND>
    __device__ __forceinline__ void write_as(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        if (p.epi.n_res == 0) {
            write<KIND, 0>(n, y, x, sum);
        } else if (p.epi.n_res == 1) {
            write<KIND, 1>(n, y, x, sum);
        } else {
            write<KIND, 2>(n, y, x, sum);
        }
    }

    /* Nothing but a bias, into any type: straight from registers. */
    __device__ __forceinline__ void plain(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        const int lane = threadIdx.x & 31;
        const dvk_conv_view &v = p.epi.y;
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) {
            const int pixel = x + first + lane / 4 + 8 * (i / 2 & 1), c = i / 4 * 8 + (lane & 3) * 2 + (i & 1);
            float bias;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(bias) : "r"(table + c * 4));
            if (pixel < p.out_w && c < p.epi.c_out) {
                store_element(v, n * v.sn + y * v.sh + pixel * v.sw + c, p.epi.alpha * (sum[i] + bias));
            }
        }
    }

    /* Anything op.h allows, element by element. */
    __device__ __forceinline__ void any(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        const int lane = threadIdx.x & 31, count = min(p.epi.c_out, OUTPUTS);
        float *rows;
        asm("{\n.reg .u64 a;\ncvt.u64.u32 a, %1;\ncvta.shared.u64 %0, a;\n}" : "=l"(rows) : "r"(at));
        __syncwarp();
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) {
            const int pixel = lane / 4 + 8 * (i / 2 & 1);
            rows[pixel * OUTPUTS + i / 4 * 8 + (lane & 3) * 2 + (i & 1)] = sum[i];
        }
        __syncwarp();
#pragma unroll 1
        for (int item = lane; item < 16 * count; item += 32) {
            const int in_warp = item / count, c = item - in_warp * count;
            const conv_spot s = {n, y, x + first + in_warp, 0};
            if (s.x < p.out_w) {
                finish_element(p.epi, rows[in_warp * OUTPUTS + c], s, c);
            }
        }
    }

    __device__ __forceinline__ void store(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        if constexpr (OUTPUTS > 8) {
            switch (p.epilogue) {
            case DVK_WGMMA_LINEAR:
                write_as<DVK_WGMMA_LINEAR>(n, y, x, sum);
                return;
            case DVK_WGMMA_SLOPE:
                write_as<DVK_WGMMA_SLOPE>(n, y, x, sum);
                return;
            case DVK_WGMMA_SLOPE_LAST:
                write_as<DVK_WGMMA_SLOPE_LAST>(n, y, x, sum);
                return;
            case DVK_WGMMA_SILU:
                write_as<DVK_WGMMA_SILU>(n, y, x, sum);
                return;
            case DVK_WGMMA_GATE:
                write<DVK_WGMMA_GATE, 1>(n, y, x, sum);
                return;
            default:
                break;
            }
        }
        const dvk_conv_epi &e = p.epi;
        if (e.act == 0 && e.n_res == 0 && e.gate == 0 && e.shuffle == 1) {
            plain(n, y, x, sum);
        } else {
            any(n, y, x, sum);
        }
    }
};

#endif
