/* vlm_together.c - see vlm_together.h. */
#include "tests/lib/vlm_together.h"

/* ---- what a sequence says ---- */

int32_t keep(void *user, int32_t id) {
    said *s = user;
    s->ids[s->n++] = id;
    return s->most > 0 && s->n >= s->most;
}

void drawn(void *user, int64_t tokens) {
    said *s = user;
    s->wrong = s->wrong || tokens != s->drawn + 1; /* each once, in order */
    s->drawn = tokens;
}

static davy_result see(const fixture *f, uint32_t seed, dv_encoded *out) {
    dv_rgb8 picture = {0};
    const int64_t width = 24 + seed % 3 * 16;
    davy_result r = dv_picture_allocate(width, 24, &picture);
    for (int64_t i = 0; r == DAVY_OK && i < width * 24 * 3; i++) {
        seed = seed * 1664525u + 1013904223u;
        picture.data[i] = (uint8_t)(seed >> 24);
    }
    r = r < 0 ? r : dv_encode_image(&f->model, &picture, NULL, NULL, out);
    dv_picture_free(&picture);
    return r;
}

bool make_question(const fixture *f, int i, question *q) {
    *q = (question){.n_pictures = i % 3 != 0};
    if (q->n_pictures > 0 && !CHECK_OK(see(f, (uint32_t)i, &q->seen))) {
        return false;
    }
    q->picture = (dv_session_picture){.features = &q->seen.features};
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

void ask_alone(const fixture *f, question *q, int64_t chunk) {
    const dv_session_options o = {.chunk = chunk};
    dv_session *d = NULL;
    dv_generate g = q->generate;
    g.user = g.drawn_user = &q->alone;
    g.lookup = DV_LOOKUP_OFF;
    if (CHECK_OK(dv_session_open(&f->model, &o, &d)) &&
        CHECK_OK(dv_session_feed(d, q->ids, q->n, &q->picture, q->n_pictures))) {
        CHECK_OK(dv_session_generate(d, &g, &q->tokens, &q->end));
    }
    dv_session_release(d);
}

dv_batch_question asked(question *q) {
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
    bool by_room, read_first;
} way;

/* Memory that the model's batches are in. */
static uint64_t memory_used(const fixture *f) {
    return f->model.gpu != NULL ? dv_gpu_used(f->model.gpu, DV_MEM_WORKSPACE) : dv_heap_used(f->heap, DV_MEM_WORKSPACE);
}

static dv_batch_counts work(const fixture *f, question *questions, int n, const way *w) {
    dv_batch *b = NULL;
    dv_batch_counts counts = {0};
    int64_t ended = 0;
    int next = 0;
    const uint64_t before = memory_used(f);
    if (!CHECK_OK(dv_batch_open(&f->model, &w->o, &b))) {
        return counts;
    }
    CHECK(f->model.gpu != NULL || dv_batch_bytes(b) == memory_used(f) - before);
    for (int round = 0; ended < n && round < 100000; round++) {
        while (next < n && (w->by_room ? dv_batch_has_room(b) : w->every == 0 || round == next * w->every)) {
            questions[next].together = (said){.most = questions[next].alone.most};
            const dv_batch_question q = asked(&questions[next++]);
            CHECK_OK(dv_batch_ask(b, &q));
        }
        bool more = w->read_first;
        while (more && CHECK_OK(dv_batch_read(b, &more))) {
        }
        if (!CHECK_OK(dv_batch_work(b))) {
            break;
        }
        ended += take_ended(b);
    }
    CHECKF(ended == n && dv_batch_unended(b) == 0, "%d of %d ended", (int)ended, n);
    counts = dv_batch_count(b);
    CHECK(counts.pages_used == 0);
    dv_batch_release(b);
    return counts;
}

davy_result ask_until_error(const fixture *f, question *questions, int n) {
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

static const way ways[] = {
    {.o = {.tokens = 16 * MOST}},                            /* all at once */
    {.o = {.tokens = 16 * MOST}, .every = 1},                /* one after the other joins */
    {.o = {.sequences = 3, .tokens = 3 * MOST}, .every = 5}, /* they leave before others come */
    {.o = {.tokens = 16 * MOST}, .by_room = true},           /* as who looks at pictures asks */
    {.o = {.sequences = 8, .tokens = 2 * MOST}},             /* few pages: some are put back */
    {.o = {.sequences = 16, .tokens = MOST + 64}, .by_room = true, .read_first = true},
    {.o = {.sequences = 16, .tokens = MOST}, .every = 2}, /* one whole sequence's */
    {.o = {.sequences = 1, .tokens = MOST}},
    {.o = {.tokens = 16 * MOST}, .read_first = true},
};
enum { WAYS = (int)(sizeof ways / sizeof ways[0]) };

void test_ways(const fixture *f, int64_t chunk, int n) {
    question *questions = calloc((size_t)n, sizeof *questions);
    bool ok = CHECK(questions != NULL);
    int64_t put_back = 0;
    for (int i = 0; ok && i < n; i++) {
        ok = make_question(f, i, &questions[i]);
        if (ok) {
            ask_alone(f, &questions[i], chunk);
        }
    }
    for (int i = 0; ok && i < WAYS; i++) {
        way w = ways[i];
        w.o.chunk = chunk;
        const dv_batch_counts c = work(f, questions, n, &w);
        CHECK(c.pages_most <= dv_max(w.o.tokens, MOST) / DVK_PAGE);
        CHECKF(w.o.sequences == 1 || i > 1 || c.rows > 3 * c.passes, "way %d: %d rows in %d passes", i, (int)c.rows,
               (int)c.passes);
        put_back += c.put_back;
    }
    CHECK(!ok || put_back > 0);
    for (int i = 0; questions != NULL && i < n; i++) {
        dv_encoded_free(&questions[i].seen);
    }
    free(questions);
}
