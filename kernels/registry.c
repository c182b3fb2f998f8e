/* registry.c - the list of CPU kernels and the choice among them. A kernel enters the library here and nowhere else:
 * there are no constructors and no registration at run time. Order: references, then by instruction set. */
#include <string.h>

#include "kernels/kernel.h"

#define DVK_LIST_REF(X)                                                                                                \
    X(dvk_conv2d_ref)                                                                                                  \
    X(dvk_conv2d_winograd_band_ref)                                                                                    \
    X(dvk_conv2d_winograd_ref)                                                                                         \
    X(dvk_winograd_input_ref)                                                                                          \
    X(dvk_pointwise_ref)                                                                                               \
    X(dvk_group_norm_stats_ref)                                                                                        \
    X(dvk_group_norm_finish_ref)                                                                                       \
    X(dvk_attention_ref)                                                                                               \
    X(dvk_window_attention_ref)                                                                                        \
    X(dvk_channel_attention_ref)                                                                                       \
    X(dvk_norm_depthwise_ref)                                                                                          \
    X(dvk_norm_mlp_ref)                                                                                                \
    X(dvk_norm_window_ref)                                                                                             \
    X(dvk_upsample_ref)                                                                                                \
    X(dvk_pixel_shuffle_ref)                                                                                           \
    X(dvk_pixel_unshuffle_ref)                                                                                         \
    X(dvk_similarity_ref)                                                                                              \
    X(dvk_mix_ref)                                                                                                     \
    X(dvk_order_ref)                                                                                                   \
    X(dvk_gather_ref)                                                                                                  \
    X(dvk_scatter_ref)                                                                                                 \
    X(dvk_refine_ref)                                                                                                  \
    X(dvk_fold_ref)                                                                                                    \
    X(dvk_unfold_ref)                                                                                                  \
    X(dvk_pad_ref)                                                                                                     \
    X(dvk_depthwise_ref)                                                                                               \
    X(dvk_multiply_ref)                                                                                                \
    X(dvk_mean_ref)                                                                                                    \
    X(dvk_max_pool_ref)                                                                                                \
    X(dvk_resize_ref)                                                                                                  \
    X(dvk_dysample_ref)                                                                                                \
    X(dvk_load_ref)                                                                                                    \
    X(dvk_store_ref)                                                                                                   \
    X(dvk_blend_ref)                                                                                                   \
    X(dvk_load_yuv_ref)                                                                                                \
    X(dvk_store_yuv_ref)                                                                                               \
    X(dvk_linear_ref)                                                                                                  \
    X(dvk_embed_ref)                                                                                                   \
    X(dvk_row_norm_ref)                                                                                                \
    X(dvk_row_convert_ref)                                                                                             \
    X(dvk_rope_table_ref)                                                                                              \
    X(dvk_rope_ref)                                                                                                    \
    X(dvk_rope_qkv_ref)                                                                                                \
    X(dvk_gather_rows_ref)                                                                                             \
    X(dvk_add_rows_ref)                                                                                                \
    X(dvk_argmax_ref)                                                                                                  \
    X(dvk_candidates_ref)                                                                                              \
    X(dvk_patches_ref)                                                                                                 \
    X(dvk_attention_kv_ref)                                                                                            \
    X(dvk_attention_new_ref)                                                                                           \
    X(dvk_attention_out_ref)                                                                                           \
    X(dvk_next_token_ref)                                                                                              \
    X(dvk_excite_ref)                                                                                                  \
    X(dvk_up_conv_ref)                                                                                                 \
    X(dvk_conv_down_ref)                                                                                               \
    X(dvk_dysample_base)                                                                                               \
    X(dvk_similarity_base)                                                                                             \
    X(dvk_mix_base)                                                                                                    \
    X(dvk_order_base)                                                                                                  \
    X(dvk_gather_base)                                                                                                 \
    X(dvk_scatter_base)                                                                                                \
    X(dvk_refine_base)                                                                                                 \
    X(dvk_fold_base)                                                                                                   \
    X(dvk_unfold_base)                                                                                                 \
    X(dvk_embed_base)                                                                                                  \
    X(dvk_conv2d_base)                                                                                                 \
    X(dvk_conv2d_ref_int8)

#if defined(DVK_X86)
#define DVK_LIST_X86(X)                                                                                                \
    X(dvk_conv2d_avx2)                                                                                                 \
    X(dvk_conv2d_avx2_winograd4)                                                                                       \
    X(dvk_conv2d_int8_avx2)                                                                                            \
    X(dvk_pointwise_avx2)                                                                                              \
    X(dvk_group_norm_stats_avx2)                                                                                       \
    X(dvk_attention_avx2)                                                                                              \
    X(dvk_window_attention_avx2)                                                                                       \
    X(dvk_channel_attention_avx2)                                                                                      \
    X(dvk_upsample_avx2)                                                                                               \
    X(dvk_pixel_shuffle_avx2)                                                                                          \
    X(dvk_pixel_unshuffle_avx2)                                                                                        \
    X(dvk_pad_avx2)                                                                                                    \
    X(dvk_depthwise_avx2)                                                                                              \
    X(dvk_multiply_avx2)                                                                                               \
    X(dvk_mean_avx2)                                                                                                   \
    X(dvk_similarity_avx2)                                                                                             \
    X(dvk_mix_avx2)                                                                                                    \
    X(dvk_refine_avx2)                                                                                                 \
    X(dvk_resize_avx2)                                                                                                 \
    X(dvk_load_avx2)                                                                                                   \
    X(dvk_store_avx2)                                                                                                  \
    X(dvk_conv2d_avx512)                                                                                               \
    X(dvk_conv2d_avx512_winograd4)                                                                                     \
    X(dvk_conv2d_int8_avx512vnni)                                                                                      \
    X(dvk_pointwise_avx512)                                                                                            \
    X(dvk_group_norm_stats_avx512)                                                                                     \
    X(dvk_attention_avx512)                                                                                            \
    X(dvk_window_attention_avx512)                                                                                     \
    X(dvk_channel_attention_avx512)                                                                                    \
    X(dvk_upsample_avx512)                                                                                             \
    X(dvk_pixel_shuffle_avx512)                                                                                        \
    X(dvk_pixel_unshuffle_avx512)                                                                                      \
    X(dvk_pad_avx512)                                                                                                  \
    X(dvk_depthwise_avx512)                                                                                            \
    X(dvk_multiply_avx512)                                                                                             \
    X(dvk_mean_avx512)                                                                                                 \
    X(dvk_similarity_avx512)                                                                                           \
    X(dvk_mix_avx512)                                                                                                  \
    X(dvk_refine_avx512)                                                                                               \
    X(dvk_resize_avx512)                                                                                               \
    X(dvk_load_avx512)                                                                                                 \
    X(dvk_store_avx512)                                                                                                \
    X(dvk_conv2d_avx512bf16)                                                                                           \
    X(dvk_row_norm_avx2)                                                                                               \
    X(dvk_row_norm_avx512)                                                                                             \
    X(dvk_row_convert_avx2)                                                                                            \
    X(dvk_row_convert_avx512)                                                                                          \
    X(dvk_rope_avx2)                                                                                                   \
    X(dvk_rope_avx512)                                                                                                 \
    X(dvk_attention_kv_avx2)                                                                                           \
    X(dvk_attention_kv_avx512)                                                                                         \
    X(dvk_linear_avx2)                                                                                                 \
    X(dvk_linear_avx2_q8)                                                                                              \
    X(dvk_linear_avx512)                                                                                               \
    X(dvk_linear_avx512vnni)                                                                                           \
    X(dvk_linear_avx512bf16)                                                                                           \
    X(dvk_conv2d_amx)                                                                                                  \
    X(dvk_attention_amx)
#else
#define DVK_LIST_X86(X)
#endif

#define DVK_DECLARE(name) extern const dvk_kernel name;
#define DVK_ENTRY(name)   &name,

DVK_LIST_REF(DVK_DECLARE)
DVK_LIST_X86(DVK_DECLARE)

const dvk_kernel *const dvk_kernels[] = {DVK_LIST_REF(DVK_ENTRY) DVK_LIST_X86(DVK_ENTRY)};

const int32_t dvk_kernel_count = (int32_t)(sizeof dvk_kernels / sizeof dvk_kernels[0]);

static double cost_of(const dvk_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args) : 1e30;
}

static int allowed(const dvk_kernel *k, const void *args, uint32_t cpu, dvk_dtype compute) {
    return (k->cpu & ~cpu) == 0 && (k->compute == DVK_F32 || k->compute == compute) &&
           (k->supports == NULL || k->supports(args));
}

const dvk_kernel *dvk_choose(const char *op, const void *args, uint32_t cpu, dvk_dtype compute) {
    const dvk_kernel *best = dvk_find(op, "ref");
    if (best == NULL) {
        return NULL;
    }
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && allowed(k, args, cpu, compute) && cost_of(k, args) < cost_of(best, args)) {
            best = k;
        }
    }
    return best;
}

const dvk_kernel *dvk_find(const char *op, const char *variant) {
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        if (strcmp(dvk_kernels[i]->op, op) == 0 && strcmp(dvk_kernels[i]->variant, variant) == 0) {
            return dvk_kernels[i];
        }
    }
    return NULL;
}
