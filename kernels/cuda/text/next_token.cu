// next_token.cu - see next_token.c.
#include "kernels/cuda/text/argmax.cuh"
#include "kernels/cuda/text/embed.cuh"
#include "kernels/cuda/text/next_token.h"
#include "kernels/cuda/norm/rows.cuh"

extern "C" __global__ void __launch_bounds__(128) next_token(const __grid_constant__ dvk_next_token_params p) {
    __shared__ int32_t shared_id;
    wait_for_launch_ahead();
    const dvk_argmax_best none = {-INFINITY, 0x7fffffff};
    const dvk_argmax_best best = of_block(threadIdx.x < DVK_ARGMAX_BLOCKS ? p.draw.best[threadIdx.x] : none);
    if (threadIdx.x == 0) {
        shared_id = id_of(best);
        if (blockIdx.x == 0) {
            const uint32_t count = (uint32_t)p.draw.advance[0] - 1; // the first launch has incremented it
            *(volatile uint64_t *)(p.told + count % DVK_COMPLETION_SLOTS) = (uint64_t)count << 32 | (uint32_t)shared_id;
            *p.draw.id = shared_id;
        }
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.embed.items + (int)p.table.pairs;
         i += gridDim.x * blockDim.x) {
        if (i < p.embed.items) {
            embed_item(p.embed, max(shared_id, 0), 0, i);
        } else {
            turn_of(p.table, i - p.embed.items);
        }
    }
}
