/* convert.h - parameters that convert.c passes to convert.cu. */
#ifndef DVK_CUDA_CONVERT_H
#define DVK_CUDA_CONVERT_H

#include "kernels/cuda/common/elem.h"
#include "kernels/op.h"

enum {                             /* access to an image */
       DVK_CONVERT_ANY = 0,        /* element by element */
       DVK_CONVERT_PLANAR = 1,     /* four pixels of a channel are one aligned word */
       DVK_CONVERT_PACKED_RGB = 3, /* four pixels of three or four channels are three or four aligned words */
       DVK_CONVERT_PACKED_RGBA = 4
};

typedef struct dvk_convert_params {
    unsigned char *image;
    int32_t dtype;          /* of the image */
    int64_t sn, sh, sw, sc; /* bytes */
    dvk_elem_view view;
    int32_t mode;
    int32_t threes; /* load: the view is f32 with three channels and no gaps; four pixels are three aligned vectors */
    /* a pixel of the view is one vector of 16-bit values; the elements behind its channels are padding */
    int32_t whole;
    int32_t aligned; /* the image's elements are aligned to their size */
    int32_t map[4];
    int32_t identity;
    int32_t rows, h, w, c; /* rows: of all pictures */
    int32_t blocks;        /* of four channels */
    int32_t clamp;
    float mul, add, lo, hi;
} dvk_convert_params;

dvk_convert_params dvk_convert_of(const dvk_convert_args *a, int store); /* convert.c */

#endif
