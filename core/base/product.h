/* product.h - a product of matrices, computed by the network kernels. For weights that are computed from other weights. */
#ifndef DV_PRODUCT_H
#define DV_PRODUCT_H

#include <stdint.h>

#include "core/base/error.h"

typedef struct dv_product { /* all f32 and dense */
    const float *x;         /* [rows][k] */
    const float *w;         /* [columns][k] */
    float *sum;             /* [rows][columns] */
    int64_t rows, k, columns;
} dv_product;

/* sum += x * w transposed, on the calling thread. cpu: the DVK_CPU_* bits that kernels may use, as in dv_derive_share_fn.
 * After DAVY_E_NOMEM_HOST sum is unchanged. */
davy_result dv_product_add(const dv_product *p, uint32_t cpu);

#endif
