/* vlm_lookup.c - see vlm_lookup.h. */
#include "tests/lib/vlm_lookup.h"

typedef struct heard {
    int32_t ids[LOOKUP_MOST];
    int64_t n;
} heard;

static int32_t hear(void *user, int32_t id) {
    heard *s = user;
    s->ids[s->n++] = id;
    return 0;
}

void test_lookup(const fixture *f) {
    int64_t passes = 0;
    for (int i = 0; i < 24; i++) {
        heard plain = {.n = 0};
        heard quick = {.n = 0};
        const dv_lookup modes[2] = {DV_LOOKUP_OFF, DV_LOOKUP_ALWAYS};
        for (int quickly = 0; quickly < 2; quickly++) {
            heard *s = quickly == 0 ? &plain : &quick;
            dv_session *d = NULL;
            int32_t ids[40];
            for (int j = 0; j < 40; j++) {
                ids[j] = j % 10 < 7 ? (j % 10 * 3 + i) % 90 : i * j % 90;
            }
            dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = i % 3 == 0 ? 1.1 : 1},
                             .max_tokens = i % 2 == 0 ? 87 : 23,
                             .ignore_stops = true,
                             .lookup = modes[quickly],
                             .token = hear,
                             .user = s};
            int64_t tokens = 0;
            dv_session_end end;
            if (CHECK_OK(dv_session_open(&f->model, NULL, &d)) && CHECK_OK(dv_session_feed(d, ids, 40, NULL, 0))) {
                CHECK_OK(dv_session_generate(d, &g, &tokens, &end));
                if (i % 2 != 0) { /* goes on in another call, and after going back */
                    const dv_session_mark mark = dv_session_now(d);
                    CHECK_OK(dv_session_generate(d, &g, &tokens, &end));
                    CHECK_OK(dv_session_feed(d, ids, 10, NULL, 0));
                    CHECK_OK(dv_session_rewind(d, mark));
                    CHECK_OK(dv_session_feed(d, ids + 5, 5, NULL, 0));
                    g.max_tokens = 15;
                    CHECK_OK(dv_session_generate(d, &g, &tokens, &end));
                }
                passes += d->supposed.passes;
                CHECK(quickly == 1 || d->supposed.passes == 0);
            }
            dv_session_release(d);
        }
        CHECKF(plain.n == quick.n && memcmp(plain.ids, quick.ids, (size_t)plain.n * sizeof *plain.ids) == 0,
               "looked up, %d says something else", i);
    }
    CHECKF(passes > 24, "only %d looked anything up", (int)passes);
}
