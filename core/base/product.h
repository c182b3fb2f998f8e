/* product.h - a plain product of matrices, by the kernels that compute networks. For weights that are made of others. */
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

/* sum += x * w transposed; `cpu`: what kernels may use (dv_derive_share_fn's). On the calling thread. E_NOMEM_HOST: sum is
 * as it was. */
davy_result dv_product_add(const dv_product *p, uint32_t cpu);

#endif
