/* lm.h - argument structs and semantics of the ops of transformers, as op.h has them for pictures. Activations are
 * rows, one per token. Every sum and every parameter vector is f32. Kernels never allocate and never fail. */
#ifndef DVK_LM_H
#define DVK_LM_H

#include <stdint.h>

#include "kernels/op.h"
#include "kernels/quant.h"

typedef enum dvk_form { /* contents of a row */
                        DVK_ROWS_F32 = DVK_F32,
                        DVK_ROWS_F16 = DVK_F16,
                        DVK_ROWS_BF16 = DVK_BF16,
                        DVK_ROWS_Q8 = 64 /* dvk_q8 blocks, the last padded with zeros */
} dvk_form;

/* Rows of heads. Strides in elements (dvk_q8: in blocks). */
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

/* "linear": t = W x + bias, y = act(t) + res. With glu, W has 2 n rows and y = act(t[0 .. n)) * t[n .. 2n) + res. x is
 * f32 (products in f32), bf16 (W rounded to bf16) or q8. q8 needs integer types: integer products of 32 values, scaled
 * in f32. Packing rounds no type of W: the scales are those of the file's blocks.
 * - `norm` (CUDA, few rows of f32): x becomes x / sqrt(mean(x^2) + norm_eps) * norm first.
 * - `rounded` (likewise, integer types): x then becomes q8. Both steps equal "row_norm" and "row_convert".
 * - `more` (with norm, m 1): x is first the sum of x and the n_more rows of `more`; the sum is also stored to `sum`.
 *
 * q/k/v in one call: their rows are concatenated, each with a multiple of DVK_PANEL rows. */
enum { DVK_PANEL = 32 }; /* rows of W in one packed panel */
/* On the CPU, up to DVK_FEW rows of f32 or q8 in a call give the same bits as calls of one row. One pass can therefore
 * serve tokens of several sequences, or speculative tokens of one. */
enum { DVK_FEW = 16 };
typedef struct dvk_linear_args {
    dvk_rows x;        /* [m][k] */
    dvk_rows y;        /* [m][n]: f32, f16, bf16 */
    dvk_rows res;      /* [m][n], data NULL: none; may alias y */
    const void *w;     /* packed by the same kernel's pack(); the source is rows of `type` */
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

/* All fast kernels pack alike. Packs one panel; each of its DVK_PANEL rows has a pointer (NULL: zeros). With glu the
 * first half are rows of the gate, the second half the same rows of the other factor. dst is 64-byte aligned. */
int64_t dvk_panel_bytes(dvk_wtype type, int64_t k);
int64_t dvk_panel_count(int64_t n, int32_t glu);
void dvk_panel_pack(dvk_wtype type, int64_t k, const void *const rows[DVK_PANEL], void *dst);
/* Packs panel number `panel` of contiguous rows. With glu these are n rows of the gate, then n rows of the other
 * factor. */
void dvk_panel_pack_from(dvk_wtype type, int64_t k, int64_t n, int32_t glu, const void *source, int64_t panel,
                         void *dst);
/* unpacks a row, for "embed" */
void dvk_panel_row(dvk_wtype type, int64_t k, const void *panel, int32_t row, float *to);

/* "embed": y[i] = row ids[i] of a packed W without glu (reference: of unpacked rows). 0 <= ids[i] < n. */
typedef struct dvk_embed_args {
    dvk_rows y; /* [m][k] */
    const int32_t *ids;
    const void *w;
    int64_t m, n, k;
    dvk_wtype type;
    int32_t reserved;
} dvk_embed_args;

/* "row_norm", per head of each row: with `center`, y = (x - mean) / sqrt(var + eps) * w + b, else y = x /
 * sqrt(mean(x^2) + eps) * w. y may be q8 (heads 1). If it has x's form, y may be x. */
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

/* Cache rows of the positions of sequences. Position p of sequence s is row table[s * each + p / page] * page + p %
 * page of a cache. On a GPU all three arrays are in device memory, so that one captured graph serves every position. */
typedef struct dvk_paging {
    const int32_t *table;    /* [sequences][each] page numbers; NULL: position p of the only sequence is row p */
    const int32_t *sequence; /* [m]; NULL: all are of sequence 0 */
    const int32_t *position; /* [m], rising within a sequence, whose rows are adjacent; NULL: see the op */
    int64_t each;            /* maximum pages of a sequence */
    int64_t page;            /* positions per page, a multiple of DVK_PAGE */
} dvk_paging;
enum { DVK_PAGE = 64 };

/* "rope": rotates pair j of the first 2 * pairs values of each head: (x_j, x_{j + pairs}), or (x_2j, x_2j+1) if
 * interleaved, becomes (a cos - b sin, b cos + a sin). `inverse` rotates by the negative angle. The other values are
 * copied; pairs 0 only converts. y may be x, or the place of new keys in a cache. With `to`, row i of y is the cache
 * row of its sequence and position (position NULL: row i). dim is at most DVK_HEAD_MAX. */
enum { DVK_HEAD_MAX = 512 };
typedef struct dvk_rope_args {
    dvk_rows x, y; /* f32, f16, bf16 */
    const float *cs;
    dvk_paging to;
    int64_t m, heads, dim, pairs;
    int32_t interleaved, inverse;
} dvk_rope_args;

/* "rope_qkv": q, k and v of a token in one step. "rope" from q to q_to and from k to k_to, and a copy from v to v_to.
 * k_to and v_to are paged by `to`; q_to is not. */
typedef struct dvk_rope_qkv_args {
    dvk_rows q, k, v, q_to, k_to, v_to; /* f32, f16, bf16 */
    const float *cs;
    dvk_paging to;
    int64_t m, heads, kv_heads, dim, pairs;
    int32_t interleaved, inverse;
} dvk_rope_qkv_args;

/* "gather_rows": y[i] = x[order[i]], contiguous rows of dim values. */
typedef struct dvk_gather_rows_args {
    const float *x;
    float *y;
    const int32_t *order;
    int64_t m, dim;
} dvk_gather_rows_args;

/* "add_rows": y[i] += sum over k of weight[i * taps + k] * x[row[i * taps + k]]. weight NULL: 1. A negative row adds
 * nothing. */
typedef struct dvk_add_rows_args {
    const float *x;
    float *y;
    const int32_t *row;
    const float *weight;
    int64_t m, dim, taps;
} dvk_add_rows_args;

/* "attention_kv": y = softmax(scale q k^T) v per head; query head h uses kv head h / (heads / kv_heads). k and v are
 * rows of positions. Query i is at position p = past + i of `keys` and sees:
 *     bounds (past 0): the keys [bounds[s], bounds[s + 1]) of its own range; bounds rise from 0 to keys
 *     causal:          the keys [max(0, p - window + 1), p], window 0: no limit
 *     otherwise:       all keys
 * With in.position, query i is at that position of its sequence and sees only keys of that sequence. It is then causal,
 * past is 0, and there are no bounds. `keys` is then the maximum number of positions of a sequence. dim is at most
 * DVK_HEAD_MAX. */
typedef struct dvk_attention_kv_args {
    dvk_rows q, k, v, y; /* f32, f16, bf16 */
    dvk_paging in;
    const int32_t *bounds;
    int64_t n_bounds;
    int64_t m, past, keys, heads, kv_heads, dim, window;
    float scale;
    int32_t causal;
} dvk_attention_kv_args;

/* "attention_new" (CUDA): "rope_qkv" and "attention_kv" in one. q is a.q after rotation. New rotated keys and new
 * values go to their places in a.k and a.v, given by a.in, and are read from there. a.in.position is set, and no two
 * rows belong to one sequence. The kernel may overlap the preceding launch: a.in's arrays and earlier cache rows must
 * be complete before that launch begins. */
typedef struct dvk_attention_new_args {
    dvk_attention_kv_args a;
    dvk_rows k, v; /* [m][kv_heads][dim]: f32 */
    const float *cs;
    int64_t pairs;
    int32_t inverse;
    int32_t reserved;
} dvk_attention_new_args;

/* "attention_out" (CUDA): "attention_new" of one row, followed by W; y is not stored. parts[g] is W times the results
 * of the heads of key head g, with zeros for other heads. */
typedef struct dvk_attention_out_args {
    dvk_attention_new_args of; /* a.m is 1; a.y is not read */
    const void *w;             /* [n][heads * dim], packed as for "linear" */
    float *parts;              /* [kv_heads][n] */
    int64_t n;
    dvk_wtype type;
    int32_t reserved;
} dvk_attention_out_args;

/* "patches": y[i] = the numbers of patch order[i] (NULL: i). A patch has `values` bytes, a third each of red, green and
 * blue. Byte v of colour c becomes table[c * 256 + v]. */
typedef struct dvk_patches_args {
    const uint8_t *x; /* [..][values] */
    const float *table;
    const int32_t *order;
    dvk_rows y; /* [m][values]: f32, f16, bf16 */
    int64_t m, values;
} dvk_patches_args;

/* "argmax": id[i] = the index of the maximum of x[i], the lowest of equals, without the ids in `never` (negative
 * entries are ignored). It is -1 if there is a NaN or no finite value. Each number in `advance` is then increased by
 * one. */
typedef struct dvk_argmax_args {
    dvk_rows x; /* [m][n] f32 */
    int32_t *id;
    const int32_t *never; /* [n_never] */
    int32_t *advance;     /* [n_advance] */
    int64_t m, n, n_never, n_advance;
} dvk_argmax_args;

/* "next_token" (CUDA): the steps between two tokens: "argmax" of one row, "embed" of its id (-1: of id 0) and
 * "rope_table" of one row. draw.id is embed.ids; table.pos may be among draw.advance. At the end told[count %
 * DVK_COMPLETION_SLOTS], in host memory, becomes count << 32 | id in one store. count is advance[0] before its
 * increment. */
enum { DVK_COMPLETION_SLOTS = 8 };
typedef struct dvk_next_token_args {
    dvk_argmax_args draw;
    dvk_embed_args embed;
    dvk_rope_table_args table;
    uint64_t *told; /* [DVK_COMPLETION_SLOTS] */
} dvk_next_token_args;

/* "candidates" (CUDA): all values of x that are not below `bound`, ids rising. x is cut into pieces of
 * DVK_CANDIDATE_PIECE values. The bound is the `least`-th largest of the maxima of the pieces, or the smallest maximum
 * if there are fewer pieces. At least that many values reach the bound. */
enum { DVK_CANDIDATE_PIECE = 64, DVK_CANDIDATE_PIECES = 4096, DVK_CANDIDATES = 1020 };
typedef struct dvk_candidates {
    int32_t n; /* above DVK_CANDIDATES: the remaining candidates are missing; -1: x has a NaN, other fields are unset */
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
