/* cases_lm.h - helpers shared by the cases of the ops of lm.h. */
#ifndef KCHECK_CASES_LM_H
#define KCHECK_CASES_LM_H

#include "tests/kcheck/kcheck.h"

typedef struct kc_rows_shape {
    int64_t m, heads, dim;
} kc_rows_shape;

/* Rows in guarded memory, strided if slab; returns a view of the same rows. Not for q8. */
dvk_view kc_rows(kc_problem *p, dvk_rows *rows, dvk_dtype t, kc_rows_shape shape, int slab, kc_fill fill);
/* m rows of k values as dvk_q8 blocks. */
void kc_rows_q8(kc_problem *p, dvk_rows *rows, int64_t m, int64_t k);
/* n rows of k weights in the format of a file: quantised, or random numbers with scales below one. */
const void *kc_weights(kc_problem *p, dvk_wtype t, int64_t n, int64_t k);

typedef struct kc_linear_spec {
    int64_t m, n, k;
    dvk_wtype type;
    dvk_form form;
    dvk_gate act;
    int glu, bias, res; /* res 1: separate, 2: y itself */
    int norm, rounded;
    int more; /* additional rows that are added to x */
    dvk_dtype y;
} kc_linear_spec;
void kc_build_linear(kc_problem *p, const kc_linear_spec *s, int slab, kc_fill fill);

typedef struct kc_kv_spec {
    int64_t m, past, heads, kv_heads, dim, window;
    int causal, segments;
} kc_kv_spec;
void kc_build_kv(kc_problem *p, const kc_kv_spec *s, dvk_dtype t, dvk_dtype cache, int slab);

/* cos and sin of random angles, [m][pairs][2]. */
const float *kc_turns(kc_problem *p, int64_t m, int64_t pairs);

extern const dvk_wtype kc_wtypes[11];
const char *kc_wtype_name(dvk_wtype t);

#endif
