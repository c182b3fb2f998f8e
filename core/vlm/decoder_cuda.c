/* decoder_cuda.c - a decoder's passes on a GPU: small numbers go up, and logits, or the one id that is asked for, come down. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/decoder_batch.h"
#include "core/vlm/decoder_priv.h"

enum { LEAST_LIMIT = 512 };

struct dv_decoder_cuda {
    dv_space host;
    int32_t *ids, *deep_rows; /* as they go up */
    float *logits;            /* as they came down */
    dv_decoder_pass *last;
    int64_t limit; /* tokens that the step can see: kernels that share far more among them are slower */
    dv_gpu_completion_ring *told;
    uint32_t steps; /* begun, and one more; each tells its number's id */
    dv_gpu_readback *best_mail;
    dvk_candidates best;
    /* The last step was begun before it was asked for, behind `ahead`, whose id is not known here until the one before it
     * has told. */
    dv_decoder_token ahead;
    bool is_ahead;
    int32_t never[DV_DECODER_NEVER];
    int64_t n_never;
};

davy_result dv_decoder_cuda_open(dv_decoder *d, const dv_decoder_desc *desc) {
    dv_decoder_cuda *c = dv_calloc(1, sizeof *c);
    d->cuda = c;
    if (c == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->limit = d->context;
    c->steps = 1;
    const dv_want wants[] = {{&c->ids, (uint64_t)d->chunk * 4},
                             {&c->deep_rows, (uint64_t)d->chunk * 4},
                             {&c->logits, (uint64_t)d->config->text.vocab * 4}};
    davy_result r = dv_space_take(&c->host, desc->heap, "a dialogue", wants, DV_ARRAY_LEN(wants));
    r = r < 0 ? r : dv_gpu_queue_take(desc->gpu, NULL, &d->queue);
    r = r < 0 ? r : dv_gpu_completion_ring_create(desc->gpu, &c->told);
    d->step.told = r < 0 ? NULL : dv_gpu_completion_ring_data(c->told);
    return r < 0 ? r : dv_gpu_readback_create(desc->gpu, sizeof c->best, &c->best_mail);
}

void dv_decoder_cuda_release(dv_decoder *d) {
    dv_decoder_cuda *c = d->cuda;
    if (c == NULL) {
        return;
    }
    if (d->queue != NULL) {
        dv_decoder_cuda_settle(d);
        dv_gpu_queue_give(d->queue);
    }
    dv_gpu_completion_ring_release(c->told);
    dv_gpu_readback_release(c->best_mail);
    dv_space_release(&c->host);
    dv_free(c);
}

void dv_decoder_cuda_settle(dv_decoder *d) {
    davy_error_info saved;
    dv_error_get(&saved);
    d->cuda->is_ahead = false;
    dv_gpu_queue_wait(d->queue, NULL, NULL);
    dv_error_set(&saved);
}

void dv_decoder_cuda_forget(dv_decoder *d) {
    d->cuda->is_ahead = false;
}

/* ---- several tokens ---- */

/* Vectors of pictures that lie one behind the other are copied together. */
static davy_result place_vectors(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    const int64_t width = d->config->text.hidden;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && in->vector != NULL && i < n;) {
        const int32_t *row = in->vector + at + i;
        int64_t run = 1;
        while (row[0] >= 0 && i + run < n && row[run] == row[run - 1] + 1) {
            run++;
        }
        if (row[0] >= 0) {
            r = dv_gpu_copy(d->queue, d->x + i * width, d->queue->gpu, in->vectors + row[0] * width,
                            (uint64_t)(run * width) * sizeof *d->x);
        }
        i += run;
    }
    return r;
}

static davy_result load_rows(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    dv_decoder_cuda *c = d->cuda;
    const int32_t n_deep = d->config->vision.n_deepstack;
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = in->vector != NULL ? in->vector[at + i] : -1;
        c->ids[i] = row < 0 ? in->ids[at + i] : 0;
        c->deep_rows[i] = in->deep != NULL ? row : -1;
    }
    davy_result r = dv_gpu_upload(d->queue, d->ids, c->ids, (uint64_t)n * sizeof *d->ids);
    r = r < 0 ? r
              : dv_gpu_upload(d->queue, d->positions, in->positions + at * d->axes,
                              (uint64_t)(n * d->axes) * sizeof *d->positions);
    if (r == DAVY_OK && n_deep > 0) {
        r = dv_gpu_upload(d->queue, d->deep_rows, c->deep_rows, (uint64_t)n * sizeof *d->deep_rows);
    }
    for (int32_t k = 0; k < n_deep && in->deep != NULL; k++) {
        d->deep[k] = in->deep[k];
    }
    return r;
}

static davy_result run_several(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    dv_decoder_pass *p = n <= DV_PROGRAM_FEW && d->sequences == 0 ? &d->few : &d->many;
    davy_result r = load_rows(d, in, at, n);
    r = r < 0 || d->sequences == 0 ? r : dv_decoder_turn_to(d, in->sequence, in->past + at, n);
    r = r < 0 ? r : dv_row_program_place(&p->words, n, 0);
    r = r < 0 ? r : dv_row_program_run(&p->words, NULL, NULL);
    r = r < 0 ? r : place_vectors(d, in, at, n);
    dv_decoder_point(p, d);
    r = r < 0 ? r : dv_row_program_place(&p->body, n, in->past + at);
    d->cuda->last = p;
    return r < 0 ? r : dv_row_program_run(&p->body, in->cancel, in->user);
}

/* ---- one token ---- */

/* What a step reads, and x of its token. */
static davy_result place_token(dv_decoder *d, int32_t id, int64_t past, const int32_t *positions) {
    const dv_decoder_cuda *c = d->cuda;
    int32_t numbers[DV_TOKEN_NUMBERS] = {0};
    numbers[DV_TOKEN_ID] = id;
    numbers[DV_TOKEN_COUNT] = (int32_t)c->steps;
    numbers[DV_TOKEN_PLACE] = (int32_t)past;
    for (int32_t i = 0; i < d->axes; i++) {
        numbers[DV_TOKEN_POSITIONS + i] = positions[i];
    }
    for (int64_t i = 0; i < DV_TOKEN_NEVERS; i++) {
        numbers[DV_TOKEN_NEVER + i] = i < c->n_never ? c->never[i] : -1;
    }
    const davy_result r = dv_gpu_upload(d->queue, d->token, numbers, sizeof numbers);
    return r < 0 ? r : dv_row_program_repeat(&d->step.words);
}

/* The step of a token behind `past` others. */
static davy_result run_step(dv_decoder *d, int64_t past) {
    dv_decoder_cuda *c = d->cuda;
    int64_t limit = LEAST_LIMIT;
    while (limit <= past) {
        limit *= 2;
    }
    limit = dv_min(limit, d->context);
    davy_result r = DAVY_OK;
    if (limit > c->limit || 4 * limit <= c->limit) {
        r = dv_row_program_limit(&d->step.body, limit);
        c->limit = limit;
    }
    r = r < 0 ? r : dv_row_program_repeat(&d->step.body);
    return r < 0 ? r : dv_gpu_completion_ring_mark(c->told, d->queue, c->steps++);
}

davy_result dv_decoder_cuda_pass(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    dv_decoder_cuda *c = d->cuda;
    const bool word = in->vector == NULL || in->vector[at] < 0;
    c->is_ahead = false;
    c->last = &d->step;
    if (n > 1 || !word || d->sequences > 0) {
        return run_several(d, in, at, n);
    }
    davy_result r = place_token(d, word ? in->ids[at] : 0, in->past + at, in->positions + at * d->axes);
    return r < 0 ? r : run_step(d, in->past + at);
}

davy_result dv_decoder_cuda_logits(dv_decoder *d, int64_t n, float **logits) {
    dv_decoder_cuda *c = d->cuda;
    davy_result r = DAVY_OK;
    if (c->last != &d->step) {
        r = dv_row_program_place(&c->last->head, n, 0);
        r = r < 0 ? r : dv_row_program_run(&c->last->head, NULL, NULL);
    }
    *logits = c->logits;
    return r < 0 ? r
                 : dv_gpu_download(d->queue, c->logits, d->logits, (uint64_t)d->config->text.vocab * sizeof *c->logits);
}

/* ---- greedy answers ---- */

bool dv_decoder_draws(const dv_decoder *d) {
    return d->queue != NULL && !(d->config->text.softcap > 0);
}

davy_result dv_decoder_drawn(int32_t id) {
    return id >= 0 ? DAVY_OK : dv_fail(DAVY_E_INTERNAL, "the model's logits hold NaN, or no largest number");
}

/* Not where what was begun is of other tokens, or other ids may not be taken. */
static bool begun(const dv_decoder_cuda *c, const dv_decoder_token *t) {
    return c->is_ahead && c->ahead.id == t->id && c->ahead.past == t->past && c->ahead.position == t->position &&
           c->n_never == t->n_never && (t->n_never == 0 || memcmp(c->never, t->never, (size_t)t->n_never * 4) == 0);
}

davy_result dv_decoder_next(dv_decoder *d, const dv_decoder_token *t, int32_t *next) {
    dv_decoder_cuda *c = d->cuda;
    davy_result r = DAVY_OK;
    if (t->past < 0 || t->past >= d->context) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "1 token behind %lld is more than the context of %lld tokens",
                       (long long)t->past, (long long)d->context);
    }
    if (!begun(c, t)) {
        const int32_t positions[3] = {t->position, t->position, t->position};
        c->n_never = t->n_never;
        for (int64_t i = 0; i < t->n_never; i++) {
            c->never[i] = t->never[i];
        }
        r = place_token(d, t->id, t->past, positions);
        r = r < 0 ? r : run_step(d, t->past);
    }
    const uint32_t step = c->steps - 1;
    c->is_ahead = false;
    const bool goes_on = t->past + 1 < d->context;
    if (goes_on) {
        r = r < 0 ? r : run_step(d, t->past + 1);
    }
    r = r < 0 ? r : dv_gpu_completion_ring_read(c->told, d->queue, step, next);
    if (r < 0) {
        dv_decoder_cuda_settle(d);
        return r;
    }
    r = dv_decoder_drawn(*next);
    if (r < 0) {
        return r;
    }
    c->ahead = (dv_decoder_token){.id = *next, .position = t->position + 1, .past = t->past + 1};
    c->is_ahead = goes_on;
    c->last = &d->step;
    return DAVY_OK;
}

/* ---- answers that are drawn from the largest logits ---- */

bool dv_decoder_gives_best(const dv_decoder *d) {
    return dv_decoder_draws(d) && d->step.best.n > 0;
}

davy_result dv_decoder_best(dv_decoder *d, const dv_decoder_token *t, const dvk_candidates **best) {
    dv_decoder_cuda *c = d->cuda;
    const int32_t positions[3] = {t->position, t->position, t->position};
    if (t->past < 0 || t->past >= d->context) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "1 token behind %lld is more than the context of %lld tokens",
                       (long long)t->past, (long long)d->context);
    }
    c->is_ahead = false;
    c->last = &d->step;
    davy_result r = place_token(d, t->id, t->past, positions);
    r = r < 0 ? r : run_step(d, t->past);
    r = r < 0 ? r : dv_row_program_repeat(&d->step.best);
    r = r < 0 ? r : dv_gpu_readback_send(c->best_mail, d->queue, d->candidates);
    r = r < 0 ? r : dv_gpu_readback_read(c->best_mail, &c->best);
    if (r < 0) {
        dv_decoder_cuda_settle(d);
        return r;
    }
    *best = &c->best;
    return c->best.n >= 0 ? DAVY_OK : dv_decoder_drawn(-1);
}

davy_result dv_decoder_rest(dv_decoder *d, const float **logits) {
    float *all = NULL;
    const davy_result r = dv_decoder_cuda_logits(d, 1, &all);
    *logits = all;
    return r;
}
