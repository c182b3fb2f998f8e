/* model.h - a vision-language model, shared by dialogues: configuration, tokenizer, prompt format, weights. */
#ifndef DV_VLM_MODEL_H
#define DV_VLM_MODEL_H

#include "core/text/chat.h"
#include "core/vlm/vision.h"

typedef struct dv_vlm_model {
    dv_vlm_config config;
    dv_vlm_weights *weights;
    dv_tokenizer *tokenizer;    /* NULL: the model works with ids only */
    const dv_chat_format *chat; /* NULL without a tokenizer */
    dv_ids stops;               /* stop tokens */
    int32_t image_id, video_id; /* placeholders; -1: none */
    dv_heap *heap;
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU computes */
    uint32_t cpu;
    dvk_dtype compute;
} dv_vlm_model;

typedef struct dv_vlm_open {
    const char *path;   /* a folder, a file in it, or a GGUF text model */
    const char *mmproj; /* for a GGUF file; NULL: the only file beside it with "mmproj" in its name, if there is one */
    dv_vlm_format format;
    dvk_dtype compute; /* DVK_F32: all products in f32; DVK_BF16: the fastest type; on a GPU also DVK_F16 */
    bool no_tokenizer;
    bool no_map;   /* read files instead of mapping them */
    dv_heap *heap; /* heap, pool and gpu must outlive the model */
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU computes */
    uint32_t cpu;
    dv_loading loading;
} dv_vlm_open;

typedef struct dv_vlm_facts {
    uint64_t parameters, bytes; /* totals of all tensors as stored */
    bool thinks;                /* reasoning model: its prompt ends inside a <think> block */
} dv_vlm_facts;

/* Reads only headers and JSON; heap and pool are not used. */
davy_result dv_vlm_model_describe(const dv_vlm_open *open, dv_vlm_config *config, dv_vlm_facts *facts);
davy_result dv_vlm_model_open(const dv_vlm_open *open, dv_vlm_model **out);
void dv_vlm_model_release(dv_vlm_model *m);

#endif
