/* conv_wino_tmpl.h - Winograd's F(4x4, 3x3) in f32: 36 products where the direct way takes 144, for 3x3 convolutions of stride 1.
 *
 * Points 0, +-a, +-b, infinity with a^2 = 1/2, b^2 = 2: of the usual choices the one that loses least (see docs/speed.md), and
 * a^2 b^2 = 1 keeps the transforms at 12 operations per six values. One dimension, for input d, filter g, products m:
 *     B^T d: d0 - 5/2 d2 + d4,  (d4 - 2 d2) +- a (d3 - 2 d1),  (d4 - d2/2) +- b (d3 - d1/2),  d1 - 5/2 d3 + d5
 *     G g:   g(0),  g(+-a) / -3/2,  g(+-b) / 6,  g2             with g(x) = g0 + g1 x + g2 x^2
 *     A^T m: y_k = sum over the points of p^k m_p, m5 added to y3
 * A unit is a band of tile rows; it goes over the band in groups of tiles small enough that the transformed input V
 * [36][tile][channel] and the products M [36][tile][output channel] stay in L2, one matrix product for each of the 36.
 * The includer has included a conv_vec_*.h and defines CONV_GFLOPS. */
#include "kernels/cpu/conv_common.h"
#include "kernels/cpu/conv_math_tmpl.h"
#include "kernels/cpu/conv_epi_tmpl.h"
#include "kernels/cpu/conv_mk_tmpl.h"
#include "kernels/cpu/conv_pack_tmpl.h"
#include "kernels/cpu/conv_panel_tmpl.h"

enum { WINO_POINTS = 36, WINO_TILE = 4, WINO_PRODUCTS = 192 * 1000000 };

#define WINO_A 0.70710678118654752440
#define WINO_B 1.41421356237309504880

/* How a unit works: groups of tiles_y x tiles_x tiles, for `wide` output channels. */
typedef struct wino_plan {
    conv_tiling t;
    int64_t tiles_y, tiles_x;
    int64_t v_pitch, m_pitch; /* floats from one of the 36 matrices to the next */
    int64_t wide;
    size_t patch, v, m; /* offsets of their parts of the scratch, in bytes */
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
    /* Weights that do not fit in L2 are worth reading for many tiles; otherwise V and M should fit beside them. */
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

#define WINO_EACH6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define WINO_LOAD_COLUMN(j)                                                                                               \
    conv_vec d0##j = wino_lanes(x + (j) * px, lanes), d1##j = wino_lanes(x + (j) * px + row, lanes);                        \
    conv_vec d2##j = wino_lanes(x + (j) * px + 2 * row, lanes), d3##j = wino_lanes(x + (j) * px + 3 * row, lanes);          \
    conv_vec d4##j = wino_lanes(x + (j) * px + 4 * row, lanes), d5##j = wino_lanes(x + (j) * px + 5 * row, lanes);          \
    wino_input_1d(&d0##j, &d1##j, &d2##j, &d3##j, &d4##j, &d5##j);
#define WINO_STORE_ROW(i)                                                     \
    wino_input_1d(&d##i##0, &d##i##1, &d##i##2, &d##i##3, &d##i##4, &d##i##5); \
    cv_put(v + (6 * (i) + 0) * pitch, DVK_F32, 0, lanes, d##i##0);             \
    cv_put(v + (6 * (i) + 1) * pitch, DVK_F32, 0, lanes, d##i##1);             \
    cv_put(v + (6 * (i) + 2) * pitch, DVK_F32, 0, lanes, d##i##2);             \
    cv_put(v + (6 * (i) + 3) * pitch, DVK_F32, 0, lanes, d##i##3);             \
    cv_put(v + (6 * (i) + 4) * pitch, DVK_F32, 0, lanes, d##i##4);             \
    cv_put(v + (6 * (i) + 5) * pitch, DVK_F32, 0, lanes, d##i##5);

CONV_INLINE conv_vec wino_lanes(const float *x, int64_t lanes) {
    return lanes == CONV_VW ? cv_load(x) : cv_get(x, DVK_F32, 0, lanes);
}

/* V of one tile and one vector of channels. */
CONV_INLINE void wino_input_tile(const float *x, int64_t row, int64_t px, float *v, int64_t pitch, int64_t lanes) {
    WINO_EACH6(WINO_LOAD_COLUMN)
    WINO_EACH6(WINO_STORE_ROW)
}

static void wino_input(const wino_plan *p, const conv_patch *patch, int64_t tiles_y, int64_t tiles_x, int64_t channels, float *v) {
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

#define WINO_LOAD_PRODUCTS(j)                                                                                                  \
    conv_vec m0##j = cv_load(m + (j) * pitch), m1##j = cv_load(m + (6 + (j)) * pitch), m2##j = cv_load(m + (12 + (j)) * pitch); \
    conv_vec m3##j = cv_load(m + (18 + (j)) * pitch);                                                                          \
    wino_output_1d(&m0##j, &m1##j, &m2##j, &m3##j, cv_load(m + (24 + (j)) * pitch), cv_load(m + (30 + (j)) * pitch));
#define WINO_STORE_SUMS(i)                                               \
    wino_output_1d(&m##i##0, &m##i##1, &m##i##2, &m##i##3, m##i##4, m##i##5); \
    cv_store(y + (i) * row + 0 * px, m##i##0);                           \
    cv_store(y + (i) * row + 1 * px, m##i##1);                           \
    cv_store(y + (i) * row + 2 * px, m##i##2);                           \
    cv_store(y + (i) * row + 3 * px, m##i##3);

/* Sixteen sums of one tile and one vector of output channels. */
CONV_INLINE void wino_output_tile(const float *m, int64_t pitch, float *y, int64_t row, int64_t px) {
    WINO_EACH6(WINO_LOAD_PRODUCTS)
    WINO_STORE_SUMS(0)
    WINO_STORE_SUMS(1)
    WINO_STORE_SUMS(2)
    WINO_STORE_SUMS(3)
}

/* One group of tiles: where it is and what it owns of the scratch. */
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

/* G on three values `step` apart. */
static void wino_filter_1d(const double *g, int64_t step, double *u, int64_t to) {
    const double g0 = g[0], g1 = g[step], g2 = g[2 * step];
    u[0] = g0;
    u[to] = (g0 + WINO_A * g1 + 0.5 * g2) / -1.5;
    u[2 * to] = (g0 - WINO_A * g1 + 0.5 * g2) / -1.5;
    u[3 * to] = (g0 + WINO_B * g1 + 2.0 * g2) / 6.0;
    u[4 * to] = (g0 - WINO_B * g1 + 2.0 * g2) / 6.0;
    u[5 * to] = g2;
}

/* G g G^T of one 3x3 filter, in double so that only the last rounding counts. */
static void wino_filter(const float *w, double u[WINO_POINTS]) {
    double g[9], half[18]; /* half: [6][3] */
    for (int i = 0; i < 9; i++) {
        g[i] = (double)w[i];
    }
    for (int x = 0; x < 3; x++) {
        wino_filter_1d(g + x, 3, half + x, 3);
    }
    for (int y = 0; y < 6; y++) {
        wino_filter_1d(half + 3 * y, 1, u + 6 * y, 1);
    }
}

static void wino_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    for (int64_t i = first; i < last; i++) {
        const int64_t o0 = i * CONV_PANEL;
        const int64_t wide = conv_panel_nz(a->y.c, i) * CONV_VW;
        float *d = (float *)dst + o0 * WINO_POINTS * a->x.c;
        for (int64_t c = 0; c < a->x.c; c++) {
            for (int64_t o = 0; o < wide; o++) {
                double u[WINO_POINTS] = {0};
                if (o0 + o < a->y.c) {
                    wino_filter(w + ((o0 + o) * a->x.c + c) * 9, u);
                }
                for (int64_t xi = 0; xi < WINO_POINTS; xi++) {
                    d[(xi * a->x.c + c) * wide + o] = (float)u[xi];
                }
            }
        }
    }
}

/* ns: 36 products for 16 outputs, and the transforms, which run at the speed of L2. */
static double wino_cost(const void *args) {
    const dvk_conv2d_args *a = args;
    const double tiles = (double)(a->y.n * conv_ceil_div(a->y.h, WINO_TILE) * conv_ceil_div(a->y.w, WINO_TILE));
    const double wide = (double)(conv_ceil_div(a->y.c, CONV_VW) * CONV_VW);
    const double channels = (double)(conv_ceil_div(a->x.c, CONV_VW) * CONV_VW);
    const double products = tiles * WINO_POINTS * wide * (double)a->x.c;
    return 2.0 * products / CONV_GFLOPS + tiles * (wide + channels) * CONV_TRANSFORM_NS;
}
