/* conv_winograd.c - "conv2d_winograd" on Hopper's tensor cores: in what shape, at what cost; transformed weights as
 * conv_winograd_sm90.cu reads them. */
#include "kernels/cuda/conv_winograd.h"

#include "kernels/cuda/conv_wgmma_host.h"

extern const dvk_cuda_kernel dvk_conv2d_winograd_cuda_wgmma;

enum { LINES = 4, ROWS = 3, TAPS = LINES * ROWS, CHANNELS = 128 }; /* CHANNELS: of a block */

/* What the kernel needs to know but for pointers and maps. */
static dvk_conv_winograd shape_of(const dvk_conv2d_args *a) {
    dvk_conv_winograd w;
    memset(&w, 0, sizeof w);
    dvk_conv_wgmma *p = &w.c;
    dvk_conv2d_args stored = *a; /* what leaves is of y's type, whatever the products are of */
    stored.compute = a->y.dtype;
    p->epilogue = (int32_t)epilogue_of(&stored);
    p->c_in = (int32_t)a->x.c;
    p->chunks = (int32_t)(a->x.c / DVK_WGMMA_CHUNK);
    p->taps = TAPS;
    p->phases = 2; /* of statistics: even columns and odd ones */
    p->n = (int32_t)a->y.n;
    p->out_h = (int32_t)a->y.h;
    p->out_w = (int32_t)blocks_of(a->y.w, 2);
    w.odd_w = (int32_t)(a->y.w / 2);
    p->tiles_x = (int32_t)blocks_of(p->out_w, DVK_WINOGRAD_TILE_W);
    p->tiles_y = (int32_t)blocks_of(p->out_h, DVK_WINOGRAD_TILE_H);
    p->blocks = (int32_t)blocks_of(a->y.c, CHANNELS);
    p->jobs = (int32_t)blocks_of((int64_t)p->n * p->tiles_y * p->tiles_x, DVK_WINOGRAD_CLUSTER) * p->blocks;
    return w;
}

/* Divides shared memory among the rings; bytes in all, 0: too little. */
static int32_t lay_out(dvk_conv_wgmma *p, int32_t available) {
    p->x_slots = 3;
    const int32_t fixed = DVK_WGMMA_BARRIERS + p->x_slots * DVK_WINOGRAD_PATCH + DVK_WINOGRAD_STAGING;
    p->w_slots = least((available - fixed) / DVK_WINOGRAD_TAP, 8);
    p->lead = ROWS;
    return p->w_slots >= 5 ? fixed + p->w_slots * DVK_WINOGRAD_TAP : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (a->x.dtype != DVK_F16 || a->compute != DVK_F16 || !mappable(&a->x) || !can_index(a) || a->kh != 3 ||
        a->kw != 3 || a->stride != 1 || a->pad_top != 1 || a->pad_left != 1 || a->upsample != 1 || a->phased ||
        a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE || a->epi.shuffle > 1 || a->x.h != LINES * a->y.h ||
        a->x.w != blocks_of(a->y.w, 2) || a->y.w < 2 || a->x.c % DVK_WGMMA_CHUNK != 0 || !is_half(a->y.dtype) ||
        a->epi.n_res > 1) {
        return 0;
    }
    dvk_conv_wgmma p = shape_of(a).c;
    const int linear = p.epilogue == (int32_t)DVK_WGMMA_LINEAR ||
                       (p.epilogue == (int32_t)DVK_WGMMA_STATISTICS && has_statistics(a, &p));
    return linear && lay_out(&p, caps->shared_bytes) > 0;
}

static int64_t stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    (void)caps;
    return stats_chunks_of(a, &p);
}

/* ---- weights: [block][half][which][chunk][row of taps][128 rows][64], rows swizzled; of the first half V1's and V2's, of the
 * second V0's and V3's ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv_wgmma p = shape_of(args).c;
    return (size_t)p.blocks * (size_t)p.chunks * TAPS * DVK_WINOGRAD_TAP;
}

static int64_t pack_units(const void *args) {
    const dvk_conv_wgmma p = shape_of(args).c;
    return (int64_t)p.blocks * p.chunks;
}

/* Of a row of taps g, what is multiplied by row `line` of the transformed picture. */
static float transformed(const float *g, int line) {
    switch (line) {
    case 0:
        return g[0];
    case 1:
        return 0.5f * (g[0] + g[2] + g[1]);
    case 2:
        return 0.5f * (g[0] + g[2] - g[1]);
    default:
        return -g[2];
    }
}

static void pack_tap(const dvk_conv2d_args *a, const float *w, int64_t block, int64_t chunk, int line, int row,
                     unsigned char *to) {
    for (int r = 0; r < CHANNELS; r++) {
        const int64_t o = block * CHANNELS + r;
        for (int k = 0; k < DVK_WGMMA_CHUNK; k++) {
            const int64_t i = chunk * DVK_WGMMA_CHUNK + k;
            const float v = o < a->y.c ? transformed(w + ((o * a->x.c + i) * ROWS + row) * 3, line) : 0.0f;
            dvk_store(to, DVK_F16, r * DVK_WGMMA_CHUNK + ((k / 8) ^ (r & 7)) * 8 + k % 8, v);
        }
    }
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    static const int lines[2][2] = {{1, 2}, {0, 3}};
    for (int64_t u = first; u < last; u++) {
        const int64_t block = u / p.chunks, chunk = u % p.chunks;
        for (int i = 0; i < TAPS; i++) {
            const int half = i / (2 * ROWS), which = i / ROWS % 2, row = i % ROWS;
            const int64_t at = (((block * 2 + half) * 2 + which) * p.chunks + chunk) * ROWS + row;
            pack_tap(a, w, block, chunk, lines[half][which], row, (unsigned char *)dst + at * DVK_WINOGRAD_TAP);
        }
    }
}

/* ---- cost ---- */

static double most(double a, double b) {
    return a > b ? a : b;
}

/* A job's products and what it does besides; all clusters work as long as the busiest, and memory is never quite hidden. The
 * constants are of an H200. */
static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    const double pairs = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_TILE_H;
    const double products = 2.0 * CHANNELS * pairs * TAPS * (double)a->x.c;
    const double job = products / (1.1e3 * caps->tensor_tflops / caps->processors) + 4300.0;
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    const double turns = (double)blocks_of(p.jobs, caps->processors / DVK_WINOGRAD_CLUSTER);
    return 4000.0 + most(turns * job + 0.15 * bytes / caps->memory_gbs, bytes / (0.85 * caps->memory_gbs));
}

/* ---- launch ---- */

/* Row `line` of every line of the transformed picture. */
static dvk_view line_of(const dvk_view *x, int line) {
    dvk_view v = *x;
    v.data = (char *)v.data + line * v.sh * (int64_t)dvk_dtype_size(v.dtype);
    v.h /= LINES;
    v.sh *= LINES;
    return v;
}

/* Its even or odd columns. */
static dvk_view columns_of(const dvk_view *y, int odd) {
    dvk_view v = *y;
    v.data = (char *)v.data + odd * v.sw * (int64_t)dvk_dtype_size(v.dtype);
    v.w = (v.w + 1 - odd) / 2;
    v.sw *= 2;
    return v;
}

static int make_maps(const dvk_conv2d_args *a, dvk_conv_wgmma *p, dvk_queue *q) {
    int r = 0;
    for (int i = 0; i < LINES && r == 0; i++) {
        const dvk_view v = line_of(&a->x, i);
        r = map_of(q, &v, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WINOGRAD_TILE_H + ROWS - 1, i == 0 ? &p->x : &p->x_odd[i - 1]);
    }
    for (int i = 0; i < 2 && r == 0; i++) {
        const dvk_view v = columns_of(&a->y, i);
        r = map_of(q, &v, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WGMMA_PIECE_H, &p->y[i]);
        if (r == 0 && a->epi.n_res > 0) {
            const dvk_view res = columns_of(&a->epi.res[0], i);
            r = map_of(q, &res, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WGMMA_PIECE_H, &p->res[i]);
        }
    }
    return r;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_winograd w = shape_of(a);
    const int32_t shared = lay_out(&w.c, q->caps->shared_bytes);
    (void)scratch;
    w.c.epi = epi_of(a);
    w.c.w = a->w;
    const int r = make_maps(a, &w.c, q);
    if (r != 0) {
        return r;
    }
    void *list[] = {&w};
    const int32_t clusters = least(w.c.jobs, q->caps->processors / DVK_WINOGRAD_CLUSTER);
    const dvk_launch l = {.module = "conv_winograd_sm90",
                          .function = a->y.dtype == DVK_F16 ? "conv_winograd_f16" : "conv_winograd_bf16",
                          .grid = {(uint32_t)(clusters * DVK_WINOGRAD_CLUSTER), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .cluster = DVK_WINOGRAD_CLUSTER,
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_winograd_cuda_wgmma = {.op = "conv2d_winograd",
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
