/* vision_qwen.c - the towers of Qwen2-VL, Qwen2.5-VL (windows) and Qwen3-VL (resampled position table, deepstack), and the order
 * of their patches: blocks, frames, windows. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/positions.h"
#include "core/vlm/vision_tower.h"

/* Row and column of patch i of a frame. */
static void place_of(const dv_vlm_grid *g, int64_t i, int64_t *row, int64_t *col) {
    const int64_t m = g->merge;
    const int64_t block = i / (m * m);
    *row = block / (g->w / m) * m + i % (m * m) / m;
    *col = block % (g->w / m) * m + i % m;
}

void dv_vlm_patch_positions(const dv_vlm_grid *g, int32_t *pos) {
    const int64_t frame = g->h * g->w;
    for (int64_t i = 0; i < g->t * frame; i++) {
        int64_t row = 0;
        int64_t col = 0;
        place_of(g, i % frame, &row, &col);
        pos[2 * i] = (int32_t)row;
        pos[2 * i + 1] = (int32_t)col;
    }
}

void dv_vlm_frame_bounds(const dv_vlm_grid *g, int32_t *bounds) {
    for (int64_t t = 0; t <= g->t; t++) {
        bounds[t] = (int32_t)(t * g->h * g->w);
    }
}

davy_result dv_vlm_windows_make(const dv_vlm_vision *v, const dv_vlm_grid *g, dv_vlm_windows *out) {
    const int64_t side = v->window / (v->patch * v->merge); /* side of a window in merge units */
    const int64_t h = g->h / g->merge;
    const int64_t w = g->w / g->merge;
    const int64_t across = dv_div_up(w, side);
    const int64_t windows = g->t * dv_div_up(h, side) * across;
    *out = (dv_vlm_windows){.units = g->t * h * w, .n_bounds = windows + 1};
    out->order = dv_calloc((uint64_t)out->units, sizeof *out->order);
    out->bounds = dv_calloc((uint64_t)out->n_bounds, sizeof *out->bounds);
    if (out->order == NULL || out->bounds == NULL) {
        dv_vlm_windows_free(out);
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the windows of a picture");
    }
    int64_t at = 0;
    for (int64_t k = 0; k < windows; k++) {
        const int64_t t = k / (windows / g->t);
        const int64_t y0 = k % (windows / g->t) / across * side;
        const int64_t x0 = k % across * side;
        for (int64_t y = y0; y < dv_min(y0 + side, h); y++) {
            for (int64_t x = x0; x < dv_min(x0 + side, w); x++) {
                out->order[at++] = (int32_t)((t * h + y) * w + x);
            }
        }
        out->bounds[k + 1] = (int32_t)(at * g->merge * g->merge);
    }
    return DAVY_OK;
}

void dv_vlm_windows_free(dv_vlm_windows *w) {
    dv_free(w->order);
    dv_free(w->bounds);
    *w = (dv_vlm_windows){0};
}

/* Maps coordinate i of n linearly to a table of `side` rows: two rows and their weights. First and last rows coincide. */
static void taps_of(int64_t i, int64_t n, int64_t side, int64_t row[2], float weight[2]) {
    const float at = (float)i * (float)(side - 1) / (float)dv_max(n - 1, 1);
    const float lower = floorf(at);
    row[0] = dv_min((int64_t)lower, side - 1);
    row[1] = dv_min((int64_t)lower + 1, side - 1);
    weight[0] = 1.0f - (at - lower);
    weight[1] = 1.0f - fabsf(at - lower - 1.0f);
}

void dv_vlm_table_taps(int64_t side, const dv_vlm_grid *g, int32_t *row, float *weight) {
    const int64_t frame = g->h * g->w;
    for (int64_t i = 0; i < g->t * frame; i++) {
        int64_t y = 0;
        int64_t x = 0;
        int64_t rows[2];
        int64_t cols[2];
        float wy[2];
        float wx[2];
        place_of(g, i % frame, &y, &x);
        taps_of(y, g->h, side, rows, wy);
        taps_of(x, g->w, side, cols, wx);
        for (int k = 0; k < 4; k++) {
            row[4 * i + k] = (int32_t)(rows[k / 2] * side + cols[k % 2]);
            weight[4 * i + k] = wy[k / 2] * wx[k % 2];
        }
    }
}

/* ---- the towers: all patches of a picture or of a video's frames in one run, rotary positions, mergers of 2 x 2 patches ---- */

typedef struct qwen {
    dv_tower *t;
    dv_vlm_grid grid;
    dv_vlm_windows windows; /* order NULL: none */
    int32_t *frame_bounds;
    int32_t *patch_order, *token_place; /* with windows: order of the patches, place of each token */
    int32_t *positions;
    float *freq;
    uint8_t *axis;
    int32_t *taps;
    float *tap_weights;
} qwen;

/* Puts patches, their coordinates and the resulting tokens in the order of the windows. */
static davy_result order_windows(qwen *q) {
    const dv_vlm_vision *v = &q->t->desc->config->vision;
    const int64_t n = q->t->plan->patches;
    const int64_t unit = v->merge * v->merge;
    const davy_result r = dv_vlm_windows_make(v, &q->grid, &q->windows);
    int32_t *unordered = r == DAVY_OK ? dv_calloc((uint64_t)n, 2 * sizeof *unordered) : NULL;
    if (unordered == NULL) {
        return r < 0 ? r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for a picture");
    }
    memcpy(unordered, q->positions, (size_t)n * 2 * sizeof *unordered);
    for (int64_t i = 0; i < n; i++) {
        q->patch_order[i] = (int32_t)(q->windows.order[i / unit] * unit + i % unit);
        memcpy(q->positions + 2 * i, unordered + 2 * q->patch_order[i], 2 * sizeof *unordered);
    }
    for (int64_t i = 0; i < n / unit; i++) {
        q->token_place[q->windows.order[i]] = (int32_t)i;
    }
    dv_free(unordered);
    return DAVY_OK;
}

static davy_result make_tables(qwen *q) {
    const dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const int64_t n = t->plan->patches;
    q->frame_bounds = dv_calloc((uint64_t)q->grid.t + 1, sizeof *q->frame_bounds);
    q->freq = dv_calloc((uint64_t)v->head_dim, sizeof *q->freq);
    q->axis = dv_calloc((uint64_t)v->head_dim, sizeof *q->axis);
    q->patch_order = dv_calloc((uint64_t)n, sizeof *q->patch_order);
    q->token_place = dv_calloc((uint64_t)n, sizeof *q->token_place);
    q->positions = dv_calloc((uint64_t)n, 2 * sizeof *q->positions);
    q->taps = dv_calloc((uint64_t)n, 4 * sizeof *q->taps);
    q->tap_weights = dv_calloc((uint64_t)n, 4 * sizeof *q->tap_weights);
    if (q->frame_bounds == NULL || q->freq == NULL || q->axis == NULL || q->patch_order == NULL ||
        q->token_place == NULL || q->positions == NULL || q->taps == NULL || q->tap_weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for a picture");
    }
    dv_vlm_frame_bounds(&q->grid, q->frame_bounds);
    dv_vlm_patch_positions(&q->grid, q->positions);
    dv_vlm_patch_rope_tables(v->head_dim, q->freq, q->axis);
    if (v->position_side > 0) {
        dv_vlm_table_taps(v->position_side, &q->grid, q->taps, q->tap_weights);
    }
    return v->window > 0 ? order_windows(q) : DAVY_OK;
}

static void free_tables(qwen *q) {
    dv_vlm_windows_free(&q->windows);
    dv_free(q->frame_bounds);
    dv_free(q->patch_order);
    dv_free(q->token_place);
    dv_free(q->positions);
    dv_free(q->freq);
    dv_free(q->axis);
    dv_free(q->taps);
    dv_free(q->tap_weights);
}

/* norm_first: normalises each patch, then joins merge x merge patches to one row. Otherwise joins first, then normalises. */
static void add_merger(qwen *q, const dv_vlm_merger *m, bool norm_first, float *to) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_row_program *p = &t->program;
    const int64_t unit = v->merge * v->merge;
    const int64_t wide = unit * v->hidden;
    const int64_t rows = p->rows;
    p->rows = rows / unit;
    dvk_form form = dv_row_program_form(p, &m->first);
    const bool direct = form != DVK_ROWS_Q8 || !norm_first;
    const int64_t width = norm_first ? v->hidden : wide;
    const dvk_rows normed = dv_rows(direct ? t->normed : (void *)t->grouped, direct ? form : DVK_ROWS_F32, width);
    p->rows = norm_first ? rows : rows / unit;
    dv_row_program_norm(p, &(dv_prog_norm){.w = &m->norm,
                                           .x = dv_rows(t->x, DVK_ROWS_F32, width),
                                           .y = normed,
                                           .heads = 1,
                                           .dim = width,
                                           .eps = v->norm_eps,
                                           .center = v->norm == DV_VLM_LAYER_NORM});
    p->rows = rows / unit;
    dvk_rows in = dv_row_program_input(p, dv_rows(normed.data, normed.form, wide), form, t->grouped_in, wide);
    form = dv_row_program_form(p, &m->second);
    const dvk_rows between = dv_row_program_written(form, t->projected, wide);
    dv_row_program_linear(
        p, &(dv_prog_linear){.w = &m->first, .x = in, .y = between, .act = dv_gate_of(v->projector_act)});
    in = dv_row_program_input(p, between, form, t->projected_in, wide);
    dv_row_program_linear(p,
                          &(dv_prog_linear){.w = &m->second, .x = in, .y = dv_rows(to, DVK_ROWS_F32, v->out_hidden)});
    p->rows = rows;
}

/* Makes a host table of `count` 4-byte numbers readable for the program. */
static const void *table(const qwen *q, const void *numbers, int64_t count) {
    const void *out = NULL;
    dv_row_program_table(&q->t->program, numbers, (uint64_t)count * 4, &out);
    return out;
}

/* Embeds the patches into x and adds positions. */
static void add_patches(qwen *q) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    dv_row_program *p = &t->program;
    const int64_t n = t->rows;
    if (q->windows.order != NULL && t->patches->bytes != NULL) {
        t->order = table(q, q->patch_order, n);
    } else if (q->windows.order != NULL) {
        dv_row_program_gather(p, &(dv_gather_args){.x = table(q, t->patches->numbers, n * t->plan->patch_values),
                                                   .y = t->in,
                                                   .order = table(q, q->patch_order, n),
                                                   .m = n,
                                                   .dim = t->plan->patch_values});
    }
    dv_tower_patches(t, t->x, NULL);
    if (w->positions != NULL) {
        dv_row_program_add_rows(p, &(dv_add_rows_args){.x = w->positions,
                                                       .y = t->x,
                                                       .row = table(q, q->taps, 4 * n),
                                                       .weight = table(q, q->tap_weights, 4 * n),
                                                       .dim = v->hidden,
                                                       .taps = 4});
    }
    const void *axis = NULL;
    dv_row_program_table(p, q->axis, (uint64_t)v->head_dim, &axis);
    dv_row_program_rope_table(p, &(dvk_rope_table_args){.pos = table(q, q->positions, 2 * n),
                                                        .freq = table(q, q->freq, v->head_dim),
                                                        .axis = axis,
                                                        .cs = t->cs,
                                                        .pairs = v->head_dim / 2,
                                                        .axes = 2});
}

static void add_all(qwen *q, dv_vlm_features *out) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    dv_row_program *p = &t->program;
    const bool windows = q->windows.order != NULL;
    add_patches(q);
    t->frame_bounds = table(q, q->frame_bounds, t->n_frame_bounds);
    t->bounds = windows ? table(q, q->windows.bounds, t->n_bounds) : NULL;
    int32_t deep = 0;
    for (int64_t i = 0; i < v->run_layers; i++) {
        dv_row_program_cut(p);
        dv_tower_block(t, &w->blocks[i], v->full[i] || !windows);
        if (deep < v->n_deepstack && v->deepstack[deep] == i) {
            add_merger(q, &w->deepstack[deep], false, out->deep[deep]);
            deep++;
        }
    }
    add_merger(q, &w->merger, true, windows ? t->out : out->vectors);
    if (windows) {
        dv_row_program_gather(p, &(dv_gather_args){.x = t->out,
                                                   .y = out->vectors,
                                                   .order = table(q, q->token_place, out->tokens),
                                                   .m = out->tokens,
                                                   .dim = v->out_hidden});
    }
}

davy_result dv_vision_qwen(dv_tower *t, dv_vlm_features *out) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_picture_plan *plan = t->plan;
    const int64_t unit = v->merge * v->merge;
    qwen q = {.t = t, .grid = {.t = plan->grid_t, .h = plan->grid_h, .w = plan->grid_w, .merge = v->merge}};
    if (plan->patches != plan->grid_t * plan->grid_h * plan->grid_w || plan->grid_h % v->merge != 0 ||
        plan->grid_w % v->merge != 0 || plan->tokens * unit != plan->patches) {
        return dv_fail(DAVY_E_INTERNAL, "captioning: the grid of patches does not match the vision tower");
    }
    out->t = plan->grid_t;
    out->h = plan->grid_h / v->merge;
    out->w = plan->grid_w / v->merge;
    davy_result r = make_tables(&q);
    r = r < 0 ? r : dv_tower_start(t, plan->patches, plan->patches, v->hidden * unit, plan->tokens);
    if (r == DAVY_OK) {
        t->rotary = true;
        t->n_frame_bounds = plan->grid_t + 1;
        t->n_bounds = q.windows.n_bounds;
        add_all(&q, out);
        r = dv_row_program_finish(&t->program);
        if (r == DAVY_OK && (q.windows.order == NULL || t->patches->bytes != NULL)) {
            r = dv_tower_put(t, 0, t->rows);
        }
        r = r < 0 ? r : dv_row_program_run(&t->program, t->desc->cancel, t->desc->user);
    }
    free_tables(&q);
    return r;
}
