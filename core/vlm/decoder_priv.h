/* decoder_priv.h - internals of a decoder, for its files. */
#ifndef DV_VLM_DECODER_PRIV_H
#define DV_VLM_DECODER_PRIV_H

#include "core/vlm/decoder.h"

typedef struct dv_decoder_pass {
    const int32_t *ids, *positions; /* memory that the pass reads; ids: on a GPU only */
    dvk_paging rows;                /* rows of the cache; position NULL: after the existing ones */
    dv_row_program
        words;           /* GPU: embeds ids into x. A single token runs it only if the step before has not left its x */
    dv_row_program body; /* all layers. One token: to the logits, on a GPU to x of the next token */
    dv_row_program head; /* logits of the last row of several, if the body does not compute them */
    dv_row_program best; /* one token on a GPU: candidates from logits; empty if there is no kernel */
    dv_prog_item *deep[DV_VLM_MAX_DEEPSTACK];
    bool each;             /* logits of every row; on a GPU all rows are ids, and an id is drawn for each */
    int32_t *drawn;        /* the drawn ids */
    const int32_t *never;  /* [DV_DECODER_NEVER]: ids that are never drawn */
    uint64_t *completions; /* one token on a GPU: the step writes the next id here for the host */
} dv_decoder_pass;

/* Numbers in GPU memory that a token's step reads and writes. Each run adds one to COUNT, PLACE and POSITIONS. */
enum {
    DV_TOKEN_ID = 0,
    DV_TOKEN_COUNT = 1,     /* number of steps */
    DV_TOKEN_PLACE = 2,     /* row of the cache */
    DV_TOKEN_POSITIONS = 3, /* one number for each axis */
    DV_TOKEN_NEVER = 6,
    DV_TOKEN_NEVERS = 3,
    DV_TOKEN_NUMBERS = DV_TOKEN_NEVER + DV_TOKEN_NEVERS
};

typedef struct dv_decoder_cuda dv_decoder_cuda;
typedef struct dv_decoder_rows_cuda dv_decoder_rows_cuda;

struct dv_decoder {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    dv_gpu_queue *queue;    /* NULL: the CPU */
    int64_t context, chunk; /* context: all sequences together */
    int64_t cache_rows;     /* rows of a plane of the cache: the context, and rows that are written, never read */
    int64_t sequences, each, few_rows; /* each: most pages of a sequence; sequences 0: one, without pages */
    int32_t axes;
    dvk_form cache_form;
    dv_space space;
    float *x, *qkv, *mixed, *hidden, *cs, *logits; /* one row for each token of the chunk */
    void *normed, *mixed_in, *hidden_in;           /* in the form that the next matrix needs */
    void *queries;                                 /* on a GPU: rotated, in the form of the cache */
    int32_t *ids, *positions, *deep_rows, *token;  /* ids, token: on a GPU */
    dvk_candidates *candidates;                    /* on a GPU */
    float *parts, *sum;         /* on a GPU, for one token: see dvk_attention_out_args, dvk_linear_args */
    int32_t *sequence, *place;  /* of the rows of dv_decoder_few */
    int32_t *table, *one_table; /* [sequences][each] pages; one_table: of the sequence that reads its prompt */
    void *cache;                /* [layer][keys, values][kv head][cache_rows][head_dim] */
    const float *deep[DV_VLM_MAX_DEEPSTACK];
    dv_decoder_pass step, few, many; /* one token; a few tokens (on the CPU with logits of each); a chunk */
    dv_decoder_pass rows;            /* on a GPU: few_rows tokens, each with its own place and logits */
    int32_t *named;                  /* numbers that the pass `rows` reads and writes */
    dv_decoder_cuda *cuda;
    dv_decoder_rows_cuda *rows_cuda;
};

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_row_program_desc *desc);
void dv_decoder_point(dv_decoder_pass *pass,
                      const dv_decoder *d); /* points the pass to the current picture's features (d->deep) */

struct dv_decoder_rows;

#endif
