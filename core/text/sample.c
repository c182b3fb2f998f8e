/* sample.c - see sample.h. A heap yields the candidates, largest first, so that only the candidates that top-k and top-p need
 * are sorted. Logits are float, as in the reference (transformers); sums are double. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/sample.h"
#include "kernels/normal.h"

struct dv_sampler {
    dv_sample_options o;
    int64_t vocabulary;
    int32_t *never;
    uint8_t *seen;
    int32_t *seen_ids;
    int64_t n_seen;
    int32_t *history; /* with no_repeat_ngram: all seen ids, in order */
    int64_t n_history, history_room;
    float *scores;
    int32_t *heap; /* ids */
    double *sums;  /* of probabilities up to each candidate */
    int64_t n_heap;
};

static davy_result check_options(int64_t vocabulary, const dv_sample_options *o) {
    const bool ok = o->temperature >= 0 && o->temperature <= 100 && o->top_k >= 0 && o->top_p > 0 && o->top_p <= 1 &&
                    o->repetition_penalty >= (double)0.01f && o->repetition_penalty <= 100 && o->min_p >= 0 &&
                    o->min_p <= 1 && o->no_repeat_ngram >= 0 && vocabulary > 0 && vocabulary <= INT32_MAX;
    if (!ok) {
        return dv_fail(DAVY_E_INVALID,
                       "a sampling option is out of range: temperature %g (0 to 100), top_k %" PRId64
                       " (0 or more), top_p %g (above 0, up to 1), repetition_penalty %g (0.01 to 100), "
                       "min_p %g (0 to 1), no_repeat_ngram %" PRId64 " (0 or more)",
                       o->temperature, o->top_k, o->top_p, o->repetition_penalty, o->min_p, o->no_repeat_ngram);
    }
    for (int64_t i = 0; i < o->n_never; i++) {
        if (o->never[i] < 0 || o->never[i] >= vocabulary) {
            return dv_fail(DAVY_E_INVALID, "id %" PRId32 " is outside the vocabulary of %" PRId64, o->never[i],
                           vocabulary);
        }
    }
    return DAVY_OK;
}

davy_result dv_sampler_create(int64_t vocabulary, const dv_sample_options *options, dv_sampler **out) {
    const davy_result r = check_options(vocabulary, options);
    if (r < 0) {
        return r;
    }
    const uint64_t n = (uint64_t)vocabulary;
    dv_sampler *s = dv_calloc(1, sizeof *s);
    if (s != NULL) {
        s->o = *options;
        s->vocabulary = vocabulary;
        s->never = dv_calloc((uint64_t)options->n_never, sizeof *s->never);
        s->seen = dv_calloc(n, 1);
        s->seen_ids = dv_calloc(n, sizeof *s->seen_ids);
        s->scores = dv_calloc(n, sizeof *s->scores);
        s->heap = dv_calloc(n, sizeof *s->heap);
        s->sums = dv_calloc(n, sizeof *s->sums);
    }
    if (s == NULL || s->never == NULL || s->seen == NULL || s->seen_ids == NULL || s->scores == NULL ||
        s->heap == NULL || s->sums == NULL) {
        dv_sampler_release(s);
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for sampling from %" PRId64 " tokens", vocabulary);
    }
    if (options->n_never > 0) {
        memcpy(s->never, options->never, (size_t)options->n_never * sizeof *s->never);
    }
    s->o.never = s->never;
    *out = s;
    return DAVY_OK;
}

void dv_sampler_release(dv_sampler *s) {
    if (s == NULL) {
        return;
    }
    dv_free(s->never);
    dv_free(s->seen);
    dv_free(s->seen_ids);
    dv_free(s->history);
    dv_free(s->scores);
    dv_free(s->heap);
    dv_free(s->sums);
    dv_free(s);
}

const dv_sample_options *dv_sampler_options(const dv_sampler *s) {
    return &s->o;
}

davy_result dv_sampler_saw(dv_sampler *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocabulary) {
            return dv_fail(DAVY_E_INVALID, "id %" PRId32 " is outside the vocabulary of %" PRId64, ids[i],
                           s->vocabulary);
        }
        if (s->seen[ids[i]] == 0) {
            s->seen[ids[i]] = 1;
            s->seen_ids[s->n_seen++] = ids[i];
        }
    }
    if (s->o.no_repeat_ngram > 0 && n > 0) {
        int32_t *grown = dv_grow(s->history, s->n_history + n, &s->history_room, sizeof *grown);
        if (grown == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for %" PRId64 " tokens", s->n_history + n);
        }
        s->history = grown;
        memcpy(grown + s->n_history, ids, (size_t)n * sizeof *grown);
        s->n_history += n;
    }
    return DAVY_OK;
}

/* ---- scores ---- */

/* Forbids each id that followed an earlier occurrence of the last n - 1 ids. */
static void forbid_repeated(dv_sampler *s) {
    const int64_t n = s->o.no_repeat_ngram;
    const int32_t *last = s->history + s->n_history - (n - 1);
    for (int64_t i = 0; n > 0 && i + n <= s->n_history; i++) {
        if (memcmp(s->history + i, last, (size_t)(n - 1) * sizeof *last) == 0) {
            s->scores[s->history[i + n - 1]] = -INFINITY;
        }
    }
}

static davy_result set_scores(dv_sampler *s, const float *logits, int32_t *best) {
    const float penalty = (float)s->o.repetition_penalty;
    memcpy(s->scores, logits, (size_t)s->vocabulary * sizeof *logits);
    for (int64_t i = 0; i < s->n_seen && penalty != 1.0f; i++) {
        float *z = &s->scores[s->seen_ids[i]];
        *z = *z > 0 ? *z / penalty : *z * penalty;
    }
    for (int64_t i = 0; i < s->o.n_never; i++) {
        s->scores[s->never[i]] = -INFINITY;
    }
    if (s->n_history > 0) {
        forbid_repeated(s);
    }
    int64_t at = 0;
    bool broken = false;
    for (int64_t i = 0; i < s->vocabulary; i++) {
        broken = broken || isnan(s->scores[i]);
        at = s->scores[i] > s->scores[at] ? i : at;
    }
    if (broken || !isfinite(s->scores[at])) {
        return dv_fail(DAVY_E_INTERNAL, "the model's logits contain %s", broken ? "NaN" : "no finite value");
    }
    *best = (int32_t)at;
    return DAVY_OK;
}

/* ---- the heap: the largest score on top; of equal scores the lowest id ---- */

static bool before(const dv_sampler *s, int32_t a, int32_t b) {
    return s->scores[a] > s->scores[b] || (s->scores[a] == s->scores[b] && a < b);
}

static void sift(dv_sampler *s, int64_t i) {
    const int32_t moved = s->heap[i];
    for (int64_t child = 2 * i + 1; child < s->n_heap; child = 2 * i + 1) {
        child += child + 1 < s->n_heap && before(s, s->heap[child + 1], s->heap[child]);
        if (!before(s, s->heap[child], moved)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = moved;
}

static void heap_make(dv_sampler *s) {
    s->n_heap = 0;
    for (int64_t i = 0; i < s->vocabulary; i++) {
        if (s->scores[i] > -INFINITY) {
            s->heap[s->n_heap++] = (int32_t)i;
        }
    }
    for (int64_t i = s->n_heap / 2; i-- > 0;) {
        sift(s, i);
    }
}

/* Moves the top to just after the heap's new end, where the sorted candidates collect. */
static int32_t heap_pop(dv_sampler *s) {
    const int32_t top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    s->heap[s->n_heap] = top;
    if (s->n_heap > 0) {
        sift(s, 0);
    }
    return top;
}

/* ---- drawing ---- */

static double weight(const dv_sampler *s, int32_t id, int32_t best) {
    return exp(((double)s->scores[id] - (double)s->scores[best]) / s->o.temperature);
}

/* Sorts the candidates of top-k to the end of s->heap, the smallest first, with running sums in s->sums. Returns their
 * number. */
static int64_t take_sorted(dv_sampler *s, int32_t best) {
    const int64_t all = s->n_heap;
    const int64_t k = s->o.top_k > 0 ? dv_min(s->o.top_k, all) : all;
    /* Without top-k, top-p needs the total of all weights before the sort. */
    double total = 0;
    for (int64_t i = 0; s->o.top_k == 0 && i < all; i++) {
        total += weight(s, s->heap[i], best);
    }
    const double enough = s->o.top_k == 0 ? s->o.top_p * total : INFINITY;
    double sum = 0;
    int64_t n = 0;
    while (s->n_heap > 0 && sum < enough && (n < k || s->scores[s->heap[0]] == s->scores[s->heap[s->n_heap]])) {
        sum += weight(s, heap_pop(s), best);
        s->sums[n++] = sum;
    }
    return n;
}

static int64_t cut_top_p(const dv_sampler *s, int64_t n) {
    const double enough = s->o.top_p * s->sums[n - 1];
    int64_t kept = 1;
    while (s->o.top_p < 1 && kept < n && s->sums[kept - 1] < enough) {
        kept++;
    }
    return s->o.top_p < 1 ? kept : n;
}

/* Applies min-p to n sorted candidates, of which heap[all - n] is the smallest. Returns the number left. */
static int64_t cut_min_p(const dv_sampler *s, int64_t all, int64_t n, int32_t best) {
    while (n > 1 && weight(s, s->heap[all - n], best) < s->o.min_p) {
        n--;
    }
    return n;
}

static double uniform(uint64_t seed, uint64_t index) { /* in (0, 1) */
    uint32_t word[4];
    dvk_philox(seed, UINT64_C(0x73616d706c65), index, word); /* a separate stream: noise uses others */
    return ((double)word[0] + ((double)word[1] + 0.5) / 4294967296.0) / 4294967296.0;
}

static int32_t draw_all(dv_sampler *s, int32_t best, double u) {
    double sum = 0;
    for (int64_t i = 0; i < s->vocabulary; i++) {
        const double w = s->scores[i] > -INFINITY ? weight(s, (int32_t)i, best) : 0;
        sum += w >= s->o.min_p ? w : 0;
        s->sums[i] = sum;
    }
    for (int64_t i = 0; i < s->vocabulary; i++) {
        if (s->sums[i] > u * sum) {
            return (int32_t)i;
        }
    }
    return best;
}

/* Draws from n sorted candidates, of which heap[all - n] is the smallest. */
static int32_t draw_sorted(const dv_sampler *s, int64_t all, int64_t n, int32_t best, double u) {
    n = s->o.top_k > 0 ? cut_top_p(s, n) : n;
    n = cut_min_p(s, all, n, best);
    for (int64_t i = 0; i < n; i++) {
        if (s->sums[i] > u * s->sums[n - 1]) {
            return s->heap[all - 1 - i];
        }
    }
    return best;
}

davy_result dv_sampler_draw(dv_sampler *s, const float *logits, uint64_t index, int32_t *id) {
    int32_t best = 0;
    const davy_result r = set_scores(s, logits, &best);
    if (r < 0) {
        return r;
    }
    *id = best;
    if (s->o.temperature == 0 || s->o.top_k == 1) {
        return DAVY_OK;
    }
    const double u = uniform(s->o.seed, index);
    if (s->o.top_k == 0 && s->o.top_p >= 1) {
        *id = draw_all(s, best, u);
        return DAVY_OK;
    }
    heap_make(s);
    const int64_t all = s->n_heap;
    *id = draw_sorted(s, all, take_sorted(s, best), best, u);
    return DAVY_OK;
}

/* ---- a few of the logits ---- */

bool dv_sample_takes_few(const dv_sample_options *o) {
    return (o->temperature == 0 || (o->top_k > 0 && o->top_k <= DV_SAMPLE_FEW)) && o->repetition_penalty >= 1;
}

/* As set_scores and heap_make, for a few logits. All other scores are below the bound. */
static void take_few(dv_sampler *s, const dv_sample_few *few) {
    const float penalty = (float)s->o.repetition_penalty;
    for (int64_t i = 0; i < few->n; i++) {
        const int32_t id = few->ids[i];
        const float z = few->logits[i];
        s->scores[id] = penalty == 1.0f || s->seen[id] == 0 ? z : z > 0 ? z / penalty : z * penalty;
    }
    for (int64_t i = 0; i < s->o.n_never; i++) {
        s->scores[s->never[i]] = -INFINITY;
    }
    if (s->n_history > 0) {
        forbid_repeated(s);
    }
    s->n_heap = 0;
    for (int64_t i = 0; i < few->n; i++) {
        if (s->scores[few->ids[i]] > -INFINITY) {
            s->heap[s->n_heap++] = few->ids[i];
        }
    }
    for (int64_t i = s->n_heap / 2; i-- > 0;) {
        sift(s, i);
    }
}

davy_result dv_sampler_draw_few(dv_sampler *s, const dv_sample_few *few, uint64_t index, int32_t *id) {
    *id = -1;
    take_few(s, few);
    const int64_t all = s->n_heap;
    if (all == 0) {
        return DAVY_OK;
    }
    const int32_t best = s->heap[0];
    if (!isfinite(s->scores[best])) {
        return dv_fail(DAVY_E_INTERNAL, "the model's logits contain no finite value");
    }
    const bool one = s->o.temperature == 0 || s->o.top_k == 1;
    const int64_t n = one ? 1 : take_sorted(s, best);
    const int32_t last = one ? best : s->heap[all - n];
    if (s->scores[last] < few->bound || (!one && n < s->o.top_k)) {
        return DAVY_OK;
    }
    *id = one ? best : draw_sorted(s, all, n, best, uniform(s->o.seed, index));
    return DAVY_OK;
}
