/* rows.c - "row_norm", "row_convert", "rope_table", "rope", "rope_qkv", "gather_rows" and "add_rows" on CUDA. */
#include "kernels/cuda/norm/rows.h"

#include "kernels/cuda/norm/rows_host.h"

static int fits(int64_t m, int64_t heads, int64_t dim) {
    return dim < INT32_MAX / 2 && m * heads < INT32_MAX / 2 && m * heads * ((dim + 31) / 32) < INT32_MAX / 2;
}

/* --- row_norm --- */

static int norm_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_norm_args *a = args;
    (void)caps;
    return fits(a->m, a->heads, a->dim);
}

static double norm_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_norm_args *a = args;
    const int64_t values = a->m * a->heads * a->dim;
    return dvk_elem_cost(dvk_rows_bytes(&a->x, values) + dvk_rows_bytes(&a->y, values), caps);
}

static int norm_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_row_norm_args *a = args;
    (void)scratch;
    dvk_row_norm_params p = {.x = dvk_rows_of(&a->x, a->heads),
                             .y = dvk_rows_of(&a->y, a->heads),
                             .w = a->w,
                             .b = a->b,
                             .groups = a->m * a->heads,
                             .heads = (int32_t)a->heads,
                             .dim = (int32_t)a->dim,
                             .eps = a->eps,
                             .center = a->center,
                             .vector = (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->b % 16 == 0};
    if (a->dim <= 512 && p.groups > 4) {
        return dvk_rows_launch(q, "rows", "row_norm_32", p.groups, 4, 128, &p);
    }
    if (a->dim <= 2048) {
        return dvk_rows_launch(q, "rows", "row_norm_128", p.groups, 1, 128, &p);
    }
    return dvk_rows_launch(q, "rows", "row_norm_512", p.groups, 1, 512, &p);
}

/* --- row_convert --- */

static int convert_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_convert_args *a = args;
    (void)caps;
    return fits(a->m, a->heads, a->dim);
}

static double convert_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_row_convert_args *a = args;
    const int64_t values = a->m * a->heads * a->dim;
    return dvk_elem_cost(dvk_rows_bytes(&a->x, values) + dvk_rows_bytes(&a->y, values), caps);
}

static int convert_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_row_convert_args *a = args;
    (void)scratch;
    dvk_row_convert_params p = {.x = dvk_rows_of(&a->x, a->heads),
                                .y = dvk_rows_of(&a->y, a->heads),
                                .heads = (int32_t)a->heads,
                                .dim = (int32_t)a->dim,
                                .per_head = (int32_t)((a->dim + 31) / 32 * 8)};
    p.items = a->m * a->heads * p.per_head;
    return dvk_rows_launch(q, "rows", "row_convert", p.items, 256, 256, &p);
}

/* --- rope_table --- */

static double table_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_rope_table_args *a = args;
    return dvk_elem_cost((double)(a->m * a->pairs) * 8.0, caps);
}

static int table_enqueue(const void *args, void *scratch, dvk_queue *q) {
    dvk_rope_table_args p = *(const dvk_rope_table_args *)args;
    (void)scratch;
    return dvk_rows_launch(q, "rows", "rope_table", p.m * p.pairs, 128, 128, &p);
}

/* --- rope, rope_qkv --- */

static int32_t items_of(int64_t dim, int64_t pairs) {
    return (int32_t)((pairs + 3) / 4 + (dim - 2 * pairs + 3) / 4);
}

static int rope_launch(dvk_rope_params *p, int64_t m, dvk_queue *q) {
    for (int i = 0; i < 3; i++) {
        const int32_t items = items_of(p->dim, p->part[i].pairs);
        p->heads += p->part[i].heads;
        p->per_head = p->part[i].heads > 0 && items > p->per_head ? items : p->per_head;
        p->part[i].paged = p->part[i].paged && p->to.position != NULL;
    }
    p->items = m * p->heads * p->per_head;
    p->vector = (uintptr_t)p->cs % 16 == 0 && p->pairs % 2 == 0;
    return dvk_rows_launch(q, "rows", "rope", p->items, 128, 128, p);
}

static dvk_rope_part part_of(const dvk_rows *x, const dvk_rows *y, int64_t heads, int64_t pairs, int paged) {
    return (dvk_rope_part){.x = dvk_rows_of(x, heads),
                           .y = dvk_rows_of(y, heads),
                           .heads = (int32_t)heads,
                           .pairs = (int32_t)pairs,
                           .paged = paged};
}

static int rope_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_rope_args *a = args;
    (void)caps;
    return fits(a->m, a->heads, a->dim * 8);
}

static double rope_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_rope_args *a = args;
    const int64_t values = a->m * a->heads * a->dim;
    return dvk_elem_cost(dvk_rows_bytes(&a->x, values) + dvk_rows_bytes(&a->y, values), caps);
}

static int rope_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_rope_args *a = args;
    (void)scratch;
    dvk_rope_params p = {.part = {part_of(&a->x, &a->y, a->heads, a->pairs, 1)},
                         .cs = a->cs,
                         .to = a->to,
                         .dim = (int32_t)a->dim,
                         .pairs = (int32_t)a->pairs,
                         .interleaved = a->interleaved,
                         .inverse = a->inverse};
    return rope_launch(&p, a->m, q);
}

static int qkv_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_rope_qkv_args *a = args;
    (void)caps;
    return fits(a->m, a->heads + 2 * a->kv_heads, a->dim * 8);
}

static double qkv_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_rope_qkv_args *a = args;
    return dvk_elem_cost((double)(a->m * (a->heads + 2 * a->kv_heads) * a->dim) * 6.0, caps);
}

static int qkv_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_rope_qkv_args *a = args;
    (void)scratch;
    dvk_rope_params p = {.part = {part_of(&a->q, &a->q_to, a->heads, a->pairs, 0),
                                  part_of(&a->k, &a->k_to, a->kv_heads, a->pairs, 1),
                                  part_of(&a->v, &a->v_to, a->kv_heads, 0, 1)},
                         .cs = a->cs,
                         .to = a->to,
                         .dim = (int32_t)a->dim,
                         .pairs = (int32_t)a->pairs,
                         .interleaved = a->interleaved,
                         .inverse = a->inverse};
    return rope_launch(&p, a->m, q);
}

/* --- gather_rows, add_rows --- */

static int gather_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_gather_rows_args *a = args;
    (void)caps;
    return fits(a->m, 1, a->dim);
}

static double gather_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_gather_rows_args *a = args;
    return dvk_elem_cost((double)(a->m * a->dim) * 8.0, caps);
}

static int gather_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_gather_rows_args *a = args;
    (void)scratch;
    dvk_move_rows_params p = {.x = a->x,
                              .y = a->y,
                              .row = a->order,
                              .m = (int32_t)a->m,
                              .dim = (int32_t)a->dim,
                              .vector = (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0 && a->dim % 4 == 0};
    return dvk_elem_launch_rows(q, "rows", "gather_rows", p.vector ? p.dim / 4 : p.dim, p.m, &p);
}

static int add_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_add_rows_args *a = args;
    (void)caps;
    return fits(a->m, a->taps, a->dim);
}

static double add_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_add_rows_args *a = args;
    return dvk_elem_cost((double)(a->m * a->dim * (2 + a->taps)) * 4.0, caps);
}

static int add_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_add_rows_args *a = args;
    (void)scratch;
    dvk_move_rows_params p = {.x = a->x,
                              .y = a->y,
                              .row = a->row,
                              .weight = a->weight,
                              .m = (int32_t)a->m,
                              .dim = (int32_t)a->dim,
                              .taps = (int32_t)a->taps};
    return dvk_elem_launch_rows(q, "rows", "add_rows", p.dim, p.m, &p);
}

DVK_ELEM_KERNEL(dvk_row_norm_cuda, "row_norm", norm_supports, norm_cost, norm_enqueue);
DVK_ELEM_KERNEL(dvk_row_convert_cuda, "row_convert", convert_supports, convert_cost, convert_enqueue);
DVK_ELEM_KERNEL(dvk_rope_table_cuda, "rope_table", NULL, table_cost, table_enqueue);
DVK_ELEM_KERNEL(dvk_rope_cuda, "rope", rope_supports, rope_cost, rope_enqueue);
DVK_ELEM_KERNEL(dvk_rope_qkv_cuda, "rope_qkv", qkv_supports, qkv_cost, qkv_enqueue);
DVK_ELEM_KERNEL(dvk_gather_rows_cuda, "gather_rows", gather_supports, gather_cost, gather_enqueue);
DVK_ELEM_KERNEL(dvk_add_rows_cuda, "add_rows", add_supports, add_cost, add_enqueue);
