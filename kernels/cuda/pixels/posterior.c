/* posterior.c - see posterior.h. */
#include "kernels/cuda/pixels/posterior.h"

#include "kernels/cuda/common/elem_host.h"

int dvk_cuda_posterior_draw(const dvk_posterior_params *p, dvk_queue *q) {
    dvk_posterior_params copy = *p;
    return dvk_elem_launch(q, "posterior", "posterior_draw", dvk_elem_blocks(p->pixels * p->z, 1, q->caps), 1, &copy);
}
