/* conv_winograd.c - host side of "conv2d_winograd" on Hopper's tensor cores: tiling, cost, and transformed weights in
 * the layout of conv_winograd_sm90.cu. */
#include "kernels/cuda/conv/conv_winograd.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"
#include "kernels/winograd_band.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_winograd, term))

extern const dvk_cuda_kernel dvk_conv2d_winograd_cuda_wgmma, dvk_conv2d_winograd_band_cuda_wgmma;

enum { LINES = DVK_WINOGRAD_LINES, PIXELS = DVK_WINOGRAD_PIXELS };
enum { ROWS = 3, TAPS = LINES * ROWS, CHANNELS = 128 }; /* CHANNELS: of a block */

/* All parameters of the kernel except pointers and tensor maps. */
static dvk_conv_winograd shape_of(const dvk_conv2d_args *a) {
    dvk_conv_winograd w;
    memset(&w, 0, sizeof w);
    dvk_conv_wgmma *p = &w.c;
    dvk_conv2d_args stored = *a; /* the output has y's type, independent of the type of the products */
    stored.compute = a->y.dtype;
    p->epilogue = (int32_t)epilogue_of(&stored);
    p->c_in = (int32_t)a->x.c;
    p->chunks = (int32_t)(a->x.c / DVK_WGMMA_CHUNK);
    p->taps = TAPS;
    p->phases = 1; /* statistics: those of a tile's four sets are merged */
    p->n = (int32_t)a->y.n;
    p->out_h = (int32_t)a->y.h;
    p->out_w = (int32_t)blocks_of(a->y.w, PIXELS);
    w.width = (int32_t)a->y.w;
    p->tiles_x = (int32_t)blocks_of(p->out_w, DVK_WINOGRAD_TILE_W);
    p->tiles_y = (int32_t)blocks_of(p->out_h, DVK_WINOGRAD_TILE_H);
    p->blocks = (int32_t)blocks_of(a->y.c, CHANNELS);
    w.tiles = p->tiles_y;
    p->jobs = (int32_t)blocks_of((int64_t)p->n * w.tiles * p->tiles_x, DVK_WINOGRAD_PAIR) * p->blocks;
    return w;
}

static dvk_conv_winograd shape_of_band(const dvk_winograd_band_args *b) {
    dvk_conv_winograd w = shape_of(&b->conv);
    w.first = (int32_t)(b->first / DVK_WINOGRAD_TILE_H);
    w.tiles = (int32_t)blocks_of(b->rows, DVK_WINOGRAD_TILE_H);
    w.from = (int32_t)dvk_band_from(b);
    w.c.jobs = (int32_t)blocks_of((int64_t)w.c.n * w.tiles * w.c.tiles_x, DVK_WINOGRAD_PAIR) * w.c.blocks;
    return w;
}

/* Divides shared memory among the rings. Returns the bytes in total; 0: too little. */
static int32_t lay_out(dvk_conv_wgmma *p, int residual, int32_t available) {
    p->x_slots = 3;
    const int32_t fixed = DVK_WGMMA_BARRIERS + DVK_WINOGRAD_PAIR * p->x_slots * DVK_WINOGRAD_PATCH +
                          (residual ? 2 : 1) * DVK_WINOGRAD_STAGING;
    p->w_slots = least((available - fixed) / DVK_WGMMA_TAP, DVK_WGMMA_MAX_W);
    p->lead = ROWS;
    return p->w_slots >= 2 * ROWS ? fixed + p->w_slots * DVK_WGMMA_TAP : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (a->x.dtype != DVK_F16 || a->compute != DVK_F16 || !mappable(&a->x) || !can_index(a) || a->kh != 3 ||
        a->kw != 3 || a->stride != 1 || a->pad_top != 1 || a->pad_left != 1 || a->upsample != 1 || a->phased ||
        a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE || a->epi.shuffle > 1 || a->x.h != LINES * a->y.h ||
        a->x.w != blocks_of(a->y.w, PIXELS) || a->y.w < PIXELS || a->x.c % DVK_WGMMA_CHUNK != 0 ||
        !is_half(a->y.dtype) || a->epi.n_res > 1) {
        return 0;
    }
    dvk_conv_wgmma p = shape_of(a).c;
    const int linear = p.epilogue == (int32_t)DVK_WGMMA_LINEAR ||
                       (p.epilogue == (int32_t)DVK_WGMMA_STATISTICS && has_statistics(a, &p));
    return linear && lay_out(&p, a->epi.n_res > 0, caps->shared_bytes) > 0;
}

static int supports_band(const void *args, const dvk_cuda_caps *caps) {
    const dvk_winograd_band_args *b = args;
    const int64_t end = b->first + b->rows;
    dvk_conv2d_args whole = b->conv;
    whole.x.h = LINES * whole.y.h;
    return b->first >= 0 && b->rows > 0 && end <= whole.y.h && b->first % DVK_WINOGRAD_TILE_H == 0 &&
           (end % DVK_WINOGRAD_TILE_H == 0 || end == whole.y.h) &&
           b->conv.x.h == LINES * (dvk_band_to(b) - dvk_band_from(b)) && supports(&whole, caps);
}

static int64_t stats_chunks(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_wgmma p = shape_of(a).c;
    (void)caps;
    return stats_chunks_of(a, &p);
}

/* ---- weights: [block][line][chunk][row of taps][128 rows][64], rows swizzled; lines in the order of their passes ---- */

static const int line_of_pass[LINES] = {1, 2, 3, 4, 0, 5};

static size_t packed_bytes(const void *args) {
    const dvk_conv_wgmma p = shape_of(args).c;
    return (size_t)p.blocks * (size_t)p.chunks * TAPS * DVK_WINOGRAD_TAP;
}

static int64_t pack_units(const void *args) {
    const dvk_conv_wgmma p = shape_of(args).c;
    return (int64_t)p.blocks * p.chunks;
}

/* Transform of a row of taps g for row `line` of the transformed picture: its polynomial at the row's point, divided by
 * the product of that point's distances to the others. */
static float transformed(const float *g, int line) {
    static const float of[LINES][ROWS] = {
        {64.0f / 81.0f, 0.0f, 0.0f},
        {-128.0f / 243.0f, -32.0f / 81.0f, -8.0f / 27.0f},
        {-128.0f / 243.0f, 32.0f / 81.0f, -8.0f / 27.0f},
        {32.0f / 243.0f, 16.0f / 81.0f, 8.0f / 27.0f},
        {32.0f / 243.0f, -16.0f / 81.0f, 8.0f / 27.0f},
        {0.0f, 0.0f, 1.0f},
    };
    return of[line][0] * g[0] + of[line][1] * g[1] + of[line][2] * g[2];
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
    for (int64_t u = first; u < last; u++) {
        const int64_t block = u / p.chunks, chunk = u % p.chunks;
        for (int i = 0; i < TAPS; i++) {
            const int pass = i / ROWS, row = i % ROWS;
            const int64_t at = ((block * LINES + pass) * p.chunks + chunk) * ROWS + row;
            pack_tap(a, w, block, chunk, line_of_pass[pass], row, (unsigned char *)dst + at * DVK_WINOGRAD_TAP);
        }
    }
}

/* ---- cost ---- */

static double most(double a, double b) {
    return a > b ? a : b;
}

/* The products of a job and its other work, which is more with statistics. The busiest pair determines the total, and
 * memory time is never fully hidden. */
static double cost_of(const dvk_conv2d_args *a, const dvk_conv_winograd *w, const dvk_cuda_caps *caps) {
    const dvk_conv_wgmma *p = &w->c;
    const double quads = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_TILE_H;
    const double products = 2.0 * CHANNELS * quads * TAPS * (double)a->x.c;
    const double besides = p->epilogue == (int32_t)DVK_WGMMA_STATISTICS ? TERM(job_statistics) : TERM(job);
    const double job = products / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors) + besides;
    const double share = (double)w->tiles / (double)p->tiles_y; /* of y's rows */
    double bytes = view_bytes(&a->x) + share * view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += share * view_bytes(&a->epi.res[i]);
    }
    const double turns = (double)blocks_of(p->jobs, caps->processors / DVK_WINOGRAD_PAIR);
    return TERM(launch) +
           most(turns * job + TERM(exposed) * bytes / caps->memory_gbs, bytes / (TERM(memory) * caps->memory_gbs));
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv_winograd w = shape_of(args);
    return cost_of(args, &w, caps);
}

static double cost_band(const void *args, const dvk_cuda_caps *caps) {
    const dvk_winograd_band_args *b = args;
    const dvk_conv_winograd w = shape_of_band(b);
    return cost_of(&b->conv, &w, caps);
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

/* The pixels of every fourth column from `first` on. */
static dvk_view columns_of(const dvk_view *y, int first) {
    dvk_view v = *y;
    v.data = (char *)v.data + first * v.sw * (int64_t)dvk_dtype_size(v.dtype);
    v.w = (v.w + PIXELS - 1 - first) / PIXELS;
    v.sw *= PIXELS;
    return v;
}

static int make_maps(const dvk_conv2d_args *a, dvk_conv_winograd *w, dvk_queue *q) {
    int r = 0;
    for (int i = 0; i < LINES && r == 0; i++) {
        const dvk_view v = line_of(&a->x, i);
        r = map_of(q, &v, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WINOGRAD_TILE_H + ROWS - 1, &w->line[i]);
    }
    for (int i = 0; i < PIXELS && r == 0; i++) {
        const dvk_view v = columns_of(&a->y, i);
        r = map_of(q, &v, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WINOGRAD_PIECE_H, &w->c.y[i]);
        if (r == 0 && a->epi.n_res > 0) {
            const dvk_view res = columns_of(&a->epi.res[0], i);
            r = map_of(q, &res, 1, 0, DVK_WINOGRAD_TILE_W, DVK_WINOGRAD_PIECE_H, &w->res[i]);
        }
    }
    return r;
}

static int launch(const dvk_conv2d_args *a, dvk_conv_winograd *w, dvk_queue *q) {
    const int32_t shared = lay_out(&w->c, a->epi.n_res > 0, q->caps->shared_bytes);
    w->c.epi = epi_of(a);
    w->c.w = a->w;
    const int r = make_maps(a, w, q);
    if (r != 0) {
        return r;
    }
    static const char *const functions[2][2][2] = {
        /* by f16, residual, and statistics */
        {{"conv_winograd_bf16", "conv_winograd_bf16_count"},
         {"conv_winograd_bf16_add", "conv_winograd_bf16_add_count"}},
        {{"conv_winograd_f16", "conv_winograd_f16_count"}, {"conv_winograd_f16_add", "conv_winograd_f16_add_count"}}};
    const int counted = w->c.epilogue == (int32_t)DVK_WGMMA_STATISTICS;
    void *list[] = {w};
    const int32_t pairs = least(w->c.jobs, q->caps->processors / DVK_WINOGRAD_PAIR);
    const dvk_launch l = {.module = "conv_winograd_sm90",
                          .function = functions[a->y.dtype == DVK_F16][a->epi.n_res > 0][counted],
                          .grid = {(uint32_t)(pairs * DVK_WINOGRAD_PAIR), 1, 1},
                          .block = {DVK_WGMMA_THREADS, 1, 1},
                          .cluster = DVK_WINOGRAD_PAIR,
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    dvk_conv_winograd w = shape_of(args);
    (void)scratch;
    return launch(args, &w, q);
}

static int enqueue_band(const void *args, void *scratch, dvk_queue *q) {
    const dvk_winograd_band_args *b = args;
    dvk_conv_winograd w = shape_of_band(b);
    (void)scratch;
    return launch(&b->conv, &w, q);
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

const dvk_cuda_kernel dvk_conv2d_winograd_band_cuda_wgmma = {.op = "conv2d_winograd_band",
                                                             .variant = "cuda/wgmma",
                                                             .sm_min = 90,
                                                             .sm_max = 90,
                                                             .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                             .supports = supports_band,
                                                             .cost = cost_band,
                                                             .enqueue = enqueue_band,
                                                             .stats_chunks = stats_chunks,
                                                             .packed_bytes = packed_bytes,
                                                             .pack_units = pack_units,
                                                             .pack = pack};
