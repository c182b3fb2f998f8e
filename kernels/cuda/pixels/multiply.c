/* multiply.c - "multiply" on CUDA: y = epi(x * act(g)). */
#include "kernels/cuda/pixels/multiply.h"

#include "kernels/cuda/common/elem_host.h"

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_multiply_args *a = args;
    double bytes = dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->g) + dvk_elem_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += dvk_elem_bytes(&a->epi.res[i]);
    }
    return dvk_elem_cost(bytes, caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_multiply_args *a = args;
    (void)caps;
    return a->y.h * a->y.w < INT32_MAX && a->y.n < 65536 && a->epi.stats == NULL && a->epi.shuffle <= 1 &&
           a->epi.gate <= 1;
}

static const char *function_of(const dvk_multiply_args *a) {
    static const char *const names[] = {
        [DVK_F32] = "multiply_f32", [DVK_F16] = "multiply_f16", [DVK_BF16] = "multiply_bf16"};
    return a->x.dtype == a->y.dtype && a->g.dtype == a->y.dtype ? names[a->y.dtype] : "multiply_any";
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_multiply_args *a = args;
    (void)scratch;
    dvk_multiply_params p = {.x = dvk_elem_of(&a->x),
                             .g = dvk_elem_of(&a->g),
                             .y = dvk_elem_of(&a->y),
                             .ends = dvk_elem_ends_of(NULL, &a->epi),
                             .pixels = a->y.h * a->y.w,
                             .c = (int32_t)a->y.c,
                             .chunks = dvk_elem_chunks(a->y.c),
                             .act = (int32_t)a->act,
                             .one_pixel = a->g.h == 1 && a->g.w == 1,
                             .one_channel = a->g.c == 1};
    int even = dvk_elem_even(&a->x) && dvk_elem_even(&a->g) && dvk_elem_even(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        even = even && dvk_elem_even(&a->epi.res[i]);
    }
    p.w = even ? 0 : (int32_t)a->y.w;
    /* at least one thread for each group of a pixel's channels; a thread reads its channels' parameters once */
    const uint32_t least = (uint32_t)((p.chunks + DVK_ELEM_BLOCK - 1) / DVK_ELEM_BLOCK);
    const uint32_t few = (uint32_t)(q->caps->processors * 6 / a->y.n + 1);
    uint32_t blocks = dvk_elem_blocks(p.pixels * p.chunks, a->y.n, q->caps);
    blocks = blocks < few ? blocks : few;
    return dvk_elem_launch(q, "multiply", function_of(a), blocks > least ? blocks : least, a->y.n, &p);
}

DVK_ELEM_KERNEL(dvk_multiply_cuda, "multiply", supports, cost, enqueue);
