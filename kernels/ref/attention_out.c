/* attention_out.c - reference of "attention_out": "attention_new", then "linear" for each key head, with zeros in x for
 * all other heads. */
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"

extern const dvk_kernel dvk_attention_new_ref, dvk_linear_ref;

static int64_t columns_of(const dvk_attention_out_args *a) {
    return a->of.a.heads * a->of.a.dim;
}

static size_t scratch_bytes(const void *args) {
    return (size_t)columns_of(args) * 2 * sizeof(float);
}

static int64_t units(const void *args) {
    (void)args;
    return 1;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_attention_out_args *a = args;
    const int64_t columns = columns_of(a);
    const int64_t share = columns / a->of.a.kv_heads;
    float *mixed = scratch;
    float *x = mixed + columns;
    dvk_attention_new_args of = a->of;
    of.a.y = (dvk_rows){.data = mixed, .form = DVK_ROWS_F32, .row = columns, .head = a->of.a.dim};
    dvk_attention_new_ref.run(&of, first, last, NULL);
    for (int64_t g = 0; g < a->of.a.kv_heads; g++) {
        for (int64_t i = 0; i < columns; i++) {
            x[i] = i / share == g ? mixed[i] : 0.0f;
        }
        const dvk_linear_args linear = {.x = {.data = x, .form = DVK_ROWS_F32, .row = columns},
                                        .y = {.data = a->parts + g * a->n, .form = DVK_ROWS_F32, .row = a->n},
                                        .w = a->w,
                                        .m = 1,
                                        .n = a->n,
                                        .k = columns,
                                        .type = a->type};
        dvk_linear_ref.run(&linear, 0, a->n, NULL);
    }
}

const dvk_kernel dvk_attention_out_ref = {.op = "attention_out",
                                          .variant = "ref",
                                          .compute = DVK_F32,
                                          .scratch_bytes = scratch_bytes,
                                          .units = units,
                                          .run = run};
