/* decoder_priv.h - the inside of a decoder, for its files. */
#ifndef DV_VLM_DECODER_PRIV_H
#define DV_VLM_DECODER_PRIV_H

#include "core/vlm/decoder.h"

typedef struct dv_decoder_pass {
    const int32_t *ids, *positions; /* where they are read; ids: on a GPU alone */
    dvk_paging rows;                /* of the cache; position NULL: behind those that are there */
    dv_row_program words; /* on a GPU: x of the words; of one token, whose ones before have left it there, alone */
    dv_row_program body;  /* every layer; of one token: to the logits, on a GPU to x of the one behind */
    dv_row_program head;  /* the last row of several to logits, where the body does not go there */
    dv_row_program best;  /* of one token on a GPU: from logits to candidates; empty where there is no such kernel */
    dv_prog_item *deep[DV_VLM_MAX_DEEPSTACK];
    bool each;            /* logits of every row; on a GPU all are words, and an id is drawn of each */
    int32_t *drawn;       /* where to, */
    const int32_t *never; /* other than [DV_DECODER_NEVER] of these */
    uint64_t *completions; /* of one token on a GPU: where the step writes the id behind it for the host */
} dv_decoder_pass;

/* On a GPU a token's step reads and writes a few numbers there; each run moves those from COUNT on on by one. */
enum {
    DV_TOKEN_ID = 0,
    DV_TOKEN_COUNT = 1,     /* of steps, */
    DV_TOKEN_PLACE = 2,     /* its row of the cache, */
    DV_TOKEN_POSITIONS = 3, /* then one number for each axis */
    DV_TOKEN_NEVER = 6,
    DV_TOKEN_NEVERS = 3,
    DV_TOKEN_NUMBERS = DV_TOKEN_NEVER + DV_TOKEN_NEVERS
};

typedef struct dv_decoder_cuda dv_decoder_cuda;
typedef struct dv_decoder_rows_cuda dv_decoder_rows_cuda;

struct dv_decoder {
    const dv_vlm_config *config;
    const dv_vlm_weights *weights;
    dv_gpu_queue *queue;               /* NULL: the CPU */
    int64_t context, chunk;            /* context: of all sequences together */
    int64_t cache_rows;                /* of a plane of the cache: the context, and what is written but never read */
    int64_t sequences, each, few_rows; /* each: pages of a sequence at most; sequences 0: one, without pages */
    int32_t axes;
    dvk_form cache_form;
    dv_space space;
    float *x, *qkv, *mixed, *hidden, *cs, *logits; /* rows of the chunk */
    void *normed, *mixed_in, *hidden_in;           /* in the form that the next matrix wants */
    void *queries;                                 /* on a GPU: turned, in the form of the cache */
    int32_t *ids, *positions, *deep_rows, *token;  /* ids, token: on a GPU */
    dvk_candidates *candidates;                    /* on a GPU */
    float *parts, *sum;         /* there, of one token: see dvk_attention_out_args, dvk_linear_args */
    int32_t *sequence, *place;  /* of rows, where they are named */
    int32_t *table, *one_table; /* [sequences][each]; that of the sequence whose prompt is read */
    void *cache;                /* [layer][keys, values][kv head][cache_rows][head_dim] */
    const float *deep[DV_VLM_MAX_DEEPSTACK];
    dv_decoder_pass step, few, many; /* one token; a few (on the CPU: logits of each); a chunk */
    dv_decoder_pass rows;            /* on a GPU: few_rows tokens, each with its place, logits of each */
    int32_t *named;                  /* what that reads and writes */
    dv_decoder_cuda *cuda;
    dv_decoder_rows_cuda *rows_cuda;
};

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_row_program_desc *desc);
void dv_decoder_point(dv_decoder_pass *pass, const dv_decoder *d); /* to the features of this picture */

struct dv_decoder_rows;

#endif
