/* conv_fp8.cuh - converts a patch of f16 in shared memory to E4M3 in place, and the products. The 128 bytes of 64
 * channels of a pixel become 64. Rows stay 128 bytes apart, with the 128-byte swizzle. */
#ifndef DVK_CUDA_CONV_FP8_CUH
#define DVK_CUDA_CONV_FP8_CUH

#include "kernels/cuda/conv/conv_fp8.h"
#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"

#include "kernels/cuda/conv/conv_8bit_numbers.cuh"

/* ---- products: d[64][256] += a[64][32] * b[256][32]^T, both in shared memory ---- */

CONV_DEVICE void wgmma_fp8(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile("{\n"
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
                 "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
                 "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
                 "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, %128, %129, 1, 1, 1;\n}"
                 : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)
                 : "l"(a), "l"(b));
}

/* Rows of 64 bytes with the 64-byte swizzle, eight per group. */
CONV_DEVICE uint64_t wgmma_operand_64(uint32_t at) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(512 >> 4) << 32 | 2ull << 62;
}

/* ---- patches ---- */

enum {
    FP8_WARPS = DVK_WGMMA_HELPERS / 32,
    FP8_STEP = DVK_WGMMA_HELPERS / 4, /* pixels at a time: four threads with sixteen channels each */
    FP8_AT_ONCE = 3
};

struct fp8_octets { /* sixteen channels of a pixel, of f16 */
    uint32_t u[8];
};

CONV_DEVICE uint32_t piece_at(const patch &p, int pixel, int piece) {
    return p.at + pixel * 128 + ((piece ^ pixel) & 7) * 16;
}

CONV_DEVICE fp8_octets load_octets(const patch &p, int pixel, int quarter) {
    fp8_octets o;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 v = shared_load(piece_at(p, pixel, 2 * quarter + i));
        o.u[4 * i] = v.x, o.u[4 * i + 1] = v.y, o.u[4 * i + 2] = v.z, o.u[4 * i + 3] = v.w;
    }
    return o;
}

/* Converts x' = act(x * scale + shift) to E4M3 for pixels inside the picture; others stay zero. NORM false: no shift. A
 * pixel's result overwrites the pixel after its four threads have read it. */
template <int ACT, bool NORM, bool INSIDE>
CONV_DEVICE void convert_as(const patch &p, const uint32_t (&scale)[NORM ? 8 : 1],
                            const uint32_t (&shift)[NORM ? 8 : 1], int thread) {
    const int quarter = thread & 3;
#pragma unroll 1
    for (int first = thread / 4; (first & ~7) < p.pixels; first += FP8_AT_ONCE * FP8_STEP) {
        fp8_octets in[FP8_AT_ONCE];
        bool real[FP8_AT_ONCE];
#pragma unroll
        for (int b = 0; b < FP8_AT_ONCE; b++) {
            const int pixel = first + b * FP8_STEP;
            real[b] = pixel < p.pixels;
            if (!INSIDE) {
                const int row = pixel / p.pitch, column = pixel - row * p.pitch;
                real[b] = real[b] && (unsigned)(p.x0 + column) < (unsigned)p.in_w &&
                          (unsigned)(p.y0 + row) < (unsigned)p.in_h;
            }
            if (real[b]) {
                in[b] = load_octets(p, pixel, quarter);
            }
        }
        __syncwarp();
#pragma unroll
        for (int b = 0; b < FP8_AT_ONCE; b++) {
            uint4 out;
            uint32_t v[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const uint32_t x = in[b].u[i];
                v[i] = act_f16<ACT>(NORM ? fma_f16(x, scale[NORM ? i : 0], shift[NORM ? i : 0])
                                         : product_f16(x, scale[0]));
            }
            out.x = pack_e4m3(v[0], v[1]), out.y = pack_e4m3(v[2], v[3]);
            out.z = pack_e4m3(v[4], v[5]), out.w = pack_e4m3(v[6], v[7]);
            if (real[b]) {
                shared_store(piece_at(p, first + b * FP8_STEP, quarter), out);
            }
        }
    }
}

CONV_DEVICE bool is_inside(const patch &p) {
    return p.x0 >= 0 && p.y0 >= 0 && p.x0 + p.pitch <= p.in_w && p.y0 + p.pixels / p.pitch <= p.in_h;
}

/* With a group norm's scale and shift of this thread's channels, in f16: E4M3 needs three bits of mantissa, f16 has
 * ten. */
template <int ACT> CONV_DEVICE void convert_norm(const patch &p, int thread) {
    const int c = p.chunk * DVK_WGMMA_CHUNK + (thread & 3) * 16;
    const float half = ACT == CONV_SILU ? 0.5f : 1.0f;
    uint32_t scale[8], shift[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        scale[i] = shift[i] = 0;
    }
    if (c < p.c_in && p.n < p.pictures) {
        const float2 *a = (const float2 *)(p.scale + (int64_t)p.n * p.c_in + c);
        const float2 *b = (const float2 *)(p.shift + (int64_t)p.n * p.c_in + c);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 x = a[i], y = b[i];
            scale[i] = wgmma_half::pack(half * x.x, half * x.y);
            shift[i] = wgmma_half::pack(half * y.x, half * y.y);
        }
    }
    barrier_wait(p.full, p.parity);
    if (is_inside(p)) {
        convert_as<ACT, true, true>(p, scale, shift, thread);
    } else {
        convert_as<ACT, true, false>(p, scale, shift, thread);
    }
}

/* The maximum of a patch, as bits of f16. The sign of a ReLU's input does not matter. `own`: shared memory of the
 * helpers, one word per warp. */
template <int ACT> CONV_DEVICE uint32_t largest_of(const patch &p, int thread, uint32_t own) {
    uint32_t most = 0;
#pragma unroll 1
    for (int first = thread / 4; first < p.pixels; first += FP8_AT_ONCE * FP8_STEP) {
#pragma unroll
        for (int b = 0; b < FP8_AT_ONCE; b++) {
            const int pixel = first + b * FP8_STEP;
            if (pixel < p.pixels) {
                const fp8_octets o = load_octets(p, pixel, thread & 3);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    most = larger_f16(most, ACT == CONV_RELU ? o.u[i] : o.u[i] & 0x7fff7fffu);
                }
            }
        }
    }
    most = larger_f16(most, most >> 16 | most << 16) & 0x7fffu;
    most = __reduce_max_sync(0xffffffffu, most); /* of non-negative numbers; NaN is the largest */
    if ((thread & 31) == 0) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(own + thread / 32 * 4), "r"(most) : "memory");
    }
    named_barrier(3, DVK_WGMMA_HELPERS);
#pragma unroll
    for (int i = 0; i < FP8_WARPS; i++) {
        uint32_t other;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(other) : "r"(own + i * 4) : "memory");
        most = max(most, other);
    }
    return most;
}

/* The power of two by which a tile is divided. */
struct fp8_range {
    int power; /* its logarithm */

    /* Adds a chunk with maximum `most`. Returns the factor for the earlier sums. It is NaN if a value is not finite;
     * the whole tile then becomes NaN. */
    __device__ __forceinline__ float take(uint32_t most, bool first, int room) {
        if (most >= 0x7c00u) {
            power = first ? 0 : power;
            return __int_as_float(0x7fc00000);
        }
        const int need = power_for(most, room);
        if (first || need > power + DVK_FP8_ROOM_GROWTH) {
            const int before = first ? need : power;
            power = need;
            return power_of_two(before - need);
        }
        return 1.0f;
    }
};

template <int ACT> CONV_DEVICE void convert_measured(const patch &p, int thread, const fp8_range &range) {
    const float factor = power_of_two(-range.power);
    const uint32_t scale[1] = {wgmma_half::pack(factor, factor)}, none[1] = {0};
    convert_as<ACT, false, true>(p, scale, none, thread); /* padding of the picture stays zero */
}

#endif
