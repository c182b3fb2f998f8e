/* group_norm.c - "group_norm_stats" and "group_norm_finish" on CUDA. */
#include "kernels/cuda/norm/group_norm.h"

#include "kernels/cuda/common/elem_host.h"

static int64_t pieces(int64_t total, int64_t size) {
    return (total + size - 1) / size;
}

static int stats_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_group_norm_stats_args *a = args;
    (void)caps;
    const int64_t rows = a->chunks > 0 ? pieces(a->x.h, a->chunks) : DVK_NORM_CHUNK_ROWS;
    return a->x.c <= 8 * DVK_NORM_BLOCK && a->x.n < 65536 && rows * a->x.w < INT32_MAX / 8;
}

static double stats_cost(const void *args, const dvk_cuda_caps *caps) {
    return dvk_elem_cost(dvk_elem_bytes(&((const dvk_group_norm_stats_args *)args)->x), caps);
}

/* Number of parts of the channels: enough blocks for every multiprocessor, but whole groups, whole vectors and pieces
 * of 128 bytes. */
static int64_t parts_of(const dvk_group_norm_stats_args *a, const dvk_cuda_caps *caps, int64_t blocks) {
    int64_t parts = 1;
    for (int64_t more = 2; more <= 16 && blocks * parts < (int64_t)caps->processors * 2; more *= 2) {
        const int64_t part = a->x.c / more;
        if (a->groups % more == 0 && part % 8 == 0 && part * (int64_t)dvk_dtype_size(a->x.dtype) >= 128) {
            parts = more;
        }
    }
    return parts;
}

static int stats_enqueue(const void *args, void *scratch, dvk_queue *q) {
    static const char *const names[] = {
        [DVK_F32] = "group_norm_stats_f32", [DVK_F16] = "group_norm_stats_f16", [DVK_BF16] = "group_norm_stats_bf16"};
    const dvk_group_norm_stats_args *a = args;
    (void)scratch;
    const int64_t rows = a->chunks > 0 ? pieces(a->x.h, a->chunks) : DVK_NORM_CHUNK_ROWS;
    const int64_t chunks = a->chunks > 0 ? a->chunks : pieces(a->x.h, rows);
    const int64_t parts = parts_of(a, q->caps, chunks * a->x.n);
    dvk_norm_stats_params p = {.x = dvk_elem_of(&a->x),
                               .partial = a->partial,
                               .h = a->x.h,
                               .w = a->x.w,
                               .chunk_rows = rows,
                               .chunks = chunks,
                               .part = (int32_t)(a->x.c / parts),
                               .groups = (int32_t)a->groups,
                               .width = (int32_t)(a->x.c / a->groups),
                               .even = dvk_elem_even(&a->x),
                               .values = a->chunks > 0 ? 3 : 2};
    void *list[] = {&p};
    const dvk_launch l = {.module = "group_norm",
                          .function = names[a->x.dtype],
                          .grid = {(uint32_t)chunks, (uint32_t)a->x.n, (uint32_t)parts},
                          .block = {DVK_NORM_BLOCK, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

static int finish_supports(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return ((const dvk_group_norm_finish_args *)args)->n < 65536;
}

static int64_t finish_chunks(const dvk_group_norm_finish_args *a) {
    return a->chunks > 0 ? a->chunks : pieces(a->h, DVK_NORM_CHUNK_ROWS);
}

static double finish_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_group_norm_finish_args *a = args;
    return dvk_elem_cost((double)(a->n * finish_chunks(a) * a->groups) * 12.0, caps);
}

static int finish_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_group_norm_finish_args *a = args;
    (void)scratch;
    dvk_norm_finish_params p = {.partial = a->partial,
                                .gamma = a->gamma,
                                .beta = a->beta,
                                .scale = a->scale,
                                .shift = a->shift,
                                .h = a->h,
                                .w = a->w,
                                .chunks = finish_chunks(a),
                                .groups = (int32_t)a->groups,
                                .width = (int32_t)(a->c / a->groups),
                                .values = a->chunks > 0 ? 3 : 2,
                                .eps = a->eps};
    void *list[] = {&p};
    const dvk_launch l = {.module = "group_norm",
                          .function = "group_norm_finish",
                          .grid = {(uint32_t)a->groups, (uint32_t)a->n, 1},
                          .block = {p.chunks <= 128 ? 128 : DVK_NORM_BLOCK, 1, 1},
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

DVK_ELEM_KERNEL(dvk_group_norm_stats_cuda, "group_norm_stats", stats_supports, stats_cost, stats_enqueue);
DVK_ELEM_KERNEL(dvk_group_norm_finish_cuda, "group_norm_finish", finish_supports, finish_cost, finish_enqueue);
