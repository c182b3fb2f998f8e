/* alpha.c - see alpha.h. */
#include "kernels/cuda/alpha.h"

#include "kernels/cuda/cuda.h"

enum { THREADS = 256 };

static int launch(const char *function, const dvk_alpha_params *p, uint32_t blocks, dvk_queue *q) {
    dvk_alpha_params copy = *p;
    void *params[] = {&copy};
    const dvk_launch l = {
        .module = "alpha", .function = function, .grid = {blocks, 1, 1}, .block = {THREADS, 1, 1}, .params = params};
    return q->launch(q, &l);
}

int dvk_cuda_alpha_range(const dvk_alpha_params *p, dvk_queue *q) {
    return launch("alpha_range", p, DVK_ALPHA_BLOCKS, q);
}

int dvk_cuda_alpha_settle(const dvk_alpha_params *p, dvk_queue *q) {
    const int64_t blocks = (p->n_out + 4 * THREADS - 1) / (4 * THREADS);
    return launch("alpha_settle", p, (uint32_t)(blocks < 4096 ? blocks : 4096), q);
}
