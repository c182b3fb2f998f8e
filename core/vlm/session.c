/* session.c - tokens and vectors into the cache, tokens out of it. */
#include "core/vlm/session.h"

#include <string.h>

#include "core/base/error.h"
#include "core/vlm/session_priv.h"
#include "core/vlm/positions.h"

davy_result dv_session_open(const dv_vlm_model *model, const dv_session_options *options, dv_session **out) {
    const dv_session_options none = {0};
    const dv_session_options *o = options != NULL ? options : &none;
    dv_session *d = dv_calloc(1, sizeof *d);
    if (d == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->model = model;
    d->options = *o;
    d->pending = -1;
    d->context = o->context > 0 ? o->context : dv_min(model->config.text.max_positions, DV_SESSION_CONTEXT);
    dv_decoder_desc desc = {.config = &model->config,
                            .weights = model->weights,
                            .heap = model->heap,
                            .pool = model->pool,
                            .gpu = model->gpu,
                            .cpu = model->cpu,
                            .compute = model->compute,
                            .context = d->context,
                            .chunk = o->chunk,
                            .few = DV_LOOKUP_ROWS};
    davy_result r = dv_decoder_open(&desc, &d->decoder);
    if (dv_ran_out(r) && o->room != NULL && o->room(o->user)) {
        r = dv_decoder_open(&desc, &d->decoder);
    }
    while (o->context == 0 && dv_ran_out(r) && d->context / 2 >= DV_SESSION_LEAST) {
        desc.context = d->context /= 2;
        r = dv_decoder_open(&desc, &d->decoder);
    }
    d->history = r == DAVY_OK ? dv_calloc((uint64_t)d->context, sizeof *d->history) : NULL;
    if (r == DAVY_OK && d->history == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    if (r < 0) {
        dv_session_release(d);
        return r;
    }
    *out = d;
    return DAVY_OK;
}

void dv_session_release(dv_session *d) {
    if (d != NULL) {
        dv_decoder_release(d->decoder);
        dv_free(d->history);
        dv_free(d);
    }
}

int64_t dv_session_tokens(const dv_session *d) {
    return d->tokens;
}

int64_t dv_session_context(const dv_session *d) {
    return d->context;
}

uint64_t dv_session_bytes(const dv_session *d) {
    return dv_decoder_bytes(d->decoder);
}

const float *dv_session_logits(const dv_session *d) {
    return d->logits;
}

dv_session_mark dv_session_now(const dv_session *d) {
    return (dv_session_mark){
        .tokens = d->tokens, .next = d->next, .last = d->pending + 1, .last_stops = d->pending_stop};
}

davy_result dv_session_rewind(dv_session *d, dv_session_mark mark) {
    if (mark.tokens < 0 || mark.tokens > d->tokens) {
        return dv_fail(DAVY_E_INVALID, "a dialogue of %lld tokens cannot go back to %lld", (long long)d->tokens,
                       (long long)mark.tokens);
    }
    if (mark.tokens < d->tokens || d->pending >= 0) {
        d->logits = NULL;
    }
    d->supposed.n = 0;
    d->tokens = mark.tokens;
    d->next = mark.next;
    d->pending = mark.last - 1;
    d->pending_stop = mark.last > 0 && mark.last_stops;
    return DAVY_OK;
}

/* ---- feeding ---- */

/* Text up to the next picture together with the picture before it: one picture's vectors at a time. */
static davy_result feed_parts(dv_session *d, const dv_feeding *f) {
    davy_result r = DAVY_OK;
    for (int64_t at = 0; r == DAVY_OK && at < f->n;) {
        dv_decoder_input in = dv_feeding_part(f, at);
        in.past = d->tokens + at;
        in.cancel = d->options.cancel;
        in.user = d->options.user;
        at += in.n;
        int64_t fed = 0;
        const float *logits = NULL;
        r = dv_decoder_feed(d->decoder, &in, at == f->n ? &logits : NULL, &fed);
        d->logits = r == DAVY_OK ? logits : NULL;
    }
    return r;
}

davy_result dv_session_feed(dv_session *d, const int32_t *ids, int64_t n, const dv_session_picture *pictures,
                            int32_t n_pictures) {
    const int64_t all = n + (d->pending >= 0 ? 1 : 0);
    dv_feeding f = {.n = 0};
    if (n < 0 || all < 1) {
        return dv_fail(DAVY_E_INVALID, "nothing to read");
    }
    if (all > d->context - d->tokens) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens behind %lld are more than the context of %lld tokens",
                       (long long)all, (long long)d->tokens, (long long)d->context);
    }
    const dv_feed_words words = {.ids = ids, .n = n, .before = d->pending};
    int64_t next = d->next;
    davy_result r = dv_feeding_make(d->model, &words, pictures, n_pictures, &next, &f);
    d->supposed.n = 0;
    r = r < 0 ? r : feed_parts(d, &f);
    if (r == DAVY_OK) {
        memcpy(d->history + d->tokens, f.ids, (size_t)f.n * sizeof *f.ids);
        d->tokens += f.n;
        d->next = next;
        d->pending = -1;
        d->pending_stop = false;
    }
    dv_feeding_clear(&f);
    return r;
}

/* ---- generating ---- */

/* Placeholders that are no words of the model's are never drawn, so that nothing repeats them. */
static davy_result saw_words(dv_sampler *s, int64_t vocab, const int32_t *ids, int64_t n) {
    davy_result r = DAVY_OK;
    for (int64_t at = 0, end = 0; r == DAVY_OK && at < n; at = end + 1) {
        for (end = at; end < n && ids[end] < vocab; end++) {
        }
        r = dv_sampler_saw(s, ids + at, end - at);
    }
    return r;
}

davy_result dv_session_sampler(const dv_vlm_model *m, const dv_generate *g, const int32_t *said, int64_t n_said,
                               dv_sampler **out) {
    dv_sample_options o = g->sample;
    const int32_t never[2] = {m->image_id, m->video_id};
    int32_t ids[2];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (never[i] >= 0 && never[i] < m->config.text.vocab) {
            ids[n++] = never[i];
        }
    }
    if (o.never == NULL) {
        o.never = ids;
        o.n_never = n;
    }
    const davy_result r = dv_sampler_create(m->config.text.vocab, &o, out);
    return r < 0 ? r : saw_words(*out, m->config.text.vocab, said, n_said);
}

bool dv_is_stop(const dv_vlm_model *m, int32_t id) {
    for (int64_t i = 0; i < m->stops.n; i++) {
        if (m->stops.p[i] == id) {
            return true;
        }
    }
    return false;
}

bool dv_draws_there(const dv_decoder *d, const dv_sample_options *o) {
    return dv_decoder_draws(d) && o->temperature == 0 && o->repetition_penalty == 1 && o->no_repeat_ngram == 0 &&
           o->n_never <= DV_DECODER_NEVER;
}

/* One more token becomes d->pending; `most` more are wanted. */
static davy_result draw(dv_session *d, const dv_generate *g, int64_t most, dv_sampler *sampler) {
    const dv_sample_options *o = dv_sampler_options(sampler);
    davy_result r = DAVY_OK;
    if (d->pending >= 0 && dv_draws_there(d->decoder, o)) {
        return dv_session_draw_behind(d, g, o, most, &d->pending);
    }
    int32_t id = -1;
    if (d->pending >= 0 && dv_draws_of_best(d->decoder, o)) {
        r = dv_session_draw_best(d, sampler, &id);
    } else {
        r = d->pending >= 0 ? dv_session_feed_pending(d, g, most) : DAVY_OK;
        if (r == DAVY_OK && d->logits == NULL) {
            r = dv_fail(DAVY_E_STATE,
                        "there is nothing to answer: no question was read since the dialogue began or went back");
        }
        r = r < 0 ? r : dv_sampler_draw(sampler, d->logits, (uint64_t)d->tokens, &id);
    }
    r = r < 0 ? r : dv_sampler_saw(sampler, &id, 1);
    if (r == DAVY_OK) {
        d->pending = id;
    }
    return r;
}

davy_result dv_session_generate(dv_session *d, const dv_generate *g, int64_t *tokens, dv_session_end *end) {
    dv_sampler *sampler = NULL;
    *tokens = 0;
    *end = DV_END_LENGTH;
    davy_result r = dv_session_sampler(d->model, g, d->history, d->tokens, &sampler);
    r = r < 0 || d->pending < 0 ? r : dv_sampler_saw(sampler, &d->pending, 1);
    while (r == DAVY_OK && *tokens < g->max_tokens) {
        if (d->options.cancel != NULL && d->options.cancel(d->options.user) != 0) {
            r = dv_fail(DAVY_E_CANCELLED, "cancelled");
            break;
        }
        r = draw(d, g, g->max_tokens - *tokens, sampler);
        if (r < 0) {
            break;
        }
        (*tokens)++;
        d->pending_stop = dv_is_stop(d->model, d->pending);
        if (g->drawn != NULL) {
            g->drawn(g->drawn_user, *tokens);
        }
        if (d->pending_stop && !g->ignore_stops) {
            *end = DV_END_STOP;
            break;
        }
        if (g->token != NULL && g->token(g->user, d->pending) != 0) {
            *end = DV_END_CALLER;
            break;
        }
    }
    dv_sampler_release(sampler);
    return r;
}
