/* added.c - added tokens: looked for in the text before anything else is done with it, leftmost first and the longest of
 * those that start at one place. The patterns lie sorted, so those that share a beginning are neighbours and a byte
 * narrows the range of candidates. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

static int compare(const dv_tokenizer *t, uint32_t a, uint32_t b) {
    const dv_added *x = &t->added[a];
    const dv_added *y = &t->added[b];
    const uint32_t n = x->pattern_bytes < y->pattern_bytes ? x->pattern_bytes : y->pattern_bytes;
    const int order = memcmp(t->bytes + x->pattern_at, t->bytes + y->pattern_at, n);
    return order != 0 ? order : (x->pattern_bytes > y->pattern_bytes) - (x->pattern_bytes < y->pattern_bytes);
}

/* Heap sort: qsort has no room for the tokenizer, and there may be a hundred thousand. */
static void sift(const dv_tokenizer *t, uint32_t *order, uint32_t i, uint32_t n) {
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) {
            return;
        }
        child += child + 1 < n && compare(t, order[child + 1], order[child]) > 0;
        if (compare(t, order[i], order[child]) >= 0) {
            return;
        }
        const uint32_t moved = order[i];
        order[i] = order[child];
        order[child] = moved;
        i = child;
    }
}

static void sort(const dv_tokenizer *t, uint32_t *order, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;) {
        sift(t, order, i, n);
    }
    for (uint32_t last = n; last-- > 1;) {
        const uint32_t moved = order[0];
        order[0] = order[last];
        order[last] = moved;
        sift(t, order, 0, last);
    }
}

davy_result dv_added_set_make(const dv_tokenizer *t, bool normalized, dv_added_set *set) {
    set->order = dv_calloc((uint64_t)t->n_added + 1, sizeof *set->order);
    if (set->order == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for its added tokens", t->where);
    }
    for (int64_t i = 0; i < t->n_added; i++) {
        if (t->added[i].normalized == normalized) {
            set->order[set->n++] = (uint32_t)i;
        }
    }
    sort(t, set->order, set->n);
    for (uint32_t i = 0; i < set->n; i++) {
        set->first[t->bytes[t->added[set->order[i]].pattern_at] + 1]++;
        if (i > 0 && compare(t, set->order[i - 1], set->order[i]) == 0) {
            return dv_fail(DAVY_E_FORMAT, "%s: added_tokens[%u] and [%u] stand for the same text", t->where,
                           (unsigned)set->order[i - 1], (unsigned)set->order[i]);
        }
    }
    for (int b = 0; b < 256; b++) {
        set->first[b + 1] += set->first[b];
    }
    return DAVY_OK;
}

const dv_added *dv_added_find(const dv_tokenizer *t, dv_name content) {
    for (int64_t i = 0; i < t->n_added; i++) {
        const dv_added *a = &t->added[i];
        if (a->bytes == content.bytes && memcmp(t->bytes + a->at, content.p, a->bytes) == 0) {
            return a;
        }
    }
    return NULL;
}

/* The longest pattern at p; NULL: none. */
static const dv_added *match(const dv_tokenizer *t, const dv_added_set *set, const uint8_t *p, uint64_t left) {
    uint32_t low = set->first[p[0]];
    uint32_t high = set->first[p[0] + 1];
    const dv_added *found = NULL;
    for (uint64_t depth = 1; low < high; depth++) {
        const dv_added *shortest = &t->added[set->order[low]];
        if (shortest->pattern_bytes == depth) {
            found = shortest;
            low++;
        }
        if (depth == left) {
            break;
        }
        uint32_t from[2]; /* the first candidates whose next byte is not below p[depth], and above it */
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t a = low;
            uint32_t b = high;
            while (a < b) {
                const uint32_t mid = (a + b) / 2;
                if ((uint32_t)t->bytes[t->added[set->order[mid]].pattern_at + depth] < p[depth] + k) {
                    a = mid + 1;
                } else {
                    b = mid;
                }
            }
            from[k] = a;
        }
        low = from[0];
        high = from[1];
    }
    return found;
}

static uint32_t class_at(const uint8_t *p, uint64_t at, uint32_t *n) {
    return dv_uc_class(dv_utf8_next(p + at, n));
}

static uint64_t before(const uint8_t *p, uint64_t at) { /* the start of the character that ends there; at > 0 */
    do {
        at--;
    } while ((p[at] & 0xc0) == 0x80);
    return at;
}

static bool alone(const uint8_t *p, uint64_t bytes, uint64_t from, uint64_t to) {
    uint32_t n = 0;
    return !(from > 0 && (class_at(p, before(p, from), &n) & DV_UC_WORD) != 0) &&
           !(to < bytes && (class_at(p, to, &n) & DV_UC_WORD) != 0);
}

static bool guarded(const dv_guard *guard, const dv_added *a, uint64_t from, uint64_t to) {
    if (!a->special || guard->everywhere) {
        return a->special;
    }
    int64_t low = 0; /* the first span that ends after `from` */
    int64_t high = guard->n;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (guard->spans[mid].to <= from) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < guard->n && guard->spans[low].from < to;
}

/* The white space around the token that it takes along. Whatever an earlier token has taken stays with that. */
static void widen(const dv_added *a, const uint8_t *p, uint64_t bytes, uint64_t taken, uint64_t *from, uint64_t *to) {
    uint32_t n = 0;
    if (a->lstrip) {
        uint64_t start = *from;
        while (start > 0 && (class_at(p, before(p, start), &n) & DV_UC_SPACE) != 0) {
            start = before(p, start);
        }
        *from = start > taken ? start : taken;
    }
    while (a->rstrip && *to < bytes && (class_at(p, *to, &n) & DV_UC_SPACE) != 0) {
        *to += n;
    }
}

davy_result dv_added_split(const dv_tokenizer *t, const dv_added_set *set, const char *text, uint64_t bytes,
                           const dv_guard *guard, dv_part_fn part, void *user) {
    const uint8_t *p = (const uint8_t *)text;
    davy_result r = DAVY_OK;
    uint64_t done = 0;
    for (uint64_t at = 0; r == DAVY_OK && set->n > 0 && at < bytes;) {
        const dv_added *a = match(t, set, p + at, bytes - at);
        if (a == NULL) {
            at++;
            continue;
        }
        uint64_t from = at;
        uint64_t to = at + a->pattern_bytes;
        at = to;
        if (guarded(guard, a, from, to) || (a->single_word && !alone(p, bytes, from, to))) {
            continue;
        }
        widen(a, p, bytes, done, &from, &to);
        if (done < from) {
            r = part(user, NULL, done, from - done);
        }
        r = r < 0 ? r : part(user, a, from, to - from);
        done = to;
    }
    return r < 0 || done >= bytes ? r : part(user, NULL, done, bytes - done);
}
