/* pieces.c - SentencePiece's BPE: pieces have scores instead of ranks in a list of merges. Two neighbours can merge if their
 * texts together are a piece. Each step merges the pair whose piece has the best score; of equal scores the leftmost. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

#define NONE UINT32_MAX

static const char space[] = "\xe2\x96\x81";

/* ---- spaces ---- */

bool dv_spaces_prefix(const dv_tokenizer *t, const char *text, uint64_t bytes, bool begins) {
    const bool has = bytes > 0 && (text[0] == ' ' || (bytes >= 3 && memcmp(text, space, 3) == 0));
    switch (t->prefix) {
    case DV_PREFIX_ALWAYS:
        return true;
    case DV_PREFIX_MISSING:
        return !has;
    case DV_PREFIX_FIRST:
        return begins && !has;
    case DV_PREFIX_NEVER:
        break;
    }
    return false;
}

davy_result dv_spaces_put(const char *text, uint64_t bytes, bool in_front, char **out, uint64_t *out_bytes) {
    char *to = dv_calloc(3 * bytes + 3 + 1, 1);
    if (to == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a text of %" PRIu64 " bytes", bytes);
    }
    uint64_t n = 0;
    if (in_front && bytes > 0) {
        memcpy(to, space, 3);
        n = 3;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        if (text[i] == ' ') {
            memcpy(to + n, space, 3);
            n += 3;
        } else {
            to[n++] = text[i];
        }
    }
    *out = to;
    *out_bytes = n;
    return DAVY_OK;
}

/* ---- the texts of tokens ---- */

/* The byte of a name such as "<0x0A>"; -1: another name. */
static int32_t byte_named(const uint8_t *p, uint64_t n) {
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>') {
        return -1;
    }
    const char *high = p[3] != 0 ? strchr(digits, p[3]) : NULL;
    const char *low = p[4] != 0 ? strchr(digits, p[4]) : NULL;
    return high != NULL && low != NULL ? (int32_t)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* Stores a token's text, which differs from its name: U+2581 is a space, and <0x0A> is a byte. */
static davy_result add_text(dv_tokenizer *t, int64_t id) {
    dv_token *token = &t->tokens[id];
    const dv_added *a = token->added != 0 ? &t->added[token->added - 1] : NULL;
    const uint64_t n = a != NULL ? a->pattern_bytes : token->bytes;
    uint8_t *to = NULL;
    const davy_result r = dv_tokenizer_room(t, n, &to);
    if (r < 0) {
        return r;
    }
    const uint8_t *from = t->bytes + (a != NULL ? a->pattern_at : token->at);
    const int32_t byte = byte_named(from, n);
    uint64_t done = 0;
    if (byte >= 0) {
        to[done++] = (uint8_t)byte;
    }
    for (uint64_t i = 0; byte < 0 && i < n; done++) {
        const bool is_space = n - i >= 3 && memcmp(from + i, space, 3) == 0;
        to[done] = is_space ? ' ' : from[i];
        i += is_space ? 3 : 1;
    }
    token->text_at = (uint32_t)t->n_bytes;
    token->text_bytes = (uint32_t)done;
    t->n_bytes += (int64_t)done;
    return DAVY_OK;
}

davy_result dv_spaces_finish(dv_tokenizer *t) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < t->n_tokens; i++) {
        r = (t->tokens[i].flags & DV_TOKEN_PRESENT) != 0 ? add_text(t, i) : DAVY_OK;
    }
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->byte_id[b] = t->byte_fallback ? dv_vocabulary_find(t, name, 6, true) : -1;
    }
    return r;
}

/* ---- merging ---- */

typedef struct merging {
    const dv_tokenizer *t;
    const uint8_t *text;
    dv_bpe_scratch *s; /* symbol i begins with character i; at: offsets of the characters */
    uint32_t n;
} merging;

/* An integer that is smaller for a larger score. */
static uint32_t order_of(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 */
    memcpy(&bits, &score, sizeof bits);
    return ~((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u);
}

/* Order and id of the piece that symbol `left` and the symbol at `right` make together; NONE: not a piece. */
static uint32_t pair_order(const merging *m, uint32_t left, uint32_t right, uint32_t *id) {
    const uint32_t from = m->s->at[left];
    const uint32_t to = m->s->at[m->s->next[right]];
    const int32_t found = dv_vocabulary_find(m->t, m->text + from, to - from, true);
    if (found < 0 || (m->t->tokens[found].flags & DV_TOKEN_RESERVED) != 0) {
        return NONE;
    }
    *id = (uint32_t)found;
    return order_of(m->t->scores[found]);
}

static bool push_pair(const merging *m, uint32_t left, uint32_t right) {
    uint32_t id = 0;
    const uint32_t order = pair_order(m, left, right, &id);
    return order == NONE || dv_bpe_push(m->s, order, left);
}

static davy_result begin(merging *m, uint64_t bytes) {
    dv_bpe_scratch *s = m->s;
    uint32_t *at = dv_bpe_reserve(s, bytes) ? dv_grow(s->at, (int64_t)bytes + 1, &s->at_room, sizeof *at) : NULL;
    if (at == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a text of %" PRIu64 " bytes", bytes);
    }
    s->at = at;
    uint32_t length = 0;
    for (uint64_t i = 0; i < bytes; i += length, m->n++) {
        dv_utf8_next(m->text + i, &length);
        const int32_t id = dv_vocabulary_find(m->t, m->text + i, length, true);
        const bool known = id >= 0 && (m->t->tokens[id].flags & DV_TOKEN_RESERVED) == 0;
        at[m->n] = (uint32_t)i;
        s->symbols[m->n] = known ? (uint32_t)id : NONE; /* not a piece alone, but perhaps part of one */
        s->next[m->n] = m->n + 1;
        s->previous[m->n] = m->n - 1;
    }
    at[m->n] = (uint32_t)bytes;
    return DAVY_OK;
}

/* A symbol that was merged into its neighbour has next 0. A heap entry is stale if the pair at its place now has another
 * score. */
static bool merge(merging *m) {
    dv_bpe_scratch *s = m->s;
    bool ok = true;
    s->n_heap = 0;
    for (uint32_t i = 0; ok && i + 1 < m->n; i++) {
        ok = push_pair(m, i, i + 1);
    }
    while (ok && s->n_heap > 0) {
        const uint64_t top = dv_bpe_pop(s);
        const uint32_t i = (uint32_t)top;
        const uint32_t j = s->next[i];
        uint32_t id = 0;
        if (j == 0 || j >= m->n || pair_order(m, i, j, &id) != (uint32_t)(top >> 32)) {
            continue;
        }
        s->symbols[i] = id;
        s->next[i] = s->next[j];
        s->next[j] = 0;
        if (s->next[i] < m->n) {
            s->previous[s->next[i]] = i;
            ok = push_pair(m, i, s->next[i]);
        }
        ok = ok && (i == 0 || push_pair(m, s->previous[i], i));
    }
    return ok;
}

davy_result dv_pieces_merge(const dv_tokenizer *t, const uint8_t *text, uint64_t n, dv_bpe_scratch *scratch,
                            dv_ids *ids) {
    merging m = {.t = t, .text = text, .s = scratch};
    davy_result r = begin(&m, n);
    if (r == DAVY_OK && !merge(&m)) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a text of %" PRIu64 " bytes", n);
    }
    bool was_unknown = false;
    for (uint32_t i = 0; r == DAVY_OK && i < m.n; i = scratch->next[i]) {
        const uint32_t id = scratch->symbols[i];
        const uint32_t to = scratch->at[scratch->next[i]];
        for (uint32_t k = scratch->at[i]; r == DAVY_OK && id == NONE && t->byte_fallback && k < to; k++) {
            r = dv_ids_add(ids, t->byte_id[text[k]]);
        }
        if (r == DAVY_OK && id != NONE) {
            r = dv_ids_add(ids, (int32_t)id);
        } else if (r == DAVY_OK && !t->byte_fallback && !was_unknown) {
            r = dv_ids_add(ids, t->unk);
        }
        was_unknown = id == NONE;
    }
    return r;
}
