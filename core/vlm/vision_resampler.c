/* vision_resampler.c - GhostVis: a fixed number of learned queries looks at the tower's rows, layer by layer; two linear
 * layers and a norm make the language model's vectors of them. */
#include <math.h>

#include "core/base/error.h"
#include "core/vlm/vision.h"

#define EPS 1e-5 /* torch's LayerNorm, where nothing is said */

typedef struct resampling {
    dv_tower *t;
    int64_t width, queries;
    dvk_rows x; /* the queries as they are now: of the file, then in t->queries */
} resampling;

static uint64_t widest(int64_t k) {
    const uint64_t q8 = dv_form_bytes(DVK_ROWS_Q8, k);
    const uint64_t f32 = dv_form_bytes(DVK_ROWS_F32, k);
    return q8 > f32 ? q8 : f32;
}

davy_result dv_tower_resampler_start(dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_resampler_space *s = &t->resampler;
    const uint64_t n = (uint64_t)v->queries;
    const uint64_t rows = (uint64_t)t->rows;
    const uint64_t width = (uint64_t)v->hidden;
    const int64_t wide = dv_max(4 * v->hidden, v->projector_hidden);
    const dv_want wants[] = {{&s->x, n * width * 4},
                             {&s->normed, n * widest(v->hidden)},
                             {&s->q, n * width * 4},
                             {&s->rows_in, rows * widest(v->hidden)},
                             {&s->kv, rows * width * 8},
                             {&s->mixed, n * width * 4},
                             {&s->mixed_in, n * widest(v->hidden)},
                             {&s->hidden, n * (uint64_t)wide * 4},
                             {&s->hidden_in, n * widest(wide)}};
    return dv_space_take_on(&s->space, t->desc->gpu, t->desc->heap, "the resampler", wants, DV_ARRAY_LEN(wants));
}

static void add_norm(const resampling *r, const dv_vlm_affine *w, dvk_rows x, dvk_rows y, int64_t dim) {
    dv_row_program_norm(&r->t->program,
                        &(dv_prog_norm){.w = w, .x = x, .y = y, .heads = 1, .dim = dim, .eps = EPS, .center = true});
}

/* Queries are fewer than what they look at, and see all of it. */
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

void dv_tower_resampler(dv_tower *t) {
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
