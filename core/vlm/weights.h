/* weights.h - the tensors of a vision-language model under one set of names, from a folder of safetensors or a pair of GGUF
 * files. They are checked against the configuration and packed for the op "linear". */
#ifndef DV_VLM_WEIGHTS_H
#define DV_VLM_WEIGHTS_H

#include "core/cuda/gpu.h"
#include "core/file/tensors.h"
#include "core/base/mem.h"
#include "core/base/pool.h"
#include "core/vlm/config.h"
#include "kernels/lm.h"

typedef enum dv_vlm_format { /* type of the language model's matrices; the vision tower keeps its stored type */
                             DV_VLM_AS_STORED = 0,
                             DV_VLM_F32,
                             DV_VLM_BF16,
                             DV_VLM_INT8, /* matrices stored in fewer bits keep their type */
                             DV_VLM_INT4, /* the head has 8 bits */
                             DV_VLM_NARROW, /* as stored, but f32 becomes bf16, also in the tower: half the memory traffic */
                             DV_VLM_F16 /* GPU only, also in the tower; matrices stored in fewer bits keep their type */
} dv_vlm_format;
/* On a GPU all other matrices become bf16 or f16, also in the tower, because it multiplies these fast. Exceptions are f32
 * (requested or as stored) and types with few bits. */

typedef struct dv_vlm_matrix { /* [n][k], glu: [2n][k]; data NULL: none */
    void *data;  /* panels, or plain rows (dv_vlm_weights.plain); on a GPU kernels/cuda/linear/linear_layout.h */
    float *bias; /* [n], glu: [2n]; NULL: none */
    int64_t n, k;
    dvk_wtype type;
    int32_t glu;
} dv_vlm_matrix;

typedef struct dv_vlm_affine { /* weight and bias of a norm; NULL: none */
    float *w, *b;
} dv_vlm_affine;

typedef struct dv_vlm_block {
    dv_vlm_affine norm1, norm2;
    dv_vlm_matrix qkv[3]; /* q, k, v in one matrix, or in three if the file stores them in different types */
    int32_t n_qkv;
    dv_vlm_matrix out, up, down; /* up: with a gate, gate and up in one matrix */
    float *q_norm, *k_norm;      /* [head_dim] */
} dv_vlm_block;

typedef struct dv_vlm_merger {
    dv_vlm_affine norm;
    dv_vlm_matrix first, second; /* Idefics3: only the first */
} dv_vlm_merger;

typedef struct dv_vlm_attender { /* GhostVis: a layer in which queries attend to the tower's rows */
    dv_vlm_affine norm1, norm2;
    dv_vlm_matrix q, kv, out, up, down; /* kv: keys, then values */
} dv_vlm_attender;

typedef struct dv_vlm_resampler {
    float *queries; /* [queries][hidden] of the tower */
    dv_vlm_attender *layers;
    dv_vlm_matrix first, second; /* the projector */
    dv_vlm_affine norm;          /* after the projector */
} dv_vlm_resampler;

typedef struct dv_owned { /* a block of memory */
    void *data;
    uint64_t bytes;
    bool on_gpu, goes; /* goes: moves to the GPU, to offset `at` */
    uint64_t at;
} dv_owned;

typedef struct dv_vlm_weights {
    dv_heap *heap;
    dv_gpu *gpu; /* matrices and numbers are in its memory; NULL: in host memory */
    bool plain;  /* matrices are plain rows, not packed: for a processor with only the reference kernel */
    /* the language model */
    dv_vlm_matrix embed, head; /* tied: the same data */
    dv_vlm_affine norm;
    dv_vlm_block *layers;
    float *frequencies; /* [head_dim / 2] */
    uint8_t *axes;
    /* the vision tower */
    dv_vlm_matrix patch;
    float *positions; /* [rows][hidden] */
    float *class_row; /* CLIP: sum of the class token and its position */
    dv_vlm_affine pre_norm, post_norm;
    dv_vlm_block *blocks; /* config.vision.run_layers of them */
    dv_vlm_merger merger; /* Qwen's, LLaVA's projector (no norm), Idefics3's connector */
    dv_vlm_merger *deepstack;
    dv_vlm_resampler resampler; /* GhostVis, instead of the merger */

    dv_owned *owned;
    int64_t n_owned, owned_room;
} dv_vlm_weights;

typedef struct dv_loading { /* progress is called between matrices; an error, set in the record, ends the loading */
    davy_result (*progress)(void *user, uint64_t done, uint64_t total); /* bytes; NULL: no callback */
    void *user;
} dv_loading;

typedef struct dv_vlm_weights_source {
    const dv_tensors *text;   /* a folder's tensors, or a GGUF text model */
    const dv_tensors *vision; /* the same, or an mmproj; NULL: text only */
    const dv_vlm_config *config;
    dv_heap *heap;
    dv_pool *pool; /* for packing; NULL: the calling thread */
    dv_gpu *gpu;   /* destination; NULL: the heap */
    uint32_t cpu;  /* DVK_CPU_* */
    dv_vlm_format format;
    dv_loading loading;
} dv_vlm_weights_source;

/* DAVY_E_TENSOR: a tensor is missing. DAVY_E_SHAPE: a shape differs from the configuration. The message names file and
 * tensor. */
davy_result dv_vlm_weights_load(const dv_vlm_weights_source *source, dv_vlm_weights **out);
void dv_vlm_weights_release(dv_vlm_weights *w);

/* Copies row `row` of a matrix without glu as f32; not for matrices on a GPU. */
void dv_vlm_matrix_row(const dv_vlm_weights *w, const dv_vlm_matrix *m, int64_t row, float *to);

/* ---- parts ---- */

typedef struct dv_loader {
    const dv_vlm_weights_source *source;
    const dv_vlm_config *config;
    const dv_tensors *tensors; /* the tensors to read from now */
    bool gguf;
    dv_vlm_format format;
    dv_vlm_weights *w;
    dv_gpu_queue *queue; /* on a GPU, with stage */
    unsigned char *stage;
    uint64_t done, total; /* bytes of matrices as stored */
    davy_result r;        /* the first error; after it all functions do nothing */
} dv_loader;

typedef struct dv_part { /* rows of a matrix that come from one tensor */
    char name[256];
    int64_t rows;
    int64_t paired_head; /* head_dim if the rows of each head have the order of GGUF's architecture llama, else 0 */
    bool optional;
} dv_part;

typedef struct dv_matrix_want {
    const dv_part *parts;
    int32_t n_parts;
    int64_t k;
    bool glu;      /* two parts, gate and up */
    bool bias;     /* each part has a ".bias" besides its ".weight" */
    bool is_head;  /* the embedding or the head: never below 8 bits */
    bool quantise; /* dv_vlm_format applies to it */
} dv_matrix_want;

bool dv_loader_has(const dv_loader *l, const char *name);
void dv_loader_matrix(dv_loader *l, const dv_matrix_want *want, dv_vlm_matrix *out);
/* Reads a tensor of n numbers as f32; its shape does not matter. */
float *dv_loader_numbers(dv_loader *l, const char *name, int64_t n);
float *dv_loader_table(dv_loader *l, const char *name, int64_t rows, int64_t columns);
void *dv_loader_memory(dv_loader *l, uint64_t bytes);     /* host memory, even if its numbers move to a GPU later */
dvk_wtype dv_loader_type(dv_loader *l, const char *name); /* as stored */

typedef struct dv_block_names { /* ".weight" and ".bias" follow */
    const char *norm1, *norm2, *q, *k, *v, *qkv, *out, *gate, *up, *down, *q_norm, *k_norm;
} dv_block_names;

typedef struct dv_block_shape {
    int64_t hidden, q_rows, kv_rows, ffn, head_dim;
    bool gated, fused_qkv, qkv_bias, out_bias, mlp_bias, norm_bias, plain_norm, head_norms, paired, quantise;
} dv_block_shape;

/* Packs f32 rows from memory into m, whose n and k are set. */
void dv_loader_rows(dv_loader *l, const float *rows, dv_vlm_matrix *m);

enum { DV_STAGE_BYTES = 32 << 20 }; /* staging buffer for packed rows on their way to a GPU */
davy_result dv_loader_cuda_begin(dv_loader *l);
void dv_loader_cuda_end(dv_loader *l); /* moves numbers to the GPU and updates the pointers */

#endif
