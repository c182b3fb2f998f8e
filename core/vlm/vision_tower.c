/* vision_tower.c - see vision_tower.h. */
#include "core/vlm/vision_tower.h"

#include <math.h>

static uint64_t widest(int64_t k) {
    const uint64_t q8 = dv_form_bytes(DVK_ROWS_Q8, k);
    const uint64_t f32 = dv_form_bytes(DVK_ROWS_F32, k);
    return q8 > f32 ? q8 : f32;
}

davy_result dv_tower_start(dv_tower *t, int64_t rows, int64_t inputs, int64_t grouped_width, int64_t groups) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const uint64_t m = (uint64_t)rows;
    const uint64_t values = (uint64_t)t->plan->patch_values;
    const uint64_t tokens = (uint64_t)dv_max(groups, 1);
    const int64_t second = dv_max(grouped_width, v->out_hidden);
    const dv_space_part parts[] = {
        {&t->in, m * values * 4},
        {&t->in_narrow, m * widest(t->plan->patch_values)},
        {&t->x, m * (uint64_t)v->hidden * 4},
        {&t->normed, m * widest(v->hidden)},
        {&t->qkv, m * (uint64_t)v->hidden * 12},
        {&t->mixed, m * (uint64_t)v->hidden * 4},
        {&t->mixed_in, m * widest(v->hidden)},
        {&t->hidden, m * (uint64_t)v->ffn * 4},
        {&t->hidden_in, m * widest(v->ffn)},
        {&t->cs, m * (uint64_t)v->head_dim * 4},
        {&t->grouped, tokens * (uint64_t)grouped_width * 4},
        {&t->grouped_in, tokens * widest(grouped_width)},
        {&t->projected, tokens * (uint64_t)second * 4},
        {&t->projected_in, tokens * widest(second)},
        {&t->out, tokens * (uint64_t)v->out_hidden * 4},
    };
    t->rows = rows;
    t->inputs = inputs;
    const dv_vision_desc *d = t->desc;
    davy_result r = d->gpu != NULL ? dv_gpu_queue_take(d->gpu, NULL, &t->queue) : DAVY_OK;
    const dv_row_program_desc program = {
        .pool = d->pool, .queue = t->queue, .weights = d->weights, .cpu = d->cpu, .compute = d->compute, .rows = rows};
    if (r == DAVY_OK) {
        dv_row_program_start(&t->program, &program);
        t->space = (dv_space){.heap = d->heap, .gpu = d->gpu};
        r = dv_space_take(&t->space, "the vision tower", parts, DV_ARRAY_LEN(parts));
    }
    return r;
}

void dv_tower_clear(dv_tower *t) {
    dv_row_program_clear(&t->program);
    dv_space_release(&t->resampler.space);
    dv_space_release(&t->space);
    dv_gpu_queue_give(t->queue);
    t->queue = NULL;
}

void dv_tower_patches(dv_tower *t, float *x, float *positions) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    dv_row_program *p = &t->program;
    const int64_t rows = p->rows;
    p->rows = t->inputs;
    const dvk_form form = dv_row_program_form(p, &w->patch);
    dvk_rows in = dv_rows(t->in_narrow, form, t->plan->patch_values);
    if (t->patches->bytes != NULL) {
        const void *table = NULL;
        dv_row_program_table(p, t->patches->table, 3 * sizeof *t->patches->table, &table);
        dv_row_program_patches(p, &(dvk_patches_args){.x = (const uint8_t *)t->in,
                                                      .table = table,
                                                      .order = t->order,
                                                      .y = in,
                                                      .m = t->inputs,
                                                      .values = t->plan->patch_values});
    } else {
        in = dv_row_program_input(p, dv_rows(t->in, DVK_ROWS_F32, t->plan->patch_values), form, t->in_narrow,
                                  t->plan->patch_values);
    }
    dv_row_program_linear(p, &(dv_prog_linear){.w = &w->patch,
                                               .x = in,
                                               .y = dv_rows(x, DVK_ROWS_F32, v->hidden),
                                               .res = dv_rows(positions, DVK_ROWS_F32, v->hidden)});
    p->rows = rows;
}

davy_result dv_tower_put(dv_tower *t, int64_t first, int64_t n) {
    const dv_patches *from = t->patches;
    const int64_t values = t->plan->patch_values;
    if (from->bytes != NULL) {
        return dv_row_program_put(&t->program, t->in, from->bytes + first * values, (uint64_t)(n * values));
    }
    return dv_row_program_put(&t->program, t->in, from->numbers + first * values,
                              (uint64_t)(n * values) * sizeof *t->in);
}

void dv_tower_norm(dv_tower *t, const dv_vlm_affine *w, dvk_rows y) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_row_program_norm(&t->program, &(dv_prog_norm){.w = w,
                                                     .x = dv_rows(t->x, DVK_ROWS_F32, v->hidden),
                                                     .y = y,
                                                     .heads = 1,
                                                     .dim = v->hidden,
                                                     .eps = v->norm_eps,
                                                     .center = v->norm == DV_VLM_LAYER_NORM});
}

static dvk_rows qkv_rows(const dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dvk_rows rows = dv_rows(t->qkv, dv_row_program_attended(&t->program), 3 * v->hidden);
    rows.head = v->head_dim;
    return rows;
}

static void add_attention(dv_tower *t, bool whole, dvk_rows mixed) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_row_program *p = &t->program;
    dvk_rows rows[3];
    for (int i = 0; i < 3; i++) {
        rows[i] = dv_rows_at(qkv_rows(t), i * v->hidden);
        if (i < 2 && t->rotary) {
            const dvk_rope_args rope = {.x = rows[i],
                                        .y = rows[i],
                                        .cs = t->cs,
                                        .heads = v->heads,
                                        .dim = v->head_dim,
                                        .pairs = v->head_dim / 2};
            dv_row_program_rope(p, &rope, DV_AT_ROWS);
        }
    }
    const dvk_attention_kv_args attention = {.q = rows[0],
                                             .k = rows[1],
                                             .v = rows[2],
                                             .y = mixed,
                                             .bounds = whole ? t->frame_bounds : t->bounds,
                                             .n_bounds = whole ? t->n_frame_bounds : t->n_bounds,
                                             .heads = v->heads,
                                             .kv_heads = v->heads,
                                             .dim = v->head_dim,
                                             .scale = (float)(1.0 / sqrt((double)v->head_dim))};
    dv_row_program_attention(p, &attention, DV_AT_ROWS);
}

void dv_tower_block(dv_tower *t, const dv_vlm_block *b, bool whole) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    dv_row_program *p = &t->program;
    const dvk_rows x = dv_rows(t->x, DVK_ROWS_F32, v->hidden);
    int64_t column = 0;
    for (int32_t i = 0; i < b->n_qkv; column += b->qkv[i].n, i++) {
        const dvk_rows normed = dv_rows(t->normed, dv_row_program_form(p, &b->qkv[i]), v->hidden);
        dv_tower_norm(t, &b->norm1, normed);
        dv_row_program_linear(p, &(dv_prog_linear){.w = &b->qkv[i], .x = normed, .y = dv_rows_at(qkv_rows(t), column)});
    }
    dvk_form form = dv_row_program_form(p, &b->out);
    dvk_rows mixed = dv_row_program_written(form, t->mixed, v->hidden);
    mixed.head = v->head_dim;
    add_attention(t, whole, mixed);
    dvk_rows in = dv_row_program_input(p, mixed, form, t->mixed_in, v->hidden);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &b->out, .x = in, .y = x, .res = x});
    const dvk_rows normed = dv_rows(t->normed, dv_row_program_form(p, &b->up), v->hidden);
    dv_tower_norm(t, &b->norm2, normed);
    form = dv_row_program_form(p, &b->down);
    const dvk_rows hidden = dv_row_program_written(form, t->hidden, v->ffn);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &b->up, .x = normed, .y = hidden, .act = dv_gate_of(v->act)});
    in = dv_row_program_input(p, hidden, form, t->hidden_in, v->ffn);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &b->down, .x = in, .y = x, .res = x});
}
