/* swin.h - parts that networks of windowed transformers share: SwinIR, DRCT, HAT, DAT and others.
 *
 * The dimensions of heads are padded with zeros to multiples of 8, so that every head is an aligned slice. The rows
 * of the projections to q, k and v are padded, and the columns of the projection back. That changes no result. */
#ifndef DV_BLOCK_SWIN_H
#define DV_BLOCK_SWIN_H

#include "core/graph/graph.h"

#define DV_SWIN_EPS 1e-5f /* of layer norms */
enum { DV_MAX_WINDOW = 64 };

typedef struct dv_heads {
    int64_t count, dim, padded; /* channels per head, stored and padded */
} dv_heads;

/* Divides `channels` into heads; fails the graph if that is impossible. */
dv_heads dv_heads_of(dv_graph *g, const char *name, int64_t channels, int64_t heads);
static inline int64_t dv_heads_width(dv_heads h) {
    return h.count * h.padded;
}
float dv_heads_scale(dv_heads h); /* dim^-1/2 */

/* A stored linear layer whose outputs (or inputs) are heads. The bias is optional. */
dv_value dv_linear(dv_graph *g, dv_value x, const char *name, int64_t c_out);
dv_value dv_linear_to_heads(dv_graph *g, dv_value x, const char *name, dv_heads heads, int64_t times);
dv_value dv_linear_from_heads(dv_graph *g, dv_value x, const char *name, dv_heads heads, int64_t c_out);

/* Slices q, k and v out of a picture of 3 * width channels. */
void dv_split_qkv(dv_graph *g, dv_value qkv, int64_t width, dv_value out[3]);

/* Side w of the window for a table of relative positions with (2 w - 1)^2 rows; 0: another number of rows. */
int64_t dv_window_of_table(const dv_tensors *t, const char *name);
/* The same, at least 2; otherwise an error that names the table. */
davy_result dv_window_require(const dv_tensors *t, const char *name, int64_t *out);
/* <name>, [(window + keys - 1)^2, heads], in the order of kernels/op.h. If keys > window, the stored index is
 * HAT's, which wraps. */
dv_param dv_position_table(dv_graph *g, const char *name, int64_t heads, int64_t window, int64_t keys);

typedef struct dv_swin_spec {
    int64_t heads, window, shift;
} dv_swin_spec;

/* proj(window attention(qkv x)) with <name>.qkv, .proj, .relative_position_bias_table: W-MSA, SW-MSA. */
dv_value dv_swin_attention(dv_graph *g, dv_value x, const char *name, const dv_swin_spec *spec);
/* fc2(gelu(fc1 x)); <name>.fc1.weight gives the hidden size. */
dv_value dv_mlp(dv_graph *g, dv_value x, const char *name);
/* fc2(u + gelu(depthwise(u))), u = gelu(fc1 x), with <name>.dwconv.depthwise_conv.0, whose weight gives the
 * kernel's side */
dv_value dv_mixing_mlp(dv_graph *g, dv_value x, const char *name);
/* x += attention(norm1 x), x += mlp(norm2 x) */
dv_value dv_swin_block(dv_graph *g, dv_value x, const char *name, const dv_swin_spec *spec);

#endif
