/* merges.c - which two tokens become which: a table by pair, filled from a file's list and checked. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/text/tokenizer_priv.h"

enum { SHOWN = 48 };

static dv_merge *merge_slot(const dv_tokenizer *t, uint32_t left, uint32_t right) {
    const uint64_t h = (left * UINT64_C(0x9e3779b1) + right) * DV_GOLDEN;
    uint32_t i = (uint32_t)(h >> 40) & t->merge_mask;
    for (int probe = 0; probe < DV_MAX_PROBES; probe++, i = (i + 1) & t->merge_mask) {
        dv_merge *m = &t->merges[i];
        if (m->left == DV_NO_MERGE || (m->left == left && m->right == right)) {
            return m;
        }
    }
    return NULL;
}

const dv_merge *dv_merge_find(const dv_tokenizer *t, uint32_t left, uint32_t right) {
    const dv_merge *m = merge_slot(t, left, right);
    return m != NULL && m->left != DV_NO_MERGE ? m : NULL;
}

static davy_result refuse_merge(const dv_tokenizer *t, int64_t index, dv_name left, dv_name right, const char *why) {
    char a[SHOWN];
    char b[SHOWN];
    return dv_fail(DAVY_E_FORMAT, "%s: merges[%" PRId64 "]: \"%s\" and \"%s\" %s", t->where, index,
                   dv_printable(a, sizeof a, left.p, left.bytes), dv_printable(b, sizeof b, right.p, right.bytes), why);
}

davy_result dv_tokenizer_merge(dv_tokenizer *t, int64_t index, dv_name left, dv_name right) {
    if (left.bytes == 0 || right.bytes == 0) {
        return refuse_merge(t, index, left, right, "do not make a pair");
    }
    uint8_t *at = NULL;
    const davy_result r = dv_tokenizer_room(t, left.bytes + right.bytes, &at);
    if (r < 0) {
        return r;
    }
    uint64_t n = 0;
    uint64_t m = 0;
    const bool literal_left = !dv_name_bytes(t, left, at, &n);
    const bool literal_right = !dv_name_bytes(t, right, at + n, &m);
    const int32_t a = dv_vocabulary_find(t, at, n, literal_left);
    const int32_t b = dv_vocabulary_find(t, at + n, m, literal_right);
    if (literal_left != literal_right) { /* the two together are literal */
        memcpy(at, left.p, (size_t)left.bytes);
        memcpy(at + left.bytes, right.p, (size_t)right.bytes);
        n = left.bytes;
        m = right.bytes;
    }
    /* Trained vocabularies list results in the order of their merges: one guess saves most look-ups in cold memory. */
    const bool literal = literal_left || literal_right;
    const int64_t next = t->last_merged + 1;
    const bool guessed = next < t->n_tokens && (t->tokens[next].flags & DV_TOKEN_PRESENT) != 0 &&
                         dv_token_is(t, &t->tokens[next], at, n + m, literal);
    const int32_t both = guessed ? (int32_t)next : dv_vocabulary_find(t, at, n + m, literal);
    if (a < 0 || b < 0 || both < 0) {
        return refuse_merge(t, index, left, right,
                            both < 0 ? "together are no token of the vocabulary" : "are not both in the vocabulary");
    }
    dv_merge *slot = merge_slot(t, (uint32_t)a, (uint32_t)b);
    if (slot == NULL) {
        return refuse_merge(t, index, left, right, "collide with too many others");
    } /* of a pair that is there twice the later place counts, as in the library */
    t->last_merged = both;
    *slot = (dv_merge){(uint32_t)a, (uint32_t)b, (uint32_t)index, (uint32_t)both};
    t->n_merges++;
    return DAVY_OK;
}

davy_result dv_tokenizer_merge_line(dv_tokenizer *t, int64_t index, dv_name line) {
    const char *space = memchr(line.p, ' ', (size_t)line.bytes);
    const uint64_t n = space != NULL ? (uint64_t)(space - line.p) : line.bytes;
    const dv_name left = {line.p, n};
    const dv_name right = {line.p + n + 1, space != NULL ? line.bytes - n - 1 : 0};
    if (space == NULL || memchr(right.p, ' ', (size_t)right.bytes) != NULL) {
        char shown[SHOWN];
        return dv_fail(DAVY_E_FORMAT, "%s: merges[%" PRId64 "]: \"%s\" is not two names with one space between",
                       t->where, index, dv_printable(shown, sizeof shown, line.p, line.bytes));
    }
    return dv_tokenizer_merge(t, index, left, right);
}
