/* weights.h - the tensors of a vision-language model under one set of names, checked against the configuration and packed
 * as "linear" wants them; whatever a folder of safetensors or a pair of GGUF files calls them. */
#ifndef DV_VLM_WEIGHTS_H
#define DV_VLM_WEIGHTS_H

#include "core/cuda/gpu.h"
#include "core/file/tensors.h"
#include "core/base/mem.h"
#include "core/base/pool.h"
#include "core/vlm/config.h"
#include "kernels/lm.h"

typedef enum dv_vlm_format { /* of the language model's matrices; a vision tower stays as it is stored */
                             DV_VLM_AS_STORED = 0,
                             DV_VLM_F32,
                             DV_VLM_BF16,
                             DV_VLM_INT8,   /* what is stored in fewer bits stays so */
                             DV_VLM_INT4,   /* the head in 8 bits */
                             DV_VLM_NARROW, /* as stored, but f32 becomes bf16, of the tower too: half the reading */
                             DV_VLM_F16     /* of a GPU, of the tower too; what is stored in fewer bits stays so */
} dv_vlm_format;
/* On a GPU whatever is neither f32 (asked for, or as stored) nor of few bits becomes bf16, or f16, of the tower too: what it
 * multiplies fast. */

typedef struct dv_vlm_matrix { /* [n][k], glu: [2n][k]; data NULL: none */
    void *data;  /* panels, or plain rows (dv_vlm_weights.plain); on a GPU kernels/cuda/linear/linear_layout.h */
    float *bias; /* [n], glu: [2n]; NULL: none */
    int64_t n, k;
    dvk_wtype type;
    int32_t glu;
} dv_vlm_matrix;

typedef struct dv_vlm_affine { /* of a norm; NULL: none */
    float *w, *b;
} dv_vlm_affine;

typedef struct dv_vlm_block {
    dv_vlm_affine norm1, norm2;
    dv_vlm_matrix qkv[3]; /* one behind the other in the first, or, where files store them in different types, apart */
    int32_t n_qkv;
    dv_vlm_matrix out, up, down; /* up: gate and up together where gated */
    float *q_norm, *k_norm;      /* [head_dim] */
} dv_vlm_block;

typedef struct dv_vlm_merger {
    dv_vlm_affine norm;
    dv_vlm_matrix first, second; /* Idefics3: only the first */
} dv_vlm_merger;

typedef struct dv_vlm_attender { /* GhostVis: a layer in which queries look at the tower's rows */
    dv_vlm_affine norm1, norm2;
    dv_vlm_matrix q, kv, out, up, down; /* kv: keys, then values */
} dv_vlm_attender;

typedef struct dv_vlm_resampler {
    float *queries; /* [queries][hidden] of the tower */
    dv_vlm_attender *layers;
    dv_vlm_matrix first, second; /* the projector, */
    dv_vlm_affine norm;          /* and what comes behind it */
} dv_vlm_resampler;

typedef struct dv_owned { /* a block of memory */
    void *data;
    uint64_t bytes;
    bool on_gpu, goes; /* goes: there, at `at` */
    uint64_t at;
} dv_owned;

typedef struct dv_vlm_weights {
    dv_heap *heap;
    dv_gpu *gpu; /* matrices and numbers lie in its memory; NULL: in the host's */
    bool plain;  /* matrices are rows as in a file: of a processor that has no kernel but the reference */
    /* the language model */
    dv_vlm_matrix embed, head; /* tied: the same data */
    dv_vlm_affine norm;
    dv_vlm_block *layers;
    float *frequencies; /* [head_dim / 2] */
    uint8_t *axes;
    /* the vision tower */
    dv_vlm_matrix patch;
    float *positions; /* [rows][hidden] */
    float *class_row; /* CLIP: class token and its position, added */
    dv_vlm_affine pre_norm, post_norm;
    dv_vlm_block *blocks; /* config.vision.run_layers of them */
    dv_vlm_merger merger; /* Qwen's, LLaVA's projector (no norm), Idefics3's connector */
    dv_vlm_merger *deepstack;
    dv_vlm_resampler resampler; /* GhostVis, in the merger's place */

    dv_owned *owned;
    int64_t n_owned, owned_room;
} dv_vlm_weights;

typedef struct dv_loading { /* asked between matrices; other than DAVY_OK, with its error set, ends the loading */
    davy_result (*progress)(void *user, uint64_t done, uint64_t total); /* bytes; NULL: nobody asks */
    void *user;
} dv_loading;

typedef struct dv_vlm_weights_source {
    const dv_tensors *text;   /* a folder's tensors, or a GGUF text model */
    const dv_tensors *vision; /* the same, or an mmproj; NULL: text alone */
    const dv_vlm_config *config;
    dv_heap *heap;
    dv_pool *pool; /* packs; NULL: this thread */
    dv_gpu *gpu;   /* where they go; NULL: the heap */
    uint32_t cpu;  /* DVK_CPU_* */
    dv_vlm_format format;
    dv_loading loading;
} dv_vlm_weights_source;

/* A tensor that is missing is DAVY_E_TENSOR, one of another shape than the configuration says DAVY_E_SHAPE; the message
 * names file and tensor. */
davy_result dv_vlm_weights_load(const dv_vlm_weights_source *source, dv_vlm_weights **out);
void dv_vlm_weights_release(dv_vlm_weights *w);

/* Row `row` of a matrix without glu, as f32; not of a GPU's. */
void dv_vlm_matrix_row(const dv_vlm_weights *w, const dv_vlm_matrix *m, int64_t row, float *to);

/* ---- parts ---- */

typedef struct dv_loader {
    const dv_vlm_weights_source *source;
    const dv_vlm_config *config;
    const dv_tensors *tensors; /* those that are read now */
    bool gguf;
    dv_vlm_format format;
    dv_vlm_weights *w;
    dv_gpu_queue *queue; /* of a GPU; then also: */
    unsigned char *stage;
    uint64_t done, total; /* bytes of matrices as stored */
    davy_result r;        /* the first failure: after it nothing more is done */
} dv_loader;

typedef struct dv_part { /* rows of a matrix that come from one tensor */
    char name[256];
    int64_t rows;
    int64_t
        paired_head; /* head_dim: rows of each head are in the order of GGUF's architecture llama; 0: they are not */
    bool optional;
} dv_part;

typedef struct dv_matrix_want {
    const dv_part *parts;
    int32_t n_parts;
    int64_t k;
    bool glu;      /* two parts, gate and up */
    bool bias;     /* beside each part's ".weight" lies ".bias" */
    bool is_head;  /* of the embedding's or the head's size: never below 8 bits */
    bool quantise; /* the format is for it */
} dv_matrix_want;

bool dv_loader_has(const dv_loader *l, const char *name);
void dv_loader_matrix(dv_loader *l, const dv_matrix_want *want, dv_vlm_matrix *out);
/* A tensor of n numbers, whatever its shape. */
float *dv_loader_numbers(dv_loader *l, const char *name, int64_t n);
float *dv_loader_table(dv_loader *l, const char *name, int64_t rows, int64_t columns);
void *dv_loader_memory(dv_loader *l, uint64_t bytes); /* of the host, also where the numbers in it go to a GPU later */
dvk_wtype dv_loader_type(dv_loader *l, const char *name); /* as stored */

typedef struct dv_block_names { /* ".weight" and ".bias" follow */
    const char *norm1, *norm2, *q, *k, *v, *qkv, *out, *gate, *up, *down, *q_norm, *k_norm;
} dv_block_names;

typedef struct dv_block_shape {
    int64_t hidden, q_rows, kv_rows, ffn, head_dim;
    bool gated, fused_qkv, qkv_bias, out_bias, mlp_bias, norm_bias, plain_norm, head_norms, paired, quantise;
} dv_block_shape;

/* Rows in f32, as they are in memory: packed, m's n and k. */
void dv_loader_rows(dv_loader *l, const float *rows, dv_vlm_matrix *m);

enum { DV_STAGE_BYTES = 32 << 20 }; /* of rows that are packed and then copied */
davy_result dv_loader_cuda_begin(dv_loader *l);
void dv_loader_cuda_end(dv_loader *l); /* numbers go to the GPU, and pointers follow them */

#endif
