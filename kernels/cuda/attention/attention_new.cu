// attention_new.cu - see attention_new.c.
#include "kernels/cuda/attention/attention_new.cuh"

#define STEP(NAME, T, D)                                                                                               \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        NAME(const __grid_constant__ dvk_attention_new_params n) {                                                     \
        __shared__ fresh<T, D> mem;                                                                                    \
        let_launch_behind_begin();                                                                                     \
        if (n.a.splits > 1) {                                                                                          \
            cluster_arrive();                                                                                          \
        }                                                                                                              \
        step<T, D> work(n, mem);                                                                                       \
        work.walk();                                                                                                   \
        work.k.merge_warps();                                                                                          \
        work.k.finish();                                                                                               \
    }

STEP(attention_new_f16_64, __half, 64)
STEP(attention_new_f16_128, __half, 128)
STEP(attention_new_bf16_64, __nv_bfloat16, 64)
STEP(attention_new_bf16_128, __nv_bfloat16, 128)
