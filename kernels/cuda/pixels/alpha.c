/* alpha.c - see alpha.h. */
#include "kernels/cuda/pixels/alpha.h"

#include "kernels/cuda/common/elem_host.h"

static int launch(const char *function, const dvk_alpha_params *p, uint32_t blocks, dvk_queue *q) {
    dvk_alpha_params copy = *p;
    return dvk_elem_launch(q, "alpha", function, blocks, 1, &copy);
}

int dvk_cuda_alpha_range(const dvk_alpha_params *p, dvk_queue *q) {
    return launch("alpha_range", p, DVK_ALPHA_BLOCKS, q);
}

int dvk_cuda_alpha_settle(const dvk_alpha_params *p, dvk_queue *q) {
    return launch("alpha_settle", p, dvk_elem_blocks(p->n_out, 1, q->caps), q);
}
