/* conv_fp8.c - host side of "conv2d" of f16 with products of E4M3 on Hopper's tensor cores: support, tiling, cost, and
 * weights in the layout of conv_fp8_sm90.cu. It is chosen only if the caller requests FP8. */
#include "kernels/cuda/conv/conv_fp8.h"
#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_8bit_host.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_fp8, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_fp8;

/* ---- shape ---- */

/* The same arguments with 16-bit products, for the shared code of cuda/wgmma. */
static dvk_conv2d_args as_stored(const dvk_conv2d_args *a) {
    dvk_conv2d_args stored = *a;
    stored.compute = DVK_F16;
    return stored;
}

/* All parameters of the kernel except pointers and tensor maps. */
static dvk_conv_wgmma shape_of(const dvk_conv2d_args *a) {
    const dvk_conv2d_args stored = as_stored(a);
    dvk_conv_wgmma p;
    memset(&p, 0, sizeof p);
    const int phases = a->upsample == 2 ? 4 : 1;
    const int kw = phases == 4 ? 3 : a->kw, kh = phases == 4 ? 3 : a->kh;
    p.pro = 1; /* every patch needs a conversion pass */
    p.pro_act = (int32_t)a->pro.act;
    p.epilogue = (int32_t)epilogue_of(&stored);
    p.c_in = (int32_t)a->x.c;
    p.chunks = (int32_t)blocks_of(a->x.c, DVK_WGMMA_CHUNK);
    p.phases = phases;
    p.taps = phases == 4 ? 4 : a->kh * a->kw;
    p.kw = phases == 4 ? 2 : a->kw;
    p.n = (int32_t)a->y.n;
    p.in_h = (int32_t)a->x.h;
    p.in_w = (int32_t)a->x.w;
    p.out_h = (int32_t)(a->y.h / a->upsample);
    p.out_w = (int32_t)(a->y.w / a->upsample);
    p.pad_top = a->pad_top;
    p.pad_left = a->pad_left;
    p.tiles_x = (int32_t)blocks_of(p.out_w, DVK_WGMMA_TILE_W);
    p.tiles_y = (int32_t)blocks_of(p.out_h, DVK_WGMMA_TILE_H);
    p.split = a->y.c <= 64;
    p.blocks = (int32_t)blocks_of(a->y.c, p.split ? 64 : 128);
    const int64_t tiles = (int64_t)p.n * p.tiles_y * p.tiles_x;
    p.jobs = (int32_t)(blocks_of(tiles, 1 + p.split) * p.blocks * phases);
    p.pitch = DVK_WGMMA_TILE_W + kw - 1;
    p.patch_pixels = p.pitch * (DVK_WGMMA_TILE_H + kh - 1);
    p.x_bytes = (p.patch_pixels * 128 + 1023) / 1024 * 1024;
    p.w_bytes = (2 - p.split) * DVK_FP8_TAP;
    return p;
}

/* Divides shared memory among the rings. Returns the bytes in total; 0: too little. The third slot for pixels allows
 * one load, one conversion and one product at the same time. */
static int32_t lay_out(dvk_conv_wgmma *p, int32_t n_res, int32_t available) {
    const int32_t per_job = p->chunks * p->taps;
    p->resident = p->split && p->blocks * p->phases == 1 && per_job <= 9 && (p->taps > 1 || p->chunks <= 2);
    p->x_slots = p->taps == 1 ? 4 : 3;
    p->entry_bytes = (n_res > 1 ? 2 : 1) * DVK_WGMMA_PIECE;
    p->entries = 4;
    int32_t rest = available - DVK_WGMMA_BARRIERS - p->x_slots * p->x_bytes - 2 * p->entries * p->entry_bytes;
    while (p->entries > 2 && rest < (p->resident ? per_job : 8) * p->w_bytes) {
        p->entries--;
        rest += 2 * p->entry_bytes;
    }
    p->w_slots = p->resident ? per_job : least(rest / p->w_bytes, DVK_WGMMA_MAX_W);
    rest -= p->w_slots * p->w_bytes;
    p->alternate = p->resident;
    p->lead = per_job;
    if (!p->resident) {
        p->lead = least(least(per_job, p->taps * (p->x_slots - 1)), p->w_slots > 4 ? p->w_slots - 3 : 1);
    }
    return rest >= 0 && p->w_slots >= (p->resident ? 1 : 2) ? available - rest : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv2d_args stored = as_stored(a);
    if (!conv_8bit_serves(a, DVK_FP8, 32) || a->y.c < 64 || !can_read(&stored) ||
        (a->upsample != 1 && !conv_by_phases(a))) {
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

/* ---- weights: [phase][block][chunk][tap][64 or 128 rows][64], rows swizzled; then [phase][block][row] of units ---- */

enum { PACK_ROWS = 8 }; /* of a unit */

static int32_t rows_of(const dvk_conv_wgmma *p) {
    return p->split ? 64 : 128;
}

static size_t weight_bytes(const dvk_conv_wgmma *p) {
    return (size_t)p->phases * (size_t)p->blocks * (size_t)p->chunks * (size_t)p->taps * (size_t)p->w_bytes;
}

static size_t packed_bytes(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return weight_bytes(&p) + sizeof(float) * (size_t)(p.phases * p.blocks * rows_of(&p));
}

static int64_t pack_units(const void *args) {
    const dvk_conv_wgmma p = shape_of(args);
    return (int64_t)p.phases * p.blocks * rows_of(&p) / PACK_ROWS;
}

static void pack_row(const dvk_conv2d_args *a, const dvk_conv_wgmma *p, const float *w, unsigned char *dst,
                     int64_t row) {
    const conv_shape s = conv_shape_of(a);
    const int32_t rows = rows_of(p);
    const int64_t block = row / rows, r = row % rows; /* block: of all phases */
    const int64_t o = block % p->blocks * rows + r;
    const int32_t phase = (int32_t)(block / p->blocks);
    const int real = o < a->y.c;
    const float unit = real ? conv_fp8_unit(conv_8bit_largest(a, &s, w, o, phase)) : 1.0f;
    memcpy(dst + weight_bytes(p) + (size_t)row * sizeof unit, &unit, sizeof unit);
    for (int64_t at = 0; at < (int64_t)p->chunks * p->taps; at++) {
        unsigned char *to = dst + (block * p->chunks * p->taps + at) * p->w_bytes + r * 64;
        for (int64_t k = 0; k < DVK_WGMMA_CHUNK; k++) {
            const int64_t i = at / p->taps * DVK_WGMMA_CHUNK + k;
            const float v =
                real && i < a->x.c ? conv_weight(a, &s, w, o, i, phase, (int32_t)(at % p->taps)) / unit : 0.0f;
            to[((k / 16) ^ (r / 2 & 3)) * 16 + k % 16] = dvk_f32_to_e4m3(v);
        }
    }
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv_wgmma p = shape_of(args);
    for (int64_t row = first * PACK_ROWS; row < last * PACK_ROWS; row++) {
        pack_row(args, &p, w, dst, row);
    }
}

/* ---- cost ---- */

/* The time of a job is that of its products, its loads through the cache, or its conversion, plus its epilogue; as in
 * conv_wgmma.c. The conversion is nearly always the longest. FP8 is therefore no faster if a patch serves only 64
 * output channels, or if there are only four taps or one. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    dvk_conv_wgmma p = shape_of(a);
    if (lay_out(&p, a->epi.n_res, caps->shared_bytes) == 0) {
        return 1e30;
    }
    const double k = (double)p.taps * (double)conv_round(a->x.c, 32);
    const double products = 2.0 * 128.0 * 256.0 * k / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors);
    const double weights = p.resident ? 0.0 : (double)p.taps * p.w_bytes;
    const double read = p.chunks * ((1.0 + p.split) * p.patch_pixels * 128.0 + weights) / TERM(read);
    const double convert = p.chunks * (1.0 + p.split) * p.patch_pixels * TERM(convert);
    double job = conv_most_of(conv_most_of(products, read), convert) + TERM(epilogue) + TERM(residual) * a->epi.n_res;
    job += p.epilogue == DVK_WGMMA_ANY ? TERM(any) : p.epilogue == DVK_WGMMA_STATISTICS ? TERM(statistics) : 0.0;
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    const double jobs = (double)blocks_of(p.jobs, caps->processors) * job;
    return TERM(launch) + conv_most_of(jobs, bytes / (TERM(memory) * caps->memory_gbs));
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
    dvk_conv_fp8 p = {.c = shape_of(a), .measured = a->pro.scale == NULL};
    const int32_t shared = lay_out(&p.c, a->epi.n_res, q->caps->shared_bytes);
    (void)scratch;
    p.c.epi = epi_of(a);
    p.c.w = a->w;
    p.c.scale = a->pro.scale;
    p.c.shift = a->pro.shift;
    p.unit = (const float *)(const void *)(p.c.w + weight_bytes(&p.c));
    const int r = make_maps(a, &p.c, q);
    if (r != 0) {
        return r;
    }
    void *list[] = {&p};
    const dvk_launch l = {.module = "conv_fp8_sm90",
                          .function = p.measured ? "conv_fp8" : "conv_fp8_norm",
                          .grid = {(uint32_t)least(p.c.jobs, q->caps->processors), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_fp8 = {.op = "conv2d",
                                             .variant = "cuda/fp8/wgmma",
                                             .sm_min = 90,
                                             .sm_max = 90,
                                             .computes = DVK_COMPUTES_FP8,
                                             .supports = supports,
                                             .cost = cost,
                                             .enqueue = enqueue,
                                             .stats_chunks = stats_chunks,
                                             .packed_bytes = packed_bytes,
                                             .pack_units = pack_units,
                                             .pack = pack};
