/* decoder_build.c - the layers of Llama and Qwen as a program: norm, q, k and v, rotation into the cache, attention, MLP. */
#include <math.h>

#include "core/vlm/decoder_priv.h"

static dvk_rows cache_rows(const dv_decoder *d, int64_t layer, int32_t values) {
    const dv_vlm_text *t = &d->config->text;
    const int64_t plane = t->kv_heads * d->cache_rows * t->head_dim;
    const int64_t size = d->cache_form == DVK_ROWS_F32 ? 4 : 2;
    return (dvk_rows){.data = (unsigned char *)d->cache + (2 * layer + values) * plane * size,
                      .form = d->cache_form,
                      .row = t->head_dim,
                      .head = d->cache_rows * t->head_dim};
}

static void add_norm(const dv_decoder *d, dv_row_program *p, const dv_vlm_affine *w, dvk_rows y, dv_prog_at at) {
    const dv_vlm_text *t = &d->config->text;
    dv_row_program_norm(p, &(dv_prog_norm){.w = w,
                                           .x = dv_rows(d->x, DVK_ROWS_F32, t->hidden),
                                           .y = y,
                                           .heads = 1,
                                           .dim = t->hidden,
                                           .eps = t->norm_eps,
                                           .at = at});
}

/* Adds a product that also normalises its input rows. Returns false if there is no such kernel. */
static bool add_normalising(const dv_decoder *d, dv_row_program *p, const dv_vlm_affine *norm,
                            const dv_prog_linear *l) {
    if (!dv_row_program_normalises(p, l->w, norm)) {
        return false;
    }
    dv_prog_linear linear = *l;
    linear.x = dv_rows(d->x, DVK_ROWS_F32, d->config->text.hidden);
    linear.norm = norm;
    linear.eps = d->config->text.norm_eps;
    dv_row_program_linear(p, &linear);
    return true;
}

/* Each output row holds q, k and v, adjacent. */
static void add_qkv(const dv_decoder *d, dv_row_program *p, const dv_vlm_block *b) {
    const dv_vlm_text *t = &d->config->text;
    const int64_t width = (t->heads + 2 * t->kv_heads) * t->head_dim;
    dvk_rows x = {0};
    float *to = d->qkv;
    for (int32_t i = 0; i < b->n_qkv; i++) {
        const dvk_rows y = {.data = to, .form = DVK_ROWS_F32, .row = width};
        const dvk_form form = dv_row_program_form(p, &b->qkv[i]);
        to += b->qkv[i].n;
        if (add_normalising(d, p, &b->norm1, &(dv_prog_linear){.w = &b->qkv[i], .y = y})) {
            continue;
        }
        if (x.data == NULL || form != x.form) {
            x = dv_rows(d->normed, form, t->hidden);
            add_norm(d, p, &b->norm1, x, DV_AT_ROWS);
        }
        dv_row_program_linear(p, &(dv_prog_linear){.w = &b->qkv[i], .x = x, .y = y});
    }
}

static void add_head_norm(const dv_decoder *d, dv_row_program *p, float *w, dvk_rows x, int64_t heads) {
    const dv_vlm_affine affine = {.w = w};
    dv_row_program_norm(p, &(dv_prog_norm){.w = &affine,
                                           .x = x,
                                           .y = x,
                                           .heads = heads,
                                           .dim = d->config->text.head_dim,
                                           .eps = d->config->text.norm_eps});
}

/* Place of new keys and values: after `past` others, or the pass's own positions. */
static dv_prog_at cached_at(const dv_decoder_pass *pass) {
    return pass->rows.position != NULL ? DV_AT_ROWS : DV_AT_PAST;
}

/* Rotates q and k in place, normalises them, and stores keys and values in the cache. */
static void add_ropes(const dv_decoder *d, dv_decoder_pass *pass, const dvk_rows rows[3], const dvk_rows cache[2]) {
    const dv_vlm_text *t = &d->config->text;
    dv_row_program *p = &pass->body;
    const bool normed = t->qk_norm == DV_VLM_QK_AFTER_ROPE;
    dvk_rope_args rope = {.x = rows[0],
                          .y = rows[0],
                          .cs = d->cs,
                          .heads = t->heads,
                          .dim = t->head_dim,
                          .pairs = t->head_dim / 2,
                          .inverse = t->rope.inverse ? 1 : 0};
    dv_row_program_rope(p, &rope, DV_AT_ROWS);
    rope.x = rows[1];
    rope.heads = t->kv_heads;
    if (normed) {
        rope.y = rows[1];
        dv_row_program_rope(p, &rope, DV_AT_ROWS);
        add_head_norm(d, p, NULL, rows[0], t->heads);
        add_head_norm(d, p, NULL, rows[1], t->kv_heads);
        rope.pairs = 0; /* already rotated */
    }
    rope.to = pass->rows;
    rope.y = cache[0];
    dv_row_program_rope(p, &rope, cached_at(pass));
    rope.x = rows[2];
    rope.y = cache[1];
    rope.pairs = 0;
    dv_row_program_rope(p, &rope, cached_at(pass));
}

/* The same in one kernel. Many queries get the form of the cache, because tensor cores need it. */
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
    dv_row_program_rope_qkv(&pass->body, &rope, cached_at(pass));
    return q;
}

/* The largest number of keys of a sequence. */
static int64_t keys_of(const dv_decoder *d, const dv_decoder_pass *pass) {
    const bool gpu = pass->body.queue != NULL;
    return pass->rows.position == NULL ? 0
           : gpu && d->sequences > 0   ? d->each * DVK_PAGE
           : gpu && pass->each         ? d->cache_rows
                                       : d->context;
}

/* A paged prompt on a GPU reads its position from device memory. */
static dv_prog_at attends_at(const dv_decoder_pass *pass) {
    const bool prompt = pass->body.queue != NULL && pass->body.rows > 1 && !pass->each;
    return prompt ? DV_AT_PAST : cached_at(pass);
}

/* Rotation, cache and attention in one kernel, for a single token. */
static bool add_attention_new(const dv_decoder *d, dv_decoder_pass *pass, const dvk_rows rows[3],
                              const dvk_attention_kv_args *attention, const dv_vlm_block *b, bool *out) {
    const dv_vlm_text *t = &d->config->text;
    dv_row_program *p = &pass->body;
    if (p->rows > 1 || pass->rows.position == NULL || t->qk_norm == DV_VLM_QK_AFTER_ROPE) {
        return false;
    }
    const dvk_attention_new_args fresh = {.a = *attention,
                                          .k = rows[1],
                                          .v = rows[2],
                                          .cs = d->cs,
                                          .pairs = t->head_dim / 2,
                                          .inverse = t->rope.inverse ? 1 : 0};
    *out = b->out.bias == NULL && dv_row_program_normalises(p, &b->up, &b->norm2) &&
           dv_row_program_attention_out(p, &fresh, &b->out, d->parts);
    return *out || dv_row_program_attention_new(p, &fresh);
}

/* Returns true if the kernel includes the output matrix; its product is then in d->parts. */
static bool add_attention(const dv_decoder *d, dv_decoder_pass *pass, const dv_vlm_block *b, int64_t layer,
                          dvk_rows mixed) {
    const dv_vlm_text *t = &d->config->text;
    dv_row_program *p = &pass->body;
    const int64_t q = t->heads * t->head_dim;
    const int64_t kv = t->kv_heads * t->head_dim;
    const dvk_rows qkv = {.data = d->qkv, .form = DVK_ROWS_F32, .row = q + 2 * kv, .head = t->head_dim};
    const dvk_rows rows[3] = {qkv, dv_rows_at(qkv, q), dv_rows_at(qkv, q + kv)};
    const dvk_rows cache[2] = {cache_rows(d, layer, 0), cache_rows(d, layer, 1)};
    if (t->qk_norm == DV_VLM_QK_BEFORE_ROPE) {
        add_head_norm(d, p, b->q_norm, rows[0], t->heads);
        add_head_norm(d, p, b->k_norm, rows[1], t->kv_heads);
    }
    dvk_attention_kv_args attention = {.q = rows[0],
                                       .k = cache[0],
                                       .v = cache[1],
                                       .y = mixed,
                                       .in = pass->rows,
                                       .keys = keys_of(d, pass),
                                       .heads = t->heads,
                                       .kv_heads = t->kv_heads,
                                       .dim = t->head_dim,
                                       .scale = (float)(1.0 / sqrt((double)t->head_dim)),
                                       .causal = 1};
    bool out = false;
    if (add_attention_new(d, pass, rows, &attention, b, &out)) {
        return out;
    }
    if (p->queue != NULL && t->qk_norm != DV_VLM_QK_AFTER_ROPE) {
        attention.q = add_rope_qkv(d, pass, rows, cache);
    } else {
        add_ropes(d, pass, rows, cache);
    }
    dv_row_program_attention(p, &attention, attends_at(pass));
    return false;
}

static void add_block(const dv_decoder *d, dv_decoder_pass *pass, int64_t layer) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_block *b = &d->weights->layers[layer];
    dv_row_program *p = &pass->body;
    const int64_t q = t->heads * t->head_dim;
    const dvk_rows x = dv_rows(d->x, DVK_ROWS_F32, t->hidden);
    add_qkv(d, p, b);
    dvk_form form = dv_row_program_form(p, &b->out);
    dvk_rows mixed = dv_row_program_written(form, d->mixed, q);
    mixed.head = t->head_dim;
    dv_prog_linear up = {.w = &b->up, .act = dv_gate_of(t->act)};
    dvk_rows stream = x; /* x, or x plus the attention's output */
    if (add_attention(d, pass, b, layer, mixed)) {
        stream.data = up.sum = d->sum;
        up.more = d->parts;
        up.n_more = (int32_t)t->kv_heads;
    } else {
        const dvk_rows in = dv_row_program_input(p, mixed, form, d->mixed_in, q);
        dv_row_program_linear(p, &(dv_prog_linear){.w = &b->out, .x = in, .y = x, .res = x});
    }
    form = dv_row_program_form(p, &b->down);
    const dvk_rows hidden = dv_row_program_written(form, d->hidden, t->ffn);
    up.y = hidden;
    if (!add_normalising(d, p, &b->norm2, &up)) {
        up.x = dv_rows(d->normed, dv_row_program_form(p, &b->up), t->hidden);
        add_norm(d, p, &b->norm2, up.x, DV_AT_ROWS);
        dv_row_program_linear(p, &up);
    }
    const dvk_rows in = dv_row_program_input(p, hidden, form, d->hidden_in, t->ffn);
    dv_row_program_linear(p, &(dv_prog_linear){.w = &b->down, .x = in, .y = x, .res = stream});
}

/* Logits of the last row only, or of every row. */
static void add_head(const dv_decoder *d, dv_row_program *p, bool each) {
    const dv_vlm_text *t = &d->config->text;
    const dv_vlm_weights *w = d->weights;
    dv_prog_linear head = {
        .w = &w->head, .y = dv_rows(d->logits, DVK_ROWS_F32, t->vocab), .at = each ? DV_AT_ROWS : DV_AT_LAST};
    if (add_normalising(d, p, &w->norm, &head)) {
        return;
    }
    head.x = dv_rows(d->normed, dv_row_program_form(p, &w->head), t->hidden);
    add_norm(d, p, &w->norm, head.x, head.at);
    head.at = each ? DV_AT_ROWS : DV_AT_ONE;
    dv_row_program_linear(p, &head);
}

/* Rotation table of a pass's tokens. */
static dvk_rope_table_args table_of(const dv_decoder *d, const dv_decoder_pass *pass) {
    return (dvk_rope_table_args){.pos = pass->positions,
                                 .freq = d->weights->frequencies,
                                 .axis = d->weights->axes,
                                 .cs = d->cs,
                                 .m = pass->body.rows,
                                 .pairs = d->config->text.head_dim / 2,
                                 .axes = d->axes};
}

/* True for a single token on a GPU; the step before it prepares its x. */
static bool follows(const dv_decoder_pass *pass) {
    return pass->completions != NULL;
}

/* On a GPU the passes embed ids themselves. If picture vectors are possible, a separate program embeds before the layers. */
static davy_result add_words(dv_decoder *d, dv_decoder_pass *pass, const dv_row_program_desc *desc) {
    const dvk_rows x = dv_rows(d->x, DVK_ROWS_F32, d->config->text.hidden);
    if (desc->queue == NULL || pass->each) {
        if (desc->queue != NULL) {
            dv_row_program_embed(&pass->body, &d->weights->embed, pass->ids, x);
        }
        return DAVY_OK;
    }
    dv_row_program_start(&pass->words, desc);
    dv_row_program_embed(&pass->words, &d->weights->embed, pass->ids, x);
    if (follows(pass)) {
        const dvk_rope_table_args table = table_of(d, pass);
        dv_row_program_rope_table(&pass->words, &table);
    }
    return dv_row_program_finish(&pass->words);
}

static void add_layers(dv_decoder *d, dv_decoder_pass *pass) {
    const dv_vlm_text *t = &d->config->text;
    dv_row_program *p = &pass->body;
    if (!follows(pass)) {
        const dvk_rope_table_args table = table_of(d, pass);
        dv_row_program_rope_table(p, &table);
    }
    if (t->embed_norm) {
        add_norm(d, p, &(dv_vlm_affine){.w = NULL}, dv_rows(d->x, DVK_ROWS_F32, t->hidden), DV_AT_ROWS);
    }
    for (int64_t i = 0; i < t->layers; i++) {
        const bool pictures = p->rows > 1 && !pass->each; /* picture vectors can be among the rows */
        if (pictures && i > 0) {
            dv_row_program_cut(p);
        }
        add_block(d, pass, i);
        if (i < d->config->vision.n_deepstack && (pictures || p->queue == NULL)) {
            pass->deep[i] = dv_row_program_add_rows(
                p, &(dv_add_rows_args){.x = d->x, .y = d->x, .row = d->deep_rows, .dim = t->hidden, .taps = 1});
        }
    }
}

/* Draws the id of the largest logit. For a single token it also prepares the next step. */
static void add_draw(const dv_decoder *d, dv_decoder_pass *pass) {
    const int64_t vocab = d->config->text.vocab;
    dvk_argmax_args a = {.x = dv_rows(d->logits, DVK_ROWS_F32, vocab),
                         .id = pass->drawn,
                         .never = pass->never,
                         .m = pass->body.rows,
                         .n = vocab,
                         .n_never = DV_DECODER_NEVER};
    if (!follows(pass)) {
        dv_row_program_argmax(&pass->body, &a);
        return;
    }
    a.id = d->token + DV_TOKEN_ID;
    a.never = d->token + DV_TOKEN_NEVER;
    a.advance = d->token + DV_TOKEN_COUNT;
    a.n_advance = 2 + d->axes;
    const dvk_next_token_args next = {.draw = a,
                                      .embed.y = dv_rows(d->x, DVK_ROWS_F32, d->config->text.hidden),
                                      .table = table_of(d, pass),
                                      .told = pass->completions};
    dv_row_program_next_token(&pass->body, &next, &d->weights->embed);
}

/* Selects the largest logits of one row for sampling: about twice as many as a caller may request. */
static davy_result build_best(dv_decoder *d, dv_decoder_pass *pass, const dv_row_program_desc *desc) {
    dv_row_program_start(&pass->best, desc);
    dv_row_program_candidates(&pass->best, &(dvk_candidates_args){.x = d->logits,
                                                                  .to = d->candidates,
                                                                  .n = d->config->text.vocab,
                                                                  .least = 2 * DV_DECODER_CANDIDATES});
    return dv_row_program_finish(&pass->best);
}

davy_result dv_decoder_build(dv_decoder *d, dv_decoder_pass *pass, dv_row_program_desc *desc) {
    dv_row_program *p = &pass->body;
    dv_row_program_start(p, desc);
    davy_result r = add_words(d, pass, desc);
    if (r < 0) {
        return r;
    }
    add_layers(d, pass);
    if (desc->rows == 1 || pass->each) {
        /* In the same run: waking the threads again would cost as much as some of the steps. */
        add_head(d, p, pass->each);
        if (desc->queue != NULL) {
            add_draw(d, pass);
        }
        r = dv_row_program_finish(p);
        return r < 0 || desc->queue == NULL || pass->each ? r : build_best(d, pass, desc);
    }
    r = dv_row_program_finish(p);
    if (r < 0) {
        return r;
    }
    const int64_t rows = desc->rows;
    desc->rows = 1;
    dv_row_program_start(&pass->head, desc);
    desc->rows = rows;
    add_head(d, &pass->head, false);
    return dv_row_program_finish(&pass->head);
}

void dv_decoder_point(dv_decoder_pass *pass, const dv_decoder *d) {
    for (int32_t i = 0; i < d->config->vision.n_deepstack && pass->deep[i] != NULL; i++) {
        dv_row_program_point(pass->deep[i], d->deep[i]);
    }
}
