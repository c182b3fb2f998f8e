/* conv_patch.cuh - device code of the universal convolutions that loads patches and weights to shared memory while the
 * products run. Plain copies are asynchronous (cp.async; loads before sm_80). Inputs with a conversion or a prologue go
 * through registers: with every tap of this patch, a part of the next one. */
#ifndef DVK_CUDA_CONV_PATCH_CUH
#define DVK_CUDA_CONV_PATCH_CUH

#include "kernels/cuda/conv/conv_epilogue.cuh"

/* ---- asynchronous copies; plain ones before sm_80 ---- */

CONV_DEVICE uint32_t conv_shared(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

CONV_DEVICE void conv_store_shared(uint32_t at, uint4 u) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(u.x), "r"(u.y), "r"(u.z), "r"(u.w)
                 : "memory");
}

/* 16 bytes, of which the first `bytes` are read and the rest is zero. */
CONV_DEVICE void conv_copy16(uint32_t to, const void *from, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
    uint4 u = make_uint4(0, 0, 0, 0);
    if (bytes >= 16) {
        u = *(const uint4 *)from;
    } else if (bytes > 0) {
        uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i * 2 < bytes) {
                w[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << (i % 2 * 16);
            }
        }
        u = make_uint4(w[0], w[1], w[2], w[3]);
    }
    conv_store_shared(to, u);
#endif
}

CONV_DEVICE void conv_copy_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most `stages` - 2 groups are in flight. */
CONV_DEVICE void conv_copy_wait(int stages) {
#if __CUDA_ARCH__ >= 800
    if (stages >= 4) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else if (stages == 3) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
#endif
}

/* ---- patches ---- */

CONV_DEVICE conv_block conv_block_of(const dvk_conv_params &p, uint32_t b) {
    conv_block k;
    const uint32_t all = conv_divide(b, p.n_tiles), picture = conv_divide(all, p.tiles);
    k.n_tile = b - all * p.n_tiles.by;
    k.tile = all - picture * p.tiles.by;
    k.phase = p.phases == 4 ? picture & 3 : 0;
    k.n = p.phases == 4 ? picture >> 2 : picture;
    const uint32_t row = conv_divide(k.tile, p.tiles_x);
    k.y0 = row * p.tile_h;
    k.x0 = (k.tile - row * p.tiles_x.by) << p.tile_w_log2;
    return k;
}

/* Fills table[pixel of the patch] with its offset in bytes from the returned pointer, -1 outside of the picture. */
template <int THREADS>
CONV_DEVICE const char *conv_patch_table(const dvk_conv_params &p, const conv_block &b, int *table) {
    const int each = p.x.dtype == CONV_F32 ? 4 : 2;
    const int row0 = b.y0 * p.stride * p.pixel_step - (p.pad_top - (b.phase >> 1));
    const int col0 = b.x0 * p.stride * p.pixel_step - (p.pad_left - (b.phase & 1));
    const int base_y = max(row0, 0) >> p.up_shift, base_x = max(col0, 0) >> p.up_shift;
    for (int q = threadIdx.x; q < p.patch_pixels; q += THREADS) {
        const int r = conv_divide(q, p.patch_w);
        int c = q - r * p.patch_w.by;
        if (p.plane) {
            c = c < p.plane ? 2 * c : 2 * (c - p.plane) + 1;
        }
        const int y = row0 + r * p.pixel_step, x = col0 + c * p.pixel_step;
        const bool inside = y >= 0 && y < p.in_h && x >= 0 && x < p.in_w;
        table[q] = inside ? conv_pixel(p.x, (y >> p.up_shift) - base_y, (x >> p.up_shift) - base_x) * each : -1;
    }
    return (const char *)p.x.data + (b.n * p.x.sn + base_y * p.x.sh + base_x * p.x.sw) * each;
}

/* Address of piece `item` of a patch that begins at `patch` in shared memory. */
CONV_DEVICE uint32_t conv_piece_at(uint32_t patch, int item, int cpp_log2) {
    const int pixel = item >> cpp_log2, mask = (1 << cpp_log2) - 1;
    const int swap = (pixel >> (3 - cpp_log2)) & mask;
    return patch + (((uint32_t)(item & ~mask) | (uint32_t)((item & mask) ^ swap)) << 4);
}

/* Loads pieces of patches to shared memory. Piece `i` of a patch belongs to thread i % THREADS, whose channels within a
 * chunk are therefore fixed. AHEAD: pieces in registers at a time. */
template <class T, int THREADS, int AHEAD> struct conv_mover {
    enum { PER = T::PER_PIECE };
    const dvk_conv_params &p;
    const char *x;
    const int *table;
    int64_t vectors; /* of this picture, in scale and shift */
    uint32_t to0;    /* this thread's first piece in a patch */
    int channel, count;
    bool plain; /* this thread's pieces of the chunk are whole, aligned and of the kernel's type */
    uint4 raw[AHEAD];
    int at[AHEAD]; /* offset in bytes, -1: zeros */

    __device__ __forceinline__ void begin(int64_t n) {
        vectors = n * p.c_in;
        to0 = conv_piece_at(0, threadIdx.x, p.cpp_log2);
    }

    __device__ __forceinline__ void set_chunk(int chunk) {
        channel = ((chunk << p.cpp_log2) + (threadIdx.x & ((1 << p.cpp_log2) - 1))) * PER;
        count = min(max(p.c_in - channel, 0), (int)PER);
        plain = p.x.vec && p.x.dtype == T::DTYPE && count == PER && (!p.scale || p.vectors_aligned);
    }

    /* Straight-line code for the first two pieces, which the compiler interleaves with products. */
    __device__ __forceinline__ void copy(uint32_t patch, int from, int to) const {
        const int bytes = count * (16 / PER);
        const char *src = x + (int64_t)channel * (16 / PER);
        const int *t = table + ((from + threadIdx.x) >> p.cpp_log2);
        uint32_t dst = patch + to0 + from * 16;
        int i = from + threadIdx.x;
#pragma unroll
        for (int k = 0; k < 2; k++, i += THREADS) {
            if (i < to) {
                const int offset = t[k * (THREADS >> p.cpp_log2)];
                conv_copy16(dst + k * THREADS * 16, src + offset, offset < 0 ? 0 : bytes);
            }
        }
#pragma unroll 1
        for (; i < to; i += THREADS) {
            const int offset = table[i >> p.cpp_log2];
            dst += THREADS * 16;
            conv_copy16(dst + THREADS * 16, src + offset, offset < 0 ? 0 : bytes);
        }
    }

    __device__ __forceinline__ uint4 value(int k) const {
        float v[PER];
        T::unpack(raw[k], v);
        if (p.scale) {
            const float *scale = p.scale + vectors + channel, *shift = p.shift + vectors + channel;
#pragma unroll
            for (int i = 0; i < PER; i += 4) {
                const float4 a = __ldg((const float4 *)(scale + i)), b = __ldg((const float4 *)(shift + i));
                v[i] = fmaf(v[i], a.x, b.x), v[i + 1] = fmaf(v[i + 1], a.y, b.y);
                v[i + 2] = fmaf(v[i + 2], a.z, b.z), v[i + 3] = fmaf(v[i + 3], a.w, b.w);
            }
        }
        if (T::DTYPE == CONV_BF16 && p.pro_act == CONV_SILU) {
#pragma unroll
            for (int i = 0; i < PER; i++) {
                v[i] = conv_silu_short(v[i]);
            }
        } else {
            conv_pro_act(v, p.pro_act);
        }
        return T::pack(v);
    }

    /* Pieces that are not plain: one channel at a time. */
    __device__ __forceinline__ void singly(int k, uint32_t to) const {
#pragma unroll 1
        for (int i = 0; i < PER; i++) {
            float v[1] = {0};
            if (i < count) {
                v[0] = conv_load1(x + at[k], p.x.dtype, channel + i);
                if (p.scale) {
                    v[0] = fmaf(v[0], p.scale[vectors + channel + i], p.shift[vectors + channel + i]);
                }
                conv_pro_act(v, p.pro_act);
            }
            T::store_shared(to + i * T::BYTES, v[0]);
        }
    }

    __device__ __forceinline__ void place(int k, uint32_t to) const {
        if (at[k] < 0) {
            conv_store_shared(to, make_uint4(0, 0, 0, 0));
        } else if (plain) {
            conv_store_shared(to, value(k));
        } else {
            singly(k, to);
        }
    }

    /* Starts the first AHEAD pieces of [from, to), */
    __device__ __forceinline__ void convert_begin(int from, int to) {
        const char *src = x + (int64_t)channel * T::BYTES;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int item = from + threadIdx.x + k * THREADS;
            at[k] = item < to && count > 0 ? table[item >> p.cpp_log2] : -1;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint4 *piece = (const uint4 *)(src + at[k]);
            if (at[k] >= 0 && plain) {
                raw[k] = *piece;
            }
        }
    }

    /* finishes them, and processes all others. */
    __device__ __forceinline__ void convert_end(uint32_t patch, int from, int to) {
#pragma unroll 1
        for (; from < to; from += AHEAD * THREADS, convert_begin(from, to)) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int item = from + threadIdx.x + k * THREADS;
                if (item < to) {
                    place(k, patch + to0 + (from + k * THREADS) * 16);
                }
            }
        }
    }
};

/* ---- the loop over chunks of input channels and taps ---- */

/* The copies that a step overlaps with its products. */
template <bool DIRECT, class M, class E> struct conv_copies {
    const M &mover;
    E &engine;
    uint32_t patch, weights;
    int from, to; /* pieces of the patch */
    bool more;    /* weights, too */

    __device__ __forceinline__ void patches() const {
        if constexpr (DIRECT) {
            mover.copy(patch, from, to);
        }
    }

    template <int PARTS> __device__ __forceinline__ void part(int k) const {
        engine.template copy_weights<PARTS>(weights, k, more);
        if (k == PARTS - 1) {
            conv_copy_commit();
        }
    }
};

/* The next patch is loaded over the first `window` taps of a chunk, the first ones before step 0. DIRECT: p.direct. The
 * engine E has two functions. copy_weights<PARTS>(address, k, whether) copies part k of the weights of consecutive
 * steps. multiply(patch, weights, offset of the tap in pixels, chunk, copies) multiplies one tap. */
template <bool DIRECT, class T, int THREADS, int AHEAD, class E>
CONV_DEVICE void conv_pipeline(const dvk_conv_params &p, conv_mover<T, THREADS, AHEAD> &mover, uint32_t patch0,
                               uint32_t weight_bytes, E &engine) {
    const int items = p.patch_pixels << p.cpp_log2;
    const uint32_t patch_bytes = ((uint32_t)items * 16 + 127) & ~127u; /* the swizzle stays within 128 bytes */
    const int steps = p.chunks * p.taps, ahead = p.stages - 1;
    const uint32_t weights0 = patch0 + p.patches * patch_bytes, weights_end = weights0 + p.stages * weight_bytes;
    const int filled = min(max(p.patches - 1, 1), p.chunks);
    conv_copies<DIRECT, conv_mover<T, THREADS, AHEAD>, E> copies = {mover, engine, patch0, weights0, 0, 0, true};
    int tap = 0, kx = 0, row = 0, chunk = 0, slot = 0;
#pragma unroll 1
    for (int s = -ahead; s < steps; s++) {
        int next = s + ahead, from = 0, into = next;
        int to = next < filled ? items : 0;
        if (s >= 0) {
            conv_copy_wait(p.stages);
            __syncthreads();
            next = chunk + p.patches - 1;
            into = slot == 0 ? p.patches - 1 : slot - 1;
            from = tap * p.portion;
            to = next < p.chunks && tap < p.window ? min(from + p.portion, items) : 0;
        }
        mover.set_chunk(next);
        copies.patch = patch0 + into * patch_bytes;
        copies.from = from, copies.to = to;
        copies.more = s + ahead < steps;
        if (!DIRECT) {
            mover.convert_begin(from, to);
        }
        const uint32_t weights =
            copies.weights + weight_bytes == weights_end ? weights0 : copies.weights + weight_bytes;
        if (s < 0) {
            copies.patches();
            copies.template part<1>(0);
        } else {
            const int offset = row + (p.plane ? (kx & 1) * p.plane + (kx >> 1) : kx);
            engine.multiply(patch0 + slot * patch_bytes, weights, offset, chunk, copies);
            kx++, tap++;
            if (kx == p.kw) {
                kx = 0, row += p.patch_w.by;
            }
            if (tap == p.taps) {
                tap = kx = row = 0, chunk++;
                slot = slot + 1 == p.patches ? 0 : slot + 1;
            }
        }
        copies.weights = weights;
        if (!DIRECT) {
            mover.convert_end(copies.patch, from, to);
        }
    }
}

/* Shared memory begins with the table of the patch and the vectors of N channels. */
CONV_DEVICE uint32_t conv_head_bytes(const dvk_conv_params &p, int n) {
    return ((uint32_t)(p.patch_pixels * 4 + 127) & ~127u) + ((n * 8 + 127) & ~127);
}

#endif
