/* dialogue.c - tokens and vectors into the cache, tokens out of it. */
#include "core/vlm/dialogue.h"

#include <string.h>

#include "core/error.h"
#include "core/vlm/dialogue_priv.h"
#include "core/vlm/positions.h"

davy_result dv_dialogue_open(const dv_vlm_model *model, const dv_dialogue_options *options, dv_dialogue **out) {
    const dv_dialogue_options none = {0};
    const dv_dialogue_options *o = options != NULL ? options : &none;
    dv_dialogue *d = dv_calloc(1, sizeof *d);
    if (d == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->model = model;
    d->options = *o;
    d->pending = -1;
    d->context = o->context > 0 ? o->context : dv_min(model->config.text.max_positions, DV_DIALOGUE_CONTEXT);
    dv_decoder_desc desc = {.config = &model->config,
                            .weights = model->weights,
                            .heap = model->heap,
                            .pool = model->pool,
                            .cpu = model->cpu,
                            .compute = model->compute,
                            .context = d->context,
                            .chunk = o->chunk};
    davy_result r = dv_decoder_open(&desc, &d->decoder);
    while (o->context == 0 && (r == DAVY_E_NOMEM_HOST || r == DAVY_E_BUDGET) && d->context / 2 >= DV_DIALOGUE_LEAST) {
        desc.context = d->context /= 2;
        r = dv_decoder_open(&desc, &d->decoder);
    }
    d->history = r == DAVY_OK ? dv_calloc((uint64_t)d->context, sizeof *d->history) : NULL;
    if (r == DAVY_OK && d->history == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    if (r < 0) {
        dv_dialogue_release(d);
        return r;
    }
    *out = d;
    return DAVY_OK;
}

void dv_dialogue_release(dv_dialogue *d) {
    if (d != NULL) {
        dv_decoder_release(d->decoder);
        dv_free(d->history);
        dv_free(d);
    }
}

int64_t dv_dialogue_tokens(const dv_dialogue *d) {
    return d->tokens;
}

int64_t dv_dialogue_context(const dv_dialogue *d) {
    return d->context;
}

uint64_t dv_dialogue_bytes(const dv_dialogue *d) {
    return dv_decoder_bytes(d->decoder);
}

const float *dv_dialogue_logits(const dv_dialogue *d) {
    return d->logits;
}

dv_dialogue_mark dv_dialogue_now(const dv_dialogue *d) {
    return (dv_dialogue_mark){
        .tokens = d->tokens, .next = d->next, .last = d->pending + 1, .last_stops = d->pending_stop};
}

davy_result dv_dialogue_rewind(dv_dialogue *d, dv_dialogue_mark mark) {
    if (mark.tokens < 0 || mark.tokens > d->tokens) {
        return dv_fail(DAVY_E_INVALID, "a dialogue of %lld tokens cannot go back to %lld", (long long)d->tokens,
                       (long long)mark.tokens);
    }
    if (mark.tokens < d->tokens || d->pending >= 0) {
        d->logits = NULL;
    }
    d->tokens = mark.tokens;
    d->next = mark.next;
    d->pending = mark.last - 1;
    d->pending_stop = mark.last > 0 && mark.last_stops;
    return DAVY_OK;
}

/* ---- feeding ---- */

typedef struct feeding {
    int32_t *ids, *vector, *positions; /* [n] each, positions [n][axes] */
    dv_vlm_span *spans;
    int64_t n, n_spans;
    int64_t *first; /* of each picture's placeholders */
} feeding;

static void feeding_clear(feeding *f) {
    dv_free(f->ids);
    dv_free(f->vector);
    dv_free(f->positions);
    dv_free(f->spans);
    dv_free(f->first);
}

/* Qwen3 has every time step of a video as a span of its own. */
static int64_t spans_of(const dv_dialogue *d, const dv_vlm_features *f) {
    return f->t == 0 ? 0 : d->model->config.family == DV_VLM_QWEN3 ? f->t : 1;
}

static davy_result feeding_allocate(const dv_dialogue *d, const dv_dialogue_picture *pictures, int32_t n_pictures,
                                    feeding *f) {
    int64_t spans = 1;
    for (int32_t i = 0; i < n_pictures; i++) {
        spans += spans_of(d, pictures[i].features);
    }
    f->ids = dv_calloc((uint64_t)f->n, sizeof *f->ids);
    f->vector = dv_calloc((uint64_t)f->n, sizeof *f->vector);
    f->positions = dv_calloc((uint64_t)f->n, 3 * sizeof *f->positions);
    f->spans = dv_calloc((uint64_t)spans, sizeof *f->spans);
    f->first = dv_calloc((uint64_t)n_pictures + 1, sizeof *f->first);
    return f->ids != NULL && f->vector != NULL && f->positions != NULL && f->spans != NULL && f->first != NULL
               ? DAVY_OK
               : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

static bool is_placeholder(const dv_dialogue *d, int32_t id) {
    return id >= 0 && (id == d->model->image_id || id == d->model->video_id);
}

/* Which vector each placeholder stands for, and where the pictures' tokens lie. */
static davy_result place_pictures(const dv_dialogue *d, const dv_dialogue_picture *pictures, int32_t n_pictures,
                                  feeding *f) {
    int32_t picture = 0;
    int64_t row = 0;
    int64_t placeholders = 0;
    int64_t vectors = 0;
    for (int64_t i = 0; i < f->n; i++) {
        f->vector[i] = -1;
        if (!is_placeholder(d, f->ids[i])) {
            continue;
        }
        placeholders++;
        if (picture == n_pictures) {
            continue;
        }
        const dv_vlm_features *v = pictures[picture].features;
        const int64_t spans = spans_of(d, v);
        f->first[picture] = row == 0 ? i : f->first[picture];
        const int64_t inside = spans > 0 ? row % (v->tokens / spans) : 0;
        if (spans > 0 && inside == 0) {
            f->spans[f->n_spans++] =
                (dv_vlm_span){.at = i, .t = v->t / spans, .h = v->h, .w = v->w, .seconds = pictures[picture].seconds};
        } else if (spans > 0 && i != f->spans[f->n_spans - 1].at + inside) {
            return dv_fail(DAVY_E_INVALID, "the placeholders of a picture do not lie one behind the other");
        }
        f->vector[i] = (int32_t)row++;
        if (row == v->tokens) {
            picture++;
            row = 0;
        }
    }
    for (int32_t i = 0; i < n_pictures; i++) {
        vectors += pictures[i].features->tokens;
    }
    f->first[n_pictures] = f->n;
    return placeholders == vectors
               ? DAVY_OK
               : dv_fail(DAVY_E_INVALID, "the prompt has %lld placeholders, its pictures have %lld vectors",
                         (long long)placeholders, (long long)vectors);
}

/* Text up to the next picture together with the picture before it: one picture's vectors at a time. */
static davy_result feed_parts(dv_dialogue *d, const feeding *f, const dv_dialogue_picture *pictures,
                              int32_t n_pictures) {
    const int32_t axes = dv_vlm_position_axes(&d->model->config);
    davy_result r = DAVY_OK;
    int64_t at = 0;
    for (int32_t i = 0; r == DAVY_OK && at < f->n; i++) {
        const int64_t end = i + 1 < n_pictures ? f->first[i + 1] : f->n;
        const dv_vlm_features *v = i < n_pictures ? pictures[i].features : NULL;
        const dv_decoder_input in = {.ids = f->ids + at,
                                     .vector = f->vector + at,
                                     .vectors = v != NULL ? v->vectors : NULL,
                                     .deep = v != NULL && v->deep[0] != NULL ? (const float *const *)v->deep : NULL,
                                     .positions = f->positions + at * axes,
                                     .n = end - at,
                                     .past = d->tokens + at,
                                     .cancel = d->options.cancel,
                                     .user = d->options.user};
        int64_t fed = 0;
        const float *logits = NULL;
        r = dv_decoder_feed(d->decoder, &in, end == f->n ? &logits : NULL, &fed);
        d->logits = r == DAVY_OK ? logits : NULL;
        at = end;
    }
    return r;
}

davy_result dv_dialogue_feed(dv_dialogue *d, const int32_t *ids, int64_t n, const dv_dialogue_picture *pictures,
                             int32_t n_pictures) {
    const int64_t extra = d->pending >= 0 ? 1 : 0;
    feeding f = {.n = n + extra};
    if (n < 0 || f.n < 1) {
        return dv_fail(DAVY_E_INVALID, "nothing to read");
    }
    if (f.n > d->context - d->tokens) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens behind %lld are more than the context of %lld tokens",
                       (long long)f.n, (long long)d->tokens, (long long)d->context);
    }
    int64_t next = d->next;
    davy_result r = feeding_allocate(d, pictures, n_pictures, &f);
    if (r == DAVY_OK) {
        if (extra > 0) {
            f.ids[0] = d->pending;
        }
        if (n > 0) {
            memcpy(f.ids + extra, ids, (size_t)n * sizeof *ids);
        }
        r = place_pictures(d, pictures, n_pictures, &f);
    }
    r = r < 0 ? r : dv_vlm_positions(&d->model->config, f.n, f.spans, f.n_spans, &next, f.positions);
    r = r < 0 ? r : feed_parts(d, &f, pictures, n_pictures);
    if (r == DAVY_OK) {
        memcpy(d->history + d->tokens, f.ids, (size_t)f.n * sizeof *f.ids);
        d->tokens += f.n;
        d->next = next;
        d->pending = -1;
        d->pending_stop = false;
    }
    feeding_clear(&f);
    return r;
}

/* ---- generating ---- */

static davy_result feed_one(dv_dialogue *d) {
    int32_t positions[3] = {(int32_t)d->next, (int32_t)d->next, (int32_t)d->next};
    const dv_decoder_input in = {.ids = &d->pending,
                                 .positions = positions,
                                 .n = 1,
                                 .past = d->tokens,
                                 .cancel = d->options.cancel,
                                 .user = d->options.user};
    int64_t fed = 0;
    const float *logits = NULL;
    const davy_result r = dv_decoder_feed(d->decoder, &in, &logits, &fed);
    d->logits = r == DAVY_OK ? logits : NULL;
    if (r == DAVY_OK) {
        d->history[d->tokens++] = d->pending;
        d->next++;
        d->pending = -1;
    }
    return r;
}

static davy_result make_sampler(const dv_dialogue *d, const dv_generate *g, dv_sampler **out) {
    dv_sample_options o = g->sample;
    const int32_t never[2] = {d->model->image_id, d->model->video_id};
    int32_t ids[2];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (never[i] >= 0 && never[i] < d->model->config.text.vocab) {
            ids[n++] = never[i];
        }
    }
    if (o.never == NULL) {
        o.never = ids;
        o.n_never = n;
    }
    davy_result r = dv_sampler_create(d->model->config.text.vocab, &o, out);
    r = r < 0 ? r : dv_sampler_saw(*out, d->history, d->tokens);
    return r < 0 || d->pending < 0 ? r : dv_sampler_saw(*out, &d->pending, 1);
}

static bool is_stop(const dv_dialogue *d, int32_t id) {
    for (int64_t i = 0; i < d->model->stops.n; i++) {
        if (d->model->stops.p[i] == id) {
            return true;
        }
    }
    return false;
}

/* One more token becomes d->pending. */
static davy_result draw(dv_dialogue *d, dv_sampler *sampler) {
    davy_result r = DAVY_OK;
    if (d->pending >= 0) {
        r = feed_one(d);
    }
    if (r == DAVY_OK && d->logits == NULL) {
        r = dv_fail(DAVY_E_STATE,
                    "there is nothing to answer: no question was read since the dialogue began or went back");
    }
    int32_t id = -1;
    r = r < 0 ? r : dv_sampler_draw(sampler, d->logits, (uint64_t)d->tokens, &id);
    r = r < 0 ? r : dv_sampler_saw(sampler, &id, 1);
    if (r == DAVY_OK) {
        d->pending = id;
    }
    return r;
}

davy_result dv_dialogue_generate(dv_dialogue *d, const dv_generate *g, int64_t *tokens, dv_dialogue_end *end) {
    dv_sampler *sampler = NULL;
    *tokens = 0;
    *end = DV_END_LENGTH;
    davy_result r = make_sampler(d, g, &sampler);
    while (r == DAVY_OK && *tokens < g->max_tokens) {
        if (d->options.cancel != NULL && d->options.cancel(d->options.user) != 0) {
            r = dv_fail(DAVY_E_CANCELLED, "cancelled");
            break;
        }
        r = draw(d, sampler);
        if (r < 0) {
            break;
        }
        (*tokens)++;
        d->pending_stop = is_stop(d, d->pending);
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
