/* vision_vit.c - SigLIP and CLIP on tiles of fixed size, followed by Idefics3's connector (pixel shuffle), LLaVA's projector, or
 * GhostVis's resampler. The resampler has a fixed number of learned queries that attend to the tower's rows. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/vision_tower.h"

#define EPS 1e-5 /* default of torch's LayerNorm */

typedef struct resampling {
    dv_tower *t;
    int64_t width, queries;
    dvk_rows x; /* current queries: first the file's, then in working memory */
} resampling;

static uint64_t widest(int64_t k) {
    const uint64_t q8 = dv_form_bytes(DVK_ROWS_Q8, k);
    const uint64_t f32 = dv_form_bytes(DVK_ROWS_F32, k);
    return q8 > f32 ? q8 : f32;
}

static davy_result dv_tower_resampler_start(dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_resampler_space *s = &t->resampler;
    const uint64_t n = (uint64_t)v->queries;
    const uint64_t rows = (uint64_t)t->rows;
    const uint64_t width = (uint64_t)v->hidden;
    const int64_t wide = dv_max(4 * v->hidden, v->projector_hidden);
    const dv_space_part parts[] = {{&s->x, n * width * 4},
                                   {&s->normed, n * widest(v->hidden)},
                                   {&s->q, n * width * 4},
                                   {&s->rows_in, rows * widest(v->hidden)},
                                   {&s->kv, rows * width * 8},
                                   {&s->mixed, n * width * 4},
                                   {&s->mixed_in, n * widest(v->hidden)},
                                   {&s->hidden, n * (uint64_t)wide * 4},
                                   {&s->hidden_in, n * widest(wide)}};
    s->space = (dv_space){.heap = t->desc->heap, .gpu = t->desc->gpu};
    return dv_space_take(&s->space, "the resampler", parts, DV_ARRAY_LEN(parts));
}

static void add_norm(const resampling *r, const dv_vlm_affine *w, dvk_rows x, dvk_rows y, int64_t dim) {
    dv_row_program_norm(&r->t->program,
                        &(dv_prog_norm){.w = w, .x = x, .y = y, .heads = 1, .dim = dim, .eps = EPS, .center = true});
}

/* Cross-attention: a few queries attend to all rows of the tower. */
static void add_attention(resampling *r, const dv_vlm_attender *a) {
    dv_resampler_space *s = &r->t->resampler;
    dv_row_program *p = &r->t->program;
    const int64_t heads = r->t->desc->config->vision.resampler_heads;
    const int64_t dim = r->width / heads;
    dvk_rows q = dv_rows(s->q, DVK_ROWS_F32, r->width);
    dvk_rows kv = dv_rows(s->kv, DVK_ROWS_F32, 2 * r->width);
    p->rows = r->t->rows;
    const dvk_rows in = dv_row_program_input(p, dv_rows(r->t->x, DVK_ROWS_F32, r->width),
                                             dv_row_program_form(p, &a->kv), s->rows_in, r->width);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &a->kv, .x = in, .y = kv});
    p->rows = r->queries;
    const dvk_rows normed = dv_rows(s->normed, dv_row_program_form(p, &a->q), r->width);
    add_norm(r, &a->norm1, r->x, normed, r->width);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &a->q, .x = normed, .y = q});
    const dvk_form form = dv_row_program_form(p, &a->out);
    dvk_rows mixed = dv_row_program_written(form, s->mixed, r->width);
    mixed.head = q.head = kv.head = dim;
    dvk_rows values = kv;
    values.data = s->kv + r->width;
    dv_row_program_attention(p,
                             &(dvk_attention_kv_args){.q = q,
                                                      .k = kv,
                                                      .v = values,
                                                      .y = mixed,
                                                      .keys = r->t->rows,
                                                      .heads = heads,
                                                      .kv_heads = heads,
                                                      .dim = dim,
                                                      .scale = (float)(1.0 / sqrt((double)dim))},
                             DV_AT_ROWS);
    const dvk_rows mixed_in = dv_row_program_input(p, mixed, form, s->mixed_in, r->width);
    const dvk_rows x = dv_rows(s->x, DVK_ROWS_F32, r->width);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &a->out, .x = mixed_in, .y = x, .res = r->x});
    r->x = x;
}

typedef struct two_layers {
    const dv_vlm_matrix *first, *second;
    dvk_rows x, y, res;
} two_layers;

static void add_two(const resampling *r, const two_layers *l) {
    dv_resampler_space *s = &r->t->resampler;
    dv_row_program *p = &r->t->program;
    const dvk_form form = dv_row_program_form(p, l->second);
    const dvk_rows hidden = dv_row_program_written(form, s->hidden, l->first->n);
    dv_row_program_linear(p, &(dv_prog_linear){.w = l->first, .x = l->x, .y = hidden, .act = DVK_GATE_GELU});
    const dvk_rows in = dv_row_program_input(p, hidden, form, s->hidden_in, l->first->n);
    dv_row_program_linear(p, &(dv_prog_linear){.w = l->second, .x = in, .y = l->y, .res = l->res});
}

static void dv_tower_resampler(dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_resampler *w = &t->desc->weights->resampler;
    dv_resampler_space *s = &t->resampler;
    dv_row_program *p = &t->program;
    resampling r = {.t = t, .width = v->hidden, .queries = v->queries};
    r.x = dv_rows(w->queries, DVK_ROWS_F32, v->hidden);
    for (int64_t i = 0; i < v->resampler_layers; i++) {
        const dv_vlm_attender *a = &w->layers[i];
        dv_row_program_cut(p);
        add_attention(&r, a);
        const dvk_rows normed = dv_rows(s->normed, dv_row_program_form(p, &a->up), v->hidden);
        add_norm(&r, &a->norm2, r.x, normed, v->hidden);
        add_two(&r, &(two_layers){.first = &a->up, .second = &a->down, .x = normed, .y = r.x, .res = r.x});
    }
    const dvk_rows in = dv_row_program_input(p, r.x, dv_row_program_form(p, &w->first), s->normed, v->hidden);
    const dvk_rows out = dv_rows(t->out, DVK_ROWS_F32, v->out_hidden);
    add_two(&r, &(two_layers){.first = &w->first, .second = &w->second, .x = in, .y = out});
    add_norm(&r, &w->norm, out, out, v->out_hidden);
}

/* ---- SigLIP and CLIP, followed by Idefics3's connector (pixel shuffle, then a linear layer), LLaVA's projector (two linear
 * layers) or GhostVis's resampler ---- */

enum { TILES = 32 }; /* most tiles in one run on a GPU */

typedef struct vit {
    dv_tower *t;
    int64_t tiles; /* at once */
    int32_t *order, *place, *bounds;
} vit;

/* Order of the rows in which s x s neighbours are adjacent and become one row. */
static void shuffle_order(const dv_vlm_vision *v, int64_t tiles, int32_t *order) {
    const int64_t s = v->shuffle;
    const int64_t side = v->grid / s;
    const int64_t n = v->grid * v->grid;
    for (int64_t i = 0; i < tiles * n; i++) {
        const int64_t cell = i % n / (s * s);
        const int64_t y = cell / side * s + i % (s * s) / s;
        const int64_t x = cell % side * s + i % s;
        order[i] = (int32_t)(i / n * n + y * v->grid + x);
    }
}

static const int32_t *table(const vit *q, const int32_t *numbers, int64_t n) {
    const void *out = NULL;
    dv_row_program_table(&q->t->program, numbers, (uint64_t)n * sizeof *numbers, &out);
    return out;
}

static void add_connector(const vit *q) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_matrix *w = &t->desc->weights->merger.first;
    dv_row_program *p = &t->program;
    const dvk_rows x = dv_rows(t->x, DVK_ROWS_F32, v->hidden);
    const int64_t wide = v->hidden * v->shuffle * v->shuffle;
    dv_tower_norm(t, &t->desc->weights->post_norm, x);
    shuffle_order(v, q->tiles, q->order);
    dv_row_program_gather(
        p, &(dv_gather_args){
               .x = t->x, .y = t->grouped, .order = table(q, q->order, t->inputs), .m = t->inputs, .dim = v->hidden});
    p->rows = q->tiles * v->tokens_per_tile;
    const dvk_rows in = dv_row_program_input(p, dv_rows(t->grouped, DVK_ROWS_F32, wide), dv_row_program_form(p, w),
                                             t->grouped_in, wide);
    dv_row_program_linear(p, &(dv_prog_linear){.w = w, .x = in, .y = dv_rows(t->out, DVK_ROWS_F32, v->out_hidden)});
}

static void add_projector(const vit *q) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_merger *m = &t->desc->weights->merger;
    dv_row_program *p = &t->program;
    const int64_t skip = t->rows - q->tiles * v->tokens_per_tile; /* the class token */
    p->rows = q->tiles * v->tokens_per_tile;
    dvk_rows in = dv_row_program_input(p, dv_rows(t->x + skip * v->hidden, DVK_ROWS_F32, v->hidden),
                                       dv_row_program_form(p, &m->first), t->grouped_in, v->hidden);
    const dvk_form form = dv_row_program_form(p, &m->second);
    const dvk_rows between = dv_row_program_written(form, t->projected, v->out_hidden);
    dv_row_program_linear(
        p, &(dv_prog_linear){.w = &m->first, .x = in, .y = between, .act = dv_gate_of(v->projector_act)});
    in = dv_row_program_input(p, between, form, t->projected_in, v->out_hidden);
    dv_row_program_linear(
        p, &(dv_prog_linear){.w = &m->second, .x = in, .y = dv_rows(t->out, DVK_ROWS_F32, v->out_hidden)});
}

/* Embeds the patches and adds positions. Tiles in one run do not attend to each other. */
static void add_patches(const vit *q) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    const int64_t each = v->grid * v->grid;
    if (q->tiles == 1) {
        dv_tower_patches(t, t->x + (t->rows - t->inputs) * v->hidden, w->positions);
        return;
    }
    for (int64_t i = 0; i < t->inputs; i++) {
        q->place[i] = (int32_t)(i % each);
    }
    for (int64_t i = 0; i <= q->tiles; i++) {
        q->bounds[i] = (int32_t)(i * each);
    }
    t->frame_bounds = table(q, q->bounds, q->tiles + 1);
    t->n_frame_bounds = q->tiles + 1;
    dv_tower_patches(t, t->x, NULL);
    if (w->positions != NULL) {
        dv_row_program_add_rows(
            &t->program,
            &(dv_add_rows_args){
                .x = w->positions, .y = t->x, .row = table(q, q->place, t->inputs), .dim = v->hidden, .taps = 1});
    }
}

static davy_result build(const vit *q) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    add_patches(q);
    if (w->pre_norm.w != NULL) {
        dv_tower_norm(t, &w->pre_norm, dv_rows(t->x, DVK_ROWS_F32, v->hidden));
    }
    for (int64_t i = 0; i < v->run_layers; i++) {
        dv_row_program_cut(&t->program);
        dv_tower_block(t, &w->blocks[i], true);
    }
    if (v->queries > 0) {
        dv_tower_resampler(t);
    } else if (v->shuffle > 0) {
        add_connector(q);
    } else {
        add_projector(q);
    }
    return dv_row_program_finish(&t->program);
}

/* If fewer tiles remain than fit, the other rows keep data of the previous run. */
static davy_result run_tiles(const vit *q, dv_vlm_features *out) {
    dv_tower *t = q->t;
    const dv_vlm_vision *v = &t->desc->config->vision;
    const int64_t each = t->inputs / q->tiles;
    const int64_t numbers = v->tokens_per_tile * v->out_hidden;
    dv_row_program *p = &t->program;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < t->plan->tiles; i += q->tiles) {
        const int64_t n = dv_min(q->tiles, t->plan->tiles - i);
        if (t->desc->cancel != NULL && t->desc->cancel(t->desc->user) != 0) {
            return dv_fail(DAVY_E_CANCELLED, "cancelled");
        }
        r = dv_tower_put(t, i * each, n * each);
        if (r == DAVY_OK && t->desc->weights->class_row != NULL) {
            r = dv_row_program_move(p, t->x, t->desc->weights->class_row, (uint64_t)v->hidden * sizeof *t->x);
        }
        r = r < 0 ? r : dv_row_program_run(p, t->desc->cancel, t->desc->user);
        r = r < 0
                ? r
                : dv_row_program_move(p, out->vectors + i * numbers, t->out, (uint64_t)(n * numbers) * sizeof *t->out);
    }
    return r;
}

/* On a GPU several tiles run together, in groups of equal size. */
static int64_t tiles_at_once(const dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    if (t->desc->gpu == NULL || t->desc->weights->class_row != NULL || v->queries > 0) {
        return 1;
    }
    return dv_div_up(t->plan->tiles, dv_div_up(t->plan->tiles, TILES));
}

davy_result dv_vision_vit(dv_tower *t, dv_vlm_features *out) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const int64_t inputs = v->grid * v->grid;
    const int64_t class_rows = t->desc->weights->class_row != NULL ? 1 : 0;
    const int64_t wide = v->shuffle > 0 ? v->hidden * v->shuffle * v->shuffle : v->hidden;
    if (t->plan->patches != t->plan->tiles * inputs || t->plan->tokens != t->plan->tiles * v->tokens_per_tile) {
        return dv_fail(DAVY_E_INTERNAL, "captioning: the tiles do not match the vision tower");
    }
    vit q = {.t = t, .tiles = tiles_at_once(t)};
    const int64_t n = q.tiles * inputs;
    q.order = dv_calloc((uint64_t)n, sizeof *q.order);
    q.place = dv_calloc((uint64_t)n, sizeof *q.place);
    q.bounds = dv_calloc((uint64_t)q.tiles + 1, sizeof *q.bounds);
    davy_result r = q.order != NULL && q.place != NULL && q.bounds != NULL
                        ? dv_tower_start(t, q.tiles * (inputs + class_rows), n, wide, q.tiles * v->tokens_per_tile)
                        : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    r = r == DAVY_OK && v->queries > 0 ? dv_tower_resampler_start(t) : r;
    r = r < 0 ? r : build(&q);
    r = r < 0 ? r : run_tiles(&q, out);
    dv_free(q.order);
    dv_free(q.place);
    dv_free(q.bounds);
    return r;
}
