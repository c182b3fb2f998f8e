/* linear_wgmma.c - host side of "linear" for many rows on Hopper's tensor cores: support, tiling and cost. Integer W
 * are first converted to 16-bit numbers in scratch memory. */
#include "kernels/cuda/linear/linear_wgmma.h"

#include <stdio.h>
#include <string.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/linear/linear_widen.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(linear_wgmma, term))

extern const dvk_cuda_kernel dvk_linear_cuda_wgmma;

/* Division of a product: tiles shared by both warpgroups, tiles of alternating warpgroups, or tiles whose k is split
 * over a cluster. */
typedef enum linear_way { LINEAR_MANY, LINEAR_TURNS, LINEAR_FEW } linear_way;
typedef struct linear_cut {
    linear_way way;
    int32_t bm, bn, blocks;
    int32_t m_places, n_places;
    double ns;
} linear_cut;

enum { MOST_TOGETHER = 16 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double most(double a, double b) {
    return a > b ? a : b;
}

static int32_t steps_of(const dvk_linear_args *a) {
    return (int32_t)dvk_many_ceil(a->k, DVK_LINEAR_K);
}

static void set_places(const dvk_linear_args *a, linear_cut *c) {
    c->m_places = (int32_t)dvk_many_ceil(a->m, c->bm);
    c->n_places = (int32_t)dvk_many_ceil(a->n, a->glu ? c->bn / 2 : c->bn);
}

/* Number of concurrent clusters: not every group of multiprocessors has a multiple of their size. */
static int64_t clusters_at_once(const dvk_cuda_caps *caps, int32_t blocks) {
    static const int32_t of_132[DVK_LINEAR_SPLITS] = {132, 64, 38, 28, 20, 16, 14, 14};
    return (int64_t)of_132[blocks - 1] * caps->processors / 132;
}

/* The times below were measured on an H200. */

/* Time of a tile's epilogue, for sums of two warpgroups. */
static double out_ns(const dvk_linear_args *a, const dvk_cuda_caps *caps, double elements) {
    const double act = a->act != DVK_GATE_NONE ? TERM(element_act) : 0.0;
    return TERM(out) + elements * (TERM(element) + act + (a->res.data != NULL ? TERM(element_res) : 0.0));
}

/* Time of sums that are reduced in shared memory and stored by pairs. */
static double few_out_ns(const dvk_linear_args *a, const dvk_cuda_caps *caps, const linear_cut *c) {
    const double elements = (double)(least(a->m, c->bm) * (a->glu ? c->bn / 2 : c->bn));
    return TERM(few_out) + (c->blocks > 1 ? TERM(few_block) * c->blocks : 0.0) +
           TERM(few_element) * elements / c->blocks;
}

/* Time of 64 k: products, or loads of x and W from L2. */
static double step_ns(const dvk_cuda_caps *caps, const linear_cut *c) {
    const double rate = caps->tensor_tflops * (1e3 * TERM(tensor)) / caps->processors;
    const double bytes = (c->bm + c->bn) * 2.0 * DVK_LINEAR_K;
    return most(2.0 * c->bm * c->bn * DVK_LINEAR_K / rate,
                bytes / (c->way == LINEAR_FEW ? TERM(read_few) : TERM(read_many)));
}

static double estimate(const dvk_linear_args *a, const dvk_cuda_caps *caps, const linear_cut *c) {
    const double memory =
        dvk_many_traffic(a) / (TERM(memory) * caps->memory_gbs) * (a->m <= 64 && c->bm > 64 ? TERM(wide) : 1.0);
    const int64_t places = (int64_t)c->m_places * c->n_places;
    const double turns = (double)dvk_many_ceil(places, clusters_at_once(caps, c->blocks));
    const double sums = (double)dvk_many_ceil(steps_of(a), c->blocks) * step_ns(caps, c);
    if (c->way == LINEAR_FEW) {
        return TERM(launch) + most(turns * sums, memory) + turns * few_out_ns(a, caps, c);
    }
    const double out = out_ns(a, caps, (double)c->bm * c->bn / (a->glu ? 2.0 : 1.0));
    const double work =
        c->way == LINEAR_MANY ? turns * (sums + out) : turns * most(sums, sums / 2.0 + out) + TERM(last) * out;
    return TERM(launch) + most(work, memory);
}

static void consider(const dvk_linear_args *a, const dvk_cuda_caps *caps, linear_cut c, linear_cut *best) {
    set_places(a, &c);
    c.ns = estimate(a, caps, &c);
    if (best->ns == 0.0 || c.ns < best->ns) {
        *best = c;
    }
}

/* Bulk stores need rows of y that begin at multiples of 16 bytes; residuals are read in pairs. */
static int can_be_many(const dvk_linear_args *a) {
    return dvk_many_aligned(&a->y, a->m, 16) &&
           (a->res.data == NULL || (a->n % 2 == 0 && dvk_many_aligned(&a->res, a->m, 2 * dvk_many_bytes(&a->res))));
}

static const int32_t few_shapes[][2] = {{64, 128}, {64, 192}, {64, 256}, {128, 128}, {128, 256}};

static linear_cut best_cut(const dvk_linear_args *a, const dvk_cuda_caps *caps) {
    linear_cut best = {.ns = 0.0};
    if (can_be_many(a)) {
        consider(a, caps, (linear_cut){.way = LINEAR_TURNS, .bm = 128, .bn = 128, .blocks = 1}, &best);
        for (int32_t bn = 128; bn <= 256; bn += 64) {
            consider(a, caps, (linear_cut){.way = LINEAR_MANY, .bm = 128, .bn = bn, .blocks = 1}, &best);
        }
    }
    for (size_t shape = 0; shape < sizeof few_shapes / sizeof few_shapes[0]; shape++) {
        linear_cut c = {.way = LINEAR_FEW, .bm = few_shapes[shape][0], .bn = few_shapes[shape][1]};
        for (c.blocks = 1; c.blocks <= least(steps_of(a), DVK_LINEAR_SPLITS); c.blocks++) {
            consider(a, caps, c, &best);
        }
    }
    return best;
}

/* ---- launch ---- */

static int matrix_map(dvk_queue *q, const void *data, dvk_dtype type, int64_t columns, int64_t rows, int64_t pitch,
                      int32_t box_columns, int32_t box_rows, dvk_linear_map *out) {
    const int64_t size = (int64_t)dvk_dtype_size(type);
    const dvk_tensor_map_desc desc = {.data = data,
                                      .dtype = type,
                                      .rank = 2,
                                      .size = {columns, rows},
                                      .stride_bytes = {pitch * size},
                                      .box = {box_columns, box_rows},
                                      .swizzle_bytes = (int32_t)(box_columns * size)};
    dvk_tensor_map map;
    const int error = q->tensor_map(q, &desc, &map);
    memcpy(out, &map, sizeof map);
    return error;
}

/* A single row may have any pitch; returns one that a tensor map accepts. */
static int64_t pitch_of(const dvk_rows *r, int64_t m, int64_t width) {
    return m > 1 ? r->row : (width + 7) / 8 * 8;
}

static int set_maps(const dvk_linear_args *a, const linear_cut *c, const void *w, dvk_queue *q, dvk_linear_wgmma *p) {
    const dvk_dtype x = (dvk_dtype)a->x.form, y = (dvk_dtype)a->y.form;
    int error = matrix_map(q, a->x.data, x, a->k, a->m, pitch_of(&a->x, a->m, a->k), DVK_LINEAR_K, c->bm, &p->x);
    if (error == 0) {
        error = matrix_map(q, w, x, a->k, dvk_many_rows(a), dvk_lin_row(LIN_BF16, a->k) / 2, DVK_LINEAR_K, c->bn / 2,
                           &p->w);
    }
    if (error == 0 && c->way != LINEAR_FEW) {
        error = matrix_map(q, a->y.data, y, a->n, a->m, pitch_of(&a->y, a->m, a->n), DVK_LINEAR_CHUNK, 64, &p->y);
    }
    return error;
}

static void name_of(const dvk_linear_args *a, const linear_cut *c, char *name, size_t bytes) {
    const char *type = a->x.form == DVK_ROWS_BF16 ? "bf16" : "f16", *glu = a->glu ? "glu_" : "";
    if (c->way == LINEAR_FEW) {
        snprintf(name, bytes, "linear_wgmma_%s_few_%dx%d", type, (int)c->bm, (int)c->bn);
    } else if (c->way == LINEAR_TURNS) {
        snprintf(name, bytes, "linear_wgmma_%s_%sturns", type, glu);
    } else {
        snprintf(name, bytes, "linear_wgmma_%s_%s%d", type, glu, (int)c->bn);
    }
}

static dvk_linear_wgmma params_of(const dvk_linear_args *a, const linear_cut *c, int widen) {
    dvk_linear_wgmma p;
    memset(&p, 0, sizeof p);
    p.out = dvk_many_out(a);
    p.steps = steps_of(a);
    p.second = a->glu ? (int32_t)a->n : c->bn / 2;
    p.blocks = c->blocks;
    p.m_places = c->m_places;
    p.n_places = c->n_places;
    p.together = (int32_t)least(c->m_places, MOST_TOGETHER);
    p.ragged = a->n * dvk_many_bytes(&a->y) % 16 != 0;
    p.w_early = !widen;
    return p;
}

static int launch_cut(const dvk_linear_args *a, const linear_cut *c, void *scratch, dvk_queue *q) {
    const int widen = !dvk_many_is_16_bit(a->type);
    const int64_t places = (int64_t)c->m_places * c->n_places;
    const int64_t clusters = c->way == LINEAR_FEW ? places : least(places, q->caps->processors);
    dvk_linear_wgmma p = params_of(a, c, widen);
    char name[64];
    void *params[] = {&p};
    int error = set_maps(a, c, widen ? scratch : a->w, q, &p);
    if (error == 0 && widen) {
        error = dvk_linear_widen_enqueue(a, scratch, q);
    }
    name_of(a, c, name, sizeof name);
    const dvk_launch l = {.module = "linear_wgmma_sm90",
                          .function = name,
                          .grid = {(uint32_t)(clusters * c->blocks), 1, 1},
                          .block = {DVK_LINEAR_THREADS, 1, 1},
                          .cluster = (uint32_t)c->blocks,
                          .shared_bytes = DVK_LINEAR_SHARED,
                          .flags = DVK_LAUNCH_OVERLAP,
                          .params = params};
    return error != 0 ? error : q->launch(q, &l);
}

/* ---- the entry ---- */

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    return caps->shared_bytes >= DVK_LINEAR_SHARED && dvk_many_pairs_with(a) && dvk_many_fits(a) &&
           dvk_many_aligned(&a->x, a->m, 16);
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    return best_cut(args, caps).ns + dvk_linear_widen_ns(args, caps);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_linear_widen_bytes(args);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const linear_cut c = best_cut(args, q->caps);
    return launch_cut(args, &c, scratch, q);
}

const dvk_cuda_kernel dvk_linear_cuda_wgmma = {
    .op = "linear",
    .variant = "cuda/wgmma",
    .sm_min = 90,
    .sm_max = 90,
    .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
    .supports = supports,
    .cost = cost,
    .scratch_bytes = scratch_bytes,
    .enqueue = enqueue,
    .packed_bytes = dvk_linear_packed_bytes,
    .pack_units = dvk_linear_pack_units,
    .pack = dvk_linear_pack,
};
