/* positions.h - positions of tokens and patches as tables for kernels: coordinates and frequencies of rotary embeddings, order
 * and windows of Qwen2.5's vision tower, the resampled position table of Qwen3's. */
#ifndef DV_VLM_POSITIONS_H
#define DV_VLM_POSITIONS_H

#include "core/vlm/config.h"

/* ---- the language model ---- */

typedef struct dv_vlm_span { /* vision tokens in a sequence: t x h x w of them, row by row */
    int64_t at;              /* index of the first one in the sequence */
    int64_t t, h, w;         /* in tokens: patches / merge */
    double seconds;          /* video: seconds between steps of t (temporal patch / fps); 0: a still */
} dv_vlm_span;

typedef struct dv_vlm_sequence { /* or a part of one */
    int64_t tokens;
    const dv_vlm_span *spans;
    int64_t n_spans;
} dv_vlm_sequence;

int32_t dv_vlm_position_axes(const dv_vlm_config *c); /* coordinates of a token: 3, or 1 */

/* Computes positions, pos: [tokens][axes]. *next in: position of the first token, 0 for a new sequence. *next out: position
 * after the last, so a sequence may come in pieces. While decoding, token n is at *next + n on all axes. Qwen3: every temporal
 * patch of a video is one span with t = 1. Spans must rise and not overlap (DAVY_E_INVALID). */
davy_result dv_vlm_positions(const dv_vlm_config *c, const dv_vlm_sequence *s, int64_t *next, int32_t *pos);

/* freq: frequency of each of the head_dim / 2 pairs, with the model's scaling. axis: its coordinate. */
void dv_vlm_rope_tables(const dv_vlm_text *t, float *freq, uint8_t *axis);

/* ---- the vision tower ---- */

typedef struct dv_vlm_grid { /* patches: plan->grid_* */
    int64_t t, h, w;
    int64_t merge;
} dv_vlm_grid;

/* Row and column of each patch in the tower's order, [t * h * w][2]: merge x merge neighbours are adjacent. */
void dv_vlm_patch_positions(const dv_vlm_grid *g, int32_t *pos);
/* head_dim / 2 pairs: the row rotates the first half, the column the second half. */
void dv_vlm_patch_rope_tables(int64_t head_dim, float *freq, uint8_t *axis);

/* Bounds of the frames in patches: t + 1 numbers, the first is 0. */
void dv_vlm_frame_bounds(const dv_vlm_grid *g, int32_t *bounds);

typedef struct dv_vlm_windows {
    int64_t units;  /* merge units, t * h * w / merge^2 */
    int32_t *order; /* place k of the windowed sequence holds unit order[k] and its patches */
    int64_t n_bounds;
    int32_t *bounds; /* bounds of the windows, in patches of the windowed sequence; the first is 0 */
} dv_vlm_windows;

davy_result dv_vlm_windows_make(const dv_vlm_vision *v, const dv_vlm_grid *g, dv_vlm_windows *out);
void dv_vlm_windows_free(dv_vlm_windows *w);

/* Qwen3: a patch's position embedding is the weighted sum of four rows of a side x side table. row, weight: [t * h * w][4]. */
void dv_vlm_table_taps(int64_t side, const dv_vlm_grid *g, int32_t *row, float *weight);

#endif
