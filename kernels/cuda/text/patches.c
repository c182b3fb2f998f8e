/* patches.c - "patches" on CUDA. */
#include "kernels/cuda/text/patches.h"

#include "kernels/cuda/norm/rows_host.h"

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_patches_args *a = args;
    (void)caps;
    return a->y.form != DVK_ROWS_Q8 && a->values > 0 && a->values % 3 == 0 && a->values < INT32_MAX / 2 &&
           a->m * ((a->values + 3) / 4) < INT32_MAX / 2;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_patches_args *a = args;
    const int64_t values = a->m * a->values;
    return dvk_elem_cost((double)values + dvk_rows_bytes(&a->y, values), caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_patches_args *a = args;
    (void)scratch;
    dvk_patches_params p = {.x = a->x,
                            .table = a->table,
                            .order = a->order,
                            .y = dvk_rows_of(&a->y, 1),
                            .values = (int32_t)a->values,
                            .per_patch = (int32_t)((a->values + 3) / 4)};
    p.items = a->m * p.per_patch;
    return dvk_rows_launch(q, "patches", "patches", p.items, 256, 256, &p);
}

const dvk_cuda_kernel dvk_patches_cuda = {.op = "patches",
                                          .variant = "cuda",
                                          .sm_min = 75,
                                          .computes = DVK_COMPUTES_ANY,
                                          .supports = supports,
                                          .cost = cost,
                                          .enqueue = enqueue};
