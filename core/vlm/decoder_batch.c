/* decoder_batch.c - see decoder_batch.h. */
#include "core/vlm/decoder_batch.h"

#include <string.h>

#include "core/base/error.h"
#include "core/vlm/decoder_priv.h"

int64_t dv_decoder_few_rows(const dv_decoder *d) {
    return d->few_rows;
}

int64_t dv_decoder_chunk(const dv_decoder *d) {
    return d->chunk;
}

davy_result dv_decoder_turn_to(dv_decoder *d, int64_t sequence, int64_t place, int64_t n) {
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
