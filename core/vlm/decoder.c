/* decoder.c - memory and passes of the language model, on the CPU and on a GPU: prompts, single tokens, and rows of several
 * sequences in one pass. decoder_build.c puts the layers together. */
#include "core/vlm/decoder.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/decoder_priv.h"
#include "core/vlm/positions.h"

static void dv_decoder_cuda_settle(dv_decoder *d);
static davy_result dv_decoder_rows_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n);
static davy_result dv_decoder_rows_run(dv_decoder *d, const dv_decoder_rows *in);
static void dv_decoder_cap(const dv_decoder *d, float *logits);
static davy_result dv_decoder_check_ids(const dv_decoder *d, const int32_t *ids, const int32_t *vector, int64_t n);

int64_t dv_decoder_few_rows(const dv_decoder *d) {
    return d->few_rows;
}

int64_t dv_decoder_chunk(const dv_decoder *d) {
    return d->chunk;
}

/* Sets up the page tables for the next pass: rows [place, place + n) of a sequence. */
static davy_result dv_decoder_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n) {
    if (d->queue != NULL) {
        return dv_decoder_rows_turn_to(d, sequence, place, n);
    }
    memcpy(d->one_table, dv_decoder_table(d, sequence), (size_t)d->each * sizeof *d->one_table);
    for (int64_t i = 0; i < n; i++) {
        d->place[i] = (int32_t)(place + i);
    }
    return DAVY_OK;
}

davy_result dv_decoder_few(dv_decoder *d, const dv_decoder_rows *in, const float **logits) {
    const dv_vlm_text *t = &d->config->text;
    davy_result r = dv_decoder_check_ids(d, in->ids, NULL, in->n);
    *logits = NULL;
    if (r < 0 || d->queue != NULL) {
        return r < 0 ? r : dv_decoder_rows_run(d, in);
    }
    for (int64_t i = 0; i < in->n; i++) {
        dv_vlm_matrix_row(d->weights, &d->weights->embed, in->ids[i], d->x + i * t->hidden);
        d->sequence[i] = in->sequence != NULL ? in->sequence[i] : 0;
        d->place[i] = in->place[i];
        d->deep_rows[i] = -1;
    }
    memcpy(d->positions, in->positions, (size_t)(in->n * d->axes) * sizeof *d->positions);
    dv_decoder_point(&d->few, d);
    r = dv_row_program_place(&d->few.body, in->n, 0);
    r = r < 0 ? r : dv_row_program_run(&d->few.body, NULL, NULL);
    for (int64_t i = 0; r == DAVY_OK && i < in->n; i++) {
        dv_decoder_cap(d, d->logits + i * t->vocab);
    }
    *logits = d->logits;
    return r;
}

/* ---- passes on a GPU: the host uploads ids and positions, and downloads logits or one drawn id ---- */

enum { LEAST_LIMIT = 512 };

struct dv_decoder_cuda {
    dv_space host;
    int32_t *ids, *deep_rows; /* host copies for upload */
    float *logits;            /* downloaded */
    dv_decoder_pass *last;
    int64_t limit; /* most tokens that the step can attend to; kernels for a much larger limit are slower */
    dv_gpu_completion_ring *completions;
    uint32_t steps; /* number of the next step; each step writes its id under its number */
    dv_gpu_readback *best_mail;
    dvk_candidates best;
    /* is_ahead: the last step was started in advance, for the token `ahead`. The host reads that token's id when the step before
     * it completes. */
    dv_decoder_token ahead;
    bool is_ahead;
    int32_t never[DV_DECODER_NEVER];
    int64_t n_never;
};

static davy_result dv_decoder_cuda_open(dv_decoder *d, const dv_decoder_desc *desc) {
    dv_decoder_cuda *c = dv_calloc(1, sizeof *c);
    d->cuda = c;
    if (c == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->limit = d->context;
    c->steps = 1;
    const dv_space_part parts[] = {{&c->ids, (uint64_t)d->chunk * 4},
                                   {&c->deep_rows, (uint64_t)d->chunk * 4},
                                   {&c->logits, (uint64_t)d->config->text.vocab * 4}};
    c->host = (dv_space){.heap = desc->heap};
    davy_result r = dv_space_take(&c->host, "a dialogue", parts, DV_ARRAY_LEN(parts));
    r = r < 0 ? r : dv_gpu_queue_take(desc->gpu, NULL, &d->queue);
    r = r < 0 ? r : dv_gpu_completion_ring_create(desc->gpu, &c->completions);
    d->step.completions = r < 0 ? NULL : dv_gpu_completion_ring_data(c->completions);
    return r < 0 ? r : dv_gpu_readback_create(desc->gpu, sizeof c->best, &c->best_mail);
}

static void dv_decoder_cuda_release(dv_decoder *d) {
    dv_decoder_cuda *c = d->cuda;
    if (c == NULL) {
        return;
    }
    if (d->queue != NULL) {
        dv_decoder_cuda_settle(d);
        dv_gpu_queue_give(d->queue);
    }
    dv_gpu_completion_ring_release(c->completions);
    dv_gpu_readback_release(c->best_mail);
    dv_space_release(&c->host);
    dv_free(c);
}

/* After an error: waits, because enqueued work still uses the memory. */
static void dv_decoder_cuda_settle(dv_decoder *d) {
    davy_error_info saved;
    dv_error_get(&saved);
    d->cuda->is_ahead = false;
    dv_gpu_queue_wait(d->queue, NULL, NULL);
    dv_error_set(&saved);
}

/* Discards the step that was started in advance. */
static void dv_decoder_cuda_forget(dv_decoder *d) {
    d->cuda->is_ahead = false;
}

/* ---- several tokens ---- */

/* Copies adjacent vectors of a picture in one operation. */
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

/* Uploads the numbers of a step, and embeds its token into x. */
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

/* Runs the step of a token after `past` others. */
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
    return r < 0 ? r : dv_gpu_completion_ring_mark(c->completions, d->queue, c->steps++);
}

static davy_result dv_decoder_cuda_pass(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
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

static davy_result dv_decoder_cuda_logits(dv_decoder *d, int64_t n, float **logits) {
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
    return id >= 0 ? DAVY_OK : dv_fail(DAVY_E_INTERNAL, "the model's logits contain NaN or have no largest value");
}

/* True if the step started in advance is for this token and excludes the same ids. */
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
    r = r < 0 ? r : dv_gpu_completion_ring_read(c->completions, d->queue, step, next);
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

/* ---- dv_decoder_few on a GPU: a recorded pass of a fixed number of rows, so a row's result does not depend on the number of
 * other rows. Unused rows write where no row reads: after the last one, or in a spare sequence. Drawn ids are always downloaded,
 * logits only on request. ---- */

enum { NEVER = DV_DECODER_NEVER };

struct dv_decoder_rows_cuda {
    dv_space host;
    int32_t *numbers;      /* host copies for upload */
    int32_t *table, *sent; /* page tables: the caller's, and the GPU's copy */
    int32_t *ids;          /* downloaded */
    float *logits;         /* downloaded, of one row */
    dv_gpu_readback *mail;
    int64_t limit; /* without pages: most positions that the pass can attend to */
};

/* Layout of `named`: the uploaded numbers in this order, then the downloaded ones. */
static int64_t at_positions(const dv_decoder *d) {
    return 3 * d->few_rows;
}

static int64_t at_never(const dv_decoder *d) {
    return at_positions(d) + d->axes * d->few_rows;
}

static int64_t at_drawn(const dv_decoder *d) {
    return at_never(d) + NEVER;
}

static int64_t tables(const dv_decoder *d) {
    return d->sequences > 0 ? (d->sequences + 1) * d->each : 0;
}

/* Length of `named`. */
static int64_t dv_decoder_rows_numbers(const dv_decoder *d) {
    return at_drawn(d) + d->few_rows;
}

/* After plan_memory: points the pass to its numbers. */
static void dv_decoder_rows_place(dv_decoder *d) {
    dv_decoder_pass *p = &d->rows;
    p->each = true;
    p->ids = d->named;
    p->positions = d->named + at_positions(d);
    p->never = d->named + at_never(d);
    p->drawn = d->named + at_drawn(d);
    p->rows = (dvk_paging){.table = d->sequences > 0 ? d->table : NULL,
                           .sequence = d->sequences > 0 ? d->named + d->few_rows : NULL,
                           .position = d->named + 2 * d->few_rows,
                           .each = d->each,
                           .page = DVK_PAGE};
}

static davy_result dv_decoder_rows_open(dv_decoder *d, const dv_decoder_desc *desc) {
    dv_decoder_rows_cuda *c = dv_calloc(1, sizeof *c);
    d->rows_cuda = c;
    if (c == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->limit = d->cache_rows;
    const int64_t places = dv_max(d->chunk, at_drawn(d));
    const dv_space_part parts[] = {{&c->numbers, (uint64_t)places * 4},
                                   {&c->table, (uint64_t)tables(d) * 4},
                                   {&c->sent, (uint64_t)tables(d) * 4},
                                   {&c->ids, (uint64_t)d->few_rows * 4},
                                   {&c->logits, (uint64_t)d->config->text.vocab * 4}};
    c->host = (dv_space){.heap = desc->heap};
    davy_result r = dv_space_take(&c->host, "a dialogue", parts, DV_ARRAY_LEN(parts));
    r = r < 0 ? r : dv_gpu_readback_create(desc->gpu, (uint32_t)d->few_rows * sizeof(int32_t), &c->mail);
    if (r == DAVY_OK && d->sequences > 0) {
        memset(c->table, 0, (size_t)tables(d) * sizeof *c->table);
        memset(c->sent, 0xff, (size_t)tables(d) * sizeof *c->sent);
        c->table[d->sequences * d->each] = (int32_t)desc->pages; /* the page of unused rows */
    }
    return r;
}

static void dv_decoder_rows_release(dv_decoder *d) {
    dv_decoder_rows_cuda *c = d->rows_cuda;
    if (c != NULL) {
        dv_gpu_readback_release(c->mail);
        dv_space_release(&c->host);
        dv_free(c);
    }
}

int32_t *dv_decoder_table(dv_decoder *d, int64_t sequence) {
    return (d->queue != NULL ? d->rows_cuda->table : d->table) + sequence * d->each;
}

static davy_result dv_decoder_rows_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n) {
    int32_t *places = d->rows_cuda->numbers;
    for (int64_t i = 0; i < n; i++) {
        places[i] = (int32_t)(place + i);
    }
    const davy_result r = dv_gpu_upload(d->queue, d->place, places, (uint64_t)n * sizeof *places);
    return r < 0 ? r
                 : dv_gpu_upload(d->queue, d->one_table, dv_decoder_table(d, sequence),
                                 (uint64_t)d->each * sizeof *d->one_table);
}

/* ---- the pass ---- */

static davy_result send_table(dv_decoder *d) {
    dv_decoder_rows_cuda *c = d->rows_cuda;
    const size_t bytes = (size_t)tables(d) * sizeof *c->table;
    if (bytes == 0 || memcmp(c->table, c->sent, bytes) == 0) {
        return DAVY_OK;
    }
    memcpy(c->sent, c->table, bytes);
    return dv_gpu_upload(d->queue, d->table, c->table, bytes);
}

static davy_result send_rows(dv_decoder *d, const dv_decoder_rows *in) {
    dv_decoder_rows_cuda *c = d->rows_cuda;
    const int64_t rows = d->few_rows;
    for (int64_t i = 0; i < rows; i++) {
        const bool real = i < in->n;
        const int64_t spare = d->sequences > 0 ? i - in->n : in->place[in->n - 1] + 1 + i - in->n;
        c->numbers[i] = real ? in->ids[i] : 0;
        c->numbers[rows + i] = (int32_t)(!real ? d->sequences : in->sequence != NULL ? in->sequence[i] : 0);
        c->numbers[2 * rows + i] = real ? in->place[i] : (int32_t)spare;
        for (int32_t a = 0; a < d->axes; a++) {
            c->numbers[at_positions(d) + i * d->axes + a] = real ? in->positions[i * d->axes + a] : 0;
        }
    }
    for (int64_t i = 0; i < NEVER; i++) {
        c->numbers[at_never(d) + i] = i < in->n_never ? in->never[i] : -1;
    }
    return dv_gpu_upload(d->queue, d->named, c->numbers, (uint64_t)at_drawn(d) * sizeof *c->numbers);
}

/* With pages, the kernels are always those for the longest possible sequence. */
static davy_result set_limit(dv_decoder *d, const dv_decoder_rows *in) {
    dv_decoder_rows_cuda *c = d->rows_cuda;
    int64_t limit = LEAST_LIMIT;
    while (limit < in->place[in->n - 1] + d->few_rows) {
        limit *= 2;
    }
    limit = dv_min(limit, d->cache_rows);
    if (d->sequences > 0 || (limit <= c->limit && 4 * limit > c->limit)) {
        return DAVY_OK;
    }
    c->limit = limit;
    return dv_row_program_limit(&d->rows.body, limit);
}

static davy_result dv_decoder_rows_run(dv_decoder *d, const dv_decoder_rows *in) {
    dv_decoder_rows_cuda *c = d->rows_cuda;
    dv_decoder_cuda_forget(d);
    davy_result r = send_table(d);
    r = r < 0 ? r : send_rows(d, in);
    r = r < 0 ? r : set_limit(d, in);
    r = r < 0 ? r : dv_row_program_repeat(&d->rows.body);
    r = r < 0 ? r : dv_gpu_readback_send(c->mail, d->queue, d->rows.drawn);
    if (r < 0) {
        dv_decoder_cuda_settle(d);
    }
    return r;
}

davy_result dv_decoder_few_ids(dv_decoder *d, const int32_t **ids) {
    *ids = d->rows_cuda->ids;
    const davy_result r = dv_gpu_readback_read(d->rows_cuda->mail, d->rows_cuda->ids);
    if (r < 0) {
        dv_decoder_cuda_settle(d);
    }
    return r;
}

davy_result dv_decoder_few_logits(dv_decoder *d, int64_t row, const float **logits) {
    const int64_t vocab = d->config->text.vocab;
    float *to = d->rows_cuda->logits;
    const davy_result r = dv_gpu_download(d->queue, to, d->logits + row * vocab, (uint64_t)vocab * sizeof *to);
    if (r == DAVY_OK) {
        dv_decoder_cap(d, to);
    }
    *logits = to;
    return r;
}

/* ---- opening: memory and passes of the language model ---- */

enum { CHUNK = 256, CUDA_CHUNK = 1024 };

static int64_t form_bytes_max(int64_t k) {
    const uint64_t q8 = dv_form_bytes(DVK_ROWS_Q8, k);
    const uint64_t f32 = dv_form_bytes(DVK_ROWS_F32, k);
    return (int64_t)(q8 > f32 ? q8 : f32);
}

/* Allocates one block for all arrays. */
static davy_result plan_memory(dv_decoder *d, const dv_decoder_desc *desc) {
    const dv_vlm_text *t = &d->config->text;
    const bool gpu = desc->gpu != NULL;
    const int64_t rows = dv_max(d->chunk, d->few_rows);
    const int64_t few = gpu ? DV_PROGRAM_FEW : rows; /* rows with 8-bit inputs */
    const int64_t tables = d->sequences + (gpu ? 1 : 0);
    const int64_t q = t->heads * t->head_dim;
    const int64_t kv = t->kv_heads * t->head_dim;
    const uint64_t cache =
        (uint64_t)t->layers * 2 * (uint64_t)(kv * d->cache_rows) * (d->cache_form == DVK_ROWS_F32 ? 4 : 2);
    const dv_space_part parts[] = {
        {&d->x, (uint64_t)(rows * t->hidden) * 4},
        {&d->normed, (uint64_t)(rows * form_bytes_max(t->hidden))},
        {&d->qkv, (uint64_t)(rows * (q + 2 * kv)) * 4},
        {&d->mixed, (uint64_t)(rows * q) * 4},
        {&d->mixed_in, (uint64_t)(few * form_bytes_max(q))},
        {&d->hidden, (uint64_t)(rows * t->ffn) * 4},
        {&d->hidden_in, (uint64_t)(few * form_bytes_max(t->ffn))},
        {&d->cs, (uint64_t)(rows * t->head_dim) * 4},
        {&d->positions, (uint64_t)(rows * d->axes) * 4},
        {&d->deep_rows, (uint64_t)rows * 4},
        {&d->logits, (uint64_t)(dv_max(1, d->few_rows) * t->vocab) * 4},
        {&d->sequence, (uint64_t)d->few_rows * 4},
        {&d->place, d->few_rows > 0 ? (uint64_t)rows * 4 : 0},
        {&d->table, (uint64_t)(tables * d->each) * 4},
        {&d->one_table, (uint64_t)d->each * 4},
        {&d->cache, cache},
        {&d->queries, gpu ? (uint64_t)(rows * q) * 4 : 0},
        {&d->ids, gpu ? (uint64_t)rows * 4 : 0},
        {&d->token, gpu ? (uint64_t)DV_TOKEN_NUMBERS * 4 : 0},
        {&d->parts, gpu ? (uint64_t)(t->kv_heads * t->hidden) * 4 : 0},
        {&d->sum, gpu ? (uint64_t)t->hidden * 4 : 0},
        {&d->candidates, gpu ? sizeof *d->candidates : 0},
        {&d->named, gpu ? (uint64_t)dv_decoder_rows_numbers(d) * 4 : 0},
    };
    d->space = (dv_space){.heap = desc->heap, .gpu = desc->gpu};
    return dv_space_take(&d->space, "the cache and the activations of a dialogue", parts, DV_ARRAY_LEN(parts));
}

/* On a GPU: with several sequences, only `many` reads prompts. */
static davy_result build_cuda(dv_decoder *d, dv_row_program_desc *program) {
    davy_result r = DAVY_OK;
    if (d->sequences == 0) {
        program->rows = 1;
        r = dv_decoder_build(d, &d->step, program);
        program->rows = DV_PROGRAM_FEW;
        r = r < 0 ? r : dv_decoder_build(d, &d->few, program);
    }
    if (r == DAVY_OK && d->few_rows > 0) {
        dv_decoder_rows_place(d);
        program->rows = d->few_rows;
        r = dv_decoder_build(d, &d->rows, program);
    }
    program->rows = d->chunk;
    return r == DAVY_OK && (d->chunk > DV_PROGRAM_FEW || d->sequences > 0) ? dv_decoder_build(d, &d->many, program) : r;
}

static davy_result build_passes(dv_decoder *d, const dv_decoder_desc *desc) {
    dv_row_program_desc program = {
        .pool = desc->pool, .queue = d->queue, .weights = desc->weights, .cpu = desc->cpu, .compute = desc->compute};
    d->few.ids = d->many.ids = d->ids;
    d->step.positions = d->few.positions = d->many.positions = d->positions;
    if (d->queue != NULL) {
        d->step.ids = d->token + DV_TOKEN_ID;
        d->step.rows.position = d->token + DV_TOKEN_PLACE;
        d->step.positions = d->token + DV_TOKEN_POSITIONS;
    }
    if (d->sequences > 0) {
        d->step.rows = d->many.rows = (dvk_paging){d->one_table, NULL, d->place, d->each, DVK_PAGE};
    }
    if (d->queue != NULL) {
        return build_cuda(d, &program);
    }
    if (d->few_rows > 0) {
        d->few.rows = (dvk_paging){d->sequences > 0 ? d->table : NULL, d->sequence, d->place, d->each, DVK_PAGE};
    }
    program.rows = 1;
    davy_result r = dv_decoder_build(d, &d->step, &program);
    if (r == DAVY_OK && d->few_rows > 0) {
        program.rows = d->few_rows;
        program.alike = d->few.each = true;
        r = dv_decoder_build(d, &d->few, &program);
        program.alike = false;
    }
    program.rows = d->chunk;
    return r < 0 ? r : dv_decoder_build(d, &d->many, &program);
}

davy_result dv_decoder_open(const dv_decoder_desc *desc, dv_decoder **out) {
    const dv_vlm_text *t = &desc->config->text;
    if (desc->context < 1 || desc->context > t->max_positions) {
        return dv_fail(DAVY_E_INVALID, "a context of %lld tokens is not possible; this model allows 1 to %lld",
                       (long long)desc->context, (long long)t->max_positions);
    }
    dv_decoder *d = dv_calloc(1, sizeof *d);
    if (d == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    const int64_t chunk = desc->gpu != NULL ? CUDA_CHUNK : CHUNK;
    d->config = desc->config;
    d->weights = desc->weights;
    d->few_rows = dv_min(desc->few, desc->gpu != NULL ? DVK_PAGE : DVK_FEW);
    d->sequences = desc->sequences;
    d->each = d->sequences > 0 ? dv_div_up(desc->context, DVK_PAGE) : 0;
    d->context = d->sequences > 0 ? desc->pages * DVK_PAGE : desc->context;
    d->cache_rows = d->context;
    if (desc->gpu != NULL) { /* space for unused rows */
        d->cache_rows += d->sequences > 0 ? DVK_PAGE : d->few_rows;
    }
    d->axes = dv_vlm_position_axes(desc->config);
    d->chunk = dv_min(desc->chunk > 0 ? desc->chunk : chunk, desc->context);
    d->chunk = desc->gpu != NULL ? dv_max(d->chunk, DV_PROGRAM_FEW) : d->chunk;
    d->cache_form = desc->compute == DVK_F32 ? DVK_ROWS_F32 : DVK_ROWS_F16;
    davy_result r = plan_memory(d, desc);
    r = r < 0 || desc->gpu == NULL ? r : dv_decoder_cuda_open(d, desc);
    r = r < 0 || desc->gpu == NULL || d->few_rows == 0 ? r : dv_decoder_rows_open(d, desc);
    r = r < 0 ? r : build_passes(d, desc);
    if (r < 0) {
        dv_decoder_release(d);
        return r;
    }
    *out = d;
    return DAVY_OK;
}

static void clear_pass(dv_decoder_pass *pass) {
    dv_row_program_clear(&pass->words);
    dv_row_program_clear(&pass->body);
    dv_row_program_clear(&pass->head);
    dv_row_program_clear(&pass->best);
}

void dv_decoder_release(dv_decoder *d) {
    if (d != NULL) {
        clear_pass(&d->step);
        clear_pass(&d->few);
        clear_pass(&d->many);
        clear_pass(&d->rows);
        dv_decoder_rows_release(d);
        dv_decoder_cuda_release(d);
        dv_space_release(&d->space);
        dv_free(d);
    }
}

uint64_t dv_decoder_bytes(const dv_decoder *d) {
    return d->space.bytes;
}

/* ---- passes ---- */

static void load_input(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    const int64_t width = d->config->text.hidden;
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = in->vector != NULL ? in->vector[at + i] : -1;
        float *to = d->x + i * width;
        d->deep_rows[i] = in->deep != NULL ? row : -1;
        if (row >= 0) {
            memcpy(to, in->vectors + row * width, (size_t)width * sizeof *to);
        } else {
            dv_vlm_matrix_row(d->weights, &d->weights->embed, in->ids[at + i], to);
        }
    }
    memcpy(d->positions, in->positions + at * d->axes, (size_t)(n * d->axes) * sizeof *d->positions);
    for (int32_t k = 0; k < d->config->vision.n_deepstack && in->deep != NULL; k++) {
        d->deep[k] = in->deep[k];
    }
}

static davy_result pass(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
    dv_decoder_pass *p = n == 1 ? &d->step : &d->many;
    if (d->queue != NULL) {
        return dv_decoder_cuda_pass(d, in, at, n);
    }
    load_input(d, in, at, n);
    dv_decoder_point(p, d);
    davy_result r = d->sequences > 0 ? dv_decoder_turn_to(d, in->sequence, in->past + at, n) : DAVY_OK;
    r = r < 0 ? r : dv_row_program_place(&p->body, n, in->past + at);
    return r < 0 ? r : dv_row_program_run(&p->body, in->cancel, in->user);
}

static void dv_decoder_cap(const dv_decoder *d, float *logits) {
    const double cap = d->config->text.softcap;
    for (int64_t i = 0; cap > 0 && i < d->config->text.vocab; i++) {
        logits[i] = (float)(cap * tanh((double)logits[i] / cap));
    }
}

/* DAVY_E_TOKENIZER if an id is outside the vocabulary. */
static davy_result dv_decoder_check_ids(const dv_decoder *d, const int32_t *ids, const int32_t *vector, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const bool word = vector == NULL || vector[i] < 0;
        if (word && (ids[i] < 0 || ids[i] >= d->config->text.vocab)) {
            return dv_fail(DAVY_E_TOKENIZER, "token %d is outside the language model's vocabulary of %lld tokens",
                           (int)ids[i], (long long)d->config->text.vocab);
        }
    }
    return DAVY_OK;
}

static davy_result read_logits(dv_decoder *d, int64_t n, const float **logits) {
    davy_result r = DAVY_OK;
    float *read = d->logits;
    if (d->queue != NULL) {
        r = dv_decoder_cuda_logits(d, n, &read);
    } else if (n > 1) {
        r = dv_row_program_place(&d->many.head, n, 0);
        r = r < 0 ? r : dv_row_program_run(&d->many.head, NULL, NULL);
    }
    if (r == DAVY_OK) {
        dv_decoder_cap(d, read);
    }
    *logits = read;
    return r;
}

static davy_result check_input(const dv_decoder *d, const dv_decoder_input *in) {
    const int64_t context = d->sequences > 0 ? d->each * DVK_PAGE : d->context;
    if (in->past < 0 || in->n < 1 || in->n > context - in->past) {
        return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens after %lld tokens exceed the context of %lld tokens",
                       (long long)in->n, (long long)in->past, (long long)context);
    }
    return dv_decoder_check_ids(d, in->ids, in->vector, in->n);
}

davy_result dv_decoder_feed(dv_decoder *d, const dv_decoder_input *in, const float **logits, int64_t *fed) {
    *fed = 0;
    davy_result r = check_input(d, in);
    int64_t last = 0;
    while (r == DAVY_OK && *fed < in->n) {
        if (in->cancel != NULL && in->cancel(in->user) != 0) {
            r = dv_fail(DAVY_E_CANCELLED, "cancelled");
            break;
        }
        last = dv_min(in->n - *fed, d->chunk);
        r = pass(d, in, *fed, last);
        *fed += r == DAVY_OK ? last : 0;
    }
    r = r < 0 || logits == NULL ? r : read_logits(d, last, logits);
    if (d->queue != NULL && (r < 0 || logits == NULL)) {
        dv_decoder_cuda_settle(d);
    }
    return r;
}
