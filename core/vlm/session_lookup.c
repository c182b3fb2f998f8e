/* session_lookup.c - tokens that are tried several at a time: where the last ones were said before, what followed them
 * then may follow again. A pass of a few rows gives each its logits; the draw goes on as ever, and as long as it draws what
 * was supposed, its logits are there already. A wrong one costs nothing to undo: rows behind it are overwritten. */
#include <string.h>

#include "core/base/os.h"
#include "core/vlm/decoder.h"
#include "core/vlm/session_priv.h"

enum {
    LONGEST = 3, /* tokens that must have been said before */
    SHORTEST = 2,
    FIRST = 4 /* tokens that are tried when nothing is known yet */
};

/* Where the last `n` of `count` tokens stood before: behind them there; 0: nowhere. */
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

/* What followed the last tokens of the history and the pending one, `most` at most. */
static int64_t look_up(dv_session *d, int64_t most, int32_t *out) {
    const int64_t count = d->tokens + 1;
    int64_t from = 0;
    int64_t n = 0;
    d->history[d->tokens] = d->pending;
    for (int64_t same = LONGEST; from == 0 && same >= SHORTEST; same--) {
        from = find(d->model, d->history, count, same);
    }
    for (; from > 0 && n < most; n++) { /* what repeats itself goes on repeating */
        const int32_t id = from + n < count ? d->history[from + n] : out[from + n - count];
        if (dv_is_placeholder(d->model, id)) {
            break;
        }
        out[n] = id;
    }
    return n;
}

/* How many to try: as many as may be right, where that brings more tokens a second than it costs. What did not pay is
 * tried again now and then. */
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

/* The pending token, and n that are supposed behind it; o: of what a GPU draws. */
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

/* All of them were right, or this was the first that was not. */
static void count_right(dv_supposed *s) {
    s->gain += (s->passes > 1 ? 0.25 : 1.0) * ((double)s->right - s->gain);
    s->n = 0;
}

/* Tokens to try, where as many rows may follow. */
static int64_t suppose(dv_session *d, int64_t most) {
    const int64_t rows = dv_min(dv_decoder_few_rows(d->decoder), DV_LOOKUP_ROWS);
    const int64_t room = dv_min(d->context - d->tokens - 1, most - 1);
    return rows > 1 && room > 0 ? look_up(d, dv_min(rows - 1, room), d->supposed.ids) : 0;
}

davy_result dv_session_feed_pending(dv_session *d, const dv_generate *g, int64_t most) {
    dv_supposed *s = &d->supposed;
    s->n = s->logits != NULL ? s->n : 0; /* a GPU has drawn already; here that does not count */
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
