// window_attention_simt.cu - attention inside windows in f32, for any sizes, types and strides. SHARERS adjacent
// threads share a query; each has 32 of its channels and of its sums. Keys and values are loaded 16 at a time.
#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/window/window_attention.cuh"

using namespace attention;

namespace {

enum { THREADS = DVK_WINDOW_SIMT_THREADS, KEYS = DVK_WINDOW_SIMT_KEYS, SHARE = DVK_WINDOW_SIMT_SHARE };

template <int SHARERS> struct simt {
    enum { DIM = SHARE * SHARERS };
    const dvk_window_simt_params &p;
    const dvk_window_geometry &g;
    const window w;
    const int head;
    const int part = threadIdx.x % SHARERS * SHARE; // first of this thread's channels
    const int query = (blockIdx.y * THREADS + threadIdx.x) / SHARERS;
    float q[SHARE], o[SHARE];
    float top = -INFINITY, sum = 0.0f;

    __device__ __forceinline__ simt(const dvk_window_simt_params &params)
        : p(params), g(p.g), w(g, (int)blockIdx.x / g.heads), head((int)blockIdx.x % g.heads) {
    }

    __device__ __forceinline__ int64_t at(const dvk_elem_view &v, int32_t place) const {
        return w.n * v.sn + (place >> 16) * v.sh + (place & 0xffff) * v.sw + (int64_t)head * g.dim;
    }

    __device__ __forceinline__ void load_keys(float (*k)[DIM], float (*v)[DIM], int first) const {
        const int over_y = (g.kh - g.wh) / 2, over_x = (g.kw - g.ww) / 2;
        for (int i = threadIdx.x; i < KEYS * DIM; i += THREADS) {
            const int key = first + i / DIM, c = i % DIM, ty = key / g.kw, tx = key - ty * g.kw;
            const int32_t place = key < g.kh * g.kw && c < g.dim ? w.place(g, ty, tx, over_y, over_x) : -1;
            k[i / DIM][c] = place >= 0 ? load1(p.k.data, p.k.dtype, at(p.k, place) + c) : 0.0f;
            v[i / DIM][c] = place >= 0 ? load1(p.v.data, p.v.dtype, at(p.v, place) + c) : 0.0f;
        }
    }

    __device__ __forceinline__ float score(const float *k, int key) const {
        float s = 0.0f;
#pragma unroll
        for (int c = 0; c < SHARE; c++) {
            s = fmaf(q[c], k[part + c], s);
        }
#pragma unroll
        for (int i = 1; i < SHARERS; i *= 2) {
            s += __shfl_xor_sync(0xffffffffu, s, i);
        }
        s *= p.scale;
        const int qy = query / g.ww, qx = query - qy * g.ww, ky = key / g.kw, kx = key - ky * g.kw;
        if (p.bias != nullptr && qy < g.wh) {
            const int row = head * (g.wh + g.kh - 1) + qy - ky + g.kh - 1;
            s += p.bias[(int64_t)row * (g.ww + g.kw - 1) + qx - kx + g.kw - 1];
        }
        return ((query_side(g, qy, qx) ^ key_side(g, ky, kx)) & w.cut(g)) != 0 ? s - 100.0f : s;
    }

    __device__ __forceinline__ void add(const float (*k)[DIM], const float (*v)[DIM], int first) {
        const int count = min(KEYS, g.kh * g.kw - first);
        float s[KEYS], t = top;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = j < count ? score(k[j], first + j) : -INFINITY;
            t = fmaxf(t, s[j]);
        }
        const float shrink = __expf(top - from(t));
        top = t;
        sum *= shrink;
#pragma unroll
        for (int c = 0; c < SHARE; c++) {
            o[c] *= shrink;
        }
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = __expf(s[j] - from(top));
            sum += s[j];
#pragma unroll
            for (int c = 0; c < SHARE; c++) {
                o[c] = fmaf(s[j], v[j][part + c], o[c]);
            }
        }
    }

    __device__ __forceinline__ void run(float (*k)[DIM], float (*v)[DIM]) {
        const int qy = query / g.ww;
        const int32_t place = qy < g.wh ? w.place(g, qy, query - qy * g.ww, 0, 0) : -1;
#pragma unroll
        for (int c = 0; c < SHARE; c++) {
            q[c] = place >= 0 && part + c < g.dim ? load1(p.q.data, p.q.dtype, at(p.q, place) + part + c) : 0.0f;
            o[c] = 0.0f;
        }
        for (int first = 0; first < g.kh * g.kw; first += KEYS) {
            __syncthreads();
            load_keys(k, v, first);
            __syncthreads();
            add(k, v, first);
        }
        if (place < 0) {
            return;
        }
#pragma unroll
        for (int c = 0; c < SHARE; c++) {
            if (part + c < g.dim) {
                store1(p.y.data, p.y.dtype, at(p.y, place) + part + c, o[c] / sum);
            }
        }
    }
};

} // namespace

#define SIMT(SHARERS)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        window_attention_simt_##SHARERS(const __grid_constant__ dvk_window_simt_params p) {                            \
        __shared__ __align__(16) float k[KEYS][SHARE * SHARERS], v[KEYS][SHARE * SHARERS];                             \
        wait_for_launch_ahead();                                                                                       \
        simt<SHARERS> a(p);                                                                                            \
        a.run(k, v);                                                                                                   \
    }

SIMT(1)
SIMT(2)
SIMT(4)
SIMT(8)
