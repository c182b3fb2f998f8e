/* conv_wgmma_pack.c - weights as conv_wgmma_sm90.cu reads them: [phase][block][chunk][tap][64 or 128 rows][64], rows
 * swizzled. Those of a phase are sums of the given ones, or given. */
#include "kernels/cuda/conv/conv_wgmma_pack.h"

#include "kernels/cuda/conv/conv_wgmma_host.h"

size_t dvk_wgmma_packed_bytes(const void *args) {
    const dvk_conv_wgmma p = dvk_wgmma_shape(args);
    return (size_t)p.phases * (size_t)p.blocks * (size_t)p.chunks * (size_t)p.taps * (size_t)p.w_bytes;
}

int64_t dvk_wgmma_pack_units(const void *args) {
    const dvk_conv_wgmma p = dvk_wgmma_shape(args);
    return (int64_t)p.phases * p.blocks * p.chunks;
}

/* Of a stride of two: tap `tap` in the order of the parts. */
static int tap_of_parts(const dvk_conv2d_args *a, const dvk_conv_wgmma *p, int tap) {
    int part = 0;
    while (tap >= p->part[part].taps) {
        tap -= p->part[part++].taps;
    }
    const int ky = a->kw > 1 ? part >> 1 : part, kx = a->kw > 1 ? part & 1 : 0;
    return (ky + tap / p->part[part].kw * 2) * a->kw + kx + tap % p->part[part].kw * 2;
}

/* Tap `tap` of one kernel of kh x kw; of a phase: the sum of the given taps that meet the same pixel. */
static float tap_of(const dvk_conv2d_args *a, const dvk_conv_wgmma *p, const float *k, int phase, int tap) {
    if (a->stride == 2) {
        return k[tap_of_parts(a, p, tap)];
    }
    if (a->upsample != 2 || a->phased) {
        return k[tap];
    }
    static const int from[2][2] = {{0, 1}, {0, 2}}, to[2][2] = {{1, 3}, {2, 3}};
    const int py = phase >> 1, px = phase & 1, ty = tap >> 1, tx = tap & 1;
    float sum = 0;
    for (int y = from[py][ty]; y < to[py][ty]; y++) {
        for (int x = from[px][tx]; x < to[px][tx]; x++) {
            sum += k[y * 3 + x];
        }
    }
    return sum;
}

/* Column k of a row of weights, of output channel o. */
static float weight_of(const dvk_conv2d_args *a, const dvk_conv_wgmma *p, const float *w, int64_t o, int64_t chunk,
                       int phase, int tap, int k) {
    int64_t i = chunk * DVK_WGMMA_CHUNK + k;
    if (p->few) {
        tap = k / p->few;
        i = k % p->few;
    }
    const int given = a->kh * a->kw;
    const int64_t row = a->phased ? phase * a->y.c + o : o;
    return o < channels_of(a) && i < a->x.c && tap < given ? tap_of(a, p, w + (row * a->x.c + i) * given, phase, tap)
                                                           : 0.0f;
}

/* Few channels that are shuffled: each warp makes them of a part of the tile (output_ring::pixels). */
static int same_in_warps(const dvk_conv2d_args *a) {
    return a->epi.shuffle == 2 && channels_of(a) <= 16;
}

void dvk_wgmma_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = dvk_wgmma_shape(a);
    const int rows = p.split ? 64 : 128;
    for (int64_t u = first; u < last; u++) {
        const int chunk = (int)(u % p.chunks), phase = (int)(u / p.chunks / p.blocks);
        const int64_t block = u / p.chunks % p.blocks;
        for (int tap = 0; tap < p.taps; tap++) {
            unsigned char *to = (unsigned char *)dst + (u * p.taps + tap) * p.w_bytes;
            for (int r = 0; r < rows; r++) {
                const int64_t o = block * rows + (same_in_warps(a) ? r % 16 : r);
                for (int k = 0; k < DVK_WGMMA_CHUNK; k++) {
                    const float v = weight_of(a, &p, w, o, chunk, phase, tap, k);
                    dvk_store(to, a->compute, r * 64 + ((k / 8) ^ (r & 7)) * 8 + k % 8, v);
                }
            }
        }
    }
}
