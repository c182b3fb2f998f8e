// argmax.cu - the maximum of a row: first of pieces, then of their maxima.
#include "kernels/cuda/text/argmax.cuh"

extern "C" __global__ void __launch_bounds__(DVK_ARGMAX_THREADS)
    argmax_pieces(const __grid_constant__ dvk_argmax_params p) {
    wait_for_launch_ahead();
    const float *x = p.x + blockIdx.y * p.row;
    dvk_argmax_best best = {-INFINITY, 0x7fffffff};
    for (int i = blockIdx.x * DVK_ARGMAX_THREADS + threadIdx.x; i < p.n; i += DVK_ARGMAX_BLOCKS * DVK_ARGMAX_THREADS) {
        bool left_out = false;
        for (int k = 0; k < p.n_never; k++) {
            left_out = left_out || p.never[k] == i;
        }
        if (!left_out) {
            best = better(best, {x[i], isnan(x[i]) ? -1 : i});
        }
    }
    best = of_block(best);
    if (threadIdx.x == 0) {
        p.best[blockIdx.y * DVK_ARGMAX_BLOCKS + blockIdx.x] = best;
    }
    if (blockIdx.x + blockIdx.y == 0 && threadIdx.x < p.n_advance) {
        p.advance[threadIdx.x]++;
    }
}

extern "C" __global__ void __launch_bounds__(DVK_ARGMAX_BLOCKS)
    argmax_last(const __grid_constant__ dvk_argmax_params p) {
    wait_for_launch_ahead();
    const dvk_argmax_best best = of_block(p.best[blockIdx.x * DVK_ARGMAX_BLOCKS + threadIdx.x]);
    if (threadIdx.x == 0) {
        p.id[blockIdx.x] = id_of(best);
    }
}
