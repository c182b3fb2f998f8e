/* batch.c - several sequences in one cache: pages, prompts and passes. The list keeps sequences in the order of asking. If pages
 * run short, the last sequence loses its pages and is computed again later, so the first always continues. The batch keeps its
 * tokens, feeds them again and draws none twice. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/batch_pages.h"
#include "core/vlm/batch.h"
#include "core/vlm/decoder.h"
#include "core/vlm/session_priv.h"

typedef struct dv_sequence {
    dv_feeding prompt;
    dv_session_picture *pictures;
    dv_generate generate;
    void *tag;
    dv_sampler *sampler;
    int32_t *answer;
    int64_t n_answer;
    int64_t after;  /* position of the token after the prompt */
    int64_t cached; /* tokens in the cache, of prompt and answer */
    int64_t slot;   /* number of its page table; -1: it waits */
    int64_t pages;
    int64_t rows; /* its rows in the next pass */
    dv_session_end end;
    bool ended;
} dv_sequence;

struct dv_batch {
    const dv_vlm_model *model;
    dv_batch_options options; /* with defaults filled in */
    dv_decoder *decoder;
    dv_pages pages;
    dv_sequence **list; /* oldest first */
    int64_t n, room;
    bool *slots;        /* taken */
    bool short_of_room; /* a sequence lost its pages: none starts before another has ended */
    int64_t last_need;  /* pages of the newest prompt */
    bool failed;        /* a read or a step failed; all later calls fail */
    dv_batch_counts counts;
};

static void dv_batch_leave_cache(dv_batch *b, dv_sequence *s);
static bool dv_batch_make_room(dv_batch *b, dv_sequence *s, int64_t tokens);

davy_result dv_pages_create(int64_t n, dv_pages *out) {
    *out = (dv_pages){.free = dv_calloc((uint64_t)n, sizeof(int32_t)), .n_free = n, .n = n};
    if (out->free == NULL) {
        *out = (dv_pages){.n = 0};
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        out->free[i] = (int32_t)(n - 1 - i);
    }
    return DAVY_OK;
}

void dv_pages_clear(dv_pages *p) {
    dv_free(p->free);
    *p = (dv_pages){.n = 0};
}

bool dv_pages_take(dv_pages *p, int64_t want, int32_t *list, int64_t *have) {
    if (want - *have > p->n_free) {
        return false;
    }
    while (*have < want) {
        list[(*have)++] = p->free[--p->n_free];
    }
    p->most = dv_max(p->most, p->n - p->n_free);
    return true;
}

void dv_pages_give_back(dv_pages *p, const int32_t *list, int64_t *have) {
    while (*have > 0) {
        p->free[p->n_free++] = list[--*have];
    }
}

/* ---- one token of every sequence: the rows of a pass, and the tokens drawn from their logits. ---- */

/* A pass excludes the same ids for all sequences: those of the first sequence that draws on the GPU. */
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

/* Stop conditions as in dv_session_generate. */
static void add_token(dv_batch *b, dv_sequence *s, int32_t id) {
    const dv_generate *g = &s->generate;
    s->answer[s->n_answer++] = id;
    if (g->drawn != NULL) {
        g->drawn(g->drawn_user, s->n_answer);
    }
    if (dv_is_stop(b->model, id) && !g->ignore_stops) {
        end(b, s, DV_END_STOP);
    } else if (g->token != NULL && g->token(g->user, id) != 0) {
        end(b, s, DV_END_CALLER);
    } else if (s->n_answer == g->max_tokens) {
        end(b, s, DV_END_LENGTH);
    }
}

/* Draws the token after all cached tokens. */
static davy_result dv_batch_draw(dv_batch *b, dv_sequence *s, const float *logits) {
    int32_t id = -1;
    davy_result r = dv_sampler_draw(s->sampler, logits, (uint64_t)s->cached, &id);
    r = r < 0 ? r : dv_sampler_saw(s->sampler, &id, 1);
    if (r == DAVY_OK) {
        add_token(b, s, id);
    }
    return r;
}

/* On a GPU: takes the id drawn there, or downloads the logits and draws on the host. */
static davy_result draw_row(dv_batch *b, dv_sequence *s, int64_t row, const dv_sample_options *all,
                            const int32_t *ids) {
    const float *logits = NULL;
    if (!draws_there(b, s, all)) {
        const davy_result r = dv_decoder_few_logits(b->decoder, row, &logits);
        return r < 0 ? r : dv_batch_draw(b, s, logits);
    }
    const davy_result r = dv_decoder_drawn(ids[row]);
    if (r == DAVY_OK) {
        add_token(b, s, ids[row]);
    }
    return r;
}

static int64_t known(const dv_sequence *s) {
    return s->slot >= 0 && s->cached >= s->prompt.n ? s->prompt.n + s->n_answer - s->cached : 0;
}

/* Sets each sequence's rows: one for a new token, several to feed the known tokens of one that lost its pages. */
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
            return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens after %lld tokens exceed the context of %lld tokens",
                           (long long)rows, (long long)s->cached, (long long)b->options.context);
        }
        if (dv_batch_make_room(b, s, s->cached + rows)) {
            s->rows = rows;
            left -= rows;
        }
    }
    for (int64_t i = 0; i < b->n; i++) {
        *n += b->list[i]->rows; /* 0 for a sequence that lost its pages meanwhile */
    }
    return DAVY_OK;
}

static void fill_rows(const dv_batch *b, int32_t *ids, int32_t *slots, int32_t *place, int32_t *positions) {
    const int32_t axes = dv_vlm_position_axes(&b->model->config);
    int64_t row = 0;
    for (int64_t i = 0; i < b->n; i++) {
        const dv_sequence *s = b->list[i];
        for (int64_t at = s->cached; at < s->cached + s->rows; at++, row++) {
            ids[row] = s->answer[at - s->prompt.n];
            slots[row] = (int32_t)s->slot;
            place[row] = (int32_t)at;
            for (int32_t a = 0; a < axes; a++) {
                positions[row * axes + a] = (int32_t)(s->after + at - s->prompt.n);
            }
        }
    }
}

/* One token of every sequence with a complete prompt. */
static davy_result dv_batch_step(dv_batch *b) {
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

/* ---- the cache, prompts and passes of a batch ---- */

static int64_t pages_for(int64_t tokens) {
    return dv_div_up(tokens, DVK_PAGE);
}

/* ---- opening ---- */

int64_t dv_batch_most(const dv_vlm_model *model) {
    return model->gpu != NULL ? DV_BATCH_MOST : DVK_FEW;
}

/* Rows of a pass. A GPU uses only a few sizes, so batches of similar size give the same answers. Large matrices are faster on
 * tensor cores, which need more than DV_PROGRAM_FEW rows. Integer weights are not, because they are first converted to 16 bits. */
static int64_t rows_for(const dv_vlm_model *model, int64_t sequences) {
    const int64_t large = 1024;
    const bool whole = dvk_block_elements(model->weights->layers[0].up.type) > 1;
    int64_t rows = whole || model->config.text.hidden <= large ? DV_PROGRAM_FEW : 2 * DV_PROGRAM_FEW;
    while (rows < sequences) {
        rows *= 2;
    }
    return model->gpu != NULL ? rows : sequences;
}

static dv_batch_options complete(const dv_vlm_model *m, const dv_batch_options *given) {
    dv_batch_options o = given != NULL ? *given : (dv_batch_options){0};
    o.sequences = o.sequences > 0 ? dv_min(o.sequences, dv_batch_most(m)) : dv_batch_most(m);
    o.context = o.context > 0 ? o.context : dv_min(m->config.text.max_positions, DV_SESSION_CONTEXT);
    o.tokens = o.tokens > 0 ? o.tokens : o.sequences * o.context;
    o.tokens = pages_for(dv_max(o.tokens, o.context)) * DVK_PAGE;
    return o;
}

davy_result dv_batch_open(const dv_vlm_model *model, const dv_batch_options *options, dv_batch **out) {
    dv_batch *b = dv_calloc(1, sizeof *b);
    if (b == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    b->model = model;
    b->options = complete(model, options);
    const dv_decoder_desc desc = {.config = &model->config,
                                  .weights = model->weights,
                                  .heap = model->heap,
                                  .pool = model->pool,
                                  .gpu = model->gpu,
                                  .cpu = model->cpu,
                                  .compute = model->compute,
                                  .context = b->options.context,
                                  .chunk = b->options.chunk,
                                  .few = rows_for(model, b->options.sequences),
                                  .sequences = b->options.sequences,
                                  .pages = b->options.tokens / DVK_PAGE};
    davy_result r = dv_decoder_open(&desc, &b->decoder);
    r = r < 0 ? r : dv_pages_create(desc.pages, &b->pages);
    b->slots = r == DAVY_OK ? dv_calloc((uint64_t)b->options.sequences, sizeof *b->slots) : NULL;
    if (r == DAVY_OK && b->slots == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    if (r < 0) {
        dv_batch_release(b);
        return r;
    }
    *out = b;
    return DAVY_OK;
}

static void release_sequence(dv_sequence *s) {
    if (s != NULL) {
        dv_sampler_release(s->sampler);
        dv_feeding_clear(&s->prompt);
        dv_free(s->pictures);
        dv_free(s->answer);
        dv_free(s);
    }
}

void dv_batch_release(dv_batch *b) {
    if (b != NULL) {
        for (int64_t i = 0; i < b->n; i++) {
            release_sequence(b->list[i]);
        }
        dv_decoder_release(b->decoder);
        dv_pages_clear(&b->pages);
        dv_free(b->list);
        dv_free(b->slots);
        dv_free(b);
    }
}

/* ---- asking ---- */

static davy_result make_sequence(const dv_batch *b, const dv_batch_question *q, dv_sequence *s) {
    const int64_t most = dv_max(0, dv_min(q->generate.max_tokens, b->options.context - q->n + 1));
    s->slot = -1;
    s->generate = q->generate;
    s->tag = q->tag;
    s->pictures = dv_calloc((uint64_t)dv_max(1, q->n_pictures), sizeof *s->pictures);
    s->answer = dv_calloc((uint64_t)dv_max(1, most), sizeof *s->answer);
    if (s->pictures == NULL || s->answer == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    if (q->n_pictures > 0) {
        memcpy(s->pictures, q->pictures, (size_t)q->n_pictures * sizeof *s->pictures);
    }
    const dv_feed_words words = {
        .ids = q->ids, .n = q->n, .before = -1, .pictures = s->pictures, .n_pictures = q->n_pictures};
    const davy_result r = dv_feeding_make(b->model, &words, &s->after, &s->prompt);
    return r < 0 ? r : dv_session_sampler(b->model, &q->generate, q->ids, q->n, &s->sampler);
}

davy_result dv_batch_ask(dv_batch *b, const dv_batch_question *q) {
    if (q->n < 1) {
        return dv_fail(DAVY_E_INVALID, "the prompt has no tokens");
    }
    if (q->n > b->options.context) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "a prompt of %lld tokens exceeds the context of %lld tokens",
                       (long long)q->n, (long long)b->options.context);
    }
    dv_sequence **list = dv_grow(b->list, b->n + 1, &b->room, sizeof *list);
    b->list = list != NULL ? list : b->list;
    dv_sequence *s = list != NULL ? dv_calloc(1, sizeof *s) : NULL;
    davy_result r = s != NULL ? make_sequence(b, q, s) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r < 0) {
        release_sequence(s);
        return r;
    }
    s->ended = q->generate.max_tokens < 1;
    s->end = DV_END_LENGTH;
    b->last_need = pages_for(q->n + 1);
    b->list[b->n++] = s;
    return DAVY_OK;
}

/* ---- pages and slots ---- */

static void dv_batch_leave_cache(dv_batch *b, dv_sequence *s) {
    if (s->slot >= 0) {
        dv_pages_give_back(&b->pages, dv_decoder_table(b->decoder, s->slot), &s->pages);
        b->slots[s->slot] = false;
    }
    s->slot = -1;
    s->cached = 0;
    s->rows = 0;
}

static dv_sequence *youngest(const dv_batch *b) {
    for (int64_t i = b->n - 1; i >= 0; i--) {
        if (b->list[i]->slot >= 0) {
            return b->list[i];
        }
    }
    return NULL;
}

/* Gets pages for `tokens` tokens of s, if needed from the youngest sequences. Returns false if s lost its own pages. */
static bool dv_batch_make_room(dv_batch *b, dv_sequence *s, int64_t tokens) {
    while (!dv_pages_take(&b->pages, pages_for(tokens), dv_decoder_table(b->decoder, s->slot), &s->pages)) {
        dv_sequence *last = youngest(b);
        dv_batch_leave_cache(b, last);
        b->short_of_room = true;
        b->counts.put_back++;
        if (last == s) {
            return false;
        }
    }
    return true;
}

static int64_t free_slot(const dv_batch *b) {
    for (int64_t i = 0; i < b->options.sequences; i++) {
        if (!b->slots[i]) {
            return i;
        }
    }
    return -1;
}

static bool may_begin(const dv_batch *b, int64_t pages) {
    const bool alone = youngest(b) == NULL;
    return free_slot(b) >= 0 && (alone || (!b->short_of_room && pages <= b->pages.n_free));
}

/* Returns the sequence that reads its prompt, else starts the first waiting one that fits; NULL: none. */
static dv_sequence *reader(dv_batch *b) {
    dv_sequence *waits = NULL;
    for (int64_t i = 0; i < b->n; i++) {
        dv_sequence *s = b->list[i];
        if (s->slot >= 0 && s->cached < s->prompt.n) {
            return s;
        }
        waits = waits == NULL && s->slot < 0 && !s->ended ? s : waits;
    }
    if (waits == NULL || !may_begin(b, pages_for(waits->prompt.n + waits->n_answer + 1))) {
        return NULL;
    }
    waits->slot = free_slot(b);
    b->slots[waits->slot] = true;
    return waits;
}

/* ---- work ---- */

/* Reads the next chunk of a prompt, of the same size as in a dialogue. */
static davy_result read_on(dv_batch *b, dv_sequence *s) {
    dv_decoder_input in = dv_feeding_part(&s->prompt, s->cached);
    in.n = dv_min(in.n, dv_decoder_chunk(b->decoder));
    in.past = s->cached;
    in.sequence = s->slot;
    in.cancel = b->options.cancel;
    in.user = b->options.user;
    if (!dv_batch_make_room(b, s, s->cached + in.n)) {
        return DAVY_OK;
    }
    const float *logits = NULL;
    const bool last = s->cached + in.n == s->prompt.n && s->n_answer == 0;
    int64_t fed = 0;
    const davy_result r = dv_decoder_feed(b->decoder, &in, last ? &logits : NULL, &fed);
    s->cached += fed;
    b->counts.chunks++;
    return r < 0 || !last ? r : dv_batch_draw(b, s, logits);
}

davy_result dv_batch_read(dv_batch *b, bool *more) {
    *more = false;
    if (b->failed) {
        return dv_fail(DAVY_E_STATE, "the batch has failed earlier; open a new one");
    }
    const bool stop = b->options.cancel != NULL && b->options.cancel(b->options.user) != 0;
    dv_sequence *s = stop ? NULL : reader(b);
    *more = s != NULL;
    const davy_result r = stop ? dv_fail(DAVY_E_CANCELLED, "cancelled") : s != NULL ? read_on(b, s) : DAVY_OK;
    b->failed = r < 0;
    return r;
}

davy_result dv_batch_work(dv_batch *b) {
    bool more;
    davy_result r = dv_batch_read(b, &more);
    r = r < 0 ? r : dv_batch_step(b);
    b->failed = r < 0;
    return r;
}

bool dv_batch_ended(dv_batch *b, dv_batch_end *out) {
    for (int64_t i = 0; i < b->n; i++) {
        dv_sequence *s = b->list[i];
        if (s->ended) {
            *out = (dv_batch_end){.tag = s->tag, .tokens = s->n_answer, .end = s->end};
            release_sequence(s);
            memmove(b->list + i, b->list + i + 1, (size_t)(b->n - i - 1) * sizeof(dv_sequence *));
            b->n--;
            return true;
        }
    }
    return false;
}

/* ---- state of a batch ---- */

int64_t dv_batch_context(const dv_batch *b) {
    return b->options.context;
}

int64_t dv_batch_sequences(const dv_batch *b) {
    return b->options.sequences;
}

int64_t dv_batch_unended(const dv_batch *b) {
    int64_t n = 0;
    for (int64_t i = 0; i < b->n; i++) {
        n += b->list[i]->ended ? 0 : 1;
    }
    return n;
}

bool dv_batch_has_room(const dv_batch *b) {
    for (int64_t i = 0; i < b->n; i++) {
        if (b->list[i]->slot < 0 && !b->list[i]->ended) {
            return false;
        }
    }
    return may_begin(b, b->last_need);
}

uint64_t dv_batch_bytes(const dv_batch *b) {
    return dv_decoder_bytes(b->decoder);
}

dv_batch_counts dv_batch_count(const dv_batch *b) {
    dv_batch_counts c = b->counts;
    c.pages_used = b->pages.n - b->pages.n_free;
    c.pages_most = b->pages.most;
    return c;
}
