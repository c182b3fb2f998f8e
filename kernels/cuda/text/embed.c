/* embed.c - host side of "embed": rows of W in the layout of "linear" (linear_layout.h). */
#include "kernels/cuda/text/embed_host.h"

static dvk_linear_args as_linear(const dvk_embed_args *a) {
    return (dvk_linear_args){.n = a->n, .k = a->k, .type = a->type};
}

#include "kernels/cuda/linear/pack_as_linear.h"

static int supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return dvk_embed_fits(args);
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_embed_args *a = args;
    return dvk_elem_cost((double)(a->m * a->k) * 6.0, caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    dvk_embed_params p = dvk_embed_of(args);
    (void)scratch;
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
