/* excite.h - parameters that excite.c passes to excite.cu. */
#ifndef DVK_CUDA_EXCITE_H
#define DVK_CUDA_EXCITE_H

#include <stdint.h>

enum {
    DVK_EXCITE_BLOCK = 512,
    DVK_EXCITE_CHANNELS = 256, /* at most */
    DVK_EXCITE_HIDDEN = 64,
    DVK_EXCITE_WEIGHTS = 4096, /* of a layer */
    DVK_EXCITE_BLOCKS = 64
};

typedef struct dvk_excite_params {
    const float *sums, *w_in, *b_in, *w_out, *b_out;
    float *scale;
    const void *w, *channel;
    void *scaled;
    float inverse; /* of the pixels */
    int32_t rows, c, hidden;
    int32_t pieces; /* of eight weights */
} dvk_excite_params;

#endif
