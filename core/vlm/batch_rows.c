/* batch_rows.c - a token of everybody: the rows of one pass, and what is drawn from their logits. */
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/batch_priv.h"

/* A pass leaves out the same ids for all: those of the first sequence that draws there. */
static const dv_sample_options *draws(const dv_batch *b) {
    for (int64_t i = 0; i < b->n; i++) {
        const dv_sample_options *o = dv_sampler_options(b->list[i]->sampler);
        if (dv_draws_there(b->decoder, o)) {
            return o;
        }
    }
    return NULL;
}

static bool draws_there(const dv_batch *b, const dv_sequence *s, const dv_sample_options *all) {
    const dv_sample_options *o = dv_sampler_options(s->sampler);
    return dv_draws_there(b->decoder, o) && o->n_never == all->n_never &&
           (o->n_never == 0 || memcmp(o->never, all->never, (size_t)o->n_never * sizeof *o->never) == 0);
}

static void end(dv_batch *b, dv_sequence *s, dv_session_end how) {
    s->end = how;
    s->ended = true;
    b->short_of_room = false;
    dv_batch_leave_cache(b, s);
}

/* As dv_session_generate goes on. */
static void say(dv_batch *b, dv_sequence *s, int32_t id) {
    const dv_generate *g = &s->generate;
    s->said[s->n_said++] = id;
    if (g->drawn != NULL) {
        g->drawn(g->drawn_user, s->n_said);
    }
    if (dv_is_stop(b->model, id) && !g->ignore_stops) {
        end(b, s, DV_END_STOP);
    } else if (g->token != NULL && g->token(g->user, id) != 0) {
        end(b, s, DV_END_CALLER);
    } else if (s->n_said == g->max_tokens) {
        end(b, s, DV_END_LENGTH);
    }
}

davy_result dv_batch_draw(dv_batch *b, dv_sequence *s, const float *logits) {
    int32_t id = -1;
    davy_result r = dv_sampler_draw(s->sampler, logits, (uint64_t)s->cached, &id);
    r = r < 0 ? r : dv_sampler_saw(s->sampler, &id, 1);
    if (r == DAVY_OK) {
        say(b, s, id);
    }
    return r;
}

/* On a GPU: what nobody draws there is drawn here, of logits that come down. */
static davy_result draw_row(dv_batch *b, dv_sequence *s, int64_t row, const dv_sample_options *all,
                            const int32_t *ids) {
    const float *logits = NULL;
    if (!draws_there(b, s, all)) {
        const davy_result r = dv_decoder_few_logits(b->decoder, row, &logits);
        return r < 0 ? r : dv_batch_draw(b, s, logits);
    }
    const davy_result r = dv_decoder_drawn(ids[row]);
    if (r == DAVY_OK) {
        say(b, s, ids[row]);
    }
    return r;
}

static int64_t known(const dv_sequence *s) {
    return s->slot >= 0 && s->cached >= s->prompt.n ? s->prompt.n + s->n_said - s->cached : 0;
}

/* Who says a token, and who that was put back is fed what it has said already: several at a time. */
static davy_result plan_rows(dv_batch *b, int64_t *n) {
    int64_t others = 0;
    int64_t left = b->options.sequences;
    *n = 0;
    for (int64_t i = 0; i < b->n; i++) {
        others += known(b->list[i]) > 0 ? 1 : 0;
    }
    for (int64_t i = 0; i < b->n; i++) {
        dv_sequence *s = b->list[i];
        const int64_t all = known(s);
        s->rows = 0;
        if (all == 0) {
            continue;
        }
        others--;
        const int64_t rows = dv_min(all, left - others);
        if (s->cached + rows > b->options.context) {
            return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens behind %lld are more than the context of %lld tokens",
                           (long long)rows, (long long)s->cached, (long long)b->options.context);
        }
        if (dv_batch_make_room(b, s, s->cached + rows)) {
            s->rows = rows;
            left -= rows;
        }
    }
    for (int64_t i = 0; i < b->n; i++) {
        *n += b->list[i]->rows; /* who was put back meanwhile has none */
    }
    return DAVY_OK;
}

static void fill_rows(const dv_batch *b, int32_t *ids, int32_t *slots, int32_t *place, int32_t *positions) {
    const int32_t axes = dv_vlm_position_axes(&b->model->config);
    int64_t row = 0;
    for (int64_t i = 0; i < b->n; i++) {
        const dv_sequence *s = b->list[i];
        for (int64_t at = s->cached; at < s->cached + s->rows; at++, row++) {
            ids[row] = s->said[at - s->prompt.n];
            slots[row] = (int32_t)s->slot;
            place[row] = (int32_t)at;
            for (int32_t a = 0; a < axes; a++) {
                positions[row * axes + a] = (int32_t)(s->after + at - s->prompt.n);
            }
        }
    }
}

davy_result dv_batch_say(dv_batch *b) {
    int32_t ids[DV_BATCH_MOST], slots[DV_BATCH_MOST], place[DV_BATCH_MOST], positions[3 * DV_BATCH_MOST];
    dv_decoder_rows in = {.ids = ids, .sequence = slots, .place = place, .positions = positions};
    const dv_sample_options *all = draws(b);
    const float *logits = NULL;
    const int32_t *drawn = NULL;
    davy_result r = plan_rows(b, &in.n);
    if (r < 0 || in.n == 0) {
        return r;
    }
    fill_rows(b, ids, slots, place, positions);
    if (all != NULL) {
        in.never = all->never;
        in.n_never = all->n_never;
    }
    r = dv_decoder_few(b->decoder, &in, &logits);
    if (r == DAVY_OK && logits == NULL) {
        r = dv_decoder_few_ids(b->decoder, &drawn);
    }
    b->counts.passes++;
    b->counts.rows += in.n;
    for (int64_t i = 0, row = 0; r == DAVY_OK && i < b->n; i++) {
        dv_sequence *s = b->list[i];
        const int64_t rows = s->rows;
        s->rows = 0;
        row += rows;
        s->cached += rows;
        if (rows > 0 && known(s) == 0) {
            r = drawn != NULL ? draw_row(b, s, row - 1, all, drawn)
                              : dv_batch_draw(b, s, logits + (row - 1) * b->model->config.text.vocab);
        }
    }
    return r;
}
