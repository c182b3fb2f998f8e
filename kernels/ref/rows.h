/* rows.h - quantises one block of activations exactly as every kernel does: scale 127 / max|x|, ties to even. */
#ifndef DVK_REF_ROWS_H
#define DVK_REF_ROWS_H

#include "kernels/quant.h"

void dvk_q8_block(const float *x, int64_t n, dvk_q8 *to);

#endif
