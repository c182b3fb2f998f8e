/* registry.c - the list of CUDA kernels and the choice among them. Like kernels/registry.c for the CPU's: a kernel enters
 * the library here and nowhere else. */
#include <string.h>

#include "kernels/cuda/cuda.h"

#define DVK_CUDA_LIST(X)                                                                                               \
    X(dvk_conv2d_cuda_wgmma)                                                                                           \
    X(dvk_conv2d_cuda_wgmma_held)                                                                                      \
    X(dvk_conv2d_cuda_wgmma_large)                                                                                     \
    X(dvk_conv2d_cuda_wgmma_rows)                                                                                      \
    X(dvk_conv2d_cuda_linear)                                                                                          \
    X(dvk_conv2d_cuda_pixels)                                                                                          \
    X(dvk_conv2d_cuda_fp8)                                                                                             \
    X(dvk_conv2d_cuda_fp8_mma)                                                                                         \
    X(dvk_conv2d_cuda_int8_mma)                                                                                        \
    X(dvk_conv2d_cuda_mma)                                                                                             \
    X(dvk_conv2d_cuda_first)                                                                                           \
    X(dvk_conv2d_cuda_enlarge)                                                                                         \
    X(dvk_conv2d_cuda_mma_tf32)                                                                                        \
    X(dvk_conv2d_cuda_simt)                                                                                            \
    X(dvk_conv2d_winograd_band_cuda_wgmma)                                                                             \
    X(dvk_conv2d_winograd_cuda_wgmma)                                                                                  \
    X(dvk_winograd_input_cuda)                                                                                         \
    X(dvk_attention_cuda_wgmma)                                                                                        \
    X(dvk_attention_cuda_mma)                                                                                          \
    X(dvk_attention_cuda_simt)                                                                                         \
    X(dvk_window_attention_cuda_mma)                                                                                   \
    X(dvk_window_attention_cuda_simt)                                                                                  \
    X(dvk_channel_attention_cuda_window)                                                                               \
    X(dvk_channel_attention_cuda_heads)                                                                                \
    X(dvk_channel_attention_cuda_mma)                                                                                  \
    X(dvk_channel_attention_cuda_simt)                                                                                 \
    X(dvk_pointwise_cuda)                                                                                              \
    X(dvk_group_norm_stats_cuda)                                                                                       \
    X(dvk_group_norm_finish_cuda)                                                                                      \
    X(dvk_upsample_cuda)                                                                                               \
    X(dvk_pixel_shuffle_cuda)                                                                                          \
    X(dvk_pixel_unshuffle_cuda)                                                                                        \
    X(dvk_similarity_cuda)                                                                                             \
    X(dvk_mix_cuda)                                                                                                    \
    X(dvk_order_cuda)                                                                                                  \
    X(dvk_gather_cuda)                                                                                                 \
    X(dvk_scatter_cuda)                                                                                                \
    X(dvk_refine_cuda)                                                                                                 \
    X(dvk_fold_cuda)                                                                                                   \
    X(dvk_unfold_cuda)                                                                                                 \
    X(dvk_norm_depthwise_cuda_f16)                                                                                     \
    X(dvk_norm_depthwise_cuda_bf16)                                                                                    \
    X(dvk_norm_mlp_cuda_f16)                                                                                           \
    X(dvk_norm_mlp_cuda_bf16)                                                                                          \
    X(dvk_norm_window_cuda_f16)                                                                                        \
    X(dvk_norm_window_cuda_bf16)                                                                                       \
    X(dvk_norm_window_cuda_warps_f16)                                                                                  \
    X(dvk_norm_window_cuda_warps_bf16)                                                                                 \
    X(dvk_depthwise_cuda_planes)                                                                                       \
    X(dvk_depthwise_cuda)                                                                                              \
    X(dvk_depthwise_cuda_plain)                                                                                        \
    X(dvk_multiply_cuda)                                                                                               \
    X(dvk_mean_cuda)                                                                                                   \
    X(dvk_max_pool_cuda)                                                                                               \
    X(dvk_resize_cuda)                                                                                                 \
    X(dvk_dysample_cuda)                                                                                               \
    X(dvk_pad_cuda)                                                                                                    \
    X(dvk_load_cuda)                                                                                                   \
    X(dvk_store_cuda)                                                                                                  \
    X(dvk_blend_cuda)                                                                                                  \
    X(dvk_load_yuv_cuda)                                                                                               \
    X(dvk_store_yuv_cuda)                                                                                              \
    X(dvk_embed_cuda)                                                                                                  \
    X(dvk_linear_cuda_stream)                                                                                          \
    X(dvk_linear_cuda_few)                                                                                             \
    X(dvk_linear_cuda_wgmma)                                                                                           \
    X(dvk_linear_cuda_mma)                                                                                             \
    X(dvk_linear_cuda_simt)                                                                                            \
    X(dvk_row_norm_cuda)                                                                                               \
    X(dvk_row_norm_cuda_pixels)                                                                                        \
    X(dvk_row_convert_cuda)                                                                                            \
    X(dvk_rope_table_cuda)                                                                                             \
    X(dvk_rope_cuda)                                                                                                   \
    X(dvk_rope_qkv_cuda)                                                                                               \
    X(dvk_gather_rows_cuda)                                                                                            \
    X(dvk_argmax_cuda)                                                                                                 \
    X(dvk_candidates_cuda)                                                                                             \
    X(dvk_patches_cuda)                                                                                                \
    X(dvk_add_rows_cuda)                                                                                               \
    X(dvk_attention_new_cuda)                                                                                          \
    X(dvk_attention_out_cuda)                                                                                          \
    X(dvk_next_token_cuda)                                                                                             \
    X(dvk_excite_cuda)                                                                                                 \
    X(dvk_up_conv_cuda_f16)                                                                                            \
    X(dvk_up_conv_cuda_bf16)                                                                                           \
    X(dvk_conv_down_cuda_f16)                                                                                          \
    X(dvk_conv_down_cuda_bf16)                                                                                         \
    X(dvk_attention_kv_cuda_wgmma)                                                                                     \
    X(dvk_attention_kv_cuda_mma)                                                                                       \
    X(dvk_attention_kv_cuda_token)                                                                                     \
    X(dvk_attention_kv_cuda_few)                                                                                       \
    X(dvk_attention_kv_cuda_simt)

#define DVK_DECLARE(name) extern const dvk_cuda_kernel name;
#define DVK_ENTRY(name)   &name,

DVK_CUDA_LIST(DVK_DECLARE)

const dvk_cuda_kernel *const dvk_cuda_kernels[] = {DVK_CUDA_LIST(DVK_ENTRY)};

const int32_t dvk_cuda_kernel_count = (int32_t)(sizeof dvk_cuda_kernels / sizeof dvk_cuda_kernels[0]);

static int allowed(const dvk_cuda_kernel *k, const void *args, const dvk_cuda_caps *caps, uint32_t computes) {
    return k->sm_min <= caps->sm && (k->sm_max == 0 || caps->sm <= k->sm_max) && (k->computes & computes) != 0 &&
           (k->supports == NULL || k->supports(args, caps));
}

const dvk_cuda_kernel *dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps, uint32_t computes) {
    const dvk_cuda_kernel *best = NULL;
    double least = 0.0;
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (strcmp(k->op, op) != 0 || !allowed(k, args, caps, computes)) {
            continue;
        }
        const double cost = k->cost != NULL ? k->cost(args, caps) : 1e30;
        if (best == NULL || cost < least) {
            best = k;
            least = cost;
        }
    }
    return best;
}

const dvk_cuda_kernel *dvk_cuda_find(const char *op, const char *variant) {
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (strcmp(k->op, op) == 0 && strcmp(k->variant, variant) == 0) {
            return k;
        }
    }
    return NULL;
}
