/* session_draw.c - a token that is drawn on the host, on a GPU from the largest logits alone where they say enough. */
#include "core/vlm/session_priv.h"

bool dv_draws_of_best(const dv_decoder *d, const dv_sample_options *o) {
    return dv_decoder_gives_best(d) && dv_sample_takes_few(o);
}

davy_result dv_session_draw_best(dv_session *d, dv_sampler *sampler, int32_t *id) {
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
