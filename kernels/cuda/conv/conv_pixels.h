/* conv_pixels.h - parameters that conv_pixels.c passes to conv_pixels.cu. */
#ifndef DVK_CUDA_CONV_PIXELS_H
#define DVK_CUDA_CONV_PIXELS_H

#include <stdint.h>

enum {
    DVK_CONV_PIXELS_C = 64,
    DVK_CONV_PIXELS_AT_ONCE = 32, /* pixels of a warp */
    DVK_CONV_PIXELS_BLOCK = 256
};

typedef struct dvk_conv_pixels {
    const void *x, *w, *res; /* 16-bit; res may be NULL */
    void *y;
    const float *bias;                   /* or NULL */
    int64_t x_pitch, y_pitch, res_pitch; /* elements of a pixel */
    int32_t pixels, reserved;
} dvk_conv_pixels;

#endif
