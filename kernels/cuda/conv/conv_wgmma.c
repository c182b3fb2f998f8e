/* conv_wgmma.c - host side of "conv2d" on Hopper's tensor cores: support, tiling, cost, weights. Nearest upsampling by
 * two becomes four convolutions of 2 x 2 taps on the small picture (phases). */
#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_wgmma, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_wgmma;

/* ---- shape ---- */

static int phases_of(const dvk_conv2d_args *a) {
    return a->upsample == 2 ? 4 : 1;
}

static int taps_of(const dvk_conv2d_args *a) {
    return a->upsample == 2 ? 4 : a->kh * a->kw;
}

/* With stride 2, two tiles would need twice the patches, which do not fit: half of the products are padding. */
static int split_of(const dvk_conv2d_args *a) {
    return channels_of(a) <= 64 && a->stride == 1;
}

/* Channels per tap in k if all taps form one chunk, otherwise 0. */
static int few_of(const dvk_conv2d_args *a) {
    const int window = a->kh == 3 && a->kw == 3 && a->stride == 1 && a->upsample == 1;
    return !window || a->x.c > 4 ? 0 : a->x.c == 4 ? 4 : 3;
}

/* Stride 2: taps with an even distance meet pixels of the same parity. */
static int parity_of(int first, int pad) {
    return (first + pad) & 1;
}

static void set_parts(const dvk_conv2d_args *a, dvk_conv_wgmma *p) {
    p->parts = p->patch_pixels = p->x_bytes = 0;
    for (int i = 0; i < 4; i++) {
        const int ky = i >> 1, kx = i & 1;
        if (ky < a->kh && kx < a->kw) {
            const int high = (a->kh - ky + 1) / 2, wide = (a->kw - kx + 1) / 2, pitch = DVK_WGMMA_TILE_W + wide - 1;
            const int pixels = pitch * (DVK_WGMMA_TILE_H + high - 1);
            p->part[p->parts++] = (dvk_wgmma_part){.taps = high * wide,
                                                   .kw = wide,
                                                   .pitch = pitch,
                                                   .bytes = pixels * 128,
                                                   .y = (ky - a->pad_top - parity_of(ky, a->pad_top)) / 2,
                                                   .x = (kx - a->pad_left - parity_of(kx, a->pad_left)) / 2};
            p->patch_pixels += pixels;
            p->x_bytes = p->x_bytes > pixels * 128 ? p->x_bytes : pixels * 128;
        }
    }
    p->x_bytes = (p->x_bytes + 1023) / 1024 * 1024;
}

/* Few input channels: all taps form a product of one chunk. */
static void set_few(const dvk_conv2d_args *a, dvk_conv_wgmma *p) {
    p->from = view_of(&a->x);
    p->last_k16 = (int32_t)blocks_of(9 * p->few, 16);
    p->taps = p->kw = 1;
    p->pitch = DVK_WGMMA_TILE_W;
    p->patch_pixels = DVK_WGMMA_TILE_W * DVK_WGMMA_TILE_H;
    p->x_bytes = DVK_WGMMA_FEW_SLOT;
}

/* 1 if the first residual is the input: its first 64 channels, pixel by pixel. */
static int own_residual(const dvk_conv2d_args *a, const dvk_conv_wgmma *p) {
    const dvk_view *r = &a->epi.res[0], *x = &a->x;
    return a->epi.n_res > 0 && p->epilogue == (int32_t)DVK_WGMMA_LINEAR && p->split && p->chunks > 1 &&
           p->last_k16 == 4 && p->phases == 1 && !p->pro && !p->few && a->stride == 1 && a->pad_top < a->kh &&
           a->pad_left < a->kw && r->data == x->data && r->sn == x->sn && r->sh == x->sh && r->sw == x->sw &&
           r->h == x->h && r->w == x->w;
}

/* 1 for a shuffle by two to pixels of eight channels, including padding. */
static int makes_pixels(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    return e->shuffle == 2 && a->y.c <= 4 && a->y.sw == 8 && a->y.dtype == a->compute && mappable(&a->y) &&
           e->n_res == 0 && !e->gate && e->act <= DVK_ACT_PRELU && a->upsample == 1;
}

/* All parameters of the kernel except pointers and tensor maps. */
static dvk_conv_wgmma shape_of(const dvk_conv2d_args *a) {
    dvk_conv_wgmma p;
    memset(&p, 0, sizeof p);
    const int phases = phases_of(a), step = phases == 4 ? 2 : 1;
    const int kw = phases == 4 ? 3 : a->kw, kh = phases == 4 ? 3 : a->kh;
    p.pro = a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
    p.pro_act = (int32_t)a->pro.act;
    p.epilogue = makes_pixels(a) ? (int32_t)DVK_WGMMA_PIXELS : (int32_t)epilogue_of(a);
    p.c_in = (int32_t)a->x.c;
    p.chunks = (int32_t)blocks_of(a->x.c, DVK_WGMMA_CHUNK);
    p.last_k16 = (int32_t)blocks_of(a->x.c - (int64_t)(p.chunks - 1) * DVK_WGMMA_CHUNK, 16);
    p.phases = phases;
    p.taps = taps_of(a);
    p.kw = phases == 4 ? 2 : a->kw;
    p.n = (int32_t)a->y.n;
    p.in_h = (int32_t)a->x.h;
    p.in_w = (int32_t)a->x.w;
    const int64_t shrink = a->epi.shuffle > 1 ? a->epi.shuffle : step;
    p.out_h = (int32_t)(a->y.h / shrink);
    p.out_w = (int32_t)(a->y.w / shrink);
    p.pad_top = a->pad_top;
    p.pad_left = a->pad_left;
    p.tiles_x = (int32_t)blocks_of(p.out_w, DVK_WGMMA_TILE_W);
    p.tiles_y = (int32_t)blocks_of(p.out_h, DVK_WGMMA_TILE_H);
    p.split = split_of(a);
    p.blocks = (int32_t)blocks_of(channels_of(a), p.split ? 64 : 128);
    const int64_t tiles = (int64_t)p.n * p.tiles_y * p.tiles_x;
    p.jobs = (int32_t)(blocks_of(tiles, 1 + p.split) * p.blocks * phases);
    p.pitch = DVK_WGMMA_TILE_W + kw - 1;
    p.patch_pixels = p.pitch * (DVK_WGMMA_TILE_H + kh - 1);
    p.x_bytes = (p.patch_pixels * 128 + 1023) / 1024 * 1024;
    p.w_bytes = (2 - p.split) * DVK_WGMMA_TAP;
    p.parts = 1;
    p.few = few_of(a);
    if (p.few) {
        set_few(a, &p);
    } else if (a->stride == 2) {
        set_parts(a, &p);
    }
    p.own = own_residual(a, &p);
    return p;
}

/* Divides shared memory among the rings. Returns the bytes in total; 0: too little. If all weights fit, they stay, and
 * the two warpgroups alternate. Otherwise the lead of the first is limited, so that the ring still holds some taps
 * beyond it. They also alternate if the rings are so deep that the first could signal twice before the other has
 * waited. */
static int32_t lay_out(dvk_conv_wgmma *p, int32_t n_res, int32_t available) {
    n_res -= p->own;
    const int32_t per_job = p->chunks * p->taps;
    p->resident = (p->split || p->few) && p->blocks * p->phases == 1 && per_job <= 9 && (p->taps > 1 || p->chunks <= 2);
    /* a warpgroup's patch is free when the products of the next one have begun */
    const int32_t alone = p->split && (!p->resident || p->chunks > 1);
    p->x_slots = p->few || p->parts > 1 ? 3 : p->taps == 1 ? 4 : alone ? 3 : 2;
    p->entry_bytes = (n_res > 1 ? 2 : 1) * DVK_WGMMA_PIECE;
    p->entries = p->resident && n_res < 2 ? 4 : n_res == 1 && !p->split && p->taps > 1 ? (p->chunks > 2 ? 4 : 3) : 2;
    int32_t rest = available - DVK_WGMMA_BARRIERS - p->x_slots * p->x_bytes - 2 * p->entries * p->entry_bytes;
    while (p->entries > 2 && rest < (p->resident ? per_job : 3) * p->w_bytes) {
        p->entries--;
        rest += 2 * p->entry_bytes;
    }
    p->w_slots = p->resident ? per_job : least(rest / p->w_bytes, 8);
    rest -= p->w_slots * p->w_bytes;
    p->lead = per_job - per_job / 4; /* the products of one begin before those of the other end */
    if (!p->resident) {
        p->lead = least(least(per_job, 3), least(p->taps * (p->x_slots - 1), p->w_slots > 4 ? p->w_slots - 3 : 1));
    }
    p->alternate = p->resident || per_job + p->lead <= least(p->w_slots, p->taps * p->x_slots);
    const int32_t least_slots = p->resident ? 1 : p->few ? p->x_slots : 2;
    return rest >= 0 && p->w_slots >= least_slots ? available - rest : 0;
}

/* Whole chunks of channels without conversion, with a pixel of every parity that is read. */
static int can_halve(const dvk_conv2d_args *a) {
    return can_map(a) && a->stride == 2 && a->x.c % DVK_WGMMA_CHUNK == 0 && a->upsample == 1 && a->pro.scale == NULL &&
           a->pro.act == DVK_ACT_NONE && a->epi.shuffle <= 1 && a->x.h > 1 && a->x.w > 1;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (!(few_of(a)        ? is_half(a->compute) && can_index(a)
          : a->stride == 2 ? can_halve(a)
                           : can_read(a)) ||
        a->kh < 1 || a->kh > 3 || a->kw < 1 || a->kw > 3) {
        return 0;
    }
    const int32_t window = a->phased ? 2 : 3;
    if (a->upsample == 2 && (a->kh != window || a->kw != window || a->pad_top != 1 || a->pad_left != 1 ||
                             a->y.h != 2 * a->x.h || a->y.w != 2 * a->x.w || a->epi.shuffle > 1)) {
        return 0;
    }
    if (a->upsample != 1 && a->upsample != 2) {
        return 0;
    }
    if (a->epi.gate > 2 || (a->epi.shuffle > 1 && (a->epi.gate || a->epi.n_res > 1))) {
        return 0;
    }
    dvk_conv_wgmma p = shape_of(a);
    if (a->epi.stats != NULL && (p.epilogue != DVK_WGMMA_STATISTICS || !has_statistics(a, &p))) {
        return 0;
    }
    return lay_out(&p, a->epi.n_res, caps->shared_bytes) > 0;
}

static int64_t stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a);
    (void)caps;
    return stats_chunks_of(a, &p);
}

/* A warpgroup keeps its sums in registers, so all its tiles have the same picture and the same channels. */
static int64_t sums_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a);
    const int can = p.epilogue == (int32_t)DVK_WGMMA_SLOPE && a->epi.n_res == 0 && a->stride == 1 && !p.few &&
                    p.blocks * p.phases == 1 && p.n == 1;
    return can ? (int64_t)least(p.jobs, caps->processors) << p.split : 0;
}

/* Upsampling by weights of a larger window adds some of them. */
static int scalable(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    (void)caps;
    return (a->upsample != 2 || a->phased) && !few_of(a);
}

/* ---- weights: [phase][block][chunk][tap][64 or 128 rows][64], rows swizzled. Those of a phase are sums of the given
 * ones, or given ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return (size_t)p.phases * (size_t)p.blocks * (size_t)p.chunks * (size_t)p.taps * (size_t)p.w_bytes;
}

static int64_t pack_units(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return (int64_t)p.phases * p.blocks * p.chunks;
}

/* Stride 2: tap `tap` in the order of the parts. */
static int tap_of_parts(const dvk_conv2d_args *a, const dvk_conv_wgmma *p, int tap) {
    int part = 0;
    while (tap >= p->part[part].taps) {
        tap -= p->part[part++].taps;
    }
    const int ky = a->kw > 1 ? part >> 1 : part, kx = a->kw > 1 ? part & 1 : 0;
    return (ky + tap / p->part[part].kw * 2) * a->kw + kx + tap % p->part[part].kw * 2;
}

/* Tap `tap` of one kernel of kh x kw; for a phase: the sum of the given taps that meet the same pixel. */
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

/* Few shuffled channels: each warp computes them for a part of the tile (output_ring::pixels). */
static int same_in_warps(const dvk_conv2d_args *a) {
    return a->epi.shuffle == 2 && channels_of(a) <= 16;
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a);
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

/* ---- cost ---- */

static double most(double a, double b) {
    return a > b ? a : b;
}

/* The time of a job is that of its padded products, its loads through the cache or its prologue, whichever is longest,
 * plus its epilogue. The busiest block determines the total. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    dvk_conv_wgmma p = shape_of(a);
    if (lay_out(&p, a->epi.n_res, caps->shared_bytes) == 0) {
        return 1e30;
    }
    const double k = (double)p.taps * ((p.chunks - 1) * 64.0 + p.last_k16 * 16.0);
    const double products = 2.0 * 128.0 * 256.0 * k / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors);
    const double weights = p.resident ? 0.0 : (double)p.taps * p.w_bytes;
    const double patch = p.few ? 0.0 : (1.0 + p.split) * p.patch_pixels * 128.0;
    const double read = p.chunks * (patch + weights) / TERM(read);
    const double prologue = p.few   ? (1.0 + p.split) * p.patch_pixels * TERM(few)
                            : p.pro ? p.chunks * (1.0 + p.split) * p.patch_pixels * TERM(prologue)
                                    : 0.0;
    double job = most(most(products * (p.pro ? TERM(beside) : 1.0), read), prologue) + TERM(epilogue) +
                 TERM(residual) * a->epi.n_res;
    const double each = a->epi.shuffle > 1 ? TERM(any_shuffled) : TERM(any_channel);
    job += p.epilogue == DVK_WGMMA_ANY ? TERM(any) + each * (double)(p.split ? channels_of(a) : 64)
                                       : (p.epilogue == DVK_WGMMA_STATISTICS ? TERM(statistics) : 0.0);
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    return TERM(launch) +
           most((double)blocks_of(p.jobs, caps->processors) * job, bytes / (TERM(memory) * caps->memory_gbs));
}

/* ---- launch ---- */

/* Stride 2: maps the pixels of one parity as a picture. */
static int map_parts(const dvk_conv2d_args *a, dvk_conv_wgmma *p, dvk_queue *q) {
    const int64_t size = (int64_t)dvk_dtype_size(a->x.dtype);
    int r = 0;
    for (int i = 0, part = 0; i < 4 && r == 0; i++) {
        if ((i >> 1) >= a->kh || (i & 1) >= a->kw) {
            continue;
        }
        const int py = parity_of(i >> 1, a->pad_top), px = parity_of(i & 1, a->pad_left);
        const dvk_wgmma_part *of = &p->part[part];
        dvk_view v = a->x;
        v.data = (char *)v.data + (py * v.sh + px * v.sw) * size;
        v.h = (v.h - py + 1) / 2;
        v.w = (v.w - px + 1) / 2;
        v.sh *= 2;
        v.sw *= 2;
        r = map_of(q, &v, 1, 0, of->pitch, of->bytes / 128 / of->pitch, part > 0 ? &p->x_odd[part - 1] : &p->x);
        part++;
    }
    return r;
}

static int make_maps(const dvk_conv2d_args *a, dvk_conv_wgmma *p, dvk_queue *q) {
    int r = p->few           ? 0
            : a->stride == 2 ? map_parts(a, p, q)
                             : map_of(q, &a->x, 1, 0, p->pitch, p->patch_pixels / p->pitch, &p->x);
    if (p->epilogue >= (int32_t)DVK_WGMMA_PIXELS) {
        return r;
    }
    for (int i = 0; i < p->phases && r == 0; i++) {
        r = map_of(q, &a->y, p->phases == 4 ? 2 : 1, i, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->y[i]);
    }
    for (int32_t i = p->own; i < a->epi.n_res && r == 0; i++) {
        r = map_of(q, &a->epi.res[i], 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->res[i]);
    }
    return r;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_wgmma p = shape_of(a);
    const int32_t shared = lay_out(&p, a->epi.n_res, q->caps->shared_bytes);
    static const char *const names[2][3] = {{"conv_wgmma_bf16", "conv_wgmma_bf16_half", "conv_wgmma_bf16_few"},
                                            {"conv_wgmma_f16", "conv_wgmma_f16_half", "conv_wgmma_f16_few"}};
    const int kind = p.few ? 2 : a->stride == 2;
    (void)scratch;
    p.epi = epi_of(a);
    p.w = a->w;
    p.scale = a->pro.scale;
    p.shift = a->pro.shift;
    p.sums = a->epi.sums;
    p.fresh = a->scaled;
    const int r = make_maps(a, &p, q);
    if (r != 0) {
        return r;
    }
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_wgmma_sm90",
                          .function = names[a->compute == DVK_F16][kind],
                          .grid = {(uint32_t)least(p.jobs, q->caps->processors), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_wgmma = {.op = "conv2d",
                                               .variant = "cuda/wgmma",
                                               .sm_min = 90,
                                               .sm_max = 90,
                                               .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                               .supports = supports,
                                               .cost = cost,
                                               .enqueue = enqueue,
                                               .stats_chunks = stats_chunks,
                                               .sums_chunks = sums_chunks,
                                               .scalable = scalable,
                                               .packed_bytes = packed_bytes,
                                               .pack_units = pack_units,
                                               .pack = pack};
