/* decoder_build.c - the layers of Llama and Qwen as a program: norm, q, k and v, rotation into the cache, attention, MLP. */
#include <math.h>

#include "core/vlm/decoder_priv.h"

static dvk_rows cache_rows(const dv_decoder *d, int64_t layer, int32_t values) {
    const dv_vlm_text *t = &d->config->text;
    const int64_t plane = t->kv_heads * d->context * t->head_dim;
    const int64_t size = d->cache_form == DVK_ROWS_F32 ? 4 : 2;
    return (dvk_rows){.data = (unsigned char *)d->cache + (2 * layer + values) * plane * size,
                      .form = d->cache_form,
                      .row = t->head_dim,
                      .head = d->context * t->head_dim};
}

static void add_norm(const dv_decoder *d, dv_program *p, const dv_vlm_affine *w, dvk_rows y, dv_prog_at at) {
    const dv_vlm_text *t = &d->config->text;
    dv_program_norm(p, &(dv_prog_norm){.w = w,
                                       .x = dv_rows(d->x, DVK_ROWS_F32, t->hidden),
                                       .y = y,
                                       .heads = 1,
                                       .dim = t->hidden,
                                       .eps = t->norm_eps,
                                       .at = at});
}

/* q, k and v behind one another in each row. */
static void add_qkv(const dv_decoder *d, dv_program *p, const dv_vlm_block *b) {
    const dv_vlm_text *t = &d->config->text;
    const int64_t width = (t->heads + 2 * t->kv_heads) * t->head_dim;
    dvk_rows x = {0};
    float *to = d->qkv;
    for (int32_t i = 0; i < b->n_qkv; i++) {
        const dvk_form form = dv_program_form(p, &b->qkv[i]);
        if (i == 0 || form != x.form) {
            x = dv_rows(d->normed, form, t->hidden);
            add_norm(d, p, &b->norm1, x, DV_AT_ROWS);
        }
        dv_program_linear(
            p, &(dv_prog_linear){.w = &b->qkv[i], .x = x, .y = {.data = to, .form = DVK_ROWS_F32, .row = width}});
        to += b->qkv[i].n;
    }
}

static void add_head_norm(const dv_decoder *d, dv_program *p, float *w, dvk_rows x, int64_t heads) {
    const dv_vlm_affine affine = {.w = w};
    dv_program_norm(p, &(dv_prog_norm){.w = &affine,
                                       .x = x,
                                       .y = x,
                                       .heads = heads,
                                       .dim = d->config->text.head_dim,
                                       .eps = d->config->text.norm_eps});
}

static void add_attention(const dv_decoder *d, dv_program *p, const dv_vlm_block *b, int64_t layer, dvk_rows mixed) {
    const dv_vlm_text *t = &d->config->text;
    const int64_t q = t->heads * t->head_dim;
    const int64_t kv = t->kv_heads * t->head_dim;
    const dvk_rows rows[3] = {{.data = d->qkv, .form = DVK_ROWS_F32, .row = q + 2 * kv, .head = t->head_dim},
                              {.data = d->qkv + q, .form = DVK_ROWS_F32, .row = q + 2 * kv, .head = t->head_dim},
                              {.data = d->qkv + q + kv, .form = DVK_ROWS_F32, .row = q + 2 * kv, .head = t->head_dim}};
    const dvk_rows keys = cache_rows(d, layer, 0);
    const dvk_rows values = cache_rows(d, layer, 1);
    if (t->qk_norm == DV_VLM_QK_BEFORE_ROPE) {
        add_head_norm(d, p, b->q_norm, rows[0], t->heads);
        add_head_norm(d, p, b->k_norm, rows[1], t->kv_heads);
    }
    dvk_rope_args rope = {.x = rows[0],
                          .y = rows[0],
                          .cs = d->cs,
                          .heads = t->heads,
                          .dim = t->head_dim,
                          .pairs = t->head_dim / 2,
                          .inverse = t->rope.inverse ? 1 : 0};
    dv_program_rope(p, &rope, DV_AT_ROWS);
    rope.x = rows[1];
    rope.y = keys;
    rope.heads = t->kv_heads;
    dv_program_rope(p, &rope, DV_AT_PAST);
    rope.x = rows[2];
    rope.y = values;
    rope.pairs = 0;
    dv_program_rope(p, &rope, DV_AT_PAST);
    const dvk_attention_kv_args attention = {.q = rows[0],
                                             .k = keys,
                                             .v = values,
                                             .y = mixed,
                                             .heads = t->heads,
                                             .kv_heads = t->kv_heads,
                                             .dim = t->head_dim,
                                             .scale = (float)(1.0 / sqrt((double)t->head_dim)),
                                             .causal = 1};
    dv_program_attention(p, &attention, DV_AT_PAST);
}

static void add_block(const dv_decoder *d, dv_program *p, int64_t layer) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_block *b = &d->weights->layers[layer];
    const int64_t q = t->heads * t->head_dim;
    const dvk_rows x = dv_rows(d->x, DVK_ROWS_F32, t->hidden);
    add_qkv(d, p, b);
    dvk_form form = dv_program_form(p, &b->out);
    dvk_rows mixed = dv_program_written(form, d->mixed, q);
    mixed.head = t->head_dim;
    add_attention(d, p, b, layer, mixed);
    dvk_rows in = dv_program_input(p, mixed, form, d->mixed_in, q);
    dv_program_linear(p, &(dv_prog_linear){.w = &b->out, .x = in, .y = x, .res = x});
    const dvk_rows normed = dv_rows(d->normed, dv_program_form(p, &b->up), t->hidden);
    add_norm(d, p, &b->norm2, normed, DV_AT_ROWS);
    form = dv_program_form(p, &b->down);
    const dvk_rows hidden = dv_program_written(form, d->hidden, t->ffn);
    dv_program_linear(p, &(dv_prog_linear){.w = &b->up, .x = normed, .y = hidden, .act = dv_gate_of(t->act)});
    in = dv_program_input(p, hidden, form, d->hidden_in, t->ffn);
    dv_program_linear(p, &(dv_prog_linear){.w = &b->down, .x = in, .y = x, .res = x});
}

/* Of the last row alone. */
static void add_head(const dv_decoder *d, dv_program *p) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_weights *w = d->weights;
    const dvk_rows normed = dv_rows(d->normed, dv_program_form(p, &w->head), t->hidden);
    add_norm(d, p, &w->norm, normed, DV_AT_LAST);
    dv_program_linear(
        p, &(dv_prog_linear){
               .w = &w->head, .x = normed, .at = DV_AT_ONE, .y = dv_rows(d->logits, DVK_ROWS_F32, t->vocab)});
}

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_program_desc *desc) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_weights *w = d->weights;
    dv_program *p = &pass->body;
    dv_program_start(p, desc);
    dv_program_rope_table(p, &(dvk_rope_table_args){.pos = d->positions,
                                                    .freq = w->frequencies,
                                                    .axis = w->axes,
                                                    .cs = d->cs,
                                                    .pairs = t->head_dim / 2,
                                                    .axes = d->axes});
    for (int64_t i = 0; i < t->layers; i++) {
        if (desc->rows > 1 && i > 0) {
            dv_program_cut(p);
        }
        add_block(d, p, i);
        if (i < d->config->vision.n_deepstack) {
            pass->deep[i] = dv_program_add_rows(
                p, &(dv_add_rows_args){.x = NULL, .y = d->x, .row = d->deep_rows, .dim = t->hidden, .taps = 1});
        }
    }
    if (desc->rows == 1) {
        add_head(d, p); /* in the same run: waking the threads once more would cost as much as some of the steps */
        return dv_program_finish(p);
    }
    const davy_result r = dv_program_finish(p);
    if (r < 0) {
        return r;
    }
    const int64_t rows = desc->rows;
    desc->rows = 1;
    dv_program_start(&pass->head, desc);
    desc->rows = rows;
    add_head(d, &pass->head);
    return dv_program_finish(&pass->head);
}

void dv_decoder_point(dv_decoder_pass *pass, const dv_decoder *d) {
    for (int32_t i = 0; i < d->config->vision.n_deepstack; i++) {
        dv_program_point(pass->deep[i], d->deep[i]);
    }
}
