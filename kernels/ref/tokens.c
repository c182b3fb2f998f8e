/* tokens.c - references of "argmax", "next_token" and "patches". */
#include <math.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"

extern const dvk_kernel dvk_embed_ref, dvk_rope_table_ref;

static int left_out(const dvk_argmax_args *a, int64_t index) {
    for (int64_t i = 0; i < a->n_never; i++) {
        if (a->never[i] == index) {
            return 1;
        }
    }
    return 0;
}

static int32_t largest(const dvk_argmax_args *a, const float *x) {
    int64_t best = -1;
    for (int64_t i = 0; i < a->n; i++) {
        if (left_out(a, i)) {
            continue;
        }
        if (isnan(x[i])) {
            return -1;
        }
        best = best < 0 || x[i] > x[best] ? i : best;
    }
    return best >= 0 && isfinite(x[best]) ? (int32_t)best : -1;
}

static int64_t argmax_units(const void *args) {
    (void)args;
    return 1; /* one unit: `advance` must be incremented once */
}

static void argmax_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_argmax_args *a = args;
    (void)first;
    (void)last;
    (void)scratch;
    for (int64_t i = 0; i < a->m; i++) {
        a->id[i] = largest(a, (const float *)a->x.data + i * a->x.row);
    }
    for (int64_t i = 0; i < a->n_advance; i++) {
        a->advance[i]++;
    }
}

static void next_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_next_token_args *a = args;
    const int64_t count = a->draw.advance[0];
    argmax_run(&a->draw, first, last, scratch);
    const int32_t id = a->draw.id[0];
    dvk_embed_args embed = a->embed;
    const int32_t row = id >= 0 ? id : 0;
    embed.ids = &row;
    dvk_embed_ref.run(&embed, 0, 1, scratch);
    dvk_rope_table_ref.run(&a->table, 0, 1, scratch);
    a->told[count % DVK_COMPLETION_SLOTS] = (uint64_t)count << 32 | (uint32_t)id;
}

static int64_t patches_units(const void *args) {
    const dvk_patches_args *a = args;
    return a->m;
}

static void patches_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_patches_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        const uint8_t *x = a->x + (a->order != NULL ? a->order[i] : i) * a->values;
        for (int64_t k = 0; k < a->values; k++) {
            dvk_store(a->y.data, (dvk_dtype)a->y.form, i * a->y.row + k, a->table[k / (a->values / 3) * 256 + x[k]]);
        }
    }
}

const dvk_kernel dvk_argmax_ref = {
    .op = "argmax", .variant = "ref", .compute = DVK_F32, .units = argmax_units, .run = argmax_run};

const dvk_kernel dvk_next_token_ref = {
    .op = "next_token", .variant = "ref", .compute = DVK_F32, .units = argmax_units, .run = next_run};

const dvk_kernel dvk_patches_ref = {
    .op = "patches", .variant = "ref", .compute = DVK_F32, .units = patches_units, .run = patches_run};
