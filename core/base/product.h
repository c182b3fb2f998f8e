/* product.h - a plain product of matrices, by the kernels that compute networks. For weights that are made of others. */
#ifndef DV_PRODUCT_H
#define DV_PRODUCT_H

#include <stdint.h>

#include "core/base/error.h"

/* sum [rows][columns] += x [rows][k] * w [columns][k] transposed, all f32 and dense; `cpu`: what kernels may use
 * (dv_derive_share_fn's). On the calling thread. E_NOMEM_HOST: sum is as it was. */
davy_result dv_product_add(const float *x, const float *w, int64_t rows, int64_t k, int64_t columns, uint32_t cpu,
                           float *sum);

#endif
