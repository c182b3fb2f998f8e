/* decoder.c - memory and passes of the language model. */
#include "core/vlm/decoder.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/decoder_priv.h"
#include "core/vlm/positions.h"

enum { CHUNK = 256, CUDA_CHUNK = 1024 };

static int64_t form_bytes_max(int64_t k) {
    const uint64_t q8 = dv_form_bytes(DVK_ROWS_Q8, k);
    const uint64_t f32 = dv_form_bytes(DVK_ROWS_F32, k);
    return (int64_t)(q8 > f32 ? q8 : f32);
}

/* One block for everything. */
static davy_result plan_memory(dv_decoder *d, const dv_decoder_desc *desc) {
    const dv_vlm_text *t = &d->config->text;
    const bool gpu = desc->gpu != NULL;
    const int64_t rows = dv_max(d->chunk, d->few_rows);
    const int64_t few = gpu ? DV_PROGRAM_FEW : rows; /* that are quantised */
    const int64_t tables = d->sequences + (gpu ? 1 : 0);
    const int64_t q = t->heads * t->head_dim;
    const int64_t kv = t->kv_heads * t->head_dim;
    const uint64_t cache =
        (uint64_t)t->layers * 2 * (uint64_t)(kv * d->cache_rows) * (d->cache_form == DVK_ROWS_F32 ? 4 : 2);
    const dv_want wants[] = {
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
    return dv_space_take_on(&d->space, desc->gpu, desc->heap, "the cache and the activations of a dialogue", wants,
                            DV_ARRAY_LEN(wants));
}

/* On a GPU: prompts of several sequences go through `many` alone. */
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
        return dv_fail(DAVY_E_INVALID, "a context of %lld tokens: this model has from 1 to %lld",
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
    if (desc->gpu != NULL) { /* of the rows that nobody needs */
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

static void load_rows(dv_decoder *d, const dv_decoder_input *in, int64_t at, int64_t n) {
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
    load_rows(d, in, at, n);
    dv_decoder_point(p, d);
    davy_result r = d->sequences > 0 ? dv_decoder_turn_to(d, in->sequence, in->past + at, n) : DAVY_OK;
    r = r < 0 ? r : dv_row_program_place(&p->body, n, in->past + at);
    return r < 0 ? r : dv_row_program_run(&p->body, in->cancel, in->user);
}

void dv_decoder_cap(const dv_decoder *d, float *logits) {
    const double cap = d->config->text.softcap;
    for (int64_t i = 0; cap > 0 && i < d->config->text.vocab; i++) {
        logits[i] = (float)(cap * tanh((double)logits[i] / cap));
    }
}

davy_result dv_decoder_check_ids(const dv_decoder *d, const int32_t *ids, const int32_t *vector, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const bool word = vector == NULL || vector[i] < 0;
        if (word && (ids[i] < 0 || ids[i] >= d->config->text.vocab)) {
            return dv_fail(DAVY_E_TOKENIZER, "token %d is not one of the language model's %lld", (int)ids[i],
                           (long long)d->config->text.vocab);
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
        return dv_fail(DAVY_E_CONTEXT_FULL, "%lld tokens behind %lld are more than the context of %lld tokens",
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
