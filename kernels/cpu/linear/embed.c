/* embed.c - "embed" from packed panels. One file serves all processors, because a token reads only one row. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/linear/linear_pack.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"

static int64_t embed_units(const void *args) {
    const dvk_embed_args *a = args;
    return a->m;
}

static size_t embed_scratch_bytes(const void *args) {
    const dvk_embed_args *a = args;
    return (size_t)a->k * sizeof(float);
}

static void embed_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_embed_args *a = args;
    float *row = scratch;
    for (int64_t i = first; i < last; i++) {
        const int32_t id = a->ids[i];
        const unsigned char *panel = (const unsigned char *)a->w + id / DVK_PANEL * dvk_panel_bytes(a->type, a->k);
        dvk_panel_row(a->type, a->k, panel, id % DVK_PANEL, row);
        for (int64_t j = 0; j < a->k; j++) {
            dvk_store(a->y.data, (dvk_dtype)a->y.form, i * a->y.row + j, row[j]);
        }
    }
}

static size_t embed_packed_bytes(const void *args) {
    const dvk_embed_args *a = args;
    return (size_t)(dvk_panel_count(a->n, 0) * dvk_panel_bytes(a->type, a->k));
}

static int64_t embed_pack_units(const void *args) {
    const dvk_embed_args *a = args;
    return dvk_panel_count(a->n, 0);
}

static void embed_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_embed_args *a = args;
    for (int64_t p = first; p < last; p++) {
        dvk_panel_pack_from(a->type, a->k, a->n, 0, w, p, (unsigned char *)dst + p * dvk_panel_bytes(a->type, a->k));
    }
}

static double embed_cost(const void *args) {
    const dvk_embed_args *a = args;
    return (double)(a->m * a->k) * CPU_COST(embed, element);
}

const dvk_kernel dvk_embed_base = {
    .op = "embed",
    .variant = "cpu",
    .compute = DVK_F32,
    .cost = embed_cost,
    .units = embed_units,
    .scratch_bytes = embed_scratch_bytes,
    .run = embed_run,
    .packed_bytes = embed_packed_bytes,
    .pack_units = embed_pack_units,
    .pack = embed_pack,
};
