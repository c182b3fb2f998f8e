/* alpha.h - keeps a constant alpha exact without a copy to the host. The device computes the range of a plane. If the
 * range is a single number, the upscaled plane becomes that number. */
#ifndef DVK_CUDA_ALPHA_H
#define DVK_CUDA_ALPHA_H

#include <stdint.h>

struct dvk_queue; /* cuda.h */

enum { DVK_ALPHA_BLOCKS = 128, DVK_ALPHA_RANGE_BYTES = DVK_ALPHA_BLOCKS * 2 * 4 };

typedef struct dvk_alpha_params {
    const float *in; /* the plane as given, n_in numbers */
    float *out;      /* upscaled, n_out numbers */
    float *range;    /* DVK_ALPHA_RANGE_BYTES: minimum and maximum of each block */
    int64_t n_in, n_out;
    float mul, add; /* a number that fills `in` becomes number * mul + add in `out` */
} dvk_alpha_params;

/* Both return 0 or the driver's CUresult. range: reads in. settle: reads range, may write out. */
int dvk_cuda_alpha_range(const dvk_alpha_params *p, struct dvk_queue *q);
int dvk_cuda_alpha_settle(const dvk_alpha_params *p, struct dvk_queue *q);

#endif
