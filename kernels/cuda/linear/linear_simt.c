/* linear_simt.c - host side of "linear" for many rows in f32, for every type of W and x: splits of k, launch. */
#include "kernels/cuda/linear/linear_simt.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/linear/linear_join.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(linear_simt, term))

extern const dvk_cuda_kernel dvk_linear_cuda_simt;

enum { LEAST_STEPS = 16, RESIDENT = 4 };

static int64_t n_tiles_of(const dvk_linear_args *a) {
    return dvk_many_ceil(a->n, a->glu ? DVK_LINEAR_SIMT_TILE / 2 : DVK_LINEAR_SIMT_TILE);
}

static int64_t tiles_of(const dvk_linear_args *a) {
    return n_tiles_of(a) * dvk_many_ceil(a->m, DVK_LINEAR_SIMT_TILE);
}

static int64_t steps_of(const dvk_linear_args *a) {
    return dvk_many_ceil(a->k, DVK_LINEAR_SIMT_K);
}

static int32_t shares_of(const dvk_linear_args *a, const dvk_cuda_caps *caps) {
    return dvk_join_shares(tiles_of(a), steps_of(a), LEAST_STEPS, (int64_t)caps->processors * RESIDENT);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_many_fits(args) && tiles_of(args) < INT32_MAX;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_linear_args *a = args;
    const double tile = 2.0 * DVK_LINEAR_SIMT_TILE * DVK_LINEAR_SIMT_TILE * (double)a->k;
    const double at_once = (double)caps->processors * RESIDENT;
    const double all = (double)tiles_of(a) * shares_of(a, caps);
    const double busy = all < at_once ? all / at_once : 1.0;
    return TERM(launch) + (double)tiles_of(a) * tile / (TERM(simt) * caps->simt_tflops * 1e3 * busy);
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    return dvk_join_bytes(args, shares_of(args, caps));
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_linear_args *a = args;
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), dvk_many_rows(a), a->k);
    const int32_t shares = shares_of(a, q->caps);
    dvk_linear_simt p = {.out = dvk_many_out(a),
                         .x = a->x.data,
                         .w = a->w,
                         .parts = shares > 1 ? scratch : NULL,
                         .x_row = a->x.row,
                         .w_row = l.row,
                         .scales = l.scales,
                         .x_form = (int32_t)a->x.form,
                         .kind = (int32_t)l.kind,
                         .zero = lin_zero(a->type),
                         .scale_row = (int32_t)l.scale_row,
                         .k = (int32_t)a->k,
                         .w_rows = (int32_t)dvk_many_rows(a),
                         .shares = shares,
                         .steps = (int32_t)steps_of(a),
                         .m_tiles = (int32_t)dvk_many_ceil(a->m, DVK_LINEAR_SIMT_TILE)};
    void *params[] = {&p};
    const dvk_launch launch = {.module = "linear_simt",
                               .function = "linear_simt",
                               .grid = {(uint32_t)tiles_of(a), (uint32_t)shares, 1},
                               .block = {DVK_LINEAR_SIMT_THREADS, 1, 1},
                               .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                               .params = params};
    const int error = q->launch(q, &launch);
    return error == 0 && shares > 1 ? dvk_linear_join_enqueue(a, p.parts, shares, q) : error;
}

const dvk_cuda_kernel dvk_linear_cuda_simt = {
    .op = "linear",
    .variant = "cuda/simt",
    .sm_min = 75,
    .computes = DVK_COMPUTES_ANY,
    .supports = supports,
    .cost = cost,
    .scratch_bytes = scratch_bytes,
    .enqueue = enqueue,
    .packed_bytes = dvk_linear_packed_bytes,
    .pack_units = dvk_linear_pack_units,
    .pack = dvk_linear_pack,
};
