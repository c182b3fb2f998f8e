// embed.cu - see embed.c.
#include "kernels/cuda/text/embed.cuh"

extern "C" __global__ void __launch_bounds__(256) embed(const __grid_constant__ dvk_embed_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(i, p.m, item, p.items) {
        embed_item(p, p.ids[i], (int64_t)i, (int)item);
    }
}
