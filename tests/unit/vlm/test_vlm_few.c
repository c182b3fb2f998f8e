/* test_vlm_few.c - a few tokens in one pass have the same bits as each alone. So prompt lookup does not change an answer. */
#include "core/vlm/decoder.h"
#include "tests/lib/vlm_kinds.h"
#include "tests/lib/vlm_lookup.h"

enum { VOCAB = 96, MOST = 128 };

/* ---- rows ---- */

/* Compares the logits of one pass, for each number of tokens, with those of each token alone. */
static void test_rows(const kind *k) {
    fixture f;
    dv_decoder *d = NULL;
    float *alone = calloc((size_t)DVK_FEW * VOCAB, sizeof *alone);
    int32_t ids[DVK_FEW], place[DVK_FEW], positions[3 * DVK_FEW];
    const bool ok = kind_start(&f, k) && CHECK(alone != NULL);
    const dv_decoder_desc desc = {.config = &f.model.config,
                                  .weights = f.model.weights,
                                  .heap = f.heap,
                                  .pool = f.pool,
                                  .cpu = f.model.cpu,
                                  .compute = k->compute,
                                  .context = MOST,
                                  .few = DVK_FEW};
    const int32_t axes = dv_vlm_position_axes(&f.model.config);
    for (int i = 0; i < DVK_FEW; i++) {
        ids[i] = i * 7 % 90;
        place[i] = i;
        for (int a = 0; a < axes; a++) {
            positions[i * axes + a] = i;
        }
    }
    if (ok && CHECK_OK(dv_decoder_open(&desc, &d))) {
        for (int i = 0; i < DVK_FEW; i++) {
            const dv_decoder_input in = {.ids = ids + i, .positions = positions + i * axes, .n = 1, .past = i};
            const float *logits = NULL;
            int64_t fed = 0;
            CHECK_OK(dv_decoder_feed(d, &in, &logits, &fed));
            memcpy(alone + i * VOCAB, logits, VOCAB * sizeof *logits);
        }
        for (int n = 1; n <= DVK_FEW; n++) {
            const dv_decoder_rows in = {.ids = ids, .place = place, .positions = positions, .n = n};
            const float *logits = NULL;
            CHECK_OK(dv_decoder_few(d, &in, &logits));
            CHECKF(memcmp(logits, alone, (size_t)n * VOCAB * sizeof *logits) == 0, "%d rows give other bits", n);
        }
        const int32_t bad = VOCAB;
        const dv_decoder_rows in = {.ids = &bad, .place = place, .positions = positions, .n = 1};
        const float *logits = NULL;
        CHECK(dv_decoder_few(d, &in, &logits) == DAVY_E_TOKENIZER);
    }
    dv_decoder_release(d);
    free(alone);
    fixture_end(&f);
}

/* ---- prompt lookup ---- */

static void test_found(const kind *k) {
    fixture f;
    if (kind_start(&f, k)) {
        test_lookup(&f);
    }
    fixture_end(&f);
}

int main(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        test_rows(&kinds[i]);
        test_found(&kinds[i]);
    }
    return check_done();
}
