/* session.c - a session: feeds prompts to the decoder, draws tokens one by one or by lookup, converts questions to tokens and
 * tokens to an answer. */
#include "core/vlm/session.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/vlm/decoder.h"
#include "core/vlm/positions.h"
#include "core/vlm/session_priv.h"

void dv_feeding_clear(dv_feeding *f) {
    dv_free(f->ids);
    dv_free(f->vector);
    dv_free(f->positions);
    dv_free(f->spans);
    dv_free(f->first);
    *f = (dv_feeding){.n = 0};
}

/* In Qwen3 every time step of a video is a separate span. */
static int64_t spans_of(const dv_vlm_model *m, const dv_vlm_features *f) {
    return f->t == 0 ? 0 : m->config.family == DV_VLM_QWEN3 ? f->t : 1;
}

static davy_result allocate(const dv_vlm_model *m, dv_feeding *f) {
    int64_t spans = 1;
    for (int32_t i = 0; i < f->n_pictures; i++) {
        spans += spans_of(m, f->pictures[i].features);
    }
    f->ids = dv_calloc((uint64_t)f->n, sizeof *f->ids);
    f->vector = dv_calloc((uint64_t)f->n, sizeof *f->vector);
    f->positions = dv_calloc((uint64_t)f->n, 3 * sizeof *f->positions);
    f->spans = dv_calloc((uint64_t)spans, sizeof *f->spans);
    f->first = dv_calloc((uint64_t)f->n_pictures + 1, sizeof *f->first);
    return f->ids != NULL && f->vector != NULL && f->positions != NULL && f->spans != NULL && f->first != NULL
               ? DAVY_OK
               : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

bool dv_is_placeholder(const dv_vlm_model *m, int32_t id) {
    return id >= 0 && (id == m->image_id || id == m->video_id);
}

/* Assigns a vector to each placeholder, and finds the first token of each picture. */
static davy_result place_pictures(const dv_vlm_model *m, dv_feeding *f) {
    const dv_session_picture *pictures = f->pictures;
    const int32_t n_pictures = f->n_pictures;
    int32_t picture = 0;
    int64_t row = 0;
    int64_t placeholders = 0;
    int64_t vectors = 0;
    const bool in_front = m->config.family == DV_VLM_GHOSTVIS; /* GhostVis: later placeholders are ordinary ids */
    for (int64_t i = 0; i < f->n; i++) {
        f->vector[i] = -1;
        if (!dv_is_placeholder(m, f->ids[i])) {
            continue;
        }
        placeholders += in_front && picture == n_pictures ? 0 : 1;
        if (picture == n_pictures) {
            continue;
        }
        const dv_vlm_features *v = pictures[picture].features;
        const int64_t spans = spans_of(m, v);
        f->first[picture] = row == 0 ? i : f->first[picture];
        const int64_t inside = spans > 0 ? row % (v->tokens / spans) : 0;
        if (spans > 0 && inside == 0) {
            f->spans[f->n_spans++] =
                (dv_vlm_span){.at = i, .t = v->t / spans, .h = v->h, .w = v->w, .seconds = pictures[picture].seconds};
        } else if (spans > 0 && i != f->spans[f->n_spans - 1].at + inside) {
            return dv_fail(DAVY_E_INVALID, "the placeholders of a picture must be adjacent");
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
               : dv_fail(DAVY_E_INVALID, "the prompt has %lld placeholders, but its pictures have %lld vectors",
                         (long long)placeholders, (long long)vectors);
}

davy_result dv_feeding_make(const dv_vlm_model *m, const dv_feed_words *words, int64_t *next, dv_feeding *out) {
    const int64_t extra = words->before >= 0 ? 1 : 0;
    dv_feeding f = {.n = words->n + extra,
                    .pictures = words->pictures,
                    .n_pictures = words->n_pictures,
                    .axes = dv_vlm_position_axes(&m->config)};
    int64_t after = *next;
    davy_result r = allocate(m, &f);
    if (r == DAVY_OK) {
        if (extra > 0) {
            f.ids[0] = words->before;
        }
        if (words->n > 0) {
            memcpy(f.ids + extra, words->ids, (size_t)words->n * sizeof *words->ids);
        }
        r = place_pictures(m, &f);
    }
    const dv_vlm_sequence s = {.tokens = f.n, .spans = f.spans, .n_spans = f.n_spans};
    r = r < 0 ? r : dv_vlm_positions(&m->config, &s, &after, f.positions);
    if (r < 0) {
        dv_feeding_clear(&f);
        return r;
    }
    *next = after;
    *out = f;
    return DAVY_OK;
}

dv_decoder_input dv_feeding_part(const dv_feeding *f, int64_t at) {
    int32_t i = 0;
    while (i + 1 < f->n_pictures && f->first[i + 1] <= at) {
        i++;
    }
    const int64_t end = i + 1 < f->n_pictures ? f->first[i + 1] : f->n;
    const dv_vlm_features *v = i < f->n_pictures ? f->pictures[i].features : NULL;
    return (dv_decoder_input){.ids = f->ids + at,
                              .vector = f->vector + at,
                              .vectors = v != NULL ? v->vectors : NULL,
                              .deep = v != NULL && v->deep[0] != NULL ? (const float *const *)v->deep : NULL,
                              .positions = f->positions + at * f->axes,
                              .n = end - at};
}

/* ---- drawing on the host; with a GPU from the largest logits only, if they are enough ---- */

static bool dv_draws_of_best(const dv_decoder *d, const dv_sample_options *o) {
    return dv_decoder_gives_best(d) && dv_sample_takes_few(o);
}

/* Adds the pending token to the cache and draws the next one, *id. The GPU returns the largest logits; all logits only if these
 * are not enough. */
static davy_result dv_session_draw_best(dv_session *d, dv_sampler *sampler, int32_t *id) {
    const dv_decoder_token token = {.id = d->pending, .position = (int32_t)d->next, .past = d->tokens};
    const dvk_candidates *best = NULL;
    d->logits = NULL;
    d->supposed.n = 0;
    davy_result r = dv_decoder_best(d->decoder, &token, &best);
    if (r < 0) {
        return r;
    }
    d->history[d->tokens++] = d->pending;
    d->next++;
    d->pending = *id = -1;
    if (best->n <= DVK_CANDIDATES) {
        const dv_sample_few few = {.ids = best->id, .logits = best->value, .n = best->n, .bound = best->bound};
        r = dv_sampler_draw_few(sampler, &few, (uint64_t)d->tokens, id);
    }
    if (r == DAVY_OK && *id < 0) {
        r = dv_decoder_rest(d->decoder, &d->logits);
        r = r < 0 ? r : dv_sampler_draw(sampler, d->logits, (uint64_t)d->tokens, id);
    }
    return r;
}

/* ---- prompt lookup: if the last tokens occurred before, the tokens after them may follow again. One pass of a few rows computes
 * logits for each guess. Drawing works as usual; while it draws the guessed tokens, their logits are ready. A wrong guess needs
 * no cleanup: later tokens overwrite its rows. ---- */

enum {
    LONGEST = 3, /* number of last tokens to search for, first try */
    SHORTEST = 2,
    FIRST = 4 /* guesses in the first pass, before there are statistics */
};

/* Searches an earlier occurrence of the last `n` of `count` tokens. Returns the index after it; 0: none. */
static int64_t find(const dv_vlm_model *m, const int32_t *ids, int64_t count, int64_t n) {
    const int32_t *last = ids + count - n;
    for (int64_t i = 0; i < n; i++) {
        if (count <= n || dv_is_placeholder(m, last[i])) {
            return 0;
        }
    }
    for (int64_t at = count - n - 1; at >= 0; at--) {
        if (ids[at] == last[0] && memcmp(ids + at, last, (size_t)n * sizeof *ids) == 0) {
            return at + n;
        }
    }
    return 0;
}

/* Looks up at most `most` tokens that followed an earlier occurrence of the last tokens, including the pending one. */
static int64_t look_up(dv_session *d, int64_t most, int32_t *out) {
    const int64_t count = d->tokens + 1;
    int64_t from = 0;
    int64_t n = 0;
    d->history[d->tokens] = d->pending;
    for (int64_t same = LONGEST; from == 0 && same >= SHORTEST; same--) {
        from = find(d->model, d->history, count, same);
    }
    for (; from > 0 && n < most; n++) { /* a repetition continues past the end of the history */
        const int32_t id = from + n < count ? d->history[from + n] : out[from + n - count];
        if (dv_is_placeholder(d->model, id)) {
            break;
        }
        out[n] = id;
    }
    return n;
}

/* Number of guesses to try: 0 if the measured times show no gain. The slowly growing gain makes it try again now and then. */
static int64_t worth_trying(dv_supposed *s, int64_t most) {
    const int64_t n = dv_min(most, s->passes > 0 ? (int64_t)(1.5 * s->gain) + 2 : FIRST);
    const double right = s->gain < (double)n ? s->gain : (double)n;
    if (s->one_ns <= 0) {
        return 0;
    }
    if (s->passes == 0 || right * s->one_ns > (double)n * s->more_ns) {
        return n;
    }
    s->gain += 0.02;
    return 0;
}

static bool greedy(const dv_generate *g) {
    return g->sample.temperature == 0 || g->sample.top_k == 1;
}

static void keep_pending(dv_session *d, const float *logits) {
    d->logits = logits;
    d->history[d->tokens++] = d->pending;
    d->next++;
    d->pending = -1;
}

static davy_result feed_one(dv_session *d) {
    int32_t positions[3] = {(int32_t)d->next, (int32_t)d->next, (int32_t)d->next};
    const dv_decoder_input in = {.ids = &d->pending,
                                 .positions = positions,
                                 .n = 1,
                                 .past = d->tokens,
                                 .cancel = d->options.cancel,
                                 .user = d->options.user};
    int64_t fed = 0;
    const float *logits = NULL;
    const uint64_t start = dv_now_ns();
    const davy_result r = dv_decoder_feed(d->decoder, &in, &logits, &fed);
    d->logits = NULL;
    if (r == DAVY_OK) {
        const double ns = (double)(dv_now_ns() - start);
        d->supposed.one_ns += (d->supposed.one_ns > 0 ? 0.1 : 1.0) * (ns - d->supposed.one_ns);
        keep_pending(d, logits);
    }
    return r;
}

/* Feeds the pending token and n guesses after it. o: options for drawing on the GPU; NULL: on the host. */
static davy_result feed_supposed(dv_session *d, const dv_sample_options *o, int64_t n) {
    dv_supposed *s = &d->supposed;
    const int32_t axes = dv_vlm_position_axes(&d->model->config);
    int32_t ids[DV_LOOKUP_ROWS], place[DV_LOOKUP_ROWS], positions[3 * DV_LOOKUP_ROWS];
    for (int64_t i = 0; i <= n; i++) {
        ids[i] = i == 0 ? d->pending : s->ids[i - 1];
        place[i] = (int32_t)(d->tokens + i);
        for (int32_t a = 0; a < axes; a++) {
            positions[i * axes + a] = (int32_t)(d->next + i);
        }
    }
    dv_decoder_rows in = {.ids = ids, .place = place, .positions = positions, .n = n + 1};
    if (o != NULL) {
        in.never = o->never;
        in.n_never = o->n_never;
    }
    const int32_t *drawn = NULL;
    const uint64_t start = dv_now_ns();
    davy_result r = dv_decoder_few(d->decoder, &in, &s->logits);
    if (r == DAVY_OK && o != NULL) {
        r = dv_decoder_few_ids(d->decoder, &drawn);
    }
    d->logits = NULL;
    if (r == DAVY_OK) {
        const double more = ((double)(dv_now_ns() - start) - s->one_ns) / (double)n;
        s->more_ns = s->passes++ > 0 ? s->more_ns + 0.25 * (more - s->more_ns) : more;
        s->n = n;
        s->right = 0;
        if (drawn != NULL) {
            memcpy(s->drawn, drawn, (size_t)(n + 1) * sizeof *drawn);
        }
        keep_pending(d, s->logits);
    }
    return r;
}

/* Updates the statistics after the last right guess or the first wrong one. */
static void count_right(dv_supposed *s) {
    s->gain += (s->passes > 1 ? 0.25 : 1.0) * ((double)s->right - s->gain);
    s->n = 0;
}

/* Looks up guesses; `most`: number of tokens that may follow. Returns their number. */
static int64_t suppose(dv_session *d, int64_t most) {
    const int64_t rows = dv_min(dv_decoder_few_rows(d->decoder), DV_LOOKUP_ROWS);
    const int64_t room = dv_min(d->context - d->tokens - 1, most - 1);
    return rows > 1 && room > 0 ? look_up(d, dv_min(rows - 1, room), d->supposed.ids) : 0;
}

davy_result dv_session_feed_pending(dv_session *d, const dv_generate *g, int64_t most) {
    dv_supposed *s = &d->supposed;
    s->n = s->logits != NULL ? s->n : 0; /* guesses drawn on a GPU are not used here */
    if (s->n > 0 && d->pending == s->ids[s->right]) {
        s->right++;
        keep_pending(d, s->logits + s->right * d->model->config.text.vocab);
        if (s->right == s->n) {
            count_right(s);
        }
        return DAVY_OK;
    }
    if (s->n > 0) {
        count_right(s);
    }
    if (d->model->gpu == NULL && g->lookup != DV_LOOKUP_OFF && greedy(g)) {
        int64_t n = suppose(d, most);
        n = n > 0 && g->lookup == DV_LOOKUP_AUTO ? worth_trying(s, n) : n;
        if (n > 0) {
            return feed_supposed(d, NULL, n);
        }
    }
    return feed_one(d);
}

/* ---- on a GPU ---- */

static davy_result draw_one(dv_session *d, const dv_sample_options *o, int32_t *id) {
    const dv_decoder_token token = {
        .id = d->pending, .position = (int32_t)d->next, .past = d->tokens, .never = o->never, .n_never = o->n_never};
    const davy_result r = dv_decoder_next(d->decoder, &token, id);
    if (r == DAVY_OK) {
        keep_pending(d, NULL);
    }
    d->logits = NULL;
    return r;
}

davy_result dv_session_draw_behind(dv_session *d, const dv_generate *g, const dv_sample_options *o, int64_t most,
                                   int32_t *id) {
    dv_supposed *s = &d->supposed;
    int32_t drawn = -1;
    davy_result r = DAVY_OK;
    if (s->n > 0 && d->pending == s->ids[s->right]) {
        drawn = s->drawn[++s->right];
        keep_pending(d, NULL);
        if (s->right == s->n) {
            count_right(s);
        }
    } else {
        if (s->n > 0) {
            count_right(s);
        }
        const int64_t n = g->lookup == DV_LOOKUP_ALWAYS ? suppose(d, most) : 0;
        r = n > 0 ? feed_supposed(d, o, n) : draw_one(d, o, &drawn);
        drawn = n > 0 ? s->drawn[0] : drawn;
    }
    r = r < 0 ? r : dv_decoder_drawn(drawn);
    if (r == DAVY_OK) {
        *id = drawn;
    }
    return r;
}

/* ---- opening and state ---- */

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
        return dv_fail(DAVY_E_INVALID, "a dialogue of %lld tokens cannot return to token %lld", (long long)d->tokens,
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

/* Feeds in parts: each part has vectors of at most one picture, and the text up to the next picture. */
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
        return dv_fail(DAVY_E_INVALID, "the prompt has no tokens");
    }
    if (all > d->context - d->tokens) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens after %lld tokens exceed the context of %lld tokens",
                       (long long)all, (long long)d->tokens, (long long)d->context);
    }
    const dv_feed_words words = {
        .ids = ids, .n = n, .before = d->pending, .pictures = pictures, .n_pictures = n_pictures};
    int64_t next = d->next;
    davy_result r = dv_feeding_make(d->model, &words, &next, &f);
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

/* Records ids for the repetition penalty, without placeholders outside the vocabulary: these are never drawn. */
static davy_result saw_words(dv_sampler *s, int64_t vocab, const int32_t *ids, int64_t n) {
    davy_result r = DAVY_OK;
    for (int64_t at = 0, end = 0; r == DAVY_OK && at < n; at = end + 1) {
        for (end = at; end < n && ids[end] < vocab; end++) {
        }
        r = dv_sampler_saw(s, ids + at, end - at);
    }
    return r;
}

davy_result dv_session_sampler(const dv_vlm_model *m, const dv_generate *g, const int32_t *history, int64_t n,
                               dv_sampler **out) {
    dv_sample_options o = g->sample;
    const int32_t never[2] = {m->image_id, m->video_id};
    int32_t ids[2];
    int64_t n_ids = 0;
    for (int i = 0; i < 2; i++) {
        if (never[i] >= 0 && never[i] < m->config.text.vocab) {
            ids[n_ids++] = never[i];
        }
    }
    if (o.never == NULL) {
        o.never = ids;
        o.n_never = n_ids;
    }
    const davy_result r = dv_sampler_create(m->config.text.vocab, &o, out);
    return r < 0 ? r : saw_words(*out, m->config.text.vocab, history, n);
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

/* Draws one token into d->pending; `most`: tokens still to generate. */
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
            r = dv_fail(DAVY_E_STATE, "there is nothing to answer; add a question first");
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

/* ---- questions to tokens, tokens to an answer ---- */

davy_result dv_prompt_ids(const dv_vlm_model *m, const dv_prompt *p, dv_ids *out) {
    dv_chat_text text = {0};
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    dv_chat_picture *chat = dv_calloc((uint64_t)dv_max(1, p->n), sizeof *chat);
    davy_result r = chat != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    for (int32_t i = 0; r == DAVY_OK && i < p->n; i++) {
        chat[i] = p->pictures[i]->chat;
    }
    r = r < 0 ? r : p->further ? dv_chat_next(m->chat, p->stopped, &text) : dv_chat_begin(m->chat, p->system, &text);
    r = r < 0 ? r : dv_chat_question(m->chat, chat, p->n, p->question, &text);
    r = r < 0 ? r : dv_chat_encode(m->chat, m->tokenizer, &text, out);
    dv_chat_text_clear(&text);
    dv_free(chat);
    return r;
}

davy_result dv_session_ask(dv_session *d, const char *system, const dv_encoded *const *pictures, int32_t n,
                           const char *question) {
    const dv_vlm_model *m = d->model;
    const dv_prompt prompt = {.system = system,
                              .pictures = pictures,
                              .n = n,
                              .question = question,
                              .further = d->tokens > 0 || d->pending >= 0,
                              .stopped = d->pending_stop};
    dv_ids ids = {0};
    if (n > 0 && m->chat != NULL && m->chat->in_front && prompt.further) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "%s models accept pictures with the first question only; start a new dialogue",
                       dv_vlm_family_name(m->config.family));
    }
    davy_result r = dv_prompt_ids(m, &prompt, &ids);
    dv_session_picture *shown = r == DAVY_OK ? dv_calloc((uint64_t)dv_max(1, n), sizeof *shown) : NULL;
    if (r == DAVY_OK && shown == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        shown[i] = (dv_session_picture){.features = &pictures[i]->features, .seconds = pictures[i]->step};
    }
    r = r < 0 ? r : dv_session_feed(d, ids.p, ids.n, shown, n);
    dv_ids_clear(&ids);
    dv_free(shown);
    return r;
}

/* ---- the answer ---- */

static int32_t add_text(dv_answering *a, const char *text, uint64_t bytes) {
    dv_answer *out = a->out;
    char *grown = dv_grow(out->text, (int64_t)(out->bytes + bytes + 1), &a->room, 1);
    if (grown == NULL) {
        a->r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
        return 1;
    }
    out->text = grown;
    if (bytes > 0) {
        memcpy(grown + out->bytes, text, (size_t)bytes);
    }
    out->bytes += bytes;
    grown[out->bytes] = '\0';
    return bytes > 0 && a->options->text != NULL ? a->options->text(a->options->user, text, bytes) : 0;
}

int32_t dv_answering_token(void *user, int32_t id) {
    dv_answering *a = user;
    const char *text = NULL;
    uint64_t bytes = 0;
    a->r = dv_detokenizer_push(a->stream, id, &text, &bytes, &a->stopped);
    if (a->r < 0) {
        return 1;
    }
    const int32_t stop = add_text(a, text, bytes);
    return stop != 0 || a->stopped ? 1 : 0;
}

davy_result dv_answering_start(const dv_vlm_model *m, const dv_answer_options *o, dv_answer *out, dv_answering *a) {
    *a = (dv_answering){.options = o, .out = out, .r = DAVY_OK};
    *out = (dv_answer){0};
    if (m->tokenizer == NULL) {
        return dv_fail(DAVY_E_TOKENIZER, "this model was opened without a tokenizer");
    }
    const dv_detokenizer_options stream = {.stop_ids = m->stops.p,
                                           .n_stop_ids = m->stops.n,
                                           .stop_texts = o->stop_texts,
                                           .n_stop_texts = o->n_stop_texts,
                                           .trim_start = true,
                                           .hide_thoughts = !o->thoughts,
                                           .thinking = m->chat->thinks};
    return dv_detokenizer_create(m->tokenizer, &stream, &a->stream);
}

davy_result dv_answering_end(dv_answering *a, davy_result r) {
    dv_answer *out = a->out;
    r = r < 0 ? r : a->r;
    if (r == DAVY_OK && !a->stopped) {
        const char *text = NULL;
        uint64_t bytes = 0;
        r = dv_detokenizer_end(a->stream, &text, &bytes);
        if (r == DAVY_OK) {
            add_text(a, text, bytes);
            r = a->r;
        }
    } else if (r == DAVY_OK) {
        out->end = DV_END_STOP;
    }
    out->only_thought = r == DAVY_OK && dv_detokenizer_only_thought(a->stream);
    dv_detokenizer_release(a->stream);
    a->stream = NULL;
    if (r < 0) {
        dv_free(out->text);
        *out = (dv_answer){0};
    }
    return r;
}

davy_result dv_session_answer(dv_session *d, const dv_answer_options *o, dv_answer *out) {
    dv_answering a;
    dv_generate g = o->generate;
    g.token = dv_answering_token;
    g.user = &a;
    davy_result r = dv_answering_start(d->model, o, out, &a);
    r = r < 0 ? r : dv_session_generate(d, &g, &out->tokens, &out->end);
    return dv_answering_end(&a, r);
}
