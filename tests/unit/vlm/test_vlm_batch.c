/* test_vlm_batch.c - the answers of a batch equal those of each sequence alone, bit for bit. Pages are taken and freed, and
 * sequences join, leave and lose their pages at any token. */
#include "core/vlm/batch_pages.h"
#include "core/vlm/decoder.h"
#include "tests/lib/vlm_kinds.h"
#include "tests/lib/vlm_together.h"
#include "tests/lib/hooks.h"

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

static void test_equal(const kind *k) {
    fixture f;
    if (kind_start(&f, k)) {
        test_ways(&f, k->chunk, 40);
    }
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
    if (kind_start(&f, &k) && CHECK_OK(dv_batch_open(&f.model, &o, &b))) {
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
        for (int n = 0; n < 12; n++) { /* cancelled at each poll */
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

static void test_out_of_memory(bool qwen3) {
    fixture f;
    question *questions = calloc(3, sizeof *questions);
    const kind k = {.qwen3 = qwen3, .compute = DVK_F32};
    bool ok = kind_start(&f, &k) && CHECK(questions != NULL);
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
        r = ask_until_error(&f, questions, 3);
        dv_alloc_fail_after(-1);
        CHECK(dv_heap_used(f.heap, DV_MEM_WORKSPACE) == before);
    }
    CHECKF(!ok || (r == DAVY_OK && n > 50), "after %d allocations: %s", (int)n, dv_result_name(r));
    for (int i = 0; questions != NULL && i < 3; i++) {
        dv_encoded_free(&questions[i].seen);
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
