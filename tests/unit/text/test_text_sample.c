/* test_text_sample.c - the order of penalty, temperature, top-k and top-p; ties; the distribution of draws. */
#include <math.h>

#include "core/text/sample.h"
#include "tests/lib/file_check.h"

enum { DRAWS = 40000 };

static const dv_sample_options plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 7};

static dv_sampler *make(int64_t n, const dv_sample_options *o) {
    dv_sampler *s = NULL;
    CHECK_OK(dv_sampler_create(n, o, &s));
    if (s == NULL) {
        abort();
    }
    return s;
}

/* Draws follow the expected probabilities (of up to 8 ids) within five standard deviations. */
static void check_draws(const dv_sample_options *o, const float *logits, int64_t n, const int32_t *saw, int64_t n_saw,
                        const double *wanted) {
    dv_sampler *s = make(n, o);
    int counts[8] = {0};
    CHECK_OK(dv_sampler_saw(s, saw, n_saw));
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id = -1;
        if (dv_sampler_draw(s, logits, i, &id) != DAVY_OK || id < 0 || id >= n) {
            CHECKF(false, "draw %d", (int)i);
            break;
        }
        counts[id]++;
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += wanted[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const double p = wanted[i] / sum;
        const double margin = 5 * sqrt(p * (1 - p) * DRAWS);
        CHECKF(fabs(counts[i] - p * DRAWS) <= margin, "id %d: %d of %d draws, wanted %g", (int)i, counts[i], DRAWS,
               p * DRAWS);
    }
    dv_sampler_release(s);
}

static void test_greedy(void) {
    const float logits[] = {1, 3, 3, -2};
    const int32_t saw[] = {1, 1, 2};
    const int32_t never[] = {1};
    dv_sample_options o = plain;
    int32_t id = -1;
    o.temperature = 0;
    dv_sampler *s = make(4, &o);
    CHECK(dv_sampler_draw(s, logits, 0, &id) == DAVY_OK && id == 1);
    dv_sampler_release(s);
    o.repetition_penalty = 4;
    s = make(4, &o);
    CHECK_OK(dv_sampler_saw(s, saw, 1));
    CHECK(dv_sampler_draw(s, logits, 0, &id) == DAVY_OK && id == 2); /* 3/4 if seen once */
    CHECK_OK(dv_sampler_saw(s, saw, 3));
    CHECK(dv_sampler_draw(s, logits, 0, &id) == DAVY_OK && id == 0);
    dv_sampler_release(s);
    s = make(4, &o);
    const float low[] = {-1, -1.5f, -9, -9};
    const int32_t zero = 0;
    CHECK_OK(dv_sampler_saw(s, &zero, 1));
    CHECK(dv_sampler_draw(s, low, 0, &id) == DAVY_OK && id == 1); /* a negative logit is multiplied: -4 */
    dv_sampler_release(s);
    o = plain;
    o.temperature = 0;
    o.never = never;
    o.n_never = 1;
    s = make(4, &o);
    CHECK(dv_sampler_draw(s, logits, 0, &id) == DAVY_OK && id == 2);
    dv_sampler_release(s);
}

static void test_sampling(void) {
    const float logits[] = {0, 1, 2, 3, -1000};
    const double all[] = {1, exp(1), exp(2), exp(3), 0};
    check_draws(&plain, logits, 5, NULL, 0, all);
    dv_sample_options o = plain;
    o.temperature = 0.5;
    const double cold[] = {1, exp(2), exp(4), exp(6), 0};
    check_draws(&o, logits, 5, NULL, 0, cold);
    o = plain;
    o.top_k = 2;
    const double two[] = {0, 0, exp(2), exp(3), 0};
    check_draws(&o, logits, 5, NULL, 0, two);
    o.top_k = 100;
    check_draws(&o, logits, 5, NULL, 0, all);
    o = plain;
    o.top_p = 0.65; /* 0.644 for id 3 alone, so id 2 joins */
    check_draws(&o, logits, 5, NULL, 0, two);
    o.top_p = 0.64;
    const double one[] = {0, 0, 0, 1, 0};
    check_draws(&o, logits, 5, NULL, 0, one);
    o.top_k = 3;
    o.top_p = 0.7; /* after top-k: 0.665 for id 3 */
    check_draws(&o, logits, 5, NULL, 0, two);
    o.top_p = 1e-9;
    check_draws(&o, logits, 5, NULL, 0, one);
    o = plain;
    o.repetition_penalty = 2;
    const int32_t saw[] = {3, 4};
    const double tired[] = {1, exp(1), exp(2), exp(1.5), 0};
    check_draws(&o, logits, 5, saw, 2, tired);
    o = plain;
    o.top_k = 1 + 1;
    const float ties[] = {2, 5, 2, 2}; /* those not below the second largest */
    const double tied[] = {exp(2), exp(5), exp(2), exp(2)};
    check_draws(&o, ties, 4, NULL, 0, tied);
}

static void test_min_p(void) {
    const float logits[] = {0, 1, 2, 3, -1000};
    dv_sample_options o = plain;
    o.min_p = 0.3; /* relative to the most likely: exp(-1) = 0.37 stays, exp(-2) = 0.14 does not */
    const double two[] = {0, 0, exp(2), exp(3), 0};
    check_draws(&o, logits, 5, NULL, 0, two);
    o.top_k = 4;
    check_draws(&o, logits, 5, NULL, 0, two);
    o.top_p = 0.64; /* leaves one id, for any min_p */
    o.min_p = 1;
    const double one[] = {0, 0, 0, 1, 0};
    check_draws(&o, logits, 5, NULL, 0, one);
}

/* The most likely id each time; it counts as seen at once. */
static void check_chain(int64_t ngram, const int32_t *before, int64_t n_before, const int32_t *wanted, int64_t n) {
    const float logits[] = {5, 4, 3, 2};
    dv_sample_options o = plain;
    o.temperature = 0;
    o.no_repeat_ngram = ngram;
    dv_sampler *s = make(4, &o);
    CHECK_OK(dv_sampler_saw(s, before, n_before));
    for (int64_t i = 0; i < n; i++) {
        int32_t id = -1;
        CHECK_OK(dv_sampler_draw(s, logits, (uint64_t)i, &id));
        CHECKF(id == wanted[i], "%d-grams: id %d at %d, wanted %d", (int)ngram, (int)id, (int)i, (int)wanted[i]);
        CHECK_OK(dv_sampler_saw(s, &id, 1));
    }
    dv_sampler_release(s);
}

/* As in transformers' NoRepeatNGramLogitsProcessor. */
static void test_ngrams(void) {
    static const int32_t prompt[] = {0, 1, 0};
    static const int32_t one[] = {0, 1, 2, 3};
    static const int32_t two[] = {0, 0, 1, 0, 2, 0, 3, 0};
    static const int32_t three[] = {0, 0, 0, 1, 0, 0, 2};
    static const int32_t after[] = {0, 2, 0, 3, 0}; /* 0 1 and 1 0 are taken, then 0 0 */
    check_chain(0, NULL, 0, (const int32_t[]){0, 0, 0}, 3);
    check_chain(1, NULL, 0, one, 4);
    check_chain(2, NULL, 0, two, 8);
    check_chain(3, NULL, 0, three, 7);
    check_chain(2, prompt, 3, after, 5);
}

static void test_determinism(void) {
    const float logits[] = {0, 0, 0, 0, 0, 0, 0, 0};
    dv_sample_options o = plain;
    dv_sampler *a = make(8, &o);
    o.seed = 8;
    dv_sampler *b = make(8, &o);
    int32_t x[64];
    int same = 0;
    for (uint64_t i = 64; i-- > 0;) {
        CHECK_OK(dv_sampler_draw(a, logits, i, &x[i]));
    }
    for (uint64_t i = 0; i < 64; i++) {
        int32_t again = -1;
        int32_t other = -1;
        CHECK_OK(dv_sampler_draw(a, logits, i, &again));
        CHECK_OK(dv_sampler_draw(b, logits, i, &other));
        CHECK(again == x[i]);
        same += other == x[i];
    }
    CHECKF(same < 30, "%d of 64 draws are the same with another seed", same);
    dv_sampler_release(a);
    dv_sampler_release(b);
}

static void test_refused(void) {
    dv_sampler *s = NULL;
    static const struct {
        double temperature, top_p, penalty;
        int64_t top_k;
    } bad[] = {{-1, 1, 1, 0},  {NAN, 1, 1, 0}, {1, 0, 1, 0}, {1, 1.5, 1, 0},
               {1, NAN, 1, 0}, {1, 1, 0, 0},   {1, 1, 1, -1}};
    for (size_t i = 0; i < DV_ARRAY_LEN(bad); i++) {
        const dv_sample_options o = {.temperature = bad[i].temperature,
                                     .top_p = bad[i].top_p,
                                     .repetition_penalty = bad[i].penalty,
                                     .top_k = bad[i].top_k};
        CHECK_FAILS(dv_sampler_create(4, &o, &s), DAVY_E_INVALID, "temperature");
    }
    const float broken[] = {1, NAN, 2, 3};
    const float none[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const float huge[] = {1, INFINITY, 2, 3};
    const int32_t outside[] = {4};
    int32_t id = 0;
    CHECK(s == NULL);
    const dv_sample_options least = {
        .temperature = 1, .top_p = 1, .repetition_penalty = (double)0.01f}; /* a float from a caller */
    dv_sampler_release(make(4, &least));
    s = make(4, &plain);
    CHECK_FAILS(dv_sampler_draw(s, broken, 0, &id), DAVY_E_INTERNAL, "NaN");
    CHECK_FAILS(dv_sampler_draw(s, none, 0, &id), DAVY_E_INTERNAL, "no finite value");
    CHECK_FAILS(dv_sampler_draw(s, huge, 0, &id), DAVY_E_INTERNAL, "no finite value");
    CHECK_FAILS(dv_sampler_saw(s, outside, 1), DAVY_E_INVALID, "id 4 is outside");
    dv_sampler_release(s);
}

/* A sampler that gets only the logits not below a bound (ids ascending) draws the same id as from all, or reports
 * that they are too few. */
static int64_t check_few(dv_sampler *s, const float *logits, int64_t n, float bound, uint64_t index) {
    int32_t ids[4096];
    float largest[4096];
    dv_sample_few few = {.ids = ids, .logits = largest, .bound = bound};
    int32_t all_say = -1;
    int32_t few_say = -1;
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] >= bound) {
            ids[few.n] = (int32_t)i;
            largest[few.n++] = logits[i];
        }
    }
    CHECK_OK(dv_sampler_draw_few(s, &few, index, &few_say));
    CHECK_OK(dv_sampler_draw(s, logits, index, &all_say));
    CHECKF(few_say < 0 || few_say == all_say, "draw %d of those above %g: %d, of all: %d", (int)index, (double)bound,
           (int)few_say, (int)all_say);
    return few_say >= 0;
}

static void test_few(void) {
    enum { N = 4096 };
    static float logits[N];
    static int32_t saw[N / 4];
    static const dv_sample_options kinds[] = {
        {.temperature = 1, .top_k = 40, .top_p = 1, .repetition_penalty = 1, .seed = 3},
        {.temperature = 0.7, .top_k = 64, .top_p = 0.9, .repetition_penalty = 1.3, .seed = 4},
        {.temperature = 1.5,
         .top_k = 20,
         .top_p = 1,
         .min_p = 0.05,
         .repetition_penalty = 2,
         .no_repeat_ngram = 1,
         .seed = 5},
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1.5},
        {.temperature = 1, .top_k = 1, .top_p = 1, .repetition_penalty = 1}};
    int64_t enough = 0;
    int64_t draws = 0;
    for (size_t k = 0; k < DV_ARRAY_LEN(kinds); k++) {
        dv_sampler *s = make(N, &kinds[k]);
        CHECK(dv_sample_takes_few(&kinds[k]));
        uint32_t x = 12345;
        for (int i = 0; i < N; i++) {
            x = x * 1664525u + 1013904223u;
            logits[i] = k == 0 ? (float)(x >> 28) : (float)(x >> 8) / 1e6f - 8.0f; /* many equal values, or none */
        }
        for (int i = 0; i < N / 4; i++) {
            saw[i] = i * 4;
        }
        CHECK_OK(dv_sampler_saw(s, saw, k == 2 ? 16 : N / 4));
        for (uint64_t i = 0; i < 200; i++) {
            enough += check_few(s, logits, N, k == 0 ? 14.0f : i % 2 ? 8.0f : 5.0f, i);
            enough += check_few(s, logits, N, 8.7f, i);
            draws += 2;
        }
        dv_sampler_release(s);
    }
    CHECKF(enough > draws / 4 && enough < draws, "%d of %d", (int)enough, (int)draws);
    const dv_sample_options all = {.temperature = 1, .top_p = 0.9, .repetition_penalty = 1};
    const dv_sample_options raised = {.temperature = 1, .top_k = 5, .top_p = 1, .repetition_penalty = 0.9};
    CHECK(!dv_sample_takes_few(&all) && !dv_sample_takes_few(&raised));
}

int main(void) {
    test_greedy();
    test_few();
    test_sampling();
    test_min_p();
    test_ngrams();
    test_determinism();
    test_refused();
    return check_done();
}
