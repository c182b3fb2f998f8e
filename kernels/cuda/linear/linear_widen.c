/* linear_widen.c - host side of the conversion of integer W to 16-bit numbers. */
#include "kernels/cuda/linear/linear_widen.h"

#include "kernels/cuda/linear/linear_many.h"

enum { WIDEN_BLOCK = 256 };

size_t dvk_linear_widen_bytes(const dvk_linear_args *a) {
    return lin_kind_of(a->type) <= LIN_BF16 ? 0 : (size_t)(dvk_many_rows(a) * dvk_lin_row(LIN_BF16, a->k));
}

double dvk_linear_widen_ns(const dvk_linear_args *a, const dvk_cuda_caps *caps) {
    const double bytes = (double)dvk_linear_widen_bytes(a);
    return bytes > 0.0 ? 1000.0 + 1.9 * bytes / caps->memory_gbs : 0.0;
}

int dvk_linear_widen_enqueue(const dvk_linear_args *a, void *to, dvk_queue *q) {
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), dvk_many_rows(a), a->k);
    dvk_linear_widen p = {.w = a->w,
                          .to = to,
                          .scales = l.scales,
                          .row = l.row,
                          .pieces = (int32_t)dvk_many_ceil(a->k, 8),
                          .k = (int32_t)a->k,
                          .kind = (int32_t)l.kind,
                          .zero = lin_zero(a->type),
                          .scale_row = (int32_t)l.scale_row,
                          .form = (int32_t)a->x.form};
    p.total = dvk_many_rows(a) * p.pieces;
    const int64_t need = dvk_many_ceil(p.total, WIDEN_BLOCK), most = (int64_t)q->caps->processors * 32;
    void *params[] = {&p};
    const dvk_launch launch = {.module = "linear_widen",
                               .function = "linear_widen",
                               .grid = {(uint32_t)(need < most ? need : most), 1, 1},
                               .block = {WIDEN_BLOCK, 1, 1},
                               .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                               .params = params};
    return q->launch(q, &launch);
}
