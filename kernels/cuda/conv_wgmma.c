/* conv_wgmma.c - "conv2d" on Hopper's tensor cores: which convolutions, in what shape, at what cost; weights as
 * conv_wgmma_sm90.cu reads them. Enlarging by two is four convolutions of 2 x 2 taps on the small picture (phases), whose
 * weights are sums of the given ones. */
#include "kernels/cuda/conv_wgmma_host.h"

extern const dvk_cuda_kernel dvk_conv2d_cuda_wgmma;

/* ---- shape ---- */

static int phases_of(const dvk_conv2d_args *a) {
    return a->upsample == 2 ? 4 : 1;
}

static int taps_of(const dvk_conv2d_args *a) {
    return a->upsample == 2 ? 4 : a->kh * a->kw;
}

static int split_of(const dvk_conv2d_args *a) {
    return channels_of(a) <= 64;
}

/* What the kernel needs to know but for pointers and maps. */
static dvk_conv_wgmma shape_of(const dvk_conv2d_args *a) {
    dvk_conv_wgmma p;
    memset(&p, 0, sizeof p);
    const int phases = phases_of(a), step = phases == 4 ? 2 : 1;
    const int kw = phases == 4 ? 3 : a->kw, kh = phases == 4 ? 3 : a->kh;
    p.pro = a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
    p.pro_act = (int32_t)a->pro.act;
    p.epilogue = (int32_t)epilogue_of(a);
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
    p.w_rings = 1; /* one of each warpgroup's own was slower: its loads are too small */
    p.w_bytes = (2 - p.split) * DVK_WGMMA_TAP;
    return p;
}

/* Divides shared memory among the rings; bytes in all, 0: too little. Weights stay where all of them fit, and then the
 * two warpgroups take turns; otherwise the first is only so far ahead that the ring still looks some taps beyond it. */
static int32_t lay_out(dvk_conv_wgmma *p, int32_t n_res, int32_t available) {
    const int32_t per_job = p->chunks * p->taps;
    p->resident = p->split && p->blocks * p->phases == 1 && per_job <= 9 && (p->taps > 1 || p->chunks <= 2);
    p->x_slots = p->taps == 1 ? 4 : p->split && !p->resident ? 3 : 2;
    p->entry_bytes = (n_res > 1 ? 2 : 1) * DVK_WGMMA_PIECE;
    p->entries = p->resident && n_res < 2 ? 8 : p->split || n_res > 0 ? 4 : 3;
    int32_t rest = available - DVK_WGMMA_BARRIERS - p->x_slots * p->x_bytes - 2 * p->entries * p->entry_bytes;
    while (p->entries > 2 && rest < 3 * p->w_bytes) {
        p->entries--;
        rest += 2 * p->entry_bytes;
    }
    p->w_slots = p->resident ? per_job : least(rest / p->w_bytes, 8);
    rest -= p->w_slots * p->w_bytes;
    p->alternate = p->resident;
    p->lead = per_job;
    if (!p->resident) {
        p->lead = least(least(per_job, 3), least(p->taps * (p->x_slots - 1), p->w_slots > 4 ? p->w_slots - 3 : 1));
    }
    return rest >= 0 && p->w_slots >= (p->resident ? 1 : 2) ? available - rest : 0;
}

/* A group lies within the sixteen channels of a warp. */
static int has_statistics(const dvk_conv2d_args *a) {
    const dvk_wgmma_epilogue e = epilogue_of(a);
    const int32_t per = stat_channels(a, a->epi.stats_groups);
    return (e == DVK_WGMMA_LINEAR || e == DVK_WGMMA_STATISTICS) && a->epi.n_res <= 1 &&
           (a->epi.stats_groups == 0 || per == 1 || per == 2 || per == 4 || per == 8 || per == 16);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (!can_read(a) || a->kh < 1 || a->kh > 3 || a->kw < 1 || a->kw > 3) {
        return 0;
    }
    if (a->upsample == 2 && (a->kh != 3 || a->kw != 3 || a->pad_top != 1 || a->pad_left != 1 || a->y.h != 2 * a->x.h ||
                             a->y.w != 2 * a->x.w || a->epi.shuffle > 1)) {
        return 0;
    }
    if (a->upsample != 1 && a->upsample != 2) {
        return 0;
    }
    if (a->epi.shuffle > 1 && (a->epi.gate || a->epi.n_res > 1)) {
        return 0;
    }
    dvk_conv_wgmma p = shape_of(a);
    if (a->epi.stats != NULL && (p.epilogue != DVK_WGMMA_STATISTICS || !has_statistics(a))) {
        return 0;
    }
    return lay_out(&p, a->epi.n_res, caps->shared_bytes) > 0;
}

static int64_t stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a);
    (void)caps;
    return has_statistics(a) ? (int64_t)p.tiles_x * p.tiles_y * p.phases : 0;
}

/* ---- weights: [phase][block][chunk][tap][64 or 128 rows][64], rows swizzled ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return (size_t)p.phases * (size_t)p.blocks * (size_t)p.chunks * (size_t)p.taps * (size_t)p.w_bytes;
}

static int64_t pack_units(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return (int64_t)p.phases * p.blocks * p.chunks;
}

/* Tap `tap` of one kernel of kh x kw; of a phase: the sum of the given taps that meet the same pixel. */
static float tap_of(const dvk_conv2d_args *a, const float *k, int phase, int tap) {
    if (a->upsample != 2) {
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

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a);
    const int rows = p.split ? 64 : 128, given = a->kh * a->kw;
    for (int64_t u = first; u < last; u++) {
        const int chunk = (int)(u % p.chunks), phase = (int)(u / p.chunks / p.blocks);
        const int64_t block = u / p.chunks % p.blocks;
        for (int tap = 0; tap < p.taps; tap++) {
            unsigned char *to = (unsigned char *)dst + (u * p.taps + tap) * p.w_bytes;
            for (int r = 0; r < rows; r++) {
                const int64_t o = block * rows + r;
                for (int k = 0; k < DVK_WGMMA_CHUNK; k++) {
                    const int64_t i = (int64_t)chunk * DVK_WGMMA_CHUNK + k;
                    const int real = o < channels_of(a) && i < a->x.c;
                    const float v = real ? tap_of(a, w + (o * a->x.c + i) * given, phase, tap) : 0.0f;
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

/* A job takes as long as its products as they are padded, what it reads through the cache or its prologue, whichever is
 * longest, and its epilogue; the constants are of an H200. All blocks work as long as the busiest. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    dvk_conv_wgmma p = shape_of(a);
    if (lay_out(&p, a->epi.n_res, caps->shared_bytes) == 0) {
        return 1e30;
    }
    const double k = (double)p.taps * ((p.chunks - 1) * 64.0 + p.last_k16 * 16.0);
    const double products = 2.0 * 128.0 * 256.0 * k / (1.14e3 * caps->tensor_tflops / caps->processors);
    const double weights = p.resident ? 0.0 : (double)p.taps * p.w_bytes;
    const double read = p.chunks * ((1.0 + p.split) * p.patch_pixels * 128.0 + weights) / 40.0;
    const double prologue = p.pro ? p.chunks * (1.0 + p.split) * p.patch_pixels * 12.0 : 0.0;
    double job = most(most(products * (p.pro ? 1.08 : 1.0), read), prologue) + 1500.0 + 1500.0 * a->epi.n_res;
    job += p.epilogue == DVK_WGMMA_ANY ? 1000.0 + 300.0 * (double)(p.split ? channels_of(a) : 64)
                                       : (p.epilogue == DVK_WGMMA_STATISTICS ? 1000.0 : 0.0);
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    return 3000.0 + most((double)blocks_of(p.jobs, caps->processors) * job, bytes / (0.85 * caps->memory_gbs));
}

/* ---- launch ---- */

static int make_maps(const dvk_conv2d_args *a, dvk_conv_wgmma *p, dvk_queue *q) {
    int r = map_of(q, &a->x, 1, 0, p->pitch, p->patch_pixels / p->pitch, &p->x);
    if (p->epilogue == DVK_WGMMA_ANY) {
        return r;
    }
    for (int i = 0; i < p->phases && r == 0; i++) {
        r = map_of(q, &a->y, p->phases == 4 ? 2 : 1, i, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->y[i]);
    }
    for (int32_t i = 0; i < a->epi.n_res && r == 0; i++) {
        r = map_of(q, &a->epi.res[i], 1, 0, DVK_WGMMA_TILE_W, DVK_WGMMA_PIECE_H, &p->res[i]);
    }
    return r;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_wgmma p = shape_of(a);
    const int32_t shared = lay_out(&p, a->epi.n_res, q->caps->shared_bytes);
    static const char *const names[2][2] = {{"conv_wgmma_bf16", "conv_wgmma_bf16_any"},
                                            {"conv_wgmma_f16", "conv_wgmma_f16_any"}};
    (void)scratch;
    p.epi = epi_of(a);
    p.w = a->w;
    p.scale = a->pro.scale;
    p.shift = a->pro.shift;
    const int r = make_maps(a, &p, q);
    if (r != 0) {
        return r;
    }
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_wgmma_sm90",
                          .function = names[a->compute == DVK_F16][p.last_k16 != 4],
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
                                               .packed_bytes = packed_bytes,
                                               .pack_units = pack_units,
                                               .pack = pack};
