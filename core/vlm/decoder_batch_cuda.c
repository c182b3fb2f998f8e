/* decoder_batch_cuda.c - tokens that say where they belong, on a GPU: a recorded pass of a fixed number of rows, so that what
 * a row gives does not depend on how many others there are. Rows that nobody needs lie where nobody reads: behind the last
 * one, or in a sequence of their own. What is drawn comes down by itself; logits stay unless somebody asks. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/decoder_batch.h"
#include "core/vlm/decoder_priv.h"

enum { NEVER = DV_DECODER_NEVER, LEAST_LIMIT = 512 };

struct dv_decoder_rows_cuda {
    dv_space host;
    int32_t *numbers;      /* as they go up */
    int32_t *table, *sent; /* of pages: as the caller has them, as the GPU does */
    int32_t *ids;          /* as they came down */
    float *logits;         /* of one row */
    dv_gpu_readback *mail;
    int64_t limit; /* positions that the pass can see, where there are no pages */
};

/* In `named`: what goes up, in this order, then what comes down. */
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

int64_t dv_decoder_rows_numbers(const dv_decoder *d) {
    return at_drawn(d) + d->few_rows;
}

void dv_decoder_rows_place(dv_decoder *d) {
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

davy_result dv_decoder_rows_open(dv_decoder *d, const dv_decoder_desc *desc) {
    dv_decoder_rows_cuda *c = dv_calloc(1, sizeof *c);
    d->rows_cuda = c;
    if (c == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->limit = d->cache_rows;
    const int64_t places = dv_max(d->chunk, at_drawn(d));
    const dv_want wants[] = {{&c->numbers, (uint64_t)places * 4},
                             {&c->table, (uint64_t)tables(d) * 4},
                             {&c->sent, (uint64_t)tables(d) * 4},
                             {&c->ids, (uint64_t)d->few_rows * 4},
                             {&c->logits, (uint64_t)d->config->text.vocab * 4}};
    davy_result r = dv_space_take(&c->host, desc->heap, "a dialogue", wants, DV_ARRAY_LEN(wants));
    r = r < 0 ? r : dv_gpu_readback_create(desc->gpu, (uint32_t)d->few_rows * sizeof(int32_t), &c->mail);
    if (r == DAVY_OK && d->sequences > 0) {
        memset(c->table, 0, (size_t)tables(d) * sizeof *c->table);
        memset(c->sent, 0xff, (size_t)tables(d) * sizeof *c->sent);
        c->table[d->sequences * d->each] = (int32_t)desc->pages; /* the one of rows that nobody needs */
    }
    return r;
}

void dv_decoder_rows_release(dv_decoder *d) {
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

davy_result dv_decoder_rows_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n) {
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

/* With pages the kernels are those for the longest sequence, whoever is there. */
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

davy_result dv_decoder_rows_run(dv_decoder *d, const dv_decoder_rows *in) {
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
