/* conv_wgmma_large.c - host side of "conv2d" of a large window between at most 16 channels on Hopper's tensor cores;
 * see conv_wgmma_large_sm90.cu. */
#include "kernels/cuda/conv/conv_wgmma_large.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/conv/conv_wgmma_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(conv_wgmma_large, term))

enum { GROUPS = 2, CHANNELS = 16, BLOCK = CHANNELS * CHANNELS * 2, ZEROS = 3 }; /* BLOCK: bytes of a tap's weights */

static int64_t jobs_of(const dvk_conv2d_args *a) {
    return a->y.n * blocks_of(a->y.h, DVK_LARGE_LINES) * blocks_of(a->y.w, DVK_LARGE_WIDTH);
}

static dvk_conv_large shape_of(const dvk_conv2d_args *a) {
    const dvk_wgmma_epilogue kind = epilogue_of(a);
    dvk_conv_large p;
    memset(&p, 0, sizeof p);
    p.side = a->kw;
    p.out_h = (int32_t)a->y.h;
    p.out_w = (int32_t)a->y.w;
    p.pad_top = a->pad_top;
    p.pad_left = a->pad_left;
    p.tiles_x = (int32_t)blocks_of(a->y.w, DVK_LARGE_WIDTH);
    p.tiles_y = (int32_t)blocks_of(a->y.h, DVK_LARGE_LINES);
    p.jobs = (int32_t)jobs_of(a);
    p.w_bytes = (a->kw * (a->kh + ZEROS) + ZEROS) * BLOCK;
    p.slot_bytes = (int32_t)blocks_of(DVK_LARGE_WIDTH + a->kw - 1, 8) * 8 * CHANNELS * 2;
    p.simple = (kind == DVK_WGMMA_LINEAR || kind == DVK_WGMMA_SLOPE) && a->epi.n_res == 0 && a->y.c % 8 == 0;
    return p;
}

/* Bytes of shared memory, 0: too little. */
static int32_t lay_out(dvk_conv_large *p, int32_t available) {
    const int32_t fixed = p->w_bytes + GROUPS * DVK_LARGE_STAGING + DVK_LARGE_BARRIERS;
    const int32_t rest = available - fixed;
    p->slots = rest > 0 ? least(rest / (GROUPS * p->slot_bytes), DVK_LARGE_MAX_SLOTS) : 0;
    return p->slots >= 2 ? fixed + GROUPS * p->slots * p->slot_bytes : 0;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if (!can_read(a) || a->kh != a->kw || a->kw < 5 || a->kw > 19 || a->upsample != 1 || a->epi.stats != NULL ||
        a->x.c > CHANNELS || a->y.c > CHANNELS || a->epi.shuffle > 1 || a->epi.gate > 2 || a->pro.scale != NULL ||
        a->pro.act != DVK_ACT_NONE || jobs_of(a) > INT32_MAX / 2) {
        return 0;
    }
    dvk_conv_large p = shape_of(a);
    return lay_out(&p, caps->shared_bytes) > 0;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    const double taps = (double)a->kw * (a->kh + ZEROS);
    const double flops = 2.0 * DVK_LARGE_WIDTH * DVK_LARGE_LINES * CHANNELS * CHANNELS * taps;
    const double tile = TERM(tile) + flops * GROUPS / (1e3 * TERM(tensor) * caps->tensor_tflops / caps->processors);
    return TERM(launch) + (double)blocks_of(jobs_of(a), (int64_t)caps->processors * GROUPS) * tile;
}

/* ---- weights: zeros, then [kx][ky from the last to the first, zeros][16][16], rows of 32 bytes swizzled ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv_large p = shape_of(args);
    return (size_t)p.w_bytes;
}

static int64_t pack_units(const void *args) {
    return ((const dvk_conv2d_args *)args)->kw;
}

static void pack_tap(const dvk_conv2d_args *a, const float *w, int64_t tap, unsigned char *to) {
    const int64_t taps = (int64_t)a->kh * a->kw;
    for (int64_t o = 0; o < CHANNELS; o++) {
        for (int64_t i = 0; i < CHANNELS; i++) {
            const float v = o < a->y.c && i < a->x.c ? w[(o * a->x.c + i) * taps + tap] : 0.0f;
            dvk_store(to, a->compute, o * CHANNELS + ((i / 8) ^ (o >> 2 & 1)) * 8 + i % 8, v);
        }
    }
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t column = a->kh + ZEROS;
    if (first == 0) {
        memset(dst, 0, (size_t)ZEROS * BLOCK);
    }
    for (int64_t kx = first; kx < last; kx++) {
        unsigned char *to = (unsigned char *)dst + (ZEROS + kx * column) * BLOCK;
        for (int64_t ky = 0; ky < a->kh; ky++) {
            pack_tap(a, w, ky * a->kw + kx, to + (a->kh - 1 - ky) * BLOCK);
        }
        memset(to + (int64_t)a->kh * BLOCK, 0, (size_t)ZEROS * BLOCK);
    }
}

/* ---- launch ---- */

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_conv2d_args *a = args;
    dvk_conv_large p = shape_of(a);
    const int32_t shared = lay_out(&p, q->caps->shared_bytes);
    (void)scratch;
    p.epi = epi_of(a);
    p.w = a->w;
    const int r = map_of_box(q, &a->x, 1, 0, (const int32_t[]){CHANNELS, DVK_LARGE_WIDTH + a->kw - 1, 1}, &p.x);
    if (r != 0) {
        return r;
    }
    void *list[] = {&p};
    const int64_t blocks = blocks_of(p.jobs, GROUPS);
    const dvk_launch l = {.module = "conv_wgmma_large_sm90",
                          .function = a->compute == DVK_F16 ? "conv_large_f16" : "conv_large_bf16",
                          .grid = {(uint32_t)(blocks < q->caps->processors ? blocks : q->caps->processors), 1, 1},
                          .block = {GROUPS * 128 + 128, 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = list};
    return q->launch(q, &l);
}

extern const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_large;
const dvk_cuda_kernel dvk_conv2d_cuda_wgmma_large = {.op = "conv2d",
                                                     .variant = "cuda/wgmma/large",
                                                     .sm_min = 90,
                                                     .sm_max = 90,
                                                     .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                     .supports = supports,
                                                     .cost = cost,
                                                     .enqueue = enqueue,
                                                     .packed_bytes = packed_bytes,
                                                     .pack_units = pack_units,
                                                     .pack = pack};
