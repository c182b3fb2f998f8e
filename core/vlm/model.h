/* model.h - a vision-language model as dialogues share it: configuration, tokenizer, prompts, weights. */
#ifndef DV_VLM_MODEL_H
#define DV_VLM_MODEL_H

#include "core/text/chat.h"
#include "core/vlm/vision.h"

typedef struct dv_vlm_model {
    dv_vlm_config config;
    dv_vlm_weights *weights;
    dv_tokenizer *tokenizer;    /* NULL: ids alone */
    const dv_chat_format *chat; /* NULL without a tokenizer */
    dv_ids stops;               /* what ends an answer */
    int32_t image_id, video_id; /* placeholders; -1: none */
    dv_heap *heap;
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU computes */
    uint32_t cpu;
    dvk_dtype compute;
} dv_vlm_model;

typedef struct dv_vlm_open {
    const char *path;   /* a folder, a file in it, or a GGUF text model */
    const char *mmproj; /* of a GGUF file; NULL: the one file beside it with "mmproj" in its name, where there is one */
    dv_vlm_format format;
    dvk_dtype compute; /* DVK_F32: all products in f32; DVK_BF16: the fastest; on a GPU also DVK_F16 */
    bool no_tokenizer;
    bool no_map;   /* files are read, not mapped */
    dv_heap *heap; /* these three must outlive the model */
    dv_pool *pool;
    dv_gpu *gpu; /* that computes; NULL: the CPU */
    uint32_t cpu;
    dv_loading loading;
} dv_vlm_open;

typedef struct dv_vlm_facts {
    uint64_t parameters, bytes; /* of all tensors, as stored */
    bool thinks;                /* its prompt ends inside a block of thoughts */
} dv_vlm_facts;

/* What headers and JSON say, without loading anything: heap and pool are not used. */
davy_result dv_vlm_model_describe(const dv_vlm_open *open, dv_vlm_config *config, dv_vlm_facts *facts);
davy_result dv_vlm_model_open(const dv_vlm_open *open, dv_vlm_model **out);
void dv_vlm_model_release(dv_vlm_model *m);

#endif
