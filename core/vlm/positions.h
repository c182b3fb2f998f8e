/* positions.h - where tokens and patches are: coordinates and frequencies for rotary embeddings, the order and the windows
 * of Qwen2.5's vision tower, the resampled position table of Qwen3's. All as tables that kernels read. */
#ifndef DV_VLM_POSITIONS_H
#define DV_VLM_POSITIONS_H

#include "core/vlm/config.h"

/* ---- the language model ---- */

typedef struct dv_vlm_span { /* vision tokens in a sequence: t x h x w of them, row by row */
    int64_t at;              /* index of the first in the sequence */
    int64_t t, h, w;         /* in tokens: patches / merge */
    double seconds;          /* of a video: from one t to the next (temporal patch / fps); 0: a still */
} dv_vlm_span;

typedef struct dv_vlm_sequence { /* or a part of one */
    int64_t tokens;
    const dv_vlm_span *spans;
    int64_t n_spans;
} dv_vlm_sequence;

int32_t dv_vlm_position_axes(const dv_vlm_config *c); /* coordinates of a token: 3, or 1 */

/* Positions of its tokens, [tokens][axes]. The first is *next, 0 for a new sequence; *next becomes that of a token
 * after the last, so that a sequence may come in pieces; while decoding, token n is at *next + n on all axes. Qwen3 takes
 * every temporal patch of a video as a span of its own, t = 1. Spans are rising and apart (DAVY_E_INVALID). */
davy_result dv_vlm_positions(const dv_vlm_config *c, const dv_vlm_sequence *s, int64_t *next, int32_t *pos);

/* Frequency of each of the head_dim / 2 pairs, scaled as the model wants it, and the coordinate it belongs to. */
void dv_vlm_rope_tables(const dv_vlm_text *t, float *freq, uint8_t *axis);

/* ---- the vision tower ---- */

typedef struct dv_vlm_grid { /* patches: plan->grid_* */
    int64_t t, h, w;
    int64_t merge;
} dv_vlm_grid;

/* Row and column of each patch in the tower's order, [t * h * w][2]: merge x merge neighbours behind one another. */
void dv_vlm_patch_positions(const dv_vlm_grid *g, int32_t *pos);
/* head_dim / 2 pairs: the first half turns by the row, the second by the column. */
void dv_vlm_patch_rope_tables(int64_t head_dim, float *freq, uint8_t *axis);

/* Bounds of the frames in patches: t + 1 numbers from 0. */
void dv_vlm_frame_bounds(const dv_vlm_grid *g, int32_t *bounds);

typedef struct dv_vlm_windows {
    int64_t units;  /* merge units, t * h * w / merge^2 */
    int32_t *order; /* place k of the windowed sequence holds unit order[k] (and its patches) */
    int64_t n_bounds;
    int32_t *bounds; /* of the windows, in patches of the windowed sequence; from 0 */
} dv_vlm_windows;

davy_result dv_vlm_windows_make(const dv_vlm_vision *v, const dv_vlm_grid *g, dv_vlm_windows *out);
void dv_vlm_windows_free(dv_vlm_windows *w);

/* Qwen3: the position of a patch is the weighted sum of four rows of a table of side x side. [t * h * w][4] each. */
void dv_vlm_table_taps(int64_t side, const dv_vlm_grid *g, int32_t *row, float *weight);

#endif
