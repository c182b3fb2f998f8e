/* linear_join.h - addition of the partial sums of split-k "linear". */
#ifndef DVK_CUDA_LINEAR_JOIN_H
#define DVK_CUDA_LINEAR_JOIN_H

#include "kernels/cuda/linear/linear_many.h"

typedef struct dvk_linear_join {
    dvk_linear_out out;
    const float *parts; /* [shares][m][wide] */
    int32_t shares, wide;
} dvk_linear_join;

#ifndef __CUDACC__
enum { DVK_JOIN_SHARES = 8 };

/* Number of splits of k with which `tiles` tiles occupy the device; each split has at least `least` steps. */
static inline int32_t dvk_join_shares(int64_t tiles, int64_t steps, int64_t least, int64_t at_once) {
    int64_t s = tiles > 0 ? at_once / tiles : 1;
    s = s < steps / least ? s : steps / least;
    s = s < DVK_JOIN_SHARES ? s : DVK_JOIN_SHARES;
    return (int32_t)(s > 1 ? s : 1);
}

static inline size_t dvk_join_bytes(const dvk_linear_args *a, int32_t shares) {
    return shares > 1 ? (size_t)(shares * a->m * dvk_many_rows(a)) * sizeof(float) : 0;
}

int dvk_linear_join_enqueue(const dvk_linear_args *a, const float *parts, int32_t shares, dvk_queue *q);
#endif

#endif
