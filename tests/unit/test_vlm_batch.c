/* test_vlm_batch.c - many sequences at once say what each says alone, bit for bit: pages that come and go, sequences that
 * join, leave and are put back at any token. */
#include "core/vlm/batch.h"
#include "core/vlm/batch_pages.h"
#include "core/vlm/decoder_batch.h"
#include "core/vlm/dialogue_priv.h"
#include "vlm_kinds.h"

enum { VOCAB = 96, MOST = 128, QUESTIONS = 40 };

/* ---- pages ---- */

static void test_pages(void) {
    dv_pages p;
    int32_t a[8], b[8];
    int64_t n_a = 0, n_b = 0;
    CHECK_OK(dv_pages_create(5, &p));
    CHECK(dv_pages_take(&p, 3, a, &n_a) && n_a == 3 && a[0] == 0 && a[1] == 1 && a[2] == 2);
    CHECK(dv_pages_take(&p, 2, a, &n_a) && n_a == 3); /* enough already */
    CHECK(!dv_pages_take(&p, 3, b, &n_b) && n_b == 0 && p.n_free == 2);
    CHECK(dv_pages_take(&p, 2, b, &n_b) && b[0] == 3 && b[1] == 4 && p.n_free == 0 && p.most == 5);
    dv_pages_give_back(&p, a, &n_a);
    CHECK(n_a == 0 && p.n_free == 3);
    CHECK(dv_pages_take(&p, 5, b, &n_b) && n_b == 5 && p.n_free == 0);
    unsigned seen = 0;
    for (int i = 0; i < 5; i++) {
        seen |= 1u << b[i];
    }
    CHECK(seen == 31);
    dv_pages_clear(&p);
    dv_alloc_fail_after(0);
    CHECK(dv_pages_create(5, &p) == DAVY_E_NOMEM_HOST && p.free == NULL);
    dv_alloc_fail_after(-1);
}

/* ---- what a sequence says ---- */

typedef struct said {
    int32_t ids[MOST];
    int64_t n, drawn;
    int64_t most; /* the caller ends it there; 0: never */
    bool wrong;
} said;

static int32_t keep(void *user, int32_t id) {
    said *s = user;
    s->ids[s->n++] = id;
    return s->most > 0 && s->n >= s->most;
}

static void drawn(void *user, int64_t tokens) {
    said *s = user;
    s->wrong = s->wrong || tokens != s->drawn + 1; /* each once, in order */
    s->drawn = tokens;
}

typedef struct question {
    int32_t ids[MOST];
    int64_t n;
    dv_seen seen;
    dv_dialogue_picture picture;
    int32_t n_pictures;
    dv_generate generate;
    said alone, together;
    dv_dialogue_end end;
    int64_t tokens;
} question;

static davy_result look(const fixture *f, uint32_t seed, dv_seen *out) {
    dv_rgb8 picture = {0};
    const int64_t width = 24 + seed % 3 * 16;
    davy_result r = dv_picture_allocate(width, 24, &picture);
    for (int64_t i = 0; r == DAVY_OK && i < width * 24 * 3; i++) {
        seed = seed * 1664525u + 1013904223u;
        picture.data[i] = (uint8_t)(seed >> 24);
    }
    r = r < 0 ? r : dv_dialogue_look(&f->model, &picture, NULL, NULL, out);
    dv_picture_free(&picture);
    return r;
}

/* Every third without a picture; some sampled, some with a penalty, some ended by the caller. */
static bool make_question(const fixture *f, int i, question *q) {
    *q = (question){.n_pictures = i % 3 != 0};
    if (q->n_pictures > 0 && !CHECK_OK(look(f, (uint32_t)i, &q->seen))) {
        return false;
    }
    q->picture = (dv_dialogue_picture){.features = &q->seen.features};
    for (int k = 0; k < 2 + i % 7; k++) {
        q->ids[q->n++] = (i * 5 + k * 11) % 90;
    }
    for (int64_t k = 0; k < q->seen.features.tokens; k++) {
        q->ids[q->n++] = 90;
    }
    for (int k = 0; k < 1 + i % 4; k++) {
        q->ids[q->n++] = (i * 3 + k) % 90;
    }
    q->generate = (dv_generate){.sample = {.top_p = 1, .repetition_penalty = i % 4 == 1 ? 1.3 : 1},
                                .max_tokens = 5 + i * 7 % 75,
                                .ignore_stops = i % 2 == 0,
                                .token = keep,
                                .drawn = drawn};
    if (i % 5 == 2) {
        q->generate.sample.temperature = 0.9;
        q->generate.sample.seed = (uint64_t)i;
        q->generate.sample.top_k = 20;
    }
    q->alone.most = q->together.most = i % 6 == 5 ? 4 : 0;
    return true;
}

static void ask_alone(const fixture *f, question *q, int64_t chunk) {
    const dv_dialogue_options o = {.chunk = chunk};
    dv_dialogue *d = NULL;
    dv_generate g = q->generate;
    g.user = g.drawn_user = &q->alone;
    g.lookup = DV_LOOKUP_OFF;
    if (CHECK_OK(dv_dialogue_open(&f->model, &o, &d)) &&
        CHECK_OK(dv_dialogue_feed(d, q->ids, q->n, &q->picture, q->n_pictures))) {
        CHECK_OK(dv_dialogue_generate(d, &g, &q->tokens, &q->end));
    }
    dv_dialogue_release(d);
}

static dv_batch_question asked(question *q) {
    dv_batch_question a = {.ids = q->ids,
                           .n = q->n,
                           .pictures = &q->picture,
                           .n_pictures = q->n_pictures,
                           .generate = q->generate,
                           .tag = q};
    a.generate.user = a.generate.drawn_user = &q->together;
    return a;
}

static int64_t take_ended(dv_batch *b) {
    dv_batch_end e;
    int64_t n = 0;
    for (; dv_batch_ended(b, &e); n++) {
        const question *q = e.tag;
        CHECKF(e.end == q->end && e.tokens == q->tokens, "end %d after %d, alone %d after %d", (int)e.end,
               (int)e.tokens, (int)q->end, (int)q->tokens);
        CHECK(q->together.n == q->alone.n && q->together.drawn == q->alone.drawn && !q->together.wrong);
        CHECKF(memcmp(q->together.ids, q->alone.ids, sizeof q->alone.ids) == 0, "it says something else");
    }
    return n;
}

typedef struct way { /* of working */
    dv_batch_options o;
    int every; /* a question is asked after so many rounds; 0: all at the start */
    bool by_room;
} way;

static dv_batch_counts work(const fixture *f, question *questions, const way *w) {
    dv_batch *b = NULL;
    dv_batch_counts counts = {0};
    int64_t ended = 0;
    int next = 0;
    const uint64_t before = dv_heap_used(f->heap, DV_MEM_WORKSPACE);
    if (!CHECK_OK(dv_batch_open(&f->model, &w->o, &b))) {
        return counts;
    }
    CHECK(dv_batch_bytes(b) == dv_heap_used(f->heap, DV_MEM_WORKSPACE) - before);
    for (int round = 0; ended < QUESTIONS && round < 100000; round++) {
        while (next < QUESTIONS && (w->by_room ? dv_batch_has_room(b) : w->every == 0 || round == next * w->every)) {
            questions[next].together = (said){.most = questions[next].alone.most};
            const dv_batch_question q = asked(&questions[next++]);
            CHECK_OK(dv_batch_ask(b, &q));
        }
        if (!CHECK_OK(dv_batch_work(b))) {
            break;
        }
        ended += take_ended(b);
    }
    CHECKF(ended == QUESTIONS && dv_batch_unended(b) == 0, "%d of %d ended", (int)ended, (int)QUESTIONS);
    counts = dv_batch_count(b);
    CHECK(counts.pages_used == 0);
    dv_batch_release(b);
    return counts;
}

static const way ways[] = {
    {.o = {.tokens = 16 * MOST}},                            /* all at once */
    {.o = {.tokens = 16 * MOST}, .every = 1},                /* one after the other joins */
    {.o = {.sequences = 3, .tokens = 3 * MOST}, .every = 5}, /* they leave before others come */
    {.o = {.tokens = 16 * MOST}, .by_room = true},           /* as who looks at pictures asks */
    {.o = {.sequences = 8, .tokens = 2 * MOST}},             /* few pages: some are put back */
    {.o = {.sequences = 16, .tokens = MOST + 64}, .by_room = true},
    {.o = {.sequences = 16, .tokens = MOST}, .every = 2}, /* one whole sequence's */
    {.o = {.sequences = 1, .tokens = MOST}},
};
enum { WAYS = (int)(sizeof ways / sizeof ways[0]) };

static void test_equal(const kind *k) {
    fixture f;
    question *questions = calloc(QUESTIONS, sizeof *questions);
    bool ok = start(&f, k) && CHECK(questions != NULL);
    int64_t put_back = 0;
    for (int i = 0; ok && i < QUESTIONS; i++) {
        ok = make_question(&f, i, &questions[i]);
        if (ok) {
            ask_alone(&f, &questions[i], k->chunk);
        }
    }
    for (int i = 0; ok && i < WAYS; i++) {
        way w = ways[i];
        w.o.chunk = k->chunk;
        const dv_batch_counts c = work(&f, questions, &w);
        CHECK(c.pages_most <= dv_max(w.o.tokens, MOST) / DVK_PAGE);
        CHECKF(w.o.sequences == 1 || i > 1 || c.rows > 3 * c.passes, "way %d: %d rows in %d passes", i, (int)c.rows,
               (int)c.passes);
        put_back += c.put_back;
    }
    CHECK(!ok || put_back > 0);
    for (int i = 0; questions != NULL && i < QUESTIONS; i++) {
        dv_seen_free(&questions[i].seen);
    }
    free(questions);
    fixture_end(&f);
}

/* ---- limits ---- */

static int32_t count_down(void *user) {
    int32_t *left = user;
    return (*left)-- <= 0;
}

static void test_limits(void) {
    fixture f;
    dv_batch *b = NULL;
    question q = {.n = 0};
    int32_t left = 1000;
    const kind k = {.compute = DVK_F32};
    const dv_batch_options o = {.context = 20, .cancel = count_down, .user = &left};
    if (start(&f, &k) && CHECK_OK(dv_batch_open(&f.model, &o, &b))) {
        CHECK(dv_batch_context(b) == 20 && dv_batch_sequences(b) == DVK_FEW);
        q.n = 21;
        q.generate = (dv_generate){.sample = {.top_p = 1, .repetition_penalty = 1},
                                   .max_tokens = 50,
                                   .ignore_stops = true,
                                   .token = keep,
                                   .drawn = drawn};
        dv_batch_question a = asked(&q);
        CHECK(dv_batch_ask(b, &a) == DAVY_E_CONTEXT_FULL);
        a.n = 0;
        CHECK(dv_batch_ask(b, &a) == DAVY_E_INVALID);
        a.n = 5;
        a.generate.sample.temperature = -1;
        CHECK(dv_batch_ask(b, &a) == DAVY_E_INVALID);
        a.generate.sample.temperature = 0;
        a.generate.max_tokens = 0;
        CHECK_OK(dv_batch_ask(b, &a));
        CHECK_OK(dv_batch_work(b));
        dv_batch_end e;
        CHECK(dv_batch_ended(b, &e) && e.end == DV_END_LENGTH && e.tokens == 0 && dv_batch_unended(b) == 0);
        a.generate.max_tokens = 50; /* more than fits */
        CHECK_OK(dv_batch_ask(b, &a));
        davy_result r = DAVY_OK;
        while (r == DAVY_OK) {
            r = dv_batch_work(b);
        }
        CHECK(r == DAVY_E_CONTEXT_FULL && q.together.n == 16);
        CHECK(dv_batch_work(b) == DAVY_E_STATE);
        dv_batch_release(b);
        b = NULL;
        for (int n = 0; n < 12; n++) { /* cancelled wherever it is asked */
            q.together = (said){.n = 0};
            left = n;
            if (CHECK_OK(dv_batch_open(&f.model, &o, &b)) && CHECK_OK(dv_batch_ask(b, &a))) {
                do {
                    r = dv_batch_work(b);
                } while (r == DAVY_OK);
                CHECK(r == DAVY_E_CANCELLED && q.together.n <= n);
            }
            dv_batch_release(b);
            b = NULL;
        }
    }
    CHECK(dv_heap_used(f.heap, DV_MEM_WORKSPACE) == 0);
    fixture_end(&f);
}

/* ---- no memory ---- */

static davy_result live(const fixture *f, question *questions, int n) {
    dv_batch *b = NULL;
    const dv_batch_options o = {.sequences = 2, .tokens = MOST};
    davy_result r = dv_batch_open(&f->model, &o, &b);
    for (int i = 0; r == DAVY_OK && i < n; i++) {
        questions[i].together = (said){.most = questions[i].alone.most};
        const dv_batch_question a = asked(&questions[i]);
        r = dv_batch_ask(b, &a);
    }
    while (r == DAVY_OK && dv_batch_unended(b) > 0) {
        r = dv_batch_work(b);
        if (r == DAVY_OK) {
            take_ended(b);
        }
    }
    dv_batch_release(b);
    return r;
}

static void test_out_of_memory(bool qwen3) {
    fixture f;
    question *questions = calloc(3, sizeof *questions);
    const kind k = {.qwen3 = qwen3, .compute = DVK_F32};
    bool ok = start(&f, &k) && CHECK(questions != NULL);
    for (int i = 0; ok && i < 3; i++) {
        ok = make_question(&f, i, &questions[i]);
        if (ok) {
            ask_alone(&f, &questions[i], 0);
        }
    }
    const uint64_t before = ok ? dv_heap_used(f.heap, DV_MEM_WORKSPACE) : 0;
    davy_result r = DAVY_E_NOMEM_HOST;
    int64_t n = 0;
    for (; ok && r == DAVY_E_NOMEM_HOST && n < 10000; n++) {
        dv_alloc_fail_after(n);
        r = live(&f, questions, 3);
        dv_alloc_fail_after(-1);
        CHECK(dv_heap_used(f.heap, DV_MEM_WORKSPACE) == before);
    }
    CHECKF(!ok || (r == DAVY_OK && n > 50), "after %d allocations: %s", (int)n, dv_result_name(r));
    for (int i = 0; questions != NULL && i < 3; i++) {
        dv_seen_free(&questions[i].seen);
    }
    free(questions);
    fixture_end(&f);
}

int main(void) {
    test_pages();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        test_equal(&kinds[i]);
    }
    test_limits();
    test_out_of_memory(false);
    test_out_of_memory(true);
    return check_done();
}
