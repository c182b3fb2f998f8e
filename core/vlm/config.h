/* config.h - everything that a vision-language model's files say about its shape, in one plain struct: from the JSON of a
 * Hugging Face folder, or from the metadata of a GGUF text model and its mmproj. Numbers are range-checked here, so that
 * code behind this file may multiply them without fear; an error names file and field. */
#ifndef DV_VLM_CONFIG_H
#define DV_VLM_CONFIG_H

#include "core/file/tensors.h"

typedef enum dv_vlm_family {
    DV_VLM_IDEFICS3 = 1, /* SmolVLM, SmolVLM2, Idefics3 */
    DV_VLM_QWEN2,
    DV_VLM_QWEN2_5,
    DV_VLM_QWEN3,
    DV_VLM_LLAVA,
    DV_VLM_NANOCHAT, /* text alone */
    DV_VLM_GHOSTVIS  /* a nanochat decoder behind a resampled vision tower */
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

typedef enum dv_vlm_qk_norm { /* of each head of q and k */
                              DV_VLM_QK_NONE = 0,
                              DV_VLM_QK_BEFORE_ROPE, /* with weights */
                              DV_VLM_QK_AFTER_ROPE   /* without weights */
} dv_vlm_qk_norm;

typedef enum dv_vlm_rope_axes {                         /* which of the three coordinates a pair turns by */
                                DV_VLM_ROPE_ONE = 0,    /* one position, no axes */
                                DV_VLM_ROPE_SECTIONS,   /* sections[0] pairs by T, then H, then W */
                                DV_VLM_ROPE_INTERLEAVED /* T H W T H W ..., the rest by T */
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
    bool pairs;               /* neighbours are turned, (2j, 2j + 1): GGUF files of architecture llama */
    bool inverse;             /* the other way round */
    bool factors;             /* tensor rope_freqs.weight holds what each frequency is divided by (GGUF) */
} dv_vlm_rope;

typedef struct dv_vlm_text {
    int64_t hidden, ffn, layers, heads, kv_heads, head_dim, vocab, max_positions;
    dv_vlm_norm norm;
    double norm_eps;
    dv_vlm_act act;
    bool gated; /* SwiGLU: down(act(gate x) * up x); else fc2(act(fc1 x)) */
    bool qkv_bias, out_bias, mlp_bias;
    bool embed_norm; /* the embeddings are normalised before the first block */
    bool tied_head;  /* the head is the embedding, even beside a head of its own; a missing head means the same */
    dv_vlm_qk_norm qk_norm;
    dv_vlm_rope rope;
    double softcap; /* logits = softcap * tanh(logits / softcap); 0: none */
} dv_vlm_text;

typedef enum dv_vlm_tower {
    DV_VLM_TOWER_NONE = 0,
    DV_VLM_TOWER_SIGLIP, /* patch bias, learned positions, norm at the end; also Idefics3's */
    DV_VLM_TOWER_CLIP,   /* class token, norm in front */
    DV_VLM_TOWER_QWEN2,
    DV_VLM_TOWER_QWEN2_5, /* windows */
    DV_VLM_TOWER_QWEN3    /* table of positions, deepstack */
} dv_vlm_tower;

enum { DV_VLM_MAX_LAYERS = 512, DV_VLM_MAX_DEEPSTACK = 16, DV_VLM_MAX_EOS = 16 };

typedef struct dv_vlm_vision {
    dv_vlm_tower tower;
    int64_t hidden, ffn, layers, heads, head_dim;
    int64_t image_size;             /* of a tile; 0 where any grid will do */
    int64_t patch, temporal, merge; /* temporal and merge are 1 where there is no such thing */
    int64_t grid;                   /* patches of a tile's side, 0: any */
    int64_t position_side;          /* of the learned table, 0: none; without the class token's */
    int64_t out_hidden;             /* what comes out of the projector: the text's hidden width */
    dv_vlm_norm norm;
    double norm_eps;
    dv_vlm_act act;
    bool gated;
    dv_vlm_act projector_act;
    int64_t window;               /* pixels, Qwen2.5 */
    bool full[DV_VLM_MAX_LAYERS]; /* block looks at the whole frame; all true without windows */
    int32_t n_deepstack;
    int32_t deepstack[DV_VLM_MAX_DEEPSTACK]; /* block whose output goes to merger k and to text layer k */
    double tokens_per_second;                /* Qwen2.5's video positions */
    int64_t run_layers; /* blocks that count: LLaVA takes an earlier one's output, without the last norm */
    bool drop_class;    /* the class token does not go on */
    int64_t shuffle;    /* Idefics3: s x s patches become one token */
    int64_t queries;    /* GhostVis: vectors that leave the resampler; 0: no resampler */
    int64_t resampler_layers, resampler_heads;
    int64_t projector_hidden; /* GhostVis */
    bool clip_colours;        /* GhostVis: pictures are normalised as for CLIP, else as for SigLIP */
    int64_t tokens_per_tile;  /* 0 where it depends on the picture */
} dv_vlm_vision;

typedef enum dv_vlm_picture_rule {
    DV_VLM_PICTURE_NONE = 0,
    DV_VLM_PICTURE_TILES, /* longest edge, tiles, global view */
    DV_VLM_PICTURE_SMART, /* Qwen: about the picture's own size, in units of patch * merge */
    DV_VLM_PICTURE_CROP,  /* shortest side, then a square out of the middle */
    DV_VLM_PICTURE_SQUASH /* to width x height, whatever the shape */
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
    int64_t width, height;          /* SQUASH: size, CROP: of the middle */
    bool pad_square;                /* CROP: to a square first, around the middle */
    bool crop_round;                /* CROP: an odd rest is halved to the even side, else down */
    double video_fps;               /* frames a second, */
    int64_t video_min_frames, video_max_frames;
    int64_t video_min_pixels, video_max_pixels; /* SMART: of a frame (Qwen2), of all frames together (Qwen3) */
    int64_t video_longest;                      /* TILES */
} dv_vlm_picture;

typedef struct dv_vlm_tokens { /* -1: not said */
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

/* The JSON files of a folder. Only config.json is needed; without a preprocessor's file the family's published numbers
 * hold. `name` goes into messages. */
typedef struct dv_vlm_json {
    const char *text; /* NULL: the file is not there */
    uint64_t bytes;
    const char *name;
} dv_vlm_json;

typedef struct dv_vlm_files {
    dv_vlm_json config, preprocessor, processor, video, generation;
} dv_vlm_files;

davy_result dv_vlm_config_parse(const dv_vlm_files *files, dv_vlm_config *out);
/* Reads what of the files there is in `folder`. */
davy_result dv_vlm_config_open(const char *folder, dv_vlm_config *out);
/* text: the language model. mmproj NULL: text alone. Neither need name the other; widths must agree. */
davy_result dv_vlm_config_gguf(const dv_tensors *text, const dv_tensors *mmproj, dv_vlm_config *out);

const char *dv_vlm_family_name(dv_vlm_family f);

#endif
