/* golden_vlm_batch.c - a case's prompt in several kinds of batches: each must give a single dialogue's answer, bit for bit. */
#include <stdlib.h>
#include <string.h>

#include "core/vlm/batch.h"
#include "golden_vlm.h"

#include "golden_check.h"

enum { QUESTIONS = 5, TOKENS = 12 };

typedef struct said {
    int32_t ids[TOKENS];
    int64_t n;
} said;

static int32_t keep(void *user, int32_t id) {
    said *s = user;
    s->ids[s->n++] = id;
    return 0;
}

/* One of three sequences samples at random. */
static dv_generate generate_of(int i, said *s) {
    return (dv_generate){
        .sample = {.temperature = i % 3 == 2 ? 0.7 : 0, .top_p = 1, .repetition_penalty = 1, .seed = 3},
        .max_tokens = TOKENS - i,
        .ignore_stops = true,
        .token = keep,
        .user = s};
}

static void ask_alone(const dv_vlm_model *m, const vlm_prompt *p, int i, dv_lookup lookup, said *s) {
    dv_session *d = NULL;
    dv_generate g = generate_of(i, s);
    int64_t n = 0;
    dv_session_end end;
    g.lookup = lookup;
    if (dv_session_open(m, NULL, &d) != DAVY_OK ||
        dv_session_feed(d, p->ids, p->n - i, p->picture, p->n_pictures) < 0 ||
        dv_session_generate(d, &g, &n, &end) < 0) {
        vlm_error("alone");
    }
    dv_session_release(d);
}

/* Prompts without some of the last words. The store has room for two of them at once. */
static void ask_together(const dv_vlm_model *m, const vlm_prompt *p, said *s) {
    const dv_batch_options o = {.sequences = 4, .context = p->n + TOKENS, .tokens = 2 * (p->n + TOKENS)};
    dv_batch *b = NULL;
    davy_result r = dv_batch_open(m, &o, &b);
    for (int i = 0; r == DAVY_OK && i < QUESTIONS; i++) {
        const dv_batch_question q = {.ids = p->ids,
                                     .n = p->n - i,
                                     .pictures = p->picture,
                                     .n_pictures = p->n_pictures,
                                     .generate = generate_of(i, &s[i])};
        r = dv_batch_ask(b, &q);
    }
    while (r == DAVY_OK && dv_batch_unended(b) > 0) {
        r = dv_batch_work(b);
    }
    if (r < 0) {
        vlm_error("together");
    }
    dv_batch_release(b);
}

void vlm_together(const dv_vlm_model *m, const vlm_prompt *p) {
    said alone[QUESTIONS] = {{.n = 0}};
    said looked_up[QUESTIONS] = {{.n = 0}};
    said together[QUESTIONS] = {{.n = 0}};
    for (int i = 0; i < QUESTIONS; i++) {
        ask_alone(m, p, i, DV_LOOKUP_OFF, &alone[i]);
        ask_alone(m, p, i, DV_LOOKUP_ALWAYS, &looked_up[i]);
    }
    ask_together(m, p, together);
    CHECK(memcmp(looked_up, alone, sizeof alone) == 0 && alone[0].n == TOKENS);
    CHECK(memcmp(together, alone, sizeof alone) == 0);
}
