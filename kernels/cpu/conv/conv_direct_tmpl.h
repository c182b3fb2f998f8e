/* conv_direct_tmpl.h - direct convolution for every kernel size, stride, dtype and epilogue. A unit copies its patch or
 * reads it in place. It then runs the micro-kernel panel by panel, row by row; a panel's weights stay in L2 meanwhile.
 * The input is counted in slots of four bytes: one f32 channel, or a pair of bf16 channels with CONV_PAIRS. The
 * includer has included a conv_vec_*.h. CONV_PRODUCTS: products per ns of a core, if that is not a single cost term. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/conv/conv_epi_tmpl.h"
#include "kernels/cpu/conv/conv_mk_tmpl.h"
#include "kernels/cpu/conv/conv_pack_tmpl.h"
#include "kernels/cpu/conv/conv_panel_tmpl.h"

#ifdef CONV_PAIRS
#define DIRECT_SLOT  2
#define DIRECT_DTYPE DVK_BF16
#else
#define DIRECT_SLOT  1
#define DIRECT_DTYPE DVK_F32
#endif

enum {
    DIRECT_WIDTH = 5 * CONV_MR,      /* maximum block width in pixels */
    DIRECT_PATCH = 96 * 1024,        /* approximate slots of a patch; it stays in L2 with a panel of weights */
    DIRECT_PRODUCTS = 192 * 1000000, /* approximate products of a unit: 1 to 10 ms */
};

static inline int64_t direct_slots(const dvk_conv2d_args *a) { /* of a pixel */
    return conv_ceil_div(a->x.c, DIRECT_SLOT);
}

static conv_tiling direct_tiling(const dvk_conv2d_args *a) {
    const int64_t all = conv_panels(a->y.c);
    const int64_t width = conv_min(a->y.w, DIRECT_WIDTH);
    const int64_t line = (width * a->stride + a->kw) * direct_slots(a);
    const int64_t per_row =
        width * CONV_PANEL * direct_slots(a) * a->kh * a->kw; /* products of a panel in a row of a block */
    int64_t height = conv_max(1, conv_min(a->y.h, (DIRECT_PATCH / line - a->kh) / a->stride));
    height = conv_max(1, conv_min(height, DIRECT_PRODUCTS / per_row));
    const int64_t panels = conv_max(1, conv_min(all, DIRECT_PRODUCTS / (per_row * height)));
    return conv_tile(a, height, width, panels, all);
}

static int64_t direct_units(const void *args) {
    const conv_tiling t = direct_tiling(args);
    return conv_tiling_units(args, &t);
}

/* Slots of the largest patch. */
static int64_t direct_patch_slots(const dvk_conv2d_args *a) {
    const conv_tiling t = direct_tiling(a);
    const conv_block largest = conv_block_largest(a, &t);
    const conv_rect r = conv_reads(a, &largest);
    return r.h * r.w * direct_slots(a);
}

static size_t direct_scratch_bytes(const void *args) {
    return conv_align((size_t)direct_patch_slots(args) * sizeof(float)) + DIRECT_WIDTH * CONV_PANEL * sizeof(float);
}

/* 1 if pixels consist of whole slots. */
static int direct_aligned(const dvk_view *x) {
    return DIRECT_SLOT == 1 || (((x->c | x->sw | x->sh | x->sn) & 1) == 0 && ((uintptr_t)x->data & 3) == 0);
}

/* The pitches of the result are in slots. */
static conv_patch direct_patch(const dvk_conv2d_args *a, const conv_block *b, void *scratch) {
    const conv_rect r = conv_reads(a, b);
    if (direct_aligned(&a->x) && conv_in_place(a, &r, DIRECT_DTYPE)) {
        const float *x = (const float *)a->x.data + (r.n * a->x.sn + r.y * a->x.sh + r.x * a->x.sw) / DIRECT_SLOT;
        return (conv_patch){.data = x, .row = a->x.sh / DIRECT_SLOT, .pixel = a->x.sw / DIRECT_SLOT};
    }
    const int64_t slots = direct_slots(a);
    const conv_copy k = {.a = a, .rect = r, .pitch = slots * DIRECT_SLOT, .dtype = DIRECT_DTYPE, .dst = scratch};
    conv_copy_patch(&k);
    return (conv_patch){.data = scratch, .row = r.w * slots, .pixel = slots};
}

static void direct_block(const dvk_conv2d_args *a, const conv_block *b, const conv_patch *patch, float *sums) {
    const int64_t slots = direct_slots(a);
    const int64_t depth = slots * a->kh * a->kw;
    const int joined = patch->pixel == slots; /* the taps of a row follow each other without a gap */
    conv_mk k = {
        .pixel = patch->pixel * a->stride,
        .row = patch->row,
        .tap = patch->pixel,
        .rows = a->kh,
        .taps = joined ? 1 : a->kw,
        .len = joined ? slots * a->kw : slots,
    };
    for (int64_t i = b->panel0; i < b->panel1; i++) {
        const int64_t nz = conv_panel_nz(a->y.c, i);
        const int64_t c = i * CONV_PANEL;
        k.w = (const float *)a->w + c * depth;
        k.pitch = nz * CONV_VW;
        for (int64_t y = 0; y < b->h; y++) {
            const float *line = (const float *)patch->data + y * a->stride * patch->row;
            conv_mk_line(&k, line, sums, b->w, nz);
            const conv_span s = {
                .sums = sums,
                .pitch = k.pitch,
                .n = b->n,
                .y = b->y + y,
                .x = b->x,
                .pixels = b->w,
                .c = c,
                .count = conv_min(nz * CONV_VW, a->y.c - c),
            };
            conv_epilogue(a, &s);
        }
    }
}

static void direct_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_conv2d_args *a = args;
    const conv_tiling t = direct_tiling(a);
    float *sums = (float *)((char *)scratch + conv_align((size_t)direct_patch_slots(a) * sizeof(float)));
    for (int64_t u = first; u < last; u++) {
        const conv_block b = conv_block_at(a, &t, u);
        const conv_patch patch = direct_patch(a, &b, scratch);
        direct_block(a, &b, &patch, sums);
    }
}

static size_t direct_packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)conv_panels_size(a->y.c, direct_slots(a) * a->kh * a->kw) * sizeof(float);
}

static int64_t direct_pack_units(const void *args) {
    return conv_panels(((const dvk_conv2d_args *)args)->y.c);
}

/* The slot of channels [c, c + DIRECT_SLOT) of output o at one tap. */
static float direct_weight(const dvk_conv2d_args *a, const float *w, int64_t o, int64_t c, int64_t tap) {
    const int64_t taps = a->kh * a->kw;
    const float first = o < a->y.c ? w[(o * a->x.c + c) * taps + tap] : 0.0f;
    if (DIRECT_SLOT == 1) {
        return first;
    }
    const float second = o < a->y.c && c + 1 < a->x.c ? w[(o * a->x.c + c + 1) * taps + tap] : 0.0f;
    return dvk_from_bits(dvk_f32_to_bf16(first) | (uint32_t)dvk_f32_to_bf16(second) << 16);
}

static void direct_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t taps = a->kh * a->kw;
    for (int64_t i = first; i < last; i++) {
        const int64_t o0 = i * CONV_PANEL;
        const int64_t wide = conv_panel_nz(a->y.c, i) * CONV_VW;
        float *d = (float *)dst + o0 * taps * direct_slots(a);
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t c = 0; c < a->x.c; c += DIRECT_SLOT, d += wide) {
                for (int64_t o = 0; o < wide; o++) {
                    d[o] = direct_weight(a, w, o0 + o, c, t);
                }
            }
        }
    }
}

#if !defined(CONV_PRODUCTS)
#define CONV_PRODUCTS CPU_COST(conv2d, products)
#endif

/* Estimated ns: the products actually computed, plus copies and stores. */
static double direct_cost(const void *args) {
    const dvk_conv2d_args *a = args;
    const double pixels = (double)(a->y.n * a->y.h * a->y.w);
    const double wide = (double)(conv_ceil_div(a->y.c, CONV_VW) * CONV_VW);
    const double products = pixels * wide * (double)(direct_slots(a) * DIRECT_SLOT * a->kh * a->kw);
    return 2.0 * products / CONV_PRODUCTS + pixels * (wide + (double)a->x.c) * CPU_COST(conv2d, moved);
}
