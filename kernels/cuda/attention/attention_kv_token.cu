// attention_kv_token.cu - see attention_kv_token.c.
#include "kernels/cuda/attention/attention_kv_token.cuh"

#define TOKEN(NAME, T, D)                                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ dvk_attention_kv_params p) { \
        __shared__ memory<D> mem;                                                                                      \
        if (p.parts == nullptr && p.splits > 1) {                                                                      \
            cluster_arrive();                                                                                          \
        }                                                                                                              \
        wait_for_launch_ahead();                                                                                       \
        token<T, D>(p, mem).run();                                                                                     \
    }

TOKEN(attention_kv_token_f16_64, __half, 64)
TOKEN(attention_kv_token_f16_128, __half, 128)
TOKEN(attention_kv_token_bf16_64, __nv_bfloat16, 64)
TOKEN(attention_kv_token_bf16_128, __nv_bfloat16, 128)
