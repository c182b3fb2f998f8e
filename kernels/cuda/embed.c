/* embed.c - "embed" on CUDA: rows of W as "linear" keeps it (linear_layout.h). */
#include "kernels/cuda/embed.h"

#include "kernels/cuda/elem_host.h"
#include "kernels/cuda/linear_layout.h"

static dvk_linear_args as_linear(const dvk_embed_args *a) {
    return (dvk_linear_args){.n = a->n, .k = a->k, .type = a->type};
}

static size_t packed_bytes(const void *args) {
    const dvk_linear_args a = as_linear(args);
    return dvk_linear_packed_bytes(&a);
}

static int64_t pack_units(const void *args) {
    const dvk_linear_args a = as_linear(args);
    return dvk_linear_pack_units(&a);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_linear_args a = as_linear(args);
    dvk_linear_pack(&a, w, dst, first, last);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_embed_args *a = args;
    (void)caps;
    return a->m < INT32_MAX && a->k < INT32_MAX / 2 && a->y.form != DVK_ROWS_Q8;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_embed_args *a = args;
    return dvk_elem_cost((double)(a->m * a->k) * 6.0, caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_embed_args *a = args;
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), a->n, a->k);
    const int64_t size = a->y.form == DVK_ROWS_F32 ? 4 : 2;
    (void)scratch;
    dvk_embed_params p = {.y = {.data = a->y.data,
                                .sh = a->y.row,
                                .dtype = (int32_t)a->y.form,
                                .vector = (uintptr_t)a->y.data % 16 == 0 && (a->m == 1 || a->y.row * size % 16 == 0)},
                          .ids = a->ids,
                          .w = a->w,
                          .scales = (const unsigned char *)a->w + l.scales,
                          .w_row = l.row,
                          .scale_row = dvk_lin_blocks(a->k) * l.halves * 2,
                          .m = (int32_t)a->m,
                          .k = (int32_t)a->k,
                          .items = dvk_elem_chunks(a->k),
                          .kind = (int32_t)l.kind,
                          .zero = lin_zero(a->type)};
    return dvk_elem_launch_rows(q, "embed", "embed", p.items, p.m, &p);
}

extern const dvk_cuda_kernel dvk_embed_cuda;
const dvk_cuda_kernel dvk_embed_cuda = {.op = "embed",
                                        .variant = "cuda",
                                        .sm_min = 75,
                                        .computes = DVK_COMPUTES_ANY,
                                        .supports = supports,
                                        .cost = cost,
                                        .enqueue = enqueue,
                                        .packed_bytes = packed_bytes,
                                        .pack_units = pack_units,
                                        .pack = pack};
