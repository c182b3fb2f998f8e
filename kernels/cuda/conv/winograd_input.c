/* winograd_input.c - host side of "winograd_input". Only Hopper's convolutions read its result, so it runs only there. */
#include "kernels/cuda/conv/winograd_input.h"

#include "kernels/cuda/common/elem_host.h"

enum { LONGEST = 8 }; /* quads per strip: two pixels of each strip are read twice */

static int is_vector(const dvk_view *v) {
    return v->c % DVK_ELEM_LANES == 0 && dvk_elem_of(v).vector;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_winograd_input_args *a = args;
    const dvk_act act = a->pro.act;
    (void)caps;
    return (act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_SILU) && a->y.dtype == DVK_F16 &&
           is_vector(&a->x) && is_vector(&a->y) &&
           (a->kept.n == 0 || (is_vector(&a->kept) && a->kept.dtype == DVK_F16)) &&
           dvk_elem_multiple(2 * a->repeat_step) && dvk_elem_rows_fit(&a->x) &&
           a->x.n * a->x.h * (a->y.w / DVK_WINOGRAD_STEP + 1) * (a->x.c / DVK_ELEM_LANES) < INT32_MAX;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_winograd_input_args *a = args;
    const double repeated = dvk_elem_bytes(&a->y) / (double)a->y.n * (double)a->repeats;
    return dvk_elem_cost(dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y) + dvk_elem_bytes(&a->kept) + repeated, caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    static const char *const functions[][2] = {[DVK_F32] = {"winograd_input_f32", "winograd_input_f32_norm"},
                                               [DVK_F16] = {"winograd_input_f16", "winograd_input_f16_norm"},
                                               [DVK_BF16] = {"winograd_input_bf16", "winograd_input_bf16_norm"}};
    const dvk_winograd_input_args *a = args;
    (void)scratch;
    dvk_winograd_input_params p = {.x = dvk_elem_of(&a->x),
                                   .y = dvk_elem_of(&a->y),
                                   .kept = dvk_elem_of(&a->kept),
                                   .kept_from = (uint32_t)(a->x.n - a->kept.n),
                                   .kept_rows = (uint32_t)a->kept.h,
                                   .scale = a->pro.scale,
                                   .shift = a->pro.shift,
                                   .repeats = a->repeats,
                                   .repeat_step = a->repeat_step,
                                   .n = (uint32_t)a->x.n,
                                   .h = (uint32_t)a->x.h,
                                   .w = (uint32_t)a->x.w,
                                   .chunks = (uint32_t)dvk_elem_chunks(a->x.c),
                                   .quads = LONGEST,
                                   .act = (int32_t)a->pro.act};
    const uint32_t quads = (uint32_t)a->y.w, rows = p.n * p.h;
    const uint32_t busy = (uint32_t)q->caps->processors * 4096; /* threads, twice the number that run at a time */
    while (p.quads > DVK_WINOGRAD_STEP && (quads + p.quads - 1) / p.quads * rows * p.chunks < busy) {
        p.quads /= 2;
    }
    p.strips = (quads + p.quads - 1) / p.quads;
    const uint32_t blocks = (rows * p.strips * p.chunks + DVK_ELEM_BLOCK - 1) / DVK_ELEM_BLOCK;
    return dvk_elem_launch(q, "winograd_input_sm90", functions[a->x.dtype][a->pro.scale != NULL], blocks, 1, &p);
}

extern const dvk_cuda_kernel dvk_winograd_input_cuda;
const dvk_cuda_kernel dvk_winograd_input_cuda = {.op = "winograd_input",
                                                 .variant = "cuda",
                                                 .sm_min = 90,
                                                 .sm_max = 90,
                                                 .computes = DVK_COMPUTES_ANY,
                                                 .supports = supports,
                                                 .cost = cost,
                                                 .enqueue = enqueue};
