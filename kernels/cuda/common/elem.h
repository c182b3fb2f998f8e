/* elem.h - a view for the device code of the plain ops (pointwise, norms, moves, conversion). */
#ifndef DVK_CUDA_ELEM_H
#define DVK_CUDA_ELEM_H

#include <stdint.h>

typedef struct dvk_elem_view {
    void *data;
    int64_t sn, sh, sw; /* elements */
    int32_t dtype;      /* DVK_F32, DVK_F16 or DVK_BF16 */
    int32_t vector;     /* 1: every eight channels from a multiple of eight on are 16-byte aligned */
} dvk_elem_view;

typedef struct dvk_elem_ends { /* prologue and epilogue of op.h */
    dvk_elem_view res[2];
    const float *scale, *shift, *bias, *slopes;
    int32_t n_res, pro_act, act, act_last, gate;
    float beta[2], alpha, slope;
} dvk_elem_ends;

#endif
