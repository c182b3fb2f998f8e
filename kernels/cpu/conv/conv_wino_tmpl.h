/* conv_wino_tmpl.h - Winograd's F(4x4, 3x3) in f32 for 3x3 convolutions with stride 1: 36 products instead of 144.
 *
 * The points are 0, +-a, +-b, infinity with a^2 = 1/2, b^2 = 2. a^2 b^2 = 1 keeps the coefficients of the transforms
 * near one, for accuracy. It also keeps the transforms at 12 operations per six values. In one dimension, for input d,
 * filter g, products m:
 *     B^T d: d0 - 5/2 d2 + d4, (d4 - 2 d2) +- a (d3 - 2 d1), (d4 - d2/2) +- b (d3 - d1/2), d1 - 5/2 d3 + d5
 *     G g: g(0), g(+-a) / -3/2, g(+-b) / 6, g2, with g(x) = g0 + g1 x + g2 x^2
 *     A^T m: y_k = sum over the points of p^k m_p, and m5 added to y3
 * A unit is a band of tile rows, processed in groups of tiles. A group is small enough for the transformed input V
 * [36][tile][channel] and the products M [36][tile][output channel] to stay in L2. Each of the 36 is one matrix
 * product. The includer has included a conv_vec_*.h. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"
#include "kernels/cpu/conv/conv_epi_tmpl.h"
#include "kernels/cpu/conv/conv_mk_tmpl.h"
#include "kernels/cpu/conv/conv_pack_tmpl.h"
#include "kernels/cpu/conv/conv_panel_tmpl.h"

enum { WINO_POINTS = 36, WINO_TILE = 4, WINO_PRODUCTS = 192 * 1000000 };

#define WINO_A 0.70710678118654752440
#define WINO_B 1.41421356237309504880

/* The plan of a unit: groups of tiles_y x tiles_x tiles, for `wide` output channels. */
typedef struct wino_plan {
    conv_tiling t;
    int64_t tiles_y, tiles_x;
    int64_t v_pitch, m_pitch; /* floats from one of the 36 matrices to the next */
    int64_t wide;
    size_t patch, v, m; /* byte offsets in the scratch */
    size_t sums, bytes;
} wino_plan;

/* An odd number of cache lines, so that the 36 streams of a transform do not fall into the same cache sets. */
static inline int64_t wino_pitch(int64_t floats) {
    const int64_t lines = conv_ceil_div(floats, 16);
    return (lines | 1) * 16;
}

static wino_plan wino_plan_of(const dvk_conv2d_args *a) {
    const int64_t all = conv_panels(a->y.c);
    const int64_t rows = conv_ceil_div(a->y.h, WINO_TILE);
    const int64_t cols = conv_ceil_div(a->y.w, WINO_TILE);
    const int64_t weights = WINO_POINTS * a->x.c * a->y.c;
    /* Weights that do not fit in L2 are amortised over many tiles; otherwise V and M should fit in L2 beside them. */
    const int64_t tiles = weights > 512 * 1024 ? 4 * CONV_GROUP : 2 * CONV_GROUP;
    wino_plan p = {0};
    p.tiles_y = conv_min(rows, cols < tiles / 2 ? conv_max(2, tiles / cols) : 2);
    p.tiles_x = conv_min(cols, conv_max(1, tiles / p.tiles_y));
    const int64_t groups = conv_ceil_div(cols, p.tiles_x);
    p.tiles_x = conv_ceil_div(cols, groups);
    const int64_t products = p.tiles_y * cols * WINO_POINTS * a->x.c * CONV_PANEL;
    const int64_t panels = conv_max(1, conv_min(all, WINO_PRODUCTS / products));
    p.t = conv_tile(a, p.tiles_y * WINO_TILE, a->y.w, panels, all);
    p.t.step_y = WINO_TILE;
    p.t.step_x = WINO_TILE;
    p.wide = conv_ceil_div(all, p.t.np) * CONV_PANEL;
    const int64_t count = p.tiles_y * p.tiles_x;
    p.v_pitch = wino_pitch(count * a->x.c);
    p.m_pitch = wino_pitch(count * p.wide);
    p.v = conv_align((size_t)((p.tiles_y * WINO_TILE + 2) * (p.tiles_x * WINO_TILE + 2) * a->x.c) * sizeof(float));
    p.m = p.v + (size_t)(WINO_POINTS * p.v_pitch) * sizeof(float);
    p.sums = p.m + (size_t)(WINO_POINTS * p.m_pitch) * sizeof(float);
    p.bytes = p.sums + (size_t)(WINO_TILE * WINO_TILE * p.tiles_x * CONV_PANEL) * sizeof(float);
    return p;
}

static int wino_supports(const void *args) {
    const dvk_conv2d_args *a = args;
    return a->kh == 3 && a->kw == 3 && a->stride == 1;
}

static int64_t wino_units(const void *args) {
    const wino_plan p = wino_plan_of(args);
    return conv_tiling_units(args, &p.t);
}

static size_t wino_scratch_bytes(const void *args) {
    return wino_plan_of(args).bytes;
}

/* B^T on six vectors, in place. */
CONV_INLINE void wino_input_1d(conv_vec *d0, conv_vec *d1, conv_vec *d2, conv_vec *d3, conv_vec *d4, conv_vec *d5) {
    const conv_vec two = cv_set1(2.0f);
    const conv_vec half = cv_set1(0.5f);
    const conv_vec u = cv_fnma(two, *d2, *d4);
    const conv_vec v = cv_fnma(two, *d1, *d3);
    const conv_vec s = cv_fnma(half, *d2, *d4);
    const conv_vec t = cv_fnma(half, *d1, *d3);
    *d0 = cv_fnma(cv_set1(2.5f), *d2, cv_add(*d0, *d4));
    *d5 = cv_fnma(cv_set1(2.5f), *d3, cv_add(*d1, *d5));
    *d1 = cv_fma(cv_set1((float)WINO_A), v, u);
    *d2 = cv_fnma(cv_set1((float)WINO_A), v, u);
    *d3 = cv_fma(cv_set1((float)WINO_B), t, s);
    *d4 = cv_fnma(cv_set1((float)WINO_B), t, s);
}

/* A^T on six vectors; the four results replace the first four. */
CONV_INLINE void wino_output_1d(conv_vec *m0, conv_vec *m1, conv_vec *m2, conv_vec *m3, conv_vec m4, conv_vec m5) {
    const conv_vec s = cv_add(*m1, *m2);
    const conv_vec d = cv_sub(*m1, *m2);
    const conv_vec t = cv_add(*m3, m4);
    const conv_vec e = cv_sub(*m3, m4);
    *m0 = cv_add(cv_add(*m0, s), t);
    *m1 = cv_fma(cv_set1((float)WINO_A), d, cv_mul(cv_set1((float)WINO_B), e));
    *m2 = cv_fma(cv_set1(0.5f), s, cv_add(t, t));
    *m3 = cv_fma(cv_set1((float)(0.5 * WINO_A)), d, cv_fma(cv_set1((float)(2.0 * WINO_B)), e, m5));
}

CONV_INLINE conv_vec wino_lanes(const float *x, int64_t lanes) {
    return lanes == CONV_VW ? cv_load(x) : cv_get(x, DVK_F32, 0, lanes);
}

CONV_INLINE void wino_put(float *v, int64_t lanes, conv_vec d) {
    if (lanes == CONV_VW) {
        cv_store(v, d);
    } else {
        cv_put(v, DVK_F32, 0, lanes, d);
    }
}

/* V of one tile and one vector of channels: columns, then rows. The intermediate values go through memory deliberately.
 * 36 vectors do not fit in the registers, and loops need few address registers. */
CONV_INLINE void wino_input_tile(const float *x, int64_t row, int64_t px, float *v, int64_t pitch, int64_t lanes) {
    float half[WINO_POINTS * CONV_VW];
    for (int64_t j = 0; j < 6; j++, x += px) {
        conv_vec d0 = wino_lanes(x, lanes), d1 = wino_lanes(x + row, lanes), d2 = wino_lanes(x + 2 * row, lanes);
        conv_vec d3 = wino_lanes(x + 3 * row, lanes), d4 = wino_lanes(x + 4 * row, lanes),
                 d5 = wino_lanes(x + 5 * row, lanes);
        float *h = half + j * CONV_VW;
        wino_input_1d(&d0, &d1, &d2, &d3, &d4, &d5);
        cv_store(h, d0);
        cv_store(h + 6 * CONV_VW, d1);
        cv_store(h + 12 * CONV_VW, d2);
        cv_store(h + 18 * CONV_VW, d3);
        cv_store(h + 24 * CONV_VW, d4);
        cv_store(h + 30 * CONV_VW, d5);
    }
    for (int64_t i = 0; i < 6; i++, v += 6 * pitch) {
        const float *h = half + i * 6 * CONV_VW;
        conv_vec d0 = cv_load(h), d1 = cv_load(h + CONV_VW), d2 = cv_load(h + 2 * CONV_VW);
        conv_vec d3 = cv_load(h + 3 * CONV_VW), d4 = cv_load(h + 4 * CONV_VW), d5 = cv_load(h + 5 * CONV_VW);
        wino_input_1d(&d0, &d1, &d2, &d3, &d4, &d5);
        wino_put(v, lanes, d0);
        wino_put(v + pitch, lanes, d1);
        wino_put(v + 2 * pitch, lanes, d2);
        wino_put(v + 3 * pitch, lanes, d3);
        wino_put(v + 4 * pitch, lanes, d4);
        wino_put(v + 5 * pitch, lanes, d5);
    }
}

static void wino_input(const wino_plan *p, const conv_patch *patch, int64_t tiles_y, int64_t tiles_x, int64_t channels,
                       float *v) {
    for (int64_t ty = 0; ty < tiles_y; ty++) {
        for (int64_t tx = 0; tx < tiles_x; tx++, v += channels) {
            const float *x = (const float *)patch->data + ty * WINO_TILE * patch->row + tx * WINO_TILE * patch->pixel;
            int64_t c = 0;
            for (; c + CONV_VW <= channels; c += CONV_VW) {
                wino_input_tile(x + c, patch->row, patch->pixel, v + c, p->v_pitch, CONV_VW);
            }
            if (c < channels) {
                wino_input_tile(x + c, patch->row, patch->pixel, v + c, p->v_pitch, channels - c);
            }
        }
    }
}

/* Sixteen sums of one tile and one vector of output channels. */
CONV_INLINE void wino_output_tile(const float *m, int64_t pitch, float *y, int64_t row, int64_t px) {
    float half[WINO_TILE * 6 * CONV_VW];
    for (int64_t j = 0; j < 6; j++, m += pitch) {
        conv_vec m0 = cv_load(m), m1 = cv_load(m + 6 * pitch), m2 = cv_load(m + 12 * pitch),
                 m3 = cv_load(m + 18 * pitch);
        float *h = half + j * CONV_VW;
        wino_output_1d(&m0, &m1, &m2, &m3, cv_load(m + 24 * pitch), cv_load(m + 30 * pitch));
        cv_store(h, m0);
        cv_store(h + 6 * CONV_VW, m1);
        cv_store(h + 12 * CONV_VW, m2);
        cv_store(h + 18 * CONV_VW, m3);
    }
    for (int64_t i = 0; i < WINO_TILE; i++, y += row) {
        const float *h = half + i * 6 * CONV_VW;
        conv_vec m0 = cv_load(h), m1 = cv_load(h + CONV_VW), m2 = cv_load(h + 2 * CONV_VW),
                 m3 = cv_load(h + 3 * CONV_VW);
        wino_output_1d(&m0, &m1, &m2, &m3, cv_load(h + 4 * CONV_VW), cv_load(h + 5 * CONV_VW));
        cv_store(y, m0);
        cv_store(y + px, m1);
        cv_store(y + 2 * px, m2);
        cv_store(y + 3 * px, m3);
    }
}

/* One group of tiles: its position and its part of the scratch. */
typedef struct wino_group {
    const dvk_conv2d_args *a;
    const wino_plan *p;
    const conv_block *unit;
    int64_t x, w, tiles_x, tiles_y; /* output pixels across, tiles */
    float *v, *m, *sums;
} wino_group;

static void wino_products(const wino_group *g) {
    const dvk_conv2d_args *a = g->a;
    const int64_t tiles = g->tiles_x * g->tiles_y;
    conv_mk k = {.pixel = a->x.c, .rows = 1, .taps = 1, .len = a->x.c, .pitch = g->p->wide};
    for (int64_t xi = 0; xi < WINO_POINTS; xi++) {
        for (int64_t i = g->unit->panel0; i < g->unit->panel1; i++) {
            const int64_t nz = conv_panel_nz(a->y.c, i);
            k.w = (const float *)a->w + (i * CONV_PANEL * WINO_POINTS + xi * nz * CONV_VW) * a->x.c;
            float *m = g->m + xi * g->p->m_pitch + (i - g->unit->panel0) * CONV_PANEL;
            conv_mk_line(&k, g->v + xi * g->p->v_pitch, m, tiles, nz);
        }
    }
}

static void wino_output(const wino_group *g, int64_t panel) {
    const dvk_conv2d_args *a = g->a;
    const int64_t nz = conv_panel_nz(a->y.c, panel);
    const int64_t px = nz * CONV_VW;
    const int64_t row = px * WINO_TILE * g->tiles_x;
    const float *m = g->m + (panel - g->unit->panel0) * CONV_PANEL;
    for (int64_t ty = 0; ty < g->tiles_y; ty++) {
        for (int64_t tx = 0; tx < g->tiles_x; tx++, m += g->p->wide) {
            for (int64_t z = 0; z < nz; z++) {
                float *y = g->sums + tx * WINO_TILE * px + z * CONV_VW;
                wino_output_tile(m + z * CONV_VW, g->p->m_pitch, y, row, px);
            }
        }
        for (int64_t i = 0; i < WINO_TILE && ty * WINO_TILE + i < g->unit->h; i++) {
            const conv_span s = {
                .sums = g->sums + i * row,
                .pitch = px,
                .n = g->unit->n,
                .y = g->unit->y + ty * WINO_TILE + i,
                .x = g->x,
                .pixels = g->w,
                .c = panel * CONV_PANEL,
                .count = conv_min(px, a->y.c - panel * CONV_PANEL),
            };
            conv_epilogue(a, &s);
        }
    }
}

static conv_patch wino_patch(const wino_group *g, void *scratch) {
    const dvk_conv2d_args *a = g->a;
    const conv_rect r = {
        .n = g->unit->n,
        .y = g->unit->y - a->pad_top,
        .x = g->x - a->pad_left,
        .h = g->tiles_y * WINO_TILE + 2,
        .w = g->tiles_x * WINO_TILE + 2,
    };
    if (conv_in_place(a, &r, DVK_F32)) {
        const float *x = (const float *)a->x.data + r.n * a->x.sn + r.y * a->x.sh + r.x * a->x.sw;
        return (conv_patch){.data = x, .row = a->x.sh, .pixel = a->x.sw};
    }
    const conv_copy k = {.a = a, .rect = r, .pitch = a->x.c, .dtype = DVK_F32, .dst = scratch};
    conv_copy_patch(&k);
    return (conv_patch){.data = scratch, .row = r.w * a->x.c, .pixel = a->x.c};
}

static void wino_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_conv2d_args *a = args;
    const wino_plan p = wino_plan_of(a);
    char *s = scratch;
    for (int64_t u = first; u < last; u++) {
        const conv_block b = conv_block_at(a, &p.t, u);
        wino_group g = {.a = a, .p = &p, .unit = &b, .tiles_y = conv_ceil_div(b.h, WINO_TILE)};
        g.v = (float *)(s + p.v);
        g.m = (float *)(s + p.m);
        g.sums = (float *)(s + p.sums);
        const int64_t groups = conv_ceil_div(conv_ceil_div(b.w, WINO_TILE), p.tiles_x);
        for (int64_t i = 0; i < groups; i++) {
            g.w = conv_part(b.w, groups, WINO_TILE, i, &g.x) - g.x;
            g.tiles_x = conv_ceil_div(g.w, WINO_TILE);
            g.x += b.x;
            const conv_patch patch = wino_patch(&g, s + p.patch);
            wino_input(&p, &patch, g.tiles_y, g.tiles_x, a->x.c, g.v);
            wino_products(&g);
            for (int64_t panel = b.panel0; panel < b.panel1; panel++) {
                wino_output(&g, panel);
            }
        }
    }
}

static size_t wino_packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)conv_panels_size(a->y.c, a->x.c * WINO_POINTS) * sizeof(float);
}

static int64_t wino_pack_units(const void *args) {
    return conv_panels(((const dvk_conv2d_args *)args)->y.c);
}

/* Values of CONV_VW filters side by side, in double so that only the last rounding matters. */
typedef struct wino_lanes_d {
    double v[CONV_VW];
} wino_lanes_d;

/* G on three values `step` apart, to six `to` apart. */
static void wino_filter_1d(const wino_lanes_d *g, int64_t step, wino_lanes_d *u, int64_t to) {
    for (int i = 0; i < CONV_VW; i++) {
        const double g0 = g[0].v[i], g1 = g[step].v[i], g2 = g[2 * step].v[i];
        const double near = (g0 + 0.5 * g2) * (-1.0 / 1.5), far = (g0 + 2.0 * g2) * (1.0 / 6.0);
        u[0].v[i] = g0;
        u[to].v[i] = near - WINO_A / 1.5 * g1;
        u[2 * to].v[i] = near + WINO_A / 1.5 * g1;
        u[3 * to].v[i] = far + WINO_B / 6.0 * g1;
        u[4 * to].v[i] = far - WINO_B / 6.0 * g1;
        u[5 * to].v[i] = g2;
    }
}

/* G g G^T of the filters [o, o + CONV_VW) of input channel c; those past the last output are zero. */
static void wino_filter(const dvk_conv2d_args *a, const float *w, int64_t o, int64_t c, wino_lanes_d u[WINO_POINTS]) {
    wino_lanes_d g[9] = {{{0}}}, half[18]; /* half: [6][3] */
    for (int64_t i = 0; i < conv_min(CONV_VW, a->y.c - o); i++) {
        for (int64_t k = 0; k < 9; k++) {
            g[k].v[i] = (double)w[((o + i) * a->x.c + c) * 9 + k];
        }
    }
    for (int64_t x = 0; x < 3; x++) {
        wino_filter_1d(g + x, 3, half + x, 3);
    }
    for (int64_t y = 0; y < 6; y++) {
        wino_filter_1d(half + 3 * y, 1, u + 6 * y, 1);
    }
}

static void wino_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    wino_lanes_d u[WINO_POINTS];
    for (int64_t i = first; i < last; i++) {
        const int64_t o0 = i * CONV_PANEL;
        const int64_t wide = conv_panel_nz(a->y.c, i) * CONV_VW;
        float *d = (float *)dst + o0 * WINO_POINTS * a->x.c;
        for (int64_t c = 0; c < a->x.c; c++) {
            for (int64_t o = 0; o < wide; o += CONV_VW) {
                wino_filter(a, w, o0 + o, c, u);
                for (int64_t xi = 0; xi < WINO_POINTS; xi++) {
                    float *to = d + (xi * a->x.c + c) * wide + o;
                    for (int64_t l = 0; l < CONV_VW; l++) {
                        to[l] = (float)u[xi].v[l];
                    }
                }
            }
        }
    }
}

/* Estimated ns: 36 products per 16 outputs, plus the transforms, which run at the speed of L2. */
static double wino_cost(const void *args) {
    const dvk_conv2d_args *a = args;
    const double tiles = (double)(a->y.n * conv_ceil_div(a->y.h, WINO_TILE) * conv_ceil_div(a->y.w, WINO_TILE));
    const double wide = (double)(conv_ceil_div(a->y.c, CONV_VW) * CONV_VW);
    const double channels = (double)(conv_ceil_div(a->x.c, CONV_VW) * CONV_VW);
    const double products = tiles * WINO_POINTS * wide * (double)a->x.c;
    return 2.0 * products / CPU_COST(conv2d_winograd4, products) +
           tiles * (wide + channels) * CPU_COST(conv2d_winograd4, transform);
}
