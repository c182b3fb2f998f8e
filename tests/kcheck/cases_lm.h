/* cases_lm.h - what the cases of the ops of lm.h share. */
#ifndef KCHECK_CASES_LM_H
#define KCHECK_CASES_LM_H

#include "tests/kcheck/kcheck.h"

typedef struct kc_rows_shape {
    int64_t m, heads, dim;
} kc_rows_shape;

/* Rows in guarded memory, strided where slab; the view says the same of them. Not for q8. */
dvk_view kc_rows(kc_problem *p, dvk_rows *rows, dvk_dtype t, kc_rows_shape shape, int slab, kc_fill fill);
/* m rows of k values as dvk_q8 blocks. */
void kc_rows_q8(kc_problem *p, dvk_rows *rows, int64_t m, int64_t k);
/* n rows of k weights as a file has them: quantised, or of random numbers and scales below one. */
const void *kc_weights(kc_problem *p, dvk_wtype t, int64_t n, int64_t k);

extern const dvk_wtype kc_wtypes[11];
const char *kc_wtype_name(dvk_wtype t);

#endif
