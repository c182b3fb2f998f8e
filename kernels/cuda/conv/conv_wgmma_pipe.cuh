/* conv_wgmma_pipe.cuh - shared input code of the two kinds of convolution: ring buffers, and the prologue. */
#ifndef DVK_CUDA_CONV_WGMMA_PIPE_CUH
#define DVK_CUDA_CONV_WGMMA_PIPE_CUH

#include "kernels/cuda/conv/conv_wgmma_epilogue.cuh"

struct ring { /* a position in a ring of slots */
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int slots, int by = 1) {
        slot += by;
        if (slot >= slots) {
            slot -= slots;
            parity ^= 1;
        }
    }
};

/* SiLU of twice the argument. ACT 0: RELU or none. */
template <int ACT> CONV_DEVICE float prologue_act(float x, bool relu) {
    if (ACT == CONV_SILU) {
        float t;
        asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x));
        return fmaf(x, t, x);
    }
    return ACT == 0 && relu ? fmaxf(x, 0.0f) : conv_act_fast<ACT>(x);
}

struct patch { /* pixels of 64 channels in shared memory, and their position in the picture */
    uint32_t at;
    int n, y0, x0, chunk;
    int pitch, pixels;
    int c_in, pictures, in_h, in_w;
    const float *scale, *shift;
    uint32_t full, parity; /* of the barrier of the patch's arrival */
};

/* Computes x' = act(x * scale + shift) in place; pixels outside of the picture stay zero. A thread has eight channels,
 * of some pixels at a time. SiLU is h + h * tanh(h) of half of its argument, so scale and shift are halved in advance. */
template <class T, int ACT, bool INSIDE, int THREADS, int AT_ONCE>
CONV_DEVICE void prepare_as(const patch &p, const float (&scale)[8], const float (&shift)[8], bool relu, int thread) {
    enum { STEP = THREADS / 8 };
    for (int first = thread / 8; first < p.pixels; first += AT_ONCE * STEP) {
        uint32_t u[AT_ONCE][4], at[AT_ONCE];
        bool real[AT_ONCE];
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            const int pixel = first + b * STEP;
            real[b] = pixel < p.pixels;
            at[b] = p.at + pixel * 128;
            at[b] |= (((uint32_t)thread ^ at[b] >> 7) & 7) * 16;
            if (!INSIDE) {
                const int row = pixel / p.pitch, column = pixel - row * p.pitch;
                real[b] = real[b] && (unsigned)(p.x0 + column) < (unsigned)p.in_w &&
                          (unsigned)(p.y0 + row) < (unsigned)p.in_h;
            }
            if (real[b]) {
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(u[b][0]), "=r"(u[b][1]), "=r"(u[b][2]), "=r"(u[b][3])
                             : "r"(at[b]));
            }
        }
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 f = T::unpack(u[b][i]);
                u[b][i] = T::pack(prologue_act<ACT>(fmaf(f.x, scale[2 * i], shift[2 * i]), relu),
                                  prologue_act<ACT>(fmaf(f.y, scale[2 * i + 1], shift[2 * i + 1]), relu));
            }
        }
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            if (real[b]) {
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at[b]), "r"(u[b][0]), "r"(u[b][1]),
                             "r"(u[b][2]), "r"(u[b][3])
                             : "memory");
            }
        }
    }
}

/* Scale and shift of a thread's channels, once per chunk. */
template <class T, int ACT, int THREADS, int AT_ONCE>
CONV_DEVICE void prepare_with(const patch &p, bool relu, int thread) {
    const int c = p.chunk * DVK_WGMMA_CHUNK + thread % 8 * 8;
    const float half = ACT == CONV_SILU ? 0.5f : 1.0f;
    float scale[8], shift[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        scale[i] = p.scale ? 0.0f : half, shift[i] = 0.0f;
    }
    if (p.scale && c < p.c_in && p.n < p.pictures) {
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const float4 a = *(const float4 *)(p.scale + (int64_t)p.n * p.c_in + c + i);
            const float4 b = *(const float4 *)(p.shift + (int64_t)p.n * p.c_in + c + i);
            scale[i] = half * a.x, scale[i + 1] = half * a.y, scale[i + 2] = half * a.z, scale[i + 3] = half * a.w;
            shift[i] = half * b.x, shift[i + 1] = half * b.y, shift[i + 2] = half * b.z, shift[i + 3] = half * b.w;
        }
    }
    barrier_wait(p.full, p.parity);
    const bool inside = p.x0 >= 0 && p.y0 >= 0 && p.x0 + p.pitch <= p.in_w && p.y0 + p.pixels / p.pitch <= p.in_h;
    if (ACT != CONV_CLAMP3 && inside) { /* the code of CLAMP3 is long */
        prepare_as<T, ACT, ACT != CONV_CLAMP3, THREADS, AT_ONCE>(p, scale, shift, relu, thread);
    } else {
        prepare_as<T, ACT, false, THREADS, AT_ONCE>(p, scale, shift, relu, thread);
    }
}

template <class T, int THREADS, int AT_ONCE> CONV_DEVICE void prepare_patch(const patch &p, int act, int thread) {
    if (act == CONV_SILU) {
        prepare_with<T, CONV_SILU, THREADS, AT_ONCE>(p, false, thread);
    } else if (act == CONV_CLAMP3) {
        prepare_with<T, CONV_CLAMP3, THREADS, 1>(p, false, thread);
    } else {
        prepare_with<T, 0, THREADS, AT_ONCE>(p, act == CONV_RELU, thread);
    }
    fence_async();
}

#endif
