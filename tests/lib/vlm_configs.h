/* vlm_configs.h - configurations as the models' folders have them, as text, for the tests of core/vlm. */
#ifndef DV_TESTS_VLM_CONFIGS_H
#define DV_TESTS_VLM_CONFIGS_H

#include <string.h>

#include "core/vlm/config.h"

#define LLAMA_256M                                                                                                     \
    "\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":576,\"intermediate_size\":1536,\"num_hidden_layers\":"  \
    "30,"                                                                                                              \
    "\"num_attention_heads\":9,\"num_key_value_heads\":3,\"vocab_size\":49280,\"max_position_embeddings\":8192,"       \
    "\"rms_norm_eps\":1e-05,\"rope_theta\":100000.0,\"pad_token_id\":2}"

/* SmolVLM2-256M leaves most of the tower to its class. */
#define SMOLVLM_256M                                                                                                   \
    "{\"model_type\":\"smolvlm\",\"image_token_id\":49190,\"pad_token_id\":128002,\"scale_factor\":4,"                 \
    "\"tie_word_embeddings\":false," LLAMA_256M ",\"vision_config\":{\"hidden_size\":768,\"image_size\":512,"          \
    "\"patch_size\":16,\"model_type\":\"smolvlm_vision\"}}"

#define SMOLVLM_2B                                                                                                     \
    "{\"model_type\":\"idefics3\",\"image_token_id\":49153,\"scale_factor\":3,\"text_config\":{\"model_type\":"        \
    "\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,\"num_hidden_layers\":24,\"num_attention_heads\":32,"   \
    "\"vocab_size\":49155,\"rope_theta\":273768.0},\"vision_config\":{\"hidden_size\":1152,\"image_size\":384,"        \
    "\"intermediate_size\":4304,\"num_attention_heads\":16,\"num_hidden_layers\":27,\"patch_size\":14}}"

#define QWEN2_TEXT                                                                                                     \
    "\"hidden_size\":1536,\"intermediate_size\":8960,\"num_hidden_layers\":28,\"num_attention_heads\":12,"             \
    "\"num_key_value_heads\":2,\"vocab_size\":151936,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-06,"        \
    "\"tie_word_embeddings\":true"

#define QWEN2_2B                                                                                                       \
    "{\"model_type\":\"qwen2_vl\",\"image_token_id\":151655,\"rope_theta\":1000000.0,\"rope_scaling\":{\"type\":"      \
    "\"mrope\",\"mrope_section\":[16,24,24]}," QWEN2_TEXT ",\"vision_config\":{\"depth\":32,\"embed_dim\":1280,"       \
    "\"mlp_ratio\":4,\"num_heads\":16,\"in_chans\":3,\"hidden_size\":1536,\"patch_size\":14,"                          \
    "\"spatial_merge_size\":2,\"spatial_patch_size\":14,\"temporal_patch_size\":2}}"

/* The same model as current transformers saves it. */
#define QWEN2_2B_NESTED                                                                                                \
    "{\"model_type\":\"qwen2_vl\",\"image_token_id\":151655,\"tie_word_embeddings\":true,\"text_config\":"             \
    "{\"model_type\":\"qwen2_vl_text\",\"rope_parameters\":{\"rope_theta\":1000000.0,\"rope_type\":\"default\","       \
    "\"mrope_section\":[16,24,24]}," QWEN2_TEXT "},\"vision_config\":{\"depth\":32,\"embed_dim\":1280,"                \
    "\"mlp_ratio\":4,\"num_heads\":16,\"in_channels\":3,\"hidden_size\":1536,\"patch_size\":14}}"

#define QWEN2_5_3B                                                                                                     \
    "{\"model_type\":\"qwen2_5_vl\",\"hidden_size\":2048,\"intermediate_size\":11008,\"num_hidden_layers\":36,"        \
    "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"vocab_size\":151936,\"tie_word_embeddings\":true,"         \
    "\"max_position_embeddings\":128000,\"rope_theta\":1000000.0,\"use_sliding_window\":false,\"sliding_window\":"     \
    "32768,\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[16,24,24]},\"vision_config\":{\"depth\":32,"        \
    "\"hidden_act\":\"silu\",\"hidden_size\":1280,\"intermediate_size\":3420,\"num_heads\":16,\"in_chans\":3,"         \
    "\"out_hidden_size\":2048,\"patch_size\":14,\"spatial_merge_size\":2,\"window_size\":112,"                         \
    "\"fullatt_block_indexes\":[7,15,23,31],\"tokens_per_second\":2,\"temporal_patch_size\":2}}"

#define QWEN3_2B                                                                                                       \
    "{\"model_type\":\"qwen3_vl\",\"tie_word_embeddings\":true,\"text_config\":{\"model_type\":\"qwen3_vl_text\","     \
    "\"hidden_size\":2048,\"intermediate_size\":6144,\"num_hidden_layers\":28,\"num_attention_heads\":16,"             \
    "\"num_key_value_heads\":8,\"head_dim\":128,\"vocab_size\":151936,\"rope_theta\":5000000,\"rope_scaling\":"        \
    "{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],\"rope_type\":\"default\"}},\"vision_config\":"          \
    "{\"depth\":24,\"hidden_size\":1024,\"intermediate_size\":4096,\"num_heads\":16,\"out_hidden_size\":2048,"         \
    "\"deepstack_visual_indexes\":[5,11,17]}}"

#define JOYCAPTION                                                                                                     \
    "{\"model_type\":\"llava\",\"image_token_index\":128077,\"vision_feature_layer\":-2,"                              \
    "\"vision_feature_select_strategy\":\"full\",\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":4096,"      \
    "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"       \
    "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,"         \
    "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                               \
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}},\"vision_config\":{\"model_type\":"          \
    "\"siglip_vision_model\",\"hidden_size\":1152,\"intermediate_size\":4304,\"num_hidden_layers\":27,"                \
    "\"num_attention_heads\":16,\"image_size\":384,\"patch_size\":14}}"

#define LLAVA_1_5                                                                                                      \
    "{\"model_type\":\"llava\",\"image_token_index\":32000,\"text_config\":{\"model_type\":\"llama\",\"rms_norm_"      \
    "eps\":"                                                                                                           \
    "1e-05,\"max_position_embeddings\":4096,\"vocab_size\":32064},\"vision_config\":{\"model_type\":"                  \
    "\"clip_vision_model\",\"hidden_size\":1024,\"image_size\":336,\"intermediate_size\":4096,"                        \
    "\"num_attention_heads\":16,\"num_hidden_layers\":24,\"patch_size\":14}}"

#define NANOCHAT_D20                                                                                                   \
    "{\"step\":1,\"model_config\":{\"sequence_len\":2048,\"vocab_size\":65536,\"n_layer\":20,\"n_head\":10,"           \
    "\"n_kv_head\":10,\"n_embd\":1280}}"

#define GHOSTVIS_D20                                                                                                   \
    "{\"model_config\":{\"sequence_len\":2048,\"vocab_size\":65536,\"n_layer\":20,\"n_head\":10,\"n_kv_head\":5,"      \
    "\"n_embd\":1280,\"intermediate_size\":3456,\"mlp_type\":\"swiglu\",\"attention_bias\":true,"                      \
    "\"vision_encoder_name\":\"siglip_vit_l14\",\"image_token_id\":65530}}"

dv_vlm_json json_text(const char *name, const char *text);
davy_result parse_config(const char *config, const char *preprocessor, dv_vlm_config *out);

#endif
