/* conv_wgmma_row.cuh - stores a row of 64 output pixels from registers. */
#ifndef DVK_CUDA_CONV_WGMMA_ROW_CUH
#define DVK_CUDA_CONV_WGMMA_ROW_CUH

#include "kernels/cuda/conv/conv_wgmma_epilogue.cuh"
#include "kernels/cuda/pixels/convert.cuh"

/* Bias and slope of a thread's two channels of eight; KEPT: in registers. */
template <int OCTETS, bool KEPT> struct row_vectors {
    uint32_t at;
    float2 bias[KEPT ? OCTETS : 1], slope[KEPT ? OCTETS : 1];

    static __device__ __forceinline__ float2 load(uint32_t from) {
        float2 v;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
        return v;
    }

    __device__ __forceinline__ row_vectors(uint32_t table) : at(table + (threadIdx.x & 3) * 8) {
#pragma unroll
        for (int i = 0; i < OCTETS && KEPT; i++) {
            bias[i] = load(at + i * 32);
            slope[i] = load(at + i * 32 + 256);
        }
    }
    __device__ __forceinline__ float2 bias_of(int octet) const {
        return KEPT ? bias[octet] : load(at + octet * 32);
    }
    __device__ __forceinline__ float2 slope_of(int octet) const {
        return KEPT ? slope[octet] : load(at + octet * 32 + 256);
    }
};

/* A thread has pixels lane / 4 and lane / 4 + 8 of its warp's sixteen, with channels 2 * (lane % 4) and the next of
 * every eight. The warp assembles whole pixels in its part of shared memory and copies them from there. */
template <class T, int OUTPUTS, bool KEPT = false> struct row_writer {
    enum { OCTETS = OUTPUTS / 8, MOVES = OUTPUTS > 8 ? OUTPUTS / 16 : 1 };
    const dvk_conv_rows &p;
    uint32_t at; /* this warp's */
    int first;   /* of its pixels */
    row_vectors<OCTETS, KEPT> vectors;

    /* Octet `octet` of a pixel. It is swizzled like the bulk copy of that pixel size; a pixel of six octets is not. */
    static __device__ __forceinline__ uint32_t place(int pixel, int octet) {
        const int bits = OCTETS == 8 ? pixel & 7 : OCTETS == 4 ? pixel >> 1 & 3 : OCTETS == 2 ? pixel >> 2 & 1 : 0;
        return (pixel * OCTETS + (octet ^ bits)) * 16;
    }

    /* The 16 bytes of a residual that this lane moves in move `i`. */
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

    /* The first residual of a row, in the order of this lane's moves. */
    struct residual {
        uint4 u[MOVES];
    };

    __device__ __forceinline__ void bring(int n, int y, int x, const dvk_conv_view &v, residual &r) const {
#pragma unroll
        for (int i = 0; i < MOVES; i++) {
            const move m(*this, x, i);
            r.u[i] = load_octet(v, n * v.sn + y * v.sh + m.pixel * v.sw + m.c, m.real);
        }
    }

    /* A thread's two channels of two pixels, as stored. */
    template <class U> __device__ __forceinline__ void bring_few(const U *from, int x, uint4 &u) const {
        const int pixel = x + first + (threadIdx.x & 31) / 4, c = (threadIdx.x & 3) * 2;
        const int64_t step = p.epi.res[0].sw;
        const bool low = c < p.epi.c_out, high = c + 1 < p.epi.c_out;
        u.x = low && pixel < p.out_w ? from[pixel * step + c] : 0;
        u.y = high && pixel < p.out_w ? from[pixel * step + c + 1] : 0;
        u.z = low && pixel + 8 < p.out_w ? from[(pixel + 8) * step + c] : 0;
        u.w = high && pixel + 8 < p.out_w ? from[(pixel + 8) * step + c + 1] : 0;
    }

    /* Called long before the row is stored. */
    __device__ __forceinline__ void bring_first(int n, int y, int x, residual &r) const {
        const dvk_conv_view &v = p.epi.res[0];
        if (p.epi.n_res == 0) {
            return;
        }
        if (OUTPUTS > 8 && p.epilogue != DVK_WGMMA_ANY) {
            bring(n, y, x, v, r);
        } else if (OUTPUTS == 8 && v.dtype == CONV_F32) {
            bring_few((const uint32_t *)v.data + offset_of(v, n, y, 0), x, r.u[0]);
        } else if (OUTPUTS == 8) {
            bring_few((const uint16_t *)v.data + offset_of(v, n, y, 0), x, r.u[0]);
        }
    }

    template <int KIND, int RES>
    __device__ __forceinline__ void write(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                          const residual &brought) const {
        const int lane = threadIdx.x & 31;
        uint32_t a[2][MOVES][4] = {};
        if (lane == 0) {
            copy_out_read<0>();
        }
#pragma unroll
        for (int k = 0; k < (RES == RES_OF_LAUNCH ? 2 : RES); k++) {
            if (RES == RES_OF_LAUNCH && k >= p.epi.n_res) {
                break;
            }
            residual r = brought;
            if (k > 0) {
                bring(n, y, x, p.epi.res[k], r);
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < MOVES; i++) {
                shared_store(move(*this, x, i).at, r.u[i]);
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
            if (by_octets(KIND) || KIND == KIND_OF_LAUNCH) {
                const float2 bias[2] = {vectors.bias_of(2 * i), vectors.bias_of(2 * i + 1)};
                const uint32_t r[2][4] = {{a[0][i][0], a[0][i][1], a[0][i][2], a[0][i][3]},
                                          {a[1][i][0], a[1][i][1], a[1][i][2], a[1][i][3]}};
                float v[8];
#pragma unroll
                for (int q = 0; q < 8; q++) {
                    v[q] = sum[i * 8 + q] + (q & 1 ? bias[q / 4].y : bias[q / 4].x);
                }
                if (KIND == KIND_OF_LAUNCH) {
                    const float2 s0 = vectors.slope_of(2 * i), s1 = vectors.slope_of(2 * i + 1);
                    const float slope[8] = {s0.x, s0.y, s0.x, s0.y, s1.x, s1.y, s1.x, s1.y};
                    finish_seldom<T>(p.epi, p.epilogue, v, slope, r);
                } else {
                    finish_octet<T, KIND, RES>(p.epi, v, r);
                }
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    m[q] = T::pack(v[2 * q], v[2 * q + 1]);
                }
            }
#pragma unroll
            for (int o = 2 * i; o < 2 * i + 2 && !by_octets(KIND) && KIND != KIND_OF_LAUNCH; o++) {
                const bool slopes = KIND == DVK_WGMMA_SLOPE || KIND == DVK_WGMMA_SLOPE_LAST;
                const float2 bias = vectors.bias_of(o), slope = slopes ? vectors.slope_of(o) : make_float2(0, 0);
#pragma unroll
                for (int half = 0; half < 2; half++) { /* a matrix: eight pixels of an octet */
                    const int q = o % 2 * 2 + half;
                    const float2 r0 = T::unpack(a[0][i][q]), r1 = T::unpack(a[1][i][q]);
                    const float *s = sum + o * 4 + half * 2;
                    m[q] = T::pack(finish<KIND, RES>(p.epi, s[0], bias.x, slope.x, r0.x, r1.x),
                                   finish<KIND, RES>(p.epi, s[1], bias.y, slope.y, r0.y, r1.y));
                }
            }
            matrices_store(at + place(lane & 15, 2 * i + (lane >> 4)), m);
        }
        fence_async();
        __syncwarp();
        if (lane == 0) {
            copy_out(&p.y, 0, x + first, y, n, at);
        }
    }

    /* For 64 channels: multiplies `stored`, the row before the gate, and the residual, which is in the output buffer,
     * as gate 3. */
    __device__ __forceinline__ void write_gated(int n, int y, int x, const uint32_t (&stored)[MOVES][4],
                                                const float (&gate)[OUTPUTS / 2]) const {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < MOVES; i++) {
            const uint32_t place_of = at + place(lane & 15, 2 * i + (lane >> 4));
            const float2 bias[2] = {vectors.slope_of(2 * i), vectors.slope_of(2 * i + 1)};
            uint32_t m[4], r[2][4];
            float v[8];
            matrices_load(place_of, r[1]);
#pragma unroll
            for (int q = 0; q < 8; q++) {
                v[q] = gate[i * 8 + q] + (q & 1 ? bias[q / 4].y : bias[q / 4].x);
            }
#pragma unroll
            for (int q = 0; q < 4; q++) {
                r[0][q] = stored[i][q];
            }
            finish_octet<T, DVK_WGMMA_TIMES, 2>(p.epi, v, r);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                m[q] = T::pack(v[2 * q], v[2 * q + 1]);
            }
            matrices_store(place_of, m);
        }
        fence_async();
        __syncwarp();
        if (lane == 0) {
            copy_out(&p.y, 0, x + first, y, n, at);
        }
    }

    /* Without residuals. The code is long, so all octets share one copy. */
    __device__ __forceinline__ void write_curve(int n, int y, int x, const float (&sum)[OUTPUTS / 2]) const {
        const int lane = threadIdx.x & 31;
        const uint32_t none[2][4] = {};
        float left[OUTPUTS / 2];
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) {
            left[i] = sum[i];
        }
        if (lane == 0) {
            copy_out_read<0>();
        }
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < MOVES; i++) {
            const float2 bias[2] = {vectors.bias_of(2 * i), vectors.bias_of(2 * i + 1)};
            float v[8];
            uint32_t m[4];
#pragma unroll
            for (int q = 0; q < 8; q++) {
                v[q] = left[q] + (q & 1 ? bias[q / 4].y : bias[q / 4].x);
            }
            finish_octet<T, DVK_WGMMA_CURVE, 0>(p.epi, v, none);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                m[q] = T::pack(v[2 * q], v[2 * q + 1]);
            }
            matrices_store(at + place(lane & 15, 2 * i + (lane >> 4)), m);
#pragma unroll
            for (int q = 0; q + 8 < OUTPUTS / 2; q++) { /* registers cannot be indexed at run time */
                left[q] = left[q + 8];
            }
        }
        fence_async();
        __syncwarp();
        if (lane == 0) {
            copy_out(&p.y, 0, x + first, y, n, at);
        }
    }

    template <int KIND>
    __device__ __forceinline__ void write_as(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                             const residual &r) const {
        if (p.epi.n_res == 0) {
            write<KIND, 0>(n, y, x, sum, r);
        } else {
            write<KIND, 1>(n, y, x, sum, r);
        }
    }

    /* True for kinds and numbers of residuals without specialised code. */
    __device__ __forceinline__ bool is_seldom() const {
        const int res = p.epi.n_res;
        return p.epilogue == DVK_WGMMA_SLOPE        ? res > 1
               : p.epilogue == DVK_WGMMA_SLOPE_LAST ? res != 1
                                                    : p.epilogue == DVK_WGMMA_SILU && res > 0;
    }

    /* Destination of a channel of an output pixel: the picture, or y. */
    __device__ __forceinline__ void put(int n, int y, int x, int c, float value) const {
        if (x >= p.out_w || c >= p.epi.c_out) {
            return;
        }
        if (OUTPUTS > 8 || !p.stores) {
            const dvk_conv_view &v = p.epi.y;
            store_element(v, n * v.sn + y * v.sh + x * v.sw + c, value);
        } else if (c < p.picture.c) {
            const dvk_convert_params &image = p.picture;
            const int64_t at = n * image.sn + y * image.sh + x * image.sw + channel_of(image, c) * image.sc;
#define STORE_ONE(T) store_one<T>(image, at, value)
            BY_IMAGE_TYPE(image, STORE_ONE)
#undef STORE_ONE
        }
    }

    __device__ __forceinline__ float number_of(uint32_t raw) const {
        const int type = p.epi.res[0].dtype;
        return type == CONV_F32   ? __uint_as_float(raw)
               : type == CONV_F16 ? wgmma_half::unpack(raw).x
                                  : wgmma_bfloat::unpack(raw).x;
    }

    /* A bias, and for few channels a residual, into any type: directly from registers. */
    __device__ __forceinline__ void plain(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                          const residual &r) const {
        const int lane = threadIdx.x & 31;
        float add[4] = {};
        if (OUTPUTS == 8 && p.epi.n_res == 1) {
            const uint32_t raw[4] = {r.u[0].x, r.u[0].y, r.u[0].z, r.u[0].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                add[i] = p.epi.beta[0] * number_of(raw[i]);
            }
        }
#pragma unroll 1
        for (int o = 0; o < OCTETS; o++) {
            const float2 bias = vectors.bias_of(o);
            float v[4] = {};
#pragma unroll
            for (int i = 0; i < OUTPUTS / 2; i++) { /* registers cannot be indexed at run time */
                v[i & 3] = i / 4 == o ? sum[i] : v[i & 3];
            }
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const int pixel = x + first + lane / 4 + 8 * (i / 2), c = o * 8 + (lane & 3) * 2;
                put(n, y, pixel, c, fmaf(p.epi.alpha, v[i] + bias.x, add[i]));
                put(n, y, pixel, c + 1, fmaf(p.epi.alpha, v[i + 1] + bias.y, add[i + 1]));
            }
        }
    }

    /* Every epilogue of op.h, element by element. */
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

    __device__ __forceinline__ void store(int n, int y, int x, const float (&sum)[OUTPUTS / 2],
                                          const residual &r) const {
        if constexpr (OUTPUTS > 8) {
            if (is_seldom()) {
                write<KIND_OF_LAUNCH, RES_OF_LAUNCH>(n, y, x, sum, r);
                return;
            }
            switch (p.epilogue) {
            case DVK_WGMMA_LINEAR:
                if (p.epi.n_res < 2) {
                    write_as<DVK_WGMMA_LINEAR>(n, y, x, sum, r);
                } else {
                    write<DVK_WGMMA_LINEAR, 2>(n, y, x, sum, r);
                }
                return;
            case DVK_WGMMA_SLOPE:
                write_as<DVK_WGMMA_SLOPE>(n, y, x, sum, r);
                return;
            case DVK_WGMMA_SLOPE_LAST:
                write<DVK_WGMMA_SLOPE_LAST, 1>(n, y, x, sum, r);
                return;
            case DVK_WGMMA_SILU:
                write<DVK_WGMMA_SILU, 0>(n, y, x, sum, r);
                return;
            case DVK_WGMMA_GATE:
                write<DVK_WGMMA_GATE, 1>(n, y, x, sum, r);
                return;
            case DVK_WGMMA_CURVE:
                if constexpr (KEPT) {
                    write<DVK_WGMMA_CURVE, 0>(n, y, x, sum, r);
                } else {
                    write_curve(n, y, x, sum);
                }
                return;
            case DVK_WGMMA_TIMES: /* narrower kernels lack the registers */
                if constexpr (OUTPUTS == 64) {
                    write<DVK_WGMMA_TIMES, RES_OF_LAUNCH>(n, y, x, sum, r);
                    return;
                }
                break;
            default:
                break;
            }
        }
        const dvk_conv_epi &e = p.epi;
        if (e.act == 0 && e.n_res <= (OUTPUTS == 8) && e.gate == 0 && e.shuffle == 1) {
            plain(n, y, x, sum, r);
        } else {
            any(n, y, x, sum);
        }
    }
};

#endif
