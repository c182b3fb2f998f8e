/* conv_wgmma_rows.c - host side of "conv2d" of 3 x 3 with at most 64 output channels on Hopper's tensor cores; see
 * conv_wgmma_rows_sm90.cu, conv_wgmma_edges_sm90.cu for short strips and conv_wgmma_shuffle.cuh for shuffled results. */
#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_wgmma_rows, term))

extern const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_rows;

/* Output channels of the kernel that serves so many. */
static int32_t outputs_of(const dvk_conv2d_args *a) {
    static const int32_t sizes[] = {8, 16, 32, 48, 64};
    for (int i = 0; i < 5; i++) {
        if (channels_of(a) <= sizes[i]) {
            return sizes[i];
        }
    }
    return 0;
}

/* As many warpgroups as registers allow: with few channels, a row is more latency than work. */
static int32_t groups_of(int32_t outputs) {
    return outputs == 64 ? 2 : outputs > 16 ? 3 : DVK_ROWS_MAX_GROUPS;
}

/* ---- shuffled: three channels, by 2, 3 or 4, in f32 without gaps ---- */

enum { COLORS = 3, NO_CHANNEL = 255 };

static int can_shuffle(const dvk_conv2d_args *a) {
    const int64_t r = a->epi.shuffle;
    const dvk_view *y = &a->y;
    if (r < 2 || r > 4 || y->c != COLORS || y->sw != COLORS || y->dtype != DVK_F32) {
        return 0;
    }
    const int64_t piece = DVK_ROWS_PIECE(r, COLORS);
    return (uintptr_t)y->data % (uintptr_t)(4 * piece) == 0 && y->sh % piece == 0 &&
           (y->n == 1 || y->sn % piece == 0) && y->h % r == 0 && y->w % r == 0 && a->epi.act == DVK_ACT_NONE &&
           !a->epi.gate && a->epi.n_res <= 1;
}

/* Selects the channel of each column of the products. A thread has two of every eight columns. They must be pieces of
 * the enlarged rows, every fourth piece of a pixel. */
static void set_order(const dvk_conv2d_args *a, uint8_t (*order)[64]) {
    const int32_t r = (int32_t)a->epi.shuffle, piece = DVK_ROWS_PIECE(r, COLORS);
    const int32_t outputs = outputs_of(a), pitch = DVK_ROWS_PIECE_PITCH(r, COLORS, outputs);
    memset(*order, NO_CHANNEL, sizeof *order);
    for (int32_t column = 0; column < outputs; column++) {
        const int32_t mine = column / 8 * 2 + column % 2, number = mine / piece * 4 + column / 2 % 4;
        const int32_t i = number / pitch, at = number % pitch * piece + mine % piece;
        if (i < r && at < r * COLORS) {
            (*order)[column] = (uint8_t)(at % COLORS * r * r + i * r + at / COLORS);
        }
    }
}

/* ---- gated by a 1x1 convolution of the result ---- */

/* From 64 channels to 64: the rows of the result are operands without a conversion. */
static int can_gate(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    return a->x.c == 64 && a->y.c == 64 && e->n_res == 1 && e->gate_w != NULL && e->shuffle <= 1 && e->store == NULL &&
           epilogue_of(a) == DVK_WGMMA_TIMES && a->pro.scale == NULL && a->pro.act == DVK_ACT_NONE;
}

static void set_gate(const dvk_conv2d_args *a, dvk_conv_rows *p) {
    const dvk_epilogue *e = &a->epi;
    p->gate_w = e->gate_w;
    p->gate_bias = e->gate_bias;
    p->epi.beta[0] = e->alpha;
    p->epi.beta[1] = e->beta[0];
}

/* ---- a caller's picture ---- */

/* With a shuffle, only pictures of three channels without gaps: pieces of rows are written. */
static int stores(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const dvk_epilogue *e = &a->epi;
    (void)caps;
    if (e->shuffle > 1) {
        const dvk_convert_params p = e->store != NULL ? dvk_convert_of(e->store, 1) : (dvk_convert_params){0};
        return e->store == NULL ||
               (p.mode == DVK_CONVERT_PACKED_RGB && (p.identity || (p.map[0] == 0 && p.map[1] == 1 && p.map[2] == 2)));
    }
    return outputs_of(a) == 8 && a->y.c <= 4 && e->act == DVK_ACT_NONE && e->n_res == 0 && !e->gate;
}

/* ---- shape ---- */

/* 1 if conv_wgmma_edges_sm90.cu supports it. For the two extra rows of a job, it skips the rows of taps without output. */
static int cuts_edges(const dvk_conv2d_args *a, const dvk_conv_rows *p) {
    return outputs_of(a) == 32 && p->epilogue == (int32_t)DVK_WGMMA_SLOPE && a->epi.n_res == 0 && !p->pro &&
           !p->shuffled;
}

/* 1 if strips run upwards. A convolution of a dense block reads the input of the one before, and one more slice. The
 * end of that input is still in the cache, so every second convolution runs backwards. */
static int goes_up(const dvk_conv2d_args *a, const dvk_conv_rows *p) {
    return cuts_edges(a, p) && a->x.c / 32 % 2 == 1;
}

/* Rows of the largest job, including its edges. */
static int64_t rows_of(const dvk_conv2d_args *a, const dvk_conv_rows *p, int32_t segments) {
    return blocks_of(p->out_h, segments) + (cuts_edges(a, p) ? 1 : 2);
}

/* Selects the number of jobs per strip: minimises the rows of the busiest warpgroup, the sum of those with and without
 * the extra rows of jobs. */
static void divide(const dvk_conv2d_args *a, dvk_conv_rows *p, int64_t warpgroups) {
    const int64_t strips = (int64_t)p->n * p->strips;
    double best = 1e30;
    for (int32_t segments = 1; segments <= p->out_h && segments <= 512; segments++) {
        const double rounds = (double)blocks_of(strips * segments, warpgroups);
        const double rows = rounds * ((double)rows_of(a, p, segments) + (double)p->out_h / segments);
        if (rows < best) {
            best = rows;
            p->segments = segments;
        }
    }
    p->jobs = (int32_t)(strips * p->segments);
}

/* Groups of sixteen input channels behind the last multiple of 64, rounded up to a compiled kernel. */
static int32_t last_of(int32_t outputs, int32_t k16, int32_t shuffled) {
    if (k16 <= 2 && (outputs == 32 || (outputs == 16 && shuffled))) {
        return 2;
    }
    if (outputs == 64 && k16 <= 1) {
        return 1;
    }
    return outputs >= 48 && k16 <= 3 ? 3 : 4;
}

static dvk_conv_rows shape_of(const dvk_conv2d_args *a) {
    dvk_conv_rows p;
    memset(&p, 0, sizeof p);
    p.pro = a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
    p.pro_act = (int32_t)a->pro.act;
    p.epilogue = outputs_of(a) == 8 ? (int32_t)DVK_WGMMA_ANY : (int32_t)epilogue_of(a);
    if (p.epilogue == (int32_t)DVK_WGMMA_TIMES && outputs_of(a) != 64) {
        p.epilogue = (int32_t)DVK_WGMMA_ANY;
    }
    p.c_in = (int32_t)a->x.c;
    p.chunks = (int32_t)blocks_of(a->x.c, DVK_WGMMA_CHUNK);
    p.shuffled = a->epi.shuffle > 1;
    const int64_t k16 = blocks_of(a->x.c - (int64_t)(p.chunks - 1) * DVK_WGMMA_CHUNK, 16);
    p.last_k16 = last_of(outputs_of(a), (int32_t)k16, p.shuffled);
    p.n = (int32_t)a->y.n;
    p.in_h = (int32_t)a->x.h;
    p.in_w = (int32_t)a->x.w;
    const int64_t r = p.shuffled ? a->epi.shuffle : 1;
    p.out_h = (int32_t)(a->y.h / r);
    p.out_w = (int32_t)(a->y.w / r);
    p.pad_top = a->pad_top;
    p.pad_left = a->pad_left;
    p.strips = (int32_t)blocks_of(p.out_w, DVK_ROWS_WIDTH);
    p.w_bytes = p.chunks * 9 * outputs_of(a) * 128;
    p.gate_bytes = a->epi.gate == 3 ? DVK_ROWS_GATE : 0;
    if (p.shuffled) {
        set_order(a, &p.order);
    }
    return p;
}

/* Output buffer of a warpgroup in bytes: a row in the storage type, or in f32 if it is stored element by element. */
static int32_t staging_of(const dvk_conv2d_args *a, const dvk_conv_rows *p) {
    return p->shuffled ? 0 : DVK_ROWS_WIDTH * outputs_of(a) * (p->epilogue == (int32_t)DVK_WGMMA_ANY ? 4 : 2);
}

/* Bytes of shared memory, 0: too little. */
static int32_t lay_out(dvk_conv_rows *p, const dvk_conv2d_args *a, int32_t available) {
    const int32_t groups = groups_of(outputs_of(a));
    p->staging = staging_of(a, p);
    const int32_t around = 2048; /* slots and the data behind them begin at multiples of 1024 */
    const int32_t fixed =
        p->w_bytes + p->gate_bytes + around + groups * p->staging + DVK_ROWS_TABLE + DVK_ROWS_BARRIERS;
    const int32_t rest = available - fixed;
    p->slots = rest > 0 ? least(rest / (groups * DVK_ROWS_SLOT), DVK_ROWS_MAX_SLOTS) : 0;
    return p->slots >= 2 ? fixed + groups * p->slots * DVK_ROWS_SLOT : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (!can_read(a) || a->kh != 3 || a->kw != 3 || a->upsample != 1 || a->epi.stats != NULL || outputs_of(a) == 0 ||
        a->y.c < 1 || (a->epi.shuffle > 1 && !can_shuffle(a)) || (a->epi.gate == 3 && !can_gate(a))) {
        return 0;
    }
    dvk_conv_rows p = shape_of(a);
    return lay_out(&p, a, caps->shared_bytes) > 0;
}

/* ---- weights: [chunk][kx][ky from 2 to 0][outputs][64], rows swizzled ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv_rows p = shape_of(args);
    return (size_t)p.w_bytes;
}

static int64_t pack_units(const void *args) {
    const dvk_conv_rows p = shape_of(args);
    return p.chunks;
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const dvk_conv_rows p = shape_of(a);
    const int32_t outputs = outputs_of(a), rows = 3 * outputs;
    for (int64_t chunk = first; chunk < last; chunk++) {
        for (int kx = 0; kx < 3; kx++) {
            unsigned char *to = (unsigned char *)dst + (chunk * 3 + kx) * rows * 128;
            for (int r = 0; r < rows; r++) {
                const int ky = 2 - r / outputs;
                const int64_t o = p.shuffled ? p.order[r % outputs] : r % outputs;
                for (int k = 0; k < DVK_WGMMA_CHUNK; k++) {
                    const int64_t i = chunk * DVK_WGMMA_CHUNK + k;
                    const float v = o < channels_of(a) && i < a->x.c ? w[(o * a->x.c + i) * 9 + ky * 3 + kx] : 0.0f;
                    dvk_store(to, a->compute, r * 64 + ((k / 8) ^ (r & 7)) * 8 + k % 8, v);
                }
            }
        }
    }
}

/* ---- cost: rows of the busiest block ---- */

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const int32_t outputs = outputs_of(a), groups = groups_of(outputs);
    dvk_conv_rows p = shape_of(a);
    divide(a, &p, (int64_t)caps->processors * groups);
    const double k = 3.0 * ((p.chunks - 1) * 64.0 + p.last_k16 * 16.0);
    const double width = outputs < 16 ? 48.0 : 3.0 * outputs; /* narrow products are limited by shared memory */
    double row =
        2.0 * DVK_ROWS_WIDTH * width * k / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors) + TERM(row);
    row += (p.pro ? TERM(prologue) * p.chunks : 0.0) + TERM(residual) * a->epi.n_res;
    row += p.gate_bytes > 0 ? TERM(gate) : 0.0;
    row += p.epilogue == DVK_WGMMA_ANY && !p.shuffled ? TERM(any) * outputs : 0.0;
    const double rows = (double)blocks_of(p.jobs, (int64_t)caps->processors * groups) *
                        (double)(rows_of(a, &p, p.segments) * least(groups, 3)); /* more than three only fill waits */
    double bytes = view_bytes(&a->x) + view_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += view_bytes(&a->epi.res[i]);
    }
    const double memory = bytes / (TERM(memory) * caps->memory_gbs);
    return TERM(launch) + (rows * row > memory ? rows * row : memory);
}

/* ---- launch ---- */

static const char *function_of(const dvk_conv2d_args *a, const dvk_conv_rows *p, char (*name)[48]) {
    char shuffle[8] = "";
    if (p->shuffled) {
        snprintf(shuffle, sizeof shuffle, "_x%d", (int)a->epi.shuffle & 7);
    }
    if (p->gate_bytes > 0) {
        snprintf(*name, sizeof *name, "conv_rows_%s_gated", a->compute == DVK_F16 ? "f16" : "bf16");
        return *name;
    }
    if (cuts_edges(a, p)) {
        snprintf(*name, sizeof *name, "conv_edges_%s_%d", a->compute == DVK_F16 ? "f16" : "bf16", (int)p->last_k16);
        return *name;
    }
    snprintf(*name, sizeof *name, "conv_rows_%s_%d_%d%s", a->compute == DVK_F16 ? "f16" : "bf16", (int)outputs_of(a),
             (int)p->last_k16, shuffle);
    return *name;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    const int32_t groups = groups_of(outputs_of(a));
    dvk_conv_rows p = shape_of(a);
    const int32_t shared = lay_out(&p, a, q->caps->shared_bytes);
    (void)scratch;
    divide(a, &p, (int64_t)q->caps->processors * groups);
    p.upward = goes_up(a, &p);
    p.epi = epi_of(a);
    if (a->epi.gate == 3) {
        set_gate(a, &p);
    }
    p.stores = a->epi.store != NULL;
    if (p.stores) {
        p.picture = dvk_convert_of(a->epi.store, 1);
    }
    p.w = a->w;
    p.scale = a->pro.scale;
    p.shift = a->pro.shift;
    int r = map_of(q, &a->x, 1, 0, DVK_ROWS_SLOT_PIXELS, 1, &p.x);
    const int32_t box[] = {outputs_of(a), DVK_ROWS_WIDTH / 4, 1};
    if (r == 0 && p.epilogue != (int32_t)DVK_WGMMA_ANY) {
        r = map_of_box(q, &a->y, 1, 0, box, &p.y);
    }
    if (r == 0 && p.gate_bytes > 0) {
        r = map_of_box(q, &a->epi.res[0], 1, 0, box, &p.res);
    }
    if (r != 0) {
        return r;
    }
    char name[48];
    void *list[] = {&p};
    const int64_t blocks = blocks_of(p.jobs, groups);
    const dvk_launch l = {.module = cuts_edges(a, &p) ? "conv_wgmma_edges_sm90" : "conv_wgmma_rows_sm90",
                          .function = function_of(a, &p, &name),
                          .grid = {(uint32_t)(blocks < q->caps->processors ? blocks : q->caps->processors), 1, 1},
                          .block = {(uint32_t)(groups * 128 + 128), 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_rows = {.op = "conv2d",
                                                    .variant = "cuda/wgmma/rows",
                                                    .sm_min = 90,
                                                    .sm_max = 90,
                                                    .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                    .supports = supports,
                                                    .cost = cost,
                                                    .enqueue = enqueue,
                                                    .stores = stores,
                                                    .packed_bytes = packed_bytes,
                                                    .pack_units = pack_units,
                                                    .pack = pack};
