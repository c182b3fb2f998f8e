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

/* Where keys and values go: behind `past` others, or where the pass says. */
static dv_prog_at cached_at(const dv_decoder_pass *pass) {
    return pass->rows.position != NULL ? DV_AT_ROWS : DV_AT_PAST;
}

/* q and k are turned where they are, then normalised; keys and values go into the cache. */
static void add_ropes(const dv_decoder *d, dv_decoder_pass *pass, const dvk_rows rows[3], const dvk_rows cache[2]) {
    const dv_vlm_text *t = &d->config->text;
    dv_program *p = &pass->body;
    const bool normed = t->qk_norm == DV_VLM_QK_AFTER_ROPE;
    dvk_rope_args rope = {.x = rows[0],
                          .y = rows[0],
                          .cs = d->cs,
                          .heads = t->heads,
                          .dim = t->head_dim,
                          .pairs = t->head_dim / 2,
                          .inverse = t->rope.inverse ? 1 : 0};
    dv_program_rope(p, &rope, DV_AT_ROWS);
    rope.x = rows[1];
    rope.heads = t->kv_heads;
    if (normed) {
        rope.y = rows[1];
        dv_program_rope(p, &rope, DV_AT_ROWS);
        add_head_norm(d, p, NULL, rows[0], t->heads);
        add_head_norm(d, p, NULL, rows[1], t->kv_heads);
        rope.pairs = 0; /* turned already */
    }
    rope.to = pass->rows;
    rope.y = cache[0];
    dv_program_rope(p, &rope, cached_at(pass));
    rope.x = rows[2];
    rope.y = cache[1];
    rope.pairs = 0;
    dv_program_rope(p, &rope, cached_at(pass));
}

/* The same at once; many queries become what the cache is, as tensor cores want them. */
static dvk_rows add_rope_qkv(const dv_decoder *d, dv_decoder_pass *pass, const dvk_rows rows[3],
                             const dvk_rows cache[2]) {
    const dv_vlm_text *t = &d->config->text;
    dvk_rows q = rows[0];
    if (pass->body.rows > DV_PROGRAM_FEW) {
        q = dv_rows(d->queries, d->cache_form, t->heads * t->head_dim);
        q.head = t->head_dim;
    }
    const dvk_rope_qkv_args rope = {.q = rows[0],
                                    .k = rows[1],
                                    .v = rows[2],
                                    .q_to = q,
                                    .k_to = cache[0],
                                    .v_to = cache[1],
                                    .cs = d->cs,
                                    .to = pass->rows,
                                    .heads = t->heads,
                                    .kv_heads = t->kv_heads,
                                    .dim = t->head_dim,
                                    .pairs = t->head_dim / 2,
                                    .inverse = t->rope.inverse ? 1 : 0};
    dv_program_rope_qkv(&pass->body, &rope, cached_at(pass));
    return q;
}

static void add_attention(const dv_decoder *d, dv_decoder_pass *pass, const dv_vlm_block *b, int64_t layer,
                          dvk_rows mixed) {
    const dv_vlm_text *t = &d->config->text;
    dv_program *p = &pass->body;
    const int64_t q = t->heads * t->head_dim;
    const int64_t kv = t->kv_heads * t->head_dim;
    const dvk_rows qkv = {.data = d->qkv, .form = DVK_ROWS_F32, .row = q + 2 * kv, .head = t->head_dim};
    const dvk_rows rows[3] = {qkv, dv_rows_at(qkv, q), dv_rows_at(qkv, q + kv)};
    const dvk_rows cache[2] = {cache_rows(d, layer, 0), cache_rows(d, layer, 1)};
    dvk_rows queries = rows[0];
    if (t->qk_norm == DV_VLM_QK_BEFORE_ROPE) {
        add_head_norm(d, p, b->q_norm, rows[0], t->heads);
        add_head_norm(d, p, b->k_norm, rows[1], t->kv_heads);
    }
    if (p->queue != NULL && t->qk_norm != DV_VLM_QK_AFTER_ROPE) {
        queries = add_rope_qkv(d, pass, rows, cache);
    } else {
        add_ropes(d, pass, rows, cache);
    }
    const dvk_attention_kv_args attention = {.q = queries,
                                             .k = cache[0],
                                             .v = cache[1],
                                             .y = mixed,
                                             .in = pass->rows,
                                             .keys = pass->rows.position != NULL ? d->context : 0,
                                             .heads = t->heads,
                                             .kv_heads = t->kv_heads,
                                             .dim = t->head_dim,
                                             .scale = (float)(1.0 / sqrt((double)t->head_dim)),
                                             .causal = 1};
    dv_program_attention(p, &attention, cached_at(pass));
}

static void add_block(const dv_decoder *d, dv_decoder_pass *pass, int64_t layer) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_block *b = &d->weights->layers[layer];
    dv_program *p = &pass->body;
    const int64_t q = t->heads * t->head_dim;
    const dvk_rows x = dv_rows(d->x, DVK_ROWS_F32, t->hidden);
    add_qkv(d, p, b);
    dvk_form form = dv_program_form(p, &b->out);
    dvk_rows mixed = dv_program_written(form, d->mixed, q);
    mixed.head = t->head_dim;
    add_attention(d, pass, b, layer, mixed);
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

/* Of the last row alone, or of every one. */
static void add_head(const dv_decoder *d, dv_program *p) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_weights *w = d->weights;
    const dvk_rows normed = dv_rows(d->normed, dv_program_form(p, &w->head), t->hidden);
    add_norm(d, p, &w->norm, normed, p->alike ? DV_AT_ROWS : DV_AT_LAST);
    dv_program_linear(p, &(dv_prog_linear){.w = &w->head,
                                           .x = normed,
                                           .at = p->alike ? DV_AT_ROWS : DV_AT_ONE,
                                           .y = dv_rows(d->logits, DVK_ROWS_F32, t->vocab)});
}

/* On a GPU the passes look their words up themselves; where vectors of pictures follow, before the layers. */
static davy_result add_words(dv_decoder *d, dv_decoder_pass *pass, const dv_program_desc *desc) {
    const dvk_rows x = dv_rows(d->x, DVK_ROWS_F32, d->config->text.hidden);
    if (desc->queue == NULL || desc->rows == 1) {
        if (desc->queue != NULL) {
            dv_program_embed(&pass->body, &d->weights->embed, pass->ids, x);
        }
        return DAVY_OK;
    }
    dv_program_start(&pass->words, desc);
    dv_program_embed(&pass->words, &d->weights->embed, pass->ids, x);
    return dv_program_finish(&pass->words);
}

static void add_layers(dv_decoder *d, dv_decoder_pass *pass) {
    const dv_vlm_text *t = &d->config->text;
    dv_program *p = &pass->body;
    dv_program_rope_table(p, &(dvk_rope_table_args){.pos = pass->positions,
                                                    .freq = d->weights->frequencies,
                                                    .axis = d->weights->axes,
                                                    .cs = d->cs,
                                                    .pairs = t->head_dim / 2,
                                                    .axes = d->axes});
    if (t->embed_norm) {
        add_norm(d, p, &(dv_vlm_affine){.w = NULL}, dv_rows(d->x, DVK_ROWS_F32, t->hidden), DV_AT_ROWS);
    }
    for (int64_t i = 0; i < t->layers; i++) {
        if (p->rows > 1 && !p->alike && i > 0) {
            dv_program_cut(p);
        }
        add_block(d, pass, i);
        if (i < d->config->vision.n_deepstack && (p->rows > 1 || p->queue == NULL)) {
            pass->deep[i] = dv_program_add_rows(
                p, &(dv_add_rows_args){.x = d->x, .y = d->x, .row = d->deep_rows, .dim = t->hidden, .taps = 1});
        }
    }
}

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_program_desc *desc) {
    dv_program *p = &pass->body;
    dv_program_start(p, desc);
    davy_result r = add_words(d, pass, desc);
    if (r < 0) {
        return r;
    }
    add_layers(d, pass);
    if (desc->rows == 1 || desc->alike) {
        add_head(d, p); /* in the same run: waking the threads once more would cost as much as some of the steps */
        if (desc->queue != NULL) {
            dv_program_argmax(p, &(dvk_argmax_args){.x = dv_rows(d->logits, DVK_ROWS_F32, d->config->text.vocab),
                                                    .id = d->token + DV_TOKEN_ID,
                                                    .never = d->token + DV_TOKEN_NEVER,
                                                    .advance = d->token + DV_TOKEN_PLACE,
                                                    .m = 1,
                                                    .n = d->config->text.vocab,
                                                    .n_never = DV_TOKEN_NEVERS,
                                                    .n_advance = 1 + d->axes});
        }
        return dv_program_finish(p);
    }
    r = dv_program_finish(p);
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
    for (int32_t i = 0; i < d->config->vision.n_deepstack && pass->deep[i] != NULL; i++) {
        dv_program_point(pass->deep[i], d->deep[i]);
    }
}
