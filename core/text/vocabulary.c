/* vocabulary.c - look-up of tokens by text and by name, search for added tokens, and lists of ids. A token is stored as its
 * bytes. A name with characters outside GPT-2's alphabet of 256 is stored as it is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

enum { SHOWN = 48 };

/* ---- lists of ids ---- */

davy_result dv_ids_add(dv_ids *ids, int32_t id) {
    int32_t *grown = dv_grow(ids->p, ids->n + 1, &ids->room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for %" PRId64 " tokens", ids->n);
    }
    ids->p = grown;
    ids->p[ids->n++] = id;
    return DAVY_OK;
}

void dv_ids_clear(dv_ids *ids) {
    dv_free(ids->p);
    *ids = (dv_ids){0};
}

/* ---- the byte alphabet ---- */

/* The byte of code point c in GPT-2's alphabet; -1: none. Printable Latin-1 characters are their own bytes. The other 68
 * bytes follow from U+0100 in order. */
static int32_t alphabet_byte(uint32_t c) {
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255)) {
        return (int32_t)c;
    }
    const uint32_t k = c - 256;
    return k < 33 ? (int32_t)k : k < 67 ? (int32_t)(k - 33 + 127) : k == 67 ? 173 : -1;
}

bool dv_name_bytes(const dv_tokenizer *t, dv_name name, uint8_t *out, uint64_t *bytes) {
    const uint8_t *p = (const uint8_t *)name.p;
    uint32_t n = 1;
    uint64_t done = 0;
    for (uint64_t i = 0; i < name.bytes; i += n) {
        n = 1;
        const int32_t b = p[i] - 33u <= 126u - 33u ? p[i] : alphabet_byte(dv_utf8_next(p + i, &n));
        if (b < 0 || t->spaces) {
            memcpy(out, p, (size_t)name.bytes);
            *bytes = name.bytes;
            return false;
        }
        out[done++] = (uint8_t)b;
    }
    *bytes = done;
    return true;
}

/* ---- the vocabulary ---- */

static davy_result no_memory(const dv_tokenizer *t) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", t->where);
}

/* The key of a text in its slot. Up to seven bytes it is the text itself, so that most look-ups need one memory access. A
 * longer text has a hash. The top byte distinguishes the two. */
static uint64_t key_of(const uint8_t *p, uint64_t n, bool literal) {
    uint64_t word = 0;
    if (n <= 7 && !literal) {
        memcpy(&word, p, (size_t)n);
        return word | (n << 56);
    }
    uint64_t h = (n + literal) * DV_GOLDEN;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * DV_GOLDEN;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, p, (size_t)n);
    h = (h ^ word) * DV_GOLDEN;
    return (h ^ (h >> 29)) | (UINT64_C(0xff) << 56);
}

bool dv_token_is(const dv_tokenizer *t, const dv_token *token, const uint8_t *p, uint64_t n, bool literal) {
    return token->bytes == n && ((token->flags & DV_TOKEN_LITERAL) != 0) == literal &&
           memcmp(t->bytes + token->at, p, (size_t)n) == 0;
}

/* The slot of a text, or its free slot; NULL: too many tokens collide. */
static dv_slot *slot_of(const dv_tokenizer *t, const uint8_t *p, uint64_t n, bool literal, uint64_t key) {
    const bool exact = key >> 56 != 0xff;
    uint32_t i = (uint32_t)(((key ^ (key >> 31)) * DV_GOLDEN) >> 32) & t->slot_mask;
    for (int probe = 0; probe < DV_MAX_PROBES; probe++, i = (i + 1) & t->slot_mask) {
        dv_slot *s = &t->slots[i];
        if (s->id == 0 || (s->key == key && (exact || dv_token_is(t, &t->tokens[s->id - 1], p, n, literal)))) {
            return s;
        }
    }
    return NULL;
}

int32_t dv_vocabulary_find(const dv_tokenizer *t, const void *bytes, uint64_t n, bool literal) {
    const dv_slot *s = slot_of(t, bytes, n, literal, key_of(bytes, n, literal));
    return s != NULL ? (int32_t)s->id - 1 : -1;
}

davy_result dv_tokenizer_room(dv_tokenizer *t, uint64_t n, uint8_t **at) {
    uint8_t *grown = dv_grow(t->bytes, t->n_bytes + (int64_t)n, &t->bytes_room, 1);
    if (grown == NULL || t->n_bytes + (int64_t)n > UINT32_MAX) {
        t->bytes = grown != NULL ? grown : t->bytes;
        return no_memory(t);
    }
    t->bytes = grown;
    *at = grown + t->n_bytes;
    return DAVY_OK;
}

/* Ids may come in any order and may have gaps. */
davy_result dv_tokenizer_take_id(dv_tokenizer *t, const char *field, int64_t id) {
    if (id < 0 || id >= DV_MAX_TOKENS) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s: id %" PRId64 " is outside 0..%d", t->where, field, id,
                       DV_MAX_TOKENS - 1);
    }
    dv_token *grown = dv_grow(t->tokens, id + 1, &t->tokens_room, sizeof *grown);
    if (grown == NULL) {
        return no_memory(t);
    }
    t->tokens = grown;
    if (id >= t->n_tokens) {
        memset(grown + t->n_tokens, 0, (size_t)(id + 1 - t->n_tokens) * sizeof *grown);
        t->n_tokens = id + 1;
    }
    return DAVY_OK;
}

davy_result dv_tokenizer_refuse(const dv_tokenizer *t, const char *field, dv_name name, int64_t id, const char *why) {
    char shown[SHOWN];
    return dv_fail(DAVY_E_FORMAT, "%s: %s: \"%s\" (id %" PRId64 ") %s", t->where, field,
                   dv_printable(shown, sizeof shown, name.p, name.bytes), id, why);
}

davy_result dv_tokenizer_add(dv_tokenizer *t, const char *field, dv_name name, int64_t id) {
    uint8_t *at = NULL;
    davy_result r = dv_tokenizer_take_id(t, field, id);
    r = r < 0 ? r : dv_tokenizer_room(t, name.bytes, &at);
    if (r < 0) {
        return r;
    }
    if ((t->tokens[id].flags & DV_TOKEN_PRESENT) != 0) {
        return dv_tokenizer_refuse(t, field, name, id, "has the id of another token");
    }
    uint64_t n = 0;
    const bool literal = !dv_name_bytes(t, name, at, &n);
    const uint64_t key = key_of(at, n, literal);
    dv_slot *slot = slot_of(t, at, n, literal, key);
    if (slot == NULL || slot->id != 0) {
        return dv_tokenizer_refuse(t, field, name, id, slot == NULL ? "collides with too many others" : "occurs twice");
    }
    *slot = (dv_slot){key, (uint32_t)id + 1};
    t->tokens[id] = (dv_token){.at = (uint32_t)t->n_bytes,
                               .bytes = (uint32_t)n,
                               .flags = DV_TOKEN_PRESENT | (literal ? (uint32_t)DV_TOKEN_LITERAL : 0)};
    t->n_bytes += (int64_t)n;
    t->n_vocabulary++;
    return DAVY_OK;
}

/* ---- added tokens: searched in the text before the other steps. The leftmost match comes first; of several the longest. ---- */

static int compare(const dv_tokenizer *t, uint32_t a, uint32_t b) {
    const dv_added *x = &t->added[a];
    const dv_added *y = &t->added[b];
    const uint32_t n = x->pattern_bytes < y->pattern_bytes ? x->pattern_bytes : y->pattern_bytes;
    const int order = memcmp(t->bytes + x->pattern_at, t->bytes + y->pattern_at, n);
    return order != 0 ? order : (x->pattern_bytes > y->pattern_bytes) - (x->pattern_bytes < y->pattern_bytes);
}

/* Heap sort: qsort passes no context to its comparison, and a file may have a hundred thousand added tokens. */
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
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the added tokens", t->where);
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
            return dv_fail(DAVY_E_FORMAT, "%s: added_tokens[%u] and [%u] have the same text", t->where,
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

/* Extends [*from, *to) by the white space that the token absorbs (lstrip, rstrip). White space before `taken` belongs to an
 * earlier token. */
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

davy_result dv_added_split(const dv_tokenizer *t, const dv_added_set *set, const dv_splitting *s) {
    const uint8_t *p = (const uint8_t *)s->text;
    const uint64_t bytes = s->bytes;
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
        if (guarded(s->guard, a, from, to) || (a->single_word && !alone(p, bytes, from, to))) {
            continue;
        }
        widen(a, p, bytes, done, &from, &to);
        if (done < from) {
            r = s->part(s->user, NULL, done, from - done);
        }
        r = r < 0 ? r : s->part(s->user, a, from, to - from);
        done = to;
    }
    return r < 0 || done >= bytes ? r : s->part(s->user, NULL, done, bytes - done);
}

int32_t dv_tokenizer_find_name(const dv_tokenizer *t, dv_name name) {
    uint8_t few[256];
    uint8_t *out = name.bytes <= sizeof few ? few : dv_calloc(name.bytes, 1);
    const dv_added *a = dv_added_find(t, name);
    if (a != NULL || out == NULL || !dv_utf8_valid(name.p, name.bytes)) {
        if (out != few) {
            dv_free(out);
        }
        return a != NULL ? a->id : -1;
    }
    uint64_t n = 0;
    const bool literal = !dv_name_bytes(t, name, out, &n);
    const int32_t id = dv_vocabulary_find(t, out, n, literal);
    if (out != few) {
        dv_free(out);
    }
    return id;
}
