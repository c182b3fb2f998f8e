/* bleed.c - see bleed.h. */
#include "kernels/cuda/pixels/bleed.h"

#include "kernels/cuda/common/elem_host.h"

int dvk_cuda_bleed(const dvk_bleed_params *p, dvk_queue *q) {
    dvk_bleed_params copy = *p;
    const int64_t tiles = (((int64_t)p->w + 31) / 32) * (((int64_t)p->h + 31) / 32);
    return dvk_elem_launch(q, "bleed", "bleed", (uint32_t)tiles, 1, &copy);
}
