/* attention_new.h - parameters that attention_new.c passes to attention_new.cu. */
#ifndef DVK_CUDA_ATTENTION_NEW_H
#define DVK_CUDA_ATTENTION_NEW_H

#include "kernels/cuda/attention/attention_kv.h"

typedef struct dvk_attention_new_params {
    dvk_attention_kv_params a;
    dvk_rows_view k, v; /* new ones, f32 */
    const float *cs;
    float sign; /* of the sines */
    int32_t reserved;
} dvk_attention_new_params;

#endif
