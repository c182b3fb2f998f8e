/* test_vlm_few.c - a few tokens in one pass have the bits that each has alone, and so tokens that are looked up change
 * nothing. */
#include "core/vlm/decoder_batch.h"
#include "core/vlm/dialogue_priv.h"
#include "vlm_kinds.h"

enum { VOCAB = 96, MOST = 128 };

/* ---- rows ---- */

/* The logits of tokens in one pass, however many, and those of each alone. */
static void test_rows(const kind *k) {
    fixture f;
    dv_decoder *d = NULL;
    float *alone = calloc((size_t)DVK_FEW * VOCAB, sizeof *alone);
    int32_t ids[DVK_FEW], place[DVK_FEW], positions[3 * DVK_FEW];
    const bool ok = start(&f, k) && CHECK(alone != NULL);
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

/* ---- tokens that are looked up ---- */

typedef struct said {
    int32_t ids[MOST];
    int64_t n;
} said;

static int32_t keep(void *user, int32_t id) {
    said *s = user;
    s->ids[s->n++] = id;
    return 0;
}

/* The same words again and again: what they are followed by is looked up, rightly or not, and nothing changes. */
static void test_lookup(const kind *k) {
    fixture f;
    int64_t passes = 0;
    if (start(&f, k)) {
        for (int i = 0; i < 24; i++) {
            said plain = {.n = 0};
            said quick = {.n = 0};
            const dv_lookup modes[2] = {DV_LOOKUP_OFF, DV_LOOKUP_ALWAYS};
            for (int quickly = 0; quickly < 2; quickly++) {
                said *s = quickly == 0 ? &plain : &quick;
                dv_dialogue *d = NULL;
                int32_t ids[40];
                for (int j = 0; j < 40; j++) {
                    ids[j] = j % 10 < 7 ? (j % 10 * 3 + i) % 90 : i * j % 90;
                }
                dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = i % 3 == 0 ? 1.1 : 1},
                                 .max_tokens = i % 2 == 0 ? 87 : 23,
                                 .ignore_stops = true,
                                 .lookup = modes[quickly],
                                 .token = keep,
                                 .user = s};
                int64_t tokens = 0;
                dv_dialogue_end end;
                if (CHECK_OK(dv_dialogue_open(&f.model, NULL, &d)) && CHECK_OK(dv_dialogue_feed(d, ids, 40, NULL, 0))) {
                    CHECK_OK(dv_dialogue_generate(d, &g, &tokens, &end));
                    if (i % 2 != 0) { /* goes on in another call, and after going back */
                        const dv_dialogue_mark mark = dv_dialogue_now(d);
                        CHECK_OK(dv_dialogue_generate(d, &g, &tokens, &end));
                        CHECK_OK(dv_dialogue_feed(d, ids, 10, NULL, 0));
                        CHECK_OK(dv_dialogue_rewind(d, mark));
                        CHECK_OK(dv_dialogue_feed(d, ids + 5, 5, NULL, 0));
                        g.max_tokens = 15;
                        CHECK_OK(dv_dialogue_generate(d, &g, &tokens, &end));
                    }
                    passes += d->supposed.passes;
                    CHECK(quickly == 1 || d->supposed.passes == 0);
                }
                dv_dialogue_release(d);
            }
            CHECKF(plain.n == quick.n && memcmp(plain.ids, quick.ids, (size_t)plain.n * sizeof *plain.ids) == 0,
                   "looked up, %d says something else", i);
        }
        CHECKF(passes > 24, "only %d looked anything up", (int)passes);
    }
    fixture_end(&f);
}

int main(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        test_rows(&kinds[i]);
        test_lookup(&kinds[i]);
    }
    return check_done();
}
