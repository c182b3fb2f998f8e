/* pointwise.c - host side of "pointwise" on CUDA: y = epi(pro(x)). Views of one type with at most one residual have
 * specialised kernels. All other combinations use one kernel that checks types at run time. */
#include "kernels/cuda/pixels/pointwise.h"

#include <stdio.h>

#include "kernels/cuda/common/elem_host.h"

static double bytes_of(const dvk_pointwise_args *a) {
    double bytes = dvk_elem_bytes(&a->x) + dvk_elem_bytes(&a->y);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        bytes += dvk_elem_bytes(&a->epi.res[i]);
    }
    return bytes;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    return dvk_elem_cost(bytes_of(args), caps);
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_pointwise_args *a = args;
    (void)caps;
    return a->y.h * a->y.w < INT32_MAX && a->y.n < 65536 && a->epi.stats == NULL && a->epi.shuffle <= 1 &&
           a->epi.gate <= 1;
}

/* If no parameter depends on the channel and all views are contiguous, treats them as pixels of eight channels. */
static int flatten(const dvk_pointwise_args *a, dvk_pointwise_params *p) {
    int flat = dvk_elem_dense(&a->x) && dvk_elem_dense(&a->y) && !p->ends.scale && !p->ends.bias && !p->ends.slopes;
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        flat = flat && dvk_elem_dense(&a->epi.res[i]);
    }
    if (!flat) {
        return 0;
    }
    const int64_t count = dvk_elem_count(&a->y);
    p->pixels = (count + DVK_ELEM_LANES - 1) / DVK_ELEM_LANES;
    p->tail = (int32_t)(count % DVK_ELEM_LANES);
    p->c = DVK_ELEM_LANES;
    p->w = 0;
    dvk_elem_view *views[] = {&p->x, &p->y, &p->ends.res[0], &p->ends.res[1]};
    for (int i = 0; i < 2 + p->ends.n_res; i++) {
        views[i]->sw = DVK_ELEM_LANES;
        views[i]->vector = (uintptr_t)views[i]->data % 16 == 0;
    }
    return 1;
}

static const char *function_of(const dvk_pointwise_args *a, char (*name)[32]) {
    static const char *const types[] = {[DVK_F32] = "f32", [DVK_F16] = "f16", [DVK_BF16] = "bf16"};
    const dvk_epilogue *e = &a->epi;
    /* the other kernels lack the registers for them */
    const int curved = e->act >= DVK_ACT_GELU || a->pro.act >= DVK_ACT_GELU;
    if (curved || a->x.dtype != a->y.dtype || e->n_res > 1 || (e->n_res == 1 && e->res[0].dtype != a->y.dtype)) {
        return "pointwise_any";
    }
    snprintf(*name, sizeof *name, "pointwise_%s%s%s", types[a->y.dtype], a->pro.scale ? "_norm" : "",
             e->n_res > 0 ? "_res" : "");
    return *name;
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_pointwise_args *a = args;
    const dvk_epilogue *e = &a->epi;
    (void)scratch;
    dvk_pointwise_params p = {.x = dvk_elem_of(&a->x),
                              .y = dvk_elem_of(&a->y),
                              .ends = dvk_elem_ends_of(&a->pro, e),
                              .pixels = a->y.h * a->y.w,
                              .c = (int32_t)a->y.c};
    int even = dvk_elem_even(&a->x) && dvk_elem_even(&a->y);
    for (int32_t i = 0; i < e->n_res; i++) {
        even = even && dvk_elem_even(&e->res[i]);
    }
    p.w = even ? 0 : (int32_t)a->y.w;
    const int64_t pictures = flatten(a, &p) ? 1 : a->y.n;
    p.chunks = (p.c + DVK_ELEM_LANES - 1) / DVK_ELEM_LANES;
    char name[32];
    /* at least one thread for each group of a pixel's channels */
    const uint32_t least = (uint32_t)((p.chunks + DVK_ELEM_BLOCK - 1) / DVK_ELEM_BLOCK);
    uint32_t blocks = dvk_elem_blocks(p.pixels * p.chunks, pictures, q->caps);
    /* each thread reads parameters once: only as many threads as run at a time */
    if (p.ends.scale || p.ends.bias || p.ends.slopes) {
        const uint32_t few = (uint32_t)(q->caps->processors * 6 / pictures + 1);
        blocks = blocks < few ? blocks : few;
    }
    return dvk_elem_launch(q, "pointwise", function_of(a, &name), blocks > least ? blocks : least, pictures, &p);
}

DVK_ELEM_KERNEL(dvk_pointwise_cuda, "pointwise", supports, cost, enqueue);
