/* upsampler.c - see upsampler.h. Only the shuffle lies between the two convolutions. So every phase (a pixel of a
 * cell in one of its frames) is one convolution of the small picture. It covers 2 x 2 pixels and two frames, or
 * three frames if time does not grow. Its weights are products of the two convolutions' weights. A value takes 8 C
 * * C multiplications (12 with three frames) instead of 28 C * C, and nothing is stored in between.
 *
 * Outside the picture the second convolution reads zeros, without the bias of the first. Therefore x gets a channel
 * of ones, which is zero outside as well; its weights are that bias. In time there are no zeros: the first frame is
 * repeated before a clip. In the small picture the first cell therefore consists of its first frame only, and so do
 * all cells before it. The first cell (FIRST) and the cell behind it (SECOND) have weights of their own. */
#include "core/block/upsampler.h"

#include <stdio.h>
#include <string.h>

#include "core/block/derived.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/product.h"

enum { ONES = 8, TAPS = 3, ROWS = 128 }; /* channels of ones (several, for alignment); rows per share */
enum { LEAST = ONES, MOST = 8192 };      /* range of x's channels */

typedef enum kind { LATER, SECOND, FIRST } kind;

typedef struct composition {
    int64_t c, times, kind;
} composition;

static int64_t frames_out(const composition *s) {
    return s->kind == FIRST ? 1 : s->times;
}

/* Cells in a window, oldest first. */
static int64_t cells_of(const composition *s) {
    return s->kind == FIRST ? 1 : s->times == 2 ? 2 : TAPS;
}

static int64_t inputs_of(const composition *s) {
    return cells_of(s) * (s->c + ONES);
}

static int64_t blocks_of(const composition *s) {
    return dv_div_up(s->c, ROWS);
}

/* ---- pairs of weights ---- */

/* The frame of cell `cell` of a window that tap `tap` of the second convolution reads, for output frame `out`; -1:
 * it reads another cell. */
static int64_t frame_met(const composition *s, int64_t out, int64_t tap, int64_t cell) {
    if (s->kind == FIRST) {
        return 0;
    }
    /* counted from the window's first frame */
    const int64_t at = (cells_of(s) - 1) * s->times + out + tap - (TAPS - 1);
    return at / s->times != cell ? -1 : s->kind == SECOND && cell == 0 ? 0 : at % s->times;
}

/* The same for rows and columns, in cells of two. Parity `out` reads two cells; the first is its own cell or the
 * one before. */
static int64_t pixel_met(int64_t out, int64_t tap, int64_t place) {
    const int64_t at = out + tap + 1; /* counted from two before the cell's first */
    return at / 2 - out != place ? -1 : at % 2;
}

/* ---- the products ---- */

typedef struct product { /* the work of one share: rows of the second convolution */
    composition s;
    const char *prefix;
    int64_t phase, frame, first, rows;
    float *grown; /* [2 b + d][a][c + 1][m]: the first convolution, transposed, with its bias as the last input */
    float *conv;  /* [row][m][3][3][3] */
    float *w;     /* [row][m] */
    float *sum;   /* [c + 1][row] */
} product;

static davy_result no_memory(const product *p) {
    return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the weights of '%s'", p->prefix);
}

static const dv_tensor_ref *stored(const dv_tensors *t, const product *p, const char *rest) {
    char name[DV_NAMES_BYTES];
    return dv_tensors_find(t, dv_names_join(name, p->prefix, rest));
}

static davy_result read_grown(const dv_tensors *t, product *p) {
    const int64_t c = p->s.c, outputs = 4 * p->s.times * c;
    const dv_tensor_ref *weight = stored(t, p, ".upscale_conv.weight");
    const dv_tensor_ref *bias = stored(t, p, ".upscale_conv.bias");
    float *plain = dv_calloc((uint64_t)(outputs * (c + 1)), sizeof *plain);
    davy_result r = plain != NULL ? DAVY_OK : no_memory(p);
    r = r < 0 ? r : dv_tensor_read_f32(weight, plain);
    r = r < 0 ? r : dv_tensor_read_f32(bias, plain + outputs * c);
    for (int64_t o = 0; r == DAVY_OK && o < outputs; o++) {
        float *to = p->grown + o / c * (c + 1) * c + o % c;
        for (int64_t i = 0; i < c; i++) {
            to[i * c] = plain[o * c + i];
        }
        to[c * c] = plain[outputs * c + o];
    }
    dv_free(plain);
    return r;
}

/* Reads only the share's rows. */
static davy_result read_conv(const dv_tensors *t, product *p) {
    dv_tensor_ref part = *stored(t, p, ".conv.weight");
    const uint64_t row = (uint64_t)part.stride[0] * dv_stored_size(part.dtype);
    part.offset += (uint64_t)p->first * row;
    part.bytes -= (uint64_t)p->first * row; /* to the end: the rows lie within it for any strides */
    part.shape[0] = p->rows;
    return dv_tensor_read_f32(&part, p->conv);
}

/* Sums the weights of the second convolution that read pixel (b, d) of frame a within place (cell, ty, tx). False:
 * there are none. */
static bool gather(const product *p, const int64_t place[3], const int64_t met[3]) {
    bool any = false;
    for (int64_t tap = 0; tap < TAPS * TAPS * TAPS; tap++) {
        if (frame_met(&p->s, p->frame, tap / 9, place[0]) != met[0] ||
            pixel_met(p->phase >> 1, tap / 3 % 3, place[1]) != met[1] ||
            pixel_met(p->phase & 1, tap % 3, place[2]) != met[2]) {
            continue;
        }
        const int64_t count = p->rows * p->s.c;
        for (int64_t i = 0; i < count; i++) {
            p->w[i] = (any ? p->w[i] : 0.0f) + p->conv[i * TAPS * TAPS * TAPS + tap];
        }
        any = true;
    }
    return any;
}

static void put(const product *p, const int64_t place[3], float *dst) {
    const composition *s = &p->s;
    const int64_t row = (p->phase * frames_out(s) + p->frame) * s->c + p->first;
    float *to = dst + row * inputs_of(s) * 4 + place[0] * (s->c + ONES) * 4 + 2 * place[1] + place[2];
    for (int64_t o = 0; o < p->rows; o++) {
        for (int64_t i = 0; i < s->c + ONES; i++) {
            to[(o * inputs_of(s) + i) * 4] = i <= s->c ? p->sum[i * p->rows + o] : 0.0f;
        }
    }
}

static davy_result make_place(const product *p, const int64_t place[3], uint32_t cpu, float *dst) {
    davy_result r = DAVY_OK;
    memset(p->sum, 0, (size_t)((p->s.c + 1) * p->rows) * sizeof *p->sum);
    for (int64_t at = 0; r == DAVY_OK && at < 4 * p->s.times; at++) {
        const int64_t pixel = at / p->s.times;
        if (gather(p, place, (const int64_t[3]){at % p->s.times, pixel >> 1, pixel & 1})) {
            const dv_product of = {.x = p->grown + at * (p->s.c + 1) * p->s.c,
                                   .w = p->w,
                                   .sum = p->sum,
                                   .rows = p->s.c + 1,
                                   .k = p->s.c,
                                   .columns = p->rows};
            r = dv_product_add(&of, cpu);
        }
    }
    put(p, place, dst);
    return r;
}

static davy_result derive_composed(const dv_tensors *t, const dv_derivation *from, int32_t share, uint32_t cpu,
                                   float *dst) {
    const composition *how = from->how;
    product p = {.s = *how, .prefix = from->name};
    const int64_t blocks = blocks_of(&p.s), c = p.s.c;
    p.first = share % blocks * ROWS;
    p.rows = dv_min(ROWS, c - p.first);
    p.frame = share / blocks % frames_out(&p.s);
    p.phase = share / blocks / frames_out(&p.s);
    p.grown = dv_calloc((uint64_t)(4 * p.s.times * (c + 1)), (uint64_t)c * sizeof *p.grown);
    p.conv = dv_calloc((uint64_t)(p.rows * c), TAPS * TAPS * TAPS * sizeof *p.conv);
    p.w = dv_calloc((uint64_t)(p.rows * c), sizeof *p.w);
    p.sum = dv_calloc((uint64_t)((c + 1) * p.rows), sizeof *p.sum);
    const bool all = p.grown != NULL && p.conv != NULL && p.w != NULL && p.sum != NULL;
    davy_result r = all ? read_grown(t, &p) : no_memory(&p);
    r = r < 0 ? r : read_conv(t, &p);
    for (int64_t at = 0; r == DAVY_OK && at < 4 * cells_of(&p.s); at++) {
        r = make_place(&p, (const int64_t[3]){at / 4, at / 2 % 2, at % 2}, cpu, dst);
    }
    dv_free(p.grown);
    dv_free(p.conv);
    dv_free(p.w);
    dv_free(p.sum);
    return r;
}

/* ---- the network ---- */

/* Checks the stored tensors in their own shapes. The weights derived from them do not count as parameters. */
static dv_param stored_params(dv_graph *g, const char *prefix, const composition *s) {
    const dv_pick outputs = {0, {4 * s->times * s->c}, {1}}, same = {0, {s->c}, {1}};
    char name[DV_NAMES_BYTES];
    dv_param_picked(g, dv_names_join(name, prefix, ".upscale_conv.weight"), &outputs, &same, 1, 1);
    dv_param_picked_vector(g, dv_names_join(name, prefix, ".upscale_conv.bias"), &outputs);
    dv_param_picked(g, dv_names_join(name, prefix, ".conv.weight"), &same, &same, TAPS, TAPS);
    return dv_param_stored(g, dv_names_join(name, prefix, ".conv.bias"), 1, &s->c);
}

static dv_value composed(dv_graph *g, dv_value x, const char *prefix, const composition *s, dv_param bias) {
    char label[DV_NAMES_BYTES + 64];
    char name[DV_NAMES_BYTES];
    const int64_t shares = 4 * frames_out(s) * blocks_of(s);
    const dv_derivation from = {prefix,      s, sizeof *s, .derive_share = derive_composed, .shares = (int32_t)shares,
                                .stored = -1};
    snprintf(label, sizeof label, "%d:%d:%d:%s", (int)s->c, (int)s->times, (int)s->kind, prefix);
    const int64_t shape[4] = {4 * frames_out(s) * s->c, inputs_of(s), 2, 2};
    const dv_param weight = dv_param_derived(g, label, &from, 4, shape);
    if (weight == DV_NO_PARAM) {
        return DV_NO_VALUE;
    }
    const dv_conv_opts opts = {.derived = true, .weight = weight, .bias = bias};
    const dv_value y = dv_conv_phased(g, x, dv_names_join(name, prefix, ".conv"), frames_out(s) * s->c, &opts);
    return dv_channels_to_frames(g, y, frames_out(s));
}

static dv_value with_ones(dv_graph *g, dv_value x) {
    static const float zeros[ONES], ones[ONES] = {1, 1, 1, 1, 1, 1, 1, 1};
    const dv_value both[2] = {x, dv_affine(g, dv_slice(g, x, 0, ONES), zeros, ones)};
    return dv_concat(g, both, 2);
}

dv_value dv_upsampler(dv_graph *g, dv_value x, const char *prefix, int64_t times) {
    const dv_shape in = dv_shape_of(g, x);
    composition s = {.c = in.c, .times = times, .kind = LATER};
    if (x != DV_NO_VALUE && (in.c < LEAST || in.c > MOST)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED, "'%s' has %d channels; %d to %d are supported", prefix,
                                        (int)in.c, LEAST, MOST));
    }
    const dv_param bias = stored_params(g, prefix, &s);
    x = with_ones(g, x);
    const bool begins = !g->continues;
    const dv_value windows =
        begins && in.n == 1 && !g->keeps ? x : dv_recall(g, x, (int32_t)(times == 2 ? 2 : TAPS), DV_BEFORE_FIRST);
    if (times == 1 && windows != x) {
        return composed(g, windows, prefix, &s, bias);
    }
    dv_value parts[3];
    int32_t count = 0;
    int64_t done = 0;
    if (begins) {
        s.kind = FIRST;
        parts[count++] = composed(g, dv_take_frames(g, x, done++, 1), prefix, &s, bias);
    }
    if (done < in.n && (begins || g->second)) {
        s.kind = SECOND;
        parts[count++] = composed(g, dv_take_frames(g, windows, done++, 1), prefix, &s, bias);
    }
    if (done < in.n) {
        s.kind = LATER;
        parts[count++] = composed(g, dv_take_frames(g, windows, done, in.n - done), prefix, &s, bias);
    }
    return dv_join_frames(g, parts, count);
}
