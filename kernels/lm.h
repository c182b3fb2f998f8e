/* lm.h - the ops of transformers: argument structs and semantics, as op.h has them for pictures. Activations are rows,
 * one per token; every sum and every parameter vector is f32. Kernels never allocate and never fail. */
#ifndef DVK_LM_H
#define DVK_LM_H

#include <stdint.h>

#include "kernels/op.h"
#include "kernels/quant.h"

typedef enum dvk_form { /* what a row holds */
                        DVK_ROWS_F32 = DVK_F32,
                        DVK_ROWS_F16 = DVK_F16,
                        DVK_ROWS_BF16 = DVK_BF16,
                        DVK_ROWS_Q8 = 64 /* dvk_q8 blocks, the last padded with zeros */
} dvk_form;

/* Rows of heads. Strides in elements (of dvk_q8: in blocks). */
typedef struct dvk_rows {
    void *data;
    dvk_form form;
    int32_t reserved;
    int64_t row, head;
} dvk_rows;

typedef enum dvk_gate {
    DVK_GATE_NONE = 0,
    DVK_GATE_SILU,
    DVK_GATE_GELU,       /* x / 2 (1 + erf(x / sqrt 2)); within 2e-7 |x| */
    DVK_GATE_GELU_TANH,  /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    DVK_GATE_GELU_QUICK, /* x sigmoid(1.702 x) */
    DVK_GATE_RELU2       /* max(x, 0)^2 */
} dvk_gate;

/* "linear": t = W x + bias, y = act(t) + res; with glu, W has 2 n rows and y = act(t[0 .. n)) * t[n .. 2n) + res.
 * x is f32 (products in f32), bf16 (W rounded to bf16) or q8 (integer types only: whole-number products of 32 values,
 * scaled in f32). Packing rounds nothing, of no type of W: scales are what the file's blocks say.
 * With `norm` (CUDA, few rows of f32) x is x / sqrt(mean(x^2) + norm_eps) * norm first, with `rounded` (the same, integer
 * types) it becomes q8 then, as "row_norm" and "row_convert" make them. With `more` (and norm, m 1) x is the sum of x and of
 * the n_more rows of `more` first, which is stored to `sum` too.
 * q/k/v in one call: their rows one behind the other, each a multiple of DVK_PANEL. */
enum { DVK_PANEL = 32 }; /* rows of W that lie together when packed */
/* On the CPU a row of f32 or q8 gives the same bits whether it comes alone or with others, up to so many in all: tokens of
 * several sequences, or of one that are only supposed, go through one pass. */
enum { DVK_FEW = 16 };
typedef struct dvk_linear_args {
    dvk_rows x;        /* [m][k] */
    dvk_rows y;        /* [m][n]: f32, f16, bf16 */
    dvk_rows res;      /* [m][n], data NULL: none; may be y */
    const void *w;     /* packed by the same kernel's pack(), whose source is rows of `type`, cast */
    const float *bias; /* [n], glu: [2n]; or NULL */
    int64_t m, n, k;
    dvk_wtype type;
    dvk_gate act;
    int32_t glu;
    int32_t rounded;
    const float *norm; /* [k] or NULL */
    float norm_eps;
    int32_t n_more;    /* at most DVK_MORE */
    const float *more; /* [n_more][k] or NULL */
    float *sum;        /* [k], not x */
} dvk_linear_args;
enum { DVK_MORE = 8 };

/* Every fast kernel packs alike. A panel by itself, its DVK_PANEL rows from anywhere (NULL: zeros); with glu the first
 * half are rows of the gate and the second the same rows of the other factor. dst: 64-byte aligned. */
int64_t dvk_panel_bytes(dvk_wtype type, int64_t k);
int64_t dvk_panel_count(int64_t n, int32_t glu);
void dvk_panel_pack(dvk_wtype type, int64_t k, const void *const rows[DVK_PANEL], void *dst);
/* Panel number `panel` of plain rows that lie one behind the other; with glu: n of the gate, then n of the other. */
void dvk_panel_pack_from(dvk_wtype type, int64_t k, int64_t n, int32_t glu, const void *source, int64_t panel,
                         void *dst);
void dvk_panel_row(dvk_wtype type, int64_t k, const void *panel, int32_t row, float *to); /* back, for "embed" */

/* "embed": y[i] = row ids[i] of a packed W without glu (the reference: of plain rows). 0 <= ids[i] < n. */
typedef struct dvk_embed_args {
    dvk_rows y; /* [m][k] */
    const int32_t *ids;
    const void *w;
    int64_t m, n, k;
    dvk_wtype type;
    int32_t reserved;
} dvk_embed_args;

/* "row_norm": per head of each row, y = (x - mean) / sqrt(var + eps) * w + b where `center`, else x / sqrt(mean(x^2) +
 * eps) * w. y may be q8 (heads 1) or, of the same form, x itself. */
typedef struct dvk_row_norm_args {
    dvk_rows x, y;
    const float *w, *b; /* [dim] or NULL */
    int64_t m, heads, dim;
    float eps;
    int32_t center;
} dvk_row_norm_args;

/* "row_convert": y = x in another form; y may be q8 (heads 1). */
typedef struct dvk_row_convert_args {
    dvk_rows x, y;
    int64_t m, heads, dim;
} dvk_row_convert_args;

/* "rope_table": cs[i][j] = {cos a, sin a}, a = pos[i][axis[j]] * freq[j] in f32. */
typedef struct dvk_rope_table_args {
    const int32_t *pos;  /* [m][axes] */
    const float *freq;   /* [pairs] */
    const uint8_t *axis; /* [pairs] or NULL: 0 */
    float *cs;           /* [m][pairs][2] */
    int64_t m, pairs, axes;
} dvk_rope_table_args;

/* Where rows belong: position p of sequence s is row table[s * each + p / page] * page + p % page of a cache. On a GPU all
 * three lie in its memory, so that a recorded pass serves every position. */
typedef struct dvk_paging {
    const int32_t *table;    /* [sequences][each] numbers of pages; NULL: position p of the one sequence is row p */
    const int32_t *sequence; /* [m]; NULL: all are of sequence 0 */
    const int32_t *position; /* [m], rising within a sequence, whose rows lie one behind the other; NULL: see the op */
    int64_t each;            /* pages of a sequence at most */
    int64_t page;            /* positions of a page, a multiple of DVK_PAGE */
} dvk_paging;
enum { DVK_PAGE = 64 };

/* "rope": turns pair j of the first 2 * pairs values of each head: (x_j, x_{j + pairs}), or (x_2j, x_2j+1) where
 * interleaved, to (a cos - b sin, b cos + a sin); `inverse`: the other way round. The rest is copied. y may be x, or
 * the place of new keys in a cache; pairs 0 only converts. dim is at most DVK_HEAD_MAX. With `to`, row i of y is the one
 * of its sequence and position (position NULL: row i). */
enum { DVK_HEAD_MAX = 512 };
typedef struct dvk_rope_args {
    dvk_rows x, y; /* f32, f16, bf16 */
    const float *cs;
    dvk_paging to;
    int64_t m, heads, dim, pairs;
    int32_t interleaved, inverse;
} dvk_rope_args;

/* "rope_qkv": a token's q, k and v in one step: as "rope" from q to q_to, from k to k_to and, only copied, from v to v_to.
 * k_to and v_to are paged by `to`, q_to is not. */
typedef struct dvk_rope_qkv_args {
    dvk_rows q, k, v, q_to, k_to, v_to; /* f32, f16, bf16 */
    const float *cs;
    dvk_paging to;
    int64_t m, heads, kv_heads, dim, pairs;
    int32_t interleaved, inverse;
} dvk_rope_qkv_args;

/* "gather_rows": y[i] = x[order[i]], rows of dim values one behind the other. */
typedef struct dvk_gather_rows_args {
    const float *x;
    float *y;
    const int32_t *order;
    int64_t m, dim;
} dvk_gather_rows_args;

/* "add_rows": y[i] += sum over k of weight[i * taps + k] * x[row[i * taps + k]]; weight NULL: 1; a row below 0: nothing. */
typedef struct dvk_add_rows_args {
    const float *x;
    float *y;
    const int32_t *row;
    const float *weight;
    int64_t m, dim, taps;
} dvk_add_rows_args;

/* "attention_kv": y = softmax(scale q k^T) v per head; query head h uses kv head h / (heads / kv_heads). k and v are
 * rows of positions. Query i is at position past + i of `keys` and sees
 *     with bounds (past 0): [bounds[s], bounds[s + 1]) that it lies in, bounds rising from 0 to keys;
 *     causal: [max(0, p - window + 1), p], p its position, window 0: no limit; else all.
 * With in.position, query i is at that position of its sequence and sees keys of that alone: causal, past 0, no bounds,
 * and `keys` is the most positions that a sequence may have. dim is at most DVK_HEAD_MAX. */
typedef struct dvk_attention_kv_args {
    dvk_rows q, k, v, y; /* f32, f16, bf16 */
    dvk_paging in;
    const int32_t *bounds;
    int64_t n_bounds;
    int64_t m, past, keys, heads, kv_heads, dim, window;
    float scale;
    int32_t causal;
} dvk_attention_kv_args;

/* "attention_new" (CUDA): "rope_qkv" and "attention_kv" in one. q is a.q turned; new keys, turned, and values go to their
 * places in a.k and a.v, which a.in names, and are seen from there. a.in.position is there, and no two rows are of one
 * sequence. What a.in holds and the rows of the cache before are there when the launch ahead begins: it may be overtaken. */
typedef struct dvk_attention_new_args {
    dvk_attention_kv_args a;
    dvk_rows k, v; /* [m][kv_heads][dim]: f32 */
    const float *cs;
    int64_t pairs;
    int32_t inverse;
    int32_t reserved;
} dvk_attention_new_args;

/* "attention_out" (CUDA): "attention_new" of one row, which gives y to nobody but W: parts[g] is W times what the heads of key
 * head g give, zeros for the others. */
typedef struct dvk_attention_out_args {
    dvk_attention_new_args of; /* a.m 1; a.y is not looked at */
    const void *w;             /* [n][heads * dim], packed as "linear" wants it */
    float *parts;              /* [kv_heads][n] */
    int64_t n;
    dvk_wtype type;
    int32_t reserved;
} dvk_attention_out_args;

/* "patches": y[i] = the numbers of patch order[i] (NULL: i), whose `values` bytes are a third each of red, green and blue:
 * byte v of colour c is table[c * 256 + v]. */
typedef struct dvk_patches_args {
    const uint8_t *x; /* [..][values] */
    const float *table;
    const int32_t *order;
    dvk_rows y; /* [m][values]: f32, f16, bf16 */
    int64_t m, values;
} dvk_patches_args;

/* "argmax": id[i] = the index of the largest of x[i], of equals the lowest, those of `never` left out (a negative one
 * is none); -1 where there is a NaN or nothing finite. Afterwards each of `advance` is one more. */
typedef struct dvk_argmax_args {
    dvk_rows x; /* [m][n] f32 */
    int32_t *id;
    const int32_t *never; /* [n_never] */
    int32_t *advance;     /* [n_advance] */
    int64_t m, n, n_never, n_advance;
} dvk_argmax_args;

/* "next_token" (CUDA): what lies between two tokens: "argmax" of one row, then "embed" of its id (-1: of 0) and "rope_table" of
 * one row. draw.id is embed.ids; table.pos may be among draw.advance. In the end told[count % DVK_COMPLETION_SLOTS], in memory of the
 * host, becomes count << 32 | id in one piece, `count` being advance[0] as it was. */
enum { DVK_COMPLETION_SLOTS = 8 };
typedef struct dvk_next_token_args {
    dvk_argmax_args draw;
    dvk_embed_args embed;
    dvk_rope_table_args table;
    uint64_t *told; /* [DVK_COMPLETION_SLOTS] */
} dvk_next_token_args;

/* "candidates" (CUDA): of x, cut into pieces of DVK_CANDIDATE_PIECE values, all that are not below `bound`, ids rising. The
 * bound is the `least`-th largest of the pieces' largest values, or their smallest: no fewer values than that are above it. */
enum { DVK_CANDIDATE_PIECE = 64, DVK_CANDIDATE_PIECES = 4096, DVK_CANDIDATES = 1020 };
typedef struct dvk_candidates {
    int32_t n; /* more than there is room for: the rest is missing; -1: there is a NaN, and nothing else is said */
    float bound;
    int32_t id[DVK_CANDIDATES];
    float value[DVK_CANDIDATES];
} dvk_candidates;
typedef struct dvk_candidates_args {
    const float *x; /* [n], 8-byte aligned */
    dvk_candidates *to;
    int64_t n, least; /* n: at most DVK_CANDIDATE_PIECES pieces */
} dvk_candidates_args;

#endif
