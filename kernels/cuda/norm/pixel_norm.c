/* pixel_norm.c - host side of "row_norm" for very many short rows of 16-bit values, such as the layer norms of
 * upscalers. */
#include "kernels/cuda/norm/pixel_norm.h"

#include <stdio.h>

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"
#include "kernels/lm.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(pixel_norm, term))

extern const dvk_cuda_kernel dvk_row_norm_cuda_pixels;

enum { LEAST_ROWS = 64, MOST_CHANNELS = 8 * DVK_PIXEL_NORM_LANES * DVK_PIXEL_NORM_OCTETS };

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_norm_args *a = args;
    (void)caps;
    const int same = a->x.form == a->y.form && ((dvk_dtype)a->x.form == DVK_F16 || (dvk_dtype)a->x.form == DVK_BF16);
    return same && a->center && a->heads == 1 && a->dim <= MOST_CHANNELS && a->m >= LEAST_ROWS &&
           (uintptr_t)a->x.data % 16 == 0 && (uintptr_t)a->y.data % 16 == 0 && a->x.row % 8 == 0 && a->y.row % 8 == 0;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_norm_args *a = args;
    return TERM(launch) + 4.0 * (double)(a->m * a->dim) / (TERM(memory) * caps->memory_gbs);
}

static dvk_elem_view view_of(const dvk_rows *r) {
    return (dvk_elem_view){.data = r->data, .dtype = (int32_t)r->form, .vector = 1};
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_row_norm_args *a = args;
    (void)scratch;
    dvk_pixel_norm_params p = {.x = view_of(&a->x),
                               .y = view_of(&a->y),
                               .w = a->w,
                               .b = a->b,
                               .rows = a->m,
                               .x_row = a->x.row,
                               .y_row = a->y.row,
                               .dim = (int32_t)a->dim,
                               .alone = a->y.row == (a->dim + 7) / 8 * 8,
                               .eps = a->eps};
    char name[32];
    snprintf(name, sizeof name, "pixel_norm_%s_%d", (dvk_dtype)a->x.form == DVK_BF16 ? "bf16" : "f16",
             (int)((a->dim + 8 * DVK_PIXEL_NORM_LANES - 1) / (8 * DVK_PIXEL_NORM_LANES)));
    const int64_t each = DVK_PIXEL_NORM_WARPS * 32 / DVK_PIXEL_NORM_LANES;
    const int64_t all = (a->m + each - 1) / each, held = (int64_t)q->caps->processors * 8;
    void *params[] = {&p};
    const dvk_launch l = {.module = "pixel_norm",
                          .function = name,
                          .grid = {(uint32_t)(all < held ? all : held), 1, 1},
                          .block = {DVK_PIXEL_NORM_WARPS * 32, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_row_norm_cuda_pixels = {.op = "row_norm",
                                                  .variant = "cuda/pixels",
                                                  .sm_min = 75,
                                                  .computes = DVK_COMPUTES_ANY,
                                                  .supports = supports,
                                                  .cost = cost,
                                                  .enqueue = enqueue};
