/* decoder_batch.c - see decoder_batch.h. */
#include "core/vlm/decoder_batch.h"

#include <string.h>

#include "core/error.h"
#include "core/vlm/decoder_priv.h"

int64_t dv_decoder_few_rows(const dv_decoder *d) {
    return d->few_rows;
}

int64_t dv_decoder_chunk(const dv_decoder *d) {
    return d->chunk;
}

int32_t *dv_decoder_table(dv_decoder *d, int64_t sequence) {
    return d->table + sequence * d->each;
}

void dv_decoder_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n) {
    memcpy(d->one_table, dv_decoder_table(d, sequence), (size_t)d->each * sizeof *d->one_table);
    for (int64_t i = 0; i < n; i++) {
        d->place[i] = (int32_t)(place + i);
    }
}

davy_result dv_decoder_few(dv_decoder *d, const dv_decoder_rows *in, const float **logits) {
    const dv_vlm_text *t = &d->config->text;
    davy_result r = dv_decoder_check_ids(d, in->ids, NULL, in->n);
    if (r < 0) {
        return r;
    }
    for (int64_t i = 0; i < in->n; i++) {
        dv_vlm_matrix_row(d->weights, &d->weights->embed, in->ids[i], d->x + i * t->hidden);
        d->sequence[i] = in->sequence != NULL ? in->sequence[i] : 0;
        d->place[i] = in->place[i];
        d->deep_rows[i] = -1;
    }
    memcpy(d->positions, in->positions, (size_t)(in->n * d->axes) * sizeof *d->positions);
    dv_decoder_point(&d->few, d);
    r = dv_program_place(&d->few.body, in->n, 0);
    r = r < 0 ? r : dv_program_run(&d->few.body, NULL, NULL);
    for (int64_t i = 0; r == DAVY_OK && i < in->n; i++) {
        dv_decoder_cap(d, d->logits + i * t->vocab);
    }
    *logits = d->logits;
    return r;
}
