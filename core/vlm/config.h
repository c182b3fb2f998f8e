/* config.h - the configuration of a vision-language model in one plain struct, read from the JSON of a Hugging Face folder, or
 * from the metadata of a GGUF text model and its mmproj. All numbers are range-checked, so later code can multiply them without
 * overflow. An error names file and field. */
#ifndef DV_VLM_CONFIG_H
#define DV_VLM_CONFIG_H

#include "core/file/tensors.h"

typedef enum dv_vlm_family {
    DV_VLM_IDEFICS3 = 1, /* SmolVLM, SmolVLM2, Idefics3 */
    DV_VLM_QWEN2,
    DV_VLM_QWEN2_5,
    DV_VLM_QWEN3,
    DV_VLM_LLAVA,
    DV_VLM_NANOCHAT, /* text only */
    DV_VLM_GHOSTVIS  /* a vision tower with a resampler, then a nanochat decoder */
} dv_vlm_family;

typedef enum dv_vlm_act {
    DV_VLM_SILU = 1,
    DV_VLM_GELU, /* erf */
    DV_VLM_GELU_TANH,
    DV_VLM_GELU_QUICK,
    DV_VLM_RELU2
} dv_vlm_act;

typedef enum dv_vlm_norm {
    DV_VLM_LAYER_NORM = 1,
    DV_VLM_RMS_NORM,
    DV_VLM_RMS_PLAIN /* without weights */
} dv_vlm_norm;

typedef enum dv_vlm_qk_norm { /* norm of each head of q and k */
                              DV_VLM_QK_NONE = 0,
                              DV_VLM_QK_BEFORE_ROPE, /* with weights */
                              DV_VLM_QK_AFTER_ROPE   /* without weights */
} dv_vlm_qk_norm;

typedef enum dv_vlm_rope_axes {                         /* the coordinate (T, H or W) that rotates a pair */
                                DV_VLM_ROPE_ONE = 0,    /* one position, no axes */
                                DV_VLM_ROPE_SECTIONS,   /* sections[0] pairs by T, then H, then W */
                                DV_VLM_ROPE_INTERLEAVED /* T H W T H W ..., the remaining pairs by T */
} dv_vlm_rope_axes;

typedef enum dv_vlm_rope_scaling {
    DV_VLM_SCALE_NONE = 0,
    DV_VLM_SCALE_LINEAR, /* frequencies / factor */
    DV_VLM_SCALE_LLAMA3
} dv_vlm_rope_scaling;

typedef struct dv_vlm_rope {
    double theta;
    dv_vlm_rope_axes axes;
    int32_t sections[3]; /* their sum is head_dim / 2 */
    dv_vlm_rope_scaling scaling;
    double factor, low, high; /* LLAMA3 */
    int64_t original;         /* context before scaling */
    bool pairs;               /* pairs are neighbours (2j, 2j + 1): GGUF files of architecture llama */
    bool inverse;             /* rotates in the opposite direction */
    bool factors;             /* tensor rope_freqs.weight holds a divisor for each frequency (GGUF) */
} dv_vlm_rope;

typedef struct dv_vlm_text {
    int64_t hidden, ffn, layers, heads, kv_heads, head_dim, vocab, max_positions;
    dv_vlm_norm norm;
    double norm_eps;
    dv_vlm_act act;
    bool gated; /* SwiGLU: down(act(gate x) * up x); else fc2(act(fc1 x)) */
    bool qkv_bias, out_bias, mlp_bias;
    bool embed_norm; /* the embeddings are normalised before the first block */
    bool tied_head;  /* the head is the embedding, even if the file has a head; also set if the head is missing */
    dv_vlm_qk_norm qk_norm;
    dv_vlm_rope rope;
    double softcap; /* logits = softcap * tanh(logits / softcap); 0: none */
} dv_vlm_text;

typedef enum dv_vlm_tower {
    DV_VLM_TOWER_NONE = 0,
    DV_VLM_TOWER_SIGLIP, /* patch bias, learned positions, norm at the end; also Idefics3's */
    DV_VLM_TOWER_CLIP,   /* class token, norm before the blocks */
    DV_VLM_TOWER_QWEN2,
    DV_VLM_TOWER_QWEN2_5, /* windows */
    DV_VLM_TOWER_QWEN3    /* position table, deepstack */
} dv_vlm_tower;

enum { DV_VLM_MAX_LAYERS = 512, DV_VLM_MAX_DEEPSTACK = 16, DV_VLM_MAX_EOS = 16 };

typedef struct dv_vlm_vision {
    dv_vlm_tower tower;
    int64_t hidden, ffn, layers, heads, head_dim;
    int64_t image_size;             /* side of a tile in pixels; 0: any grid */
    int64_t patch, temporal, merge; /* temporal and merge are 1 if the tower has none */
    int64_t grid;                   /* patches along a tile's side; 0: any */
    int64_t position_side;          /* side of the learned position table, without the class token; 0: none */
    int64_t out_hidden;             /* width after the projector: the text's hidden width */
    dv_vlm_norm norm;
    double norm_eps;
    dv_vlm_act act;
    bool gated;
    dv_vlm_act projector_act;
    int64_t window;               /* pixels, Qwen2.5 */
    bool full[DV_VLM_MAX_LAYERS]; /* the block attends to the whole frame; all true without windows */
    int32_t n_deepstack;
    int32_t deepstack[DV_VLM_MAX_DEEPSTACK]; /* the output of this block goes to merger k and text layer k */
    double tokens_per_second;                /* Qwen2.5's video positions */
    int64_t run_layers; /* blocks to run: LLaVA uses the output of an earlier block, without the last norm */
    bool drop_class;    /* the class token is removed from the output */
    int64_t shuffle;    /* Idefics3: s x s patches become one token */
    int64_t queries;    /* GhostVis: output vectors of the resampler; 0: no resampler */
    int64_t resampler_layers, resampler_heads;
    int64_t projector_hidden; /* GhostVis */
    bool clip_colours;        /* GhostVis: normalises pictures as for CLIP, else as for SigLIP */
    int64_t tokens_per_tile;  /* 0: depends on the picture */
} dv_vlm_vision;

typedef enum dv_vlm_picture_rule {
    DV_VLM_PICTURE_NONE = 0,
    DV_VLM_PICTURE_TILES, /* longest edge, tiles, global view */
    DV_VLM_PICTURE_SMART, /* Qwen: near the picture's own size, rounded to multiples of patch * merge */
    DV_VLM_PICTURE_CROP,  /* resize the shortest side, then crop the middle square */
    DV_VLM_PICTURE_SQUASH /* resize to width x height, ignoring the aspect ratio */
} dv_vlm_picture_rule;

typedef struct dv_vlm_picture {
    dv_vlm_picture_rule rule;
    int32_t filter; /* dv_pil_filter */
    double rescale; /* 1 / 255 */
    double mean[3], std[3];
    int64_t longest, tile; /* TILES */
    bool split;
    int64_t min_pixels, max_pixels; /* SMART */
    int64_t shortest;               /* CROP */
    int64_t width, height;          /* SQUASH: size; CROP: size of the crop */
    bool pad_square;                /* CROP: first pads to a square around the picture */
    bool crop_round;                /* CROP: half of an odd remainder rounds to even, else down */
    double video_fps;               /* frames sampled per second */
    int64_t video_min_frames, video_max_frames;
    int64_t video_min_pixels, video_max_pixels; /* SMART: for a frame (Qwen2), for all frames together (Qwen3) */
    int64_t video_longest;                      /* TILES */
} dv_vlm_picture;

typedef struct dv_vlm_tokens { /* -1: not given */
    int64_t image, video, vision_start, vision_end, bos, pad;
    int64_t eos[DV_VLM_MAX_EOS];
    int32_t n_eos;
} dv_vlm_tokens;

typedef struct dv_vlm_generation {
    bool sample;
    double temperature, top_p, repetition_penalty; /* 1 each: none */
    int64_t top_k;                                 /* 0: none */
    double min_p;                                  /* 0: none */
    int64_t no_repeat_ngram;                       /* 0: none */
} dv_vlm_generation;

typedef struct dv_vlm_config {
    dv_vlm_family family;
    char model_type[32];
    dv_vlm_text text;
    dv_vlm_vision vision;
    dv_vlm_picture picture;
    dv_vlm_tokens tokens;
    dv_vlm_generation generation;
} dv_vlm_config;

/* The JSON files of a folder. Only config.json is required. Without a preprocessor's file the family's published values apply.
 * Messages use `name`. */
typedef struct dv_vlm_json {
    const char *text; /* NULL: the file is not there */
    uint64_t bytes;
    const char *name;
} dv_vlm_json;

typedef struct dv_vlm_files {
    dv_vlm_json config, preprocessor, processor, video, generation;
} dv_vlm_files;

davy_result dv_vlm_config_parse(const dv_vlm_files *files, dv_vlm_config *out);
/* Reads the JSON files that exist in `folder`. */
davy_result dv_vlm_config_open(const char *folder, dv_vlm_config *out);
/* text: the language model. mmproj NULL: text only. The files need not refer to each other, but their widths must match. */
davy_result dv_vlm_config_gguf(const dv_tensors *text, const dv_tensors *mmproj, dv_vlm_config *out);

const char *dv_vlm_family_name(dv_vlm_family f);

#endif
