// patches.cu - converts bytes of pictures to numbers by table. A thread converts four values.
#include "kernels/cuda/text/patches.h"
#include "kernels/cuda/norm/rows.cuh"

extern "C" __global__ void __launch_bounds__(256) patches(const __grid_constant__ dvk_patches_params p) {
    wait_for_launch_ahead();
    const int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (item >= p.items) {
        return;
    }
    const int64_t row = item / p.per_patch;
    const int at = (int)(item % p.per_patch) * 4;
    const uint8_t *x = p.x + (p.order != nullptr ? (int64_t)p.order[row] : row) * p.values + at;
    const int colour = p.values / 3;
    for (int i = 0; i < 4 && at + i < p.values; i++) {
        store1(p.y.data, p.y.form, row * p.y.row + at + i, p.table[(at + i) / colour * 256 + x[i]]);
    }
}
