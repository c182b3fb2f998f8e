/* yuv.h - parameters that yuv.c passes to yuv.cu. */
#ifndef DVK_CUDA_YUV_H
#define DVK_CUDA_YUV_H

#include "kernels/cuda/common/elem.h"
#include "kernels/yuv.h"

typedef struct dvk_yuv_params {
    unsigned char *luma, *chroma;
    int64_t luma_stride, chroma_stride; /* bytes */
    dvk_elem_view view;
    dvk_yuv_numbers numbers;
    int32_t h, w;
    int32_t shift; /* of a code in its 16-bit word; 8 bits: 0 */
    int32_t pairs; /* two adjacent codes of a plane are one aligned word */
    float mul, add;
} dvk_yuv_params;

#endif
