/* tokenizer.c - the vocabulary and the added tokens, put together from what a file says and checked (merges: merges.c).
 * Tokens are kept as the bytes they stand for; a name with characters outside GPT-2's alphabet of 256 is its own text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

enum { MAX_ADDED_BYTES = 1024, SHOWN = 48 };

static davy_result no_memory(const dv_tokenizer *t) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for its tokens", t->where);
}

/* What a slot knows of a text: the whole of it up to seven bytes, so that most look-ups touch one place in memory, else
 * a hash. The top byte tells the two apart. */
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

/* ---- the byte alphabet ---- */

/* The byte that code point c stands for; -1: none. Printable bytes of Latin-1 stand for themselves, the other 68 follow
 * from U+0100 in their order. */
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

dv_tokenizer *dv_tokenizer_new(const char *where) {
    dv_tokenizer *t = dv_calloc(1, sizeof *t);
    if (t != NULL) {
        t->where = dv_strdup(where);
        t->unk = -1;
    }
    if (t == NULL || t->where == NULL) {
        dv_free(t);
        dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for its tokens", where);
        return NULL;
    }
    return t;
}

void dv_tokenizer_release(dv_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    dv_free(t->where);
    dv_free(t->bytes);
    dv_free(t->tokens);
    dv_free(t->slots);
    dv_free(t->merges);
    dv_free(t->scores);
    dv_free(t->added);
    dv_free(t->raw.order);
    dv_free(t->normal.order);
    dv_ids_clear(&t->before);
    dv_ids_clear(&t->after);
    dv_free(t);
}

static uint64_t table_size(int64_t entries) {
    uint64_t size = 16;
    while (size * 2 < (uint64_t)entries * 3) {
        size *= 2;
    }
    return size;
}

davy_result dv_tokenizer_reserve(dv_tokenizer *t, int64_t vocabulary, int64_t merges) {
    if (vocabulary < 1 || vocabulary > DV_MAX_TOKENS || merges < 0 || merges > 4 * DV_MAX_TOKENS) {
        return dv_fail(DAVY_E_FORMAT,
                       "%s: %" PRId64 " tokens and %" PRId64 " merges; the limits are %d (at least 1) and %d", t->where,
                       vocabulary, merges, DV_MAX_TOKENS, 4 * DV_MAX_TOKENS);
    }
    const uint64_t slots = table_size(vocabulary);
    const uint64_t pairs = table_size(merges);
    t->slots = dv_calloc(slots, sizeof *t->slots);
    t->merges = dv_calloc(pairs, sizeof *t->merges);
    if (t->slots == NULL || t->merges == NULL) {
        return no_memory(t);
    }
    t->slot_mask = (uint32_t)(slots - 1);
    t->merge_mask = (uint32_t)(pairs - 1);
    for (uint64_t i = 0; i < pairs; i++) {
        t->merges[i].left = DV_NO_MERGE;
    }
    return DAVY_OK;
}

bool dv_token_is(const dv_tokenizer *t, const dv_token *token, const uint8_t *p, uint64_t n, bool literal) {
    return token->bytes == n && ((token->flags & DV_TOKEN_LITERAL) != 0) == literal &&
           memcmp(t->bytes + token->at, p, (size_t)n) == 0;
}

/* The slot of a text, or the free slot it would take; NULL: too many tokens fall on one place. */
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

/* Ids may come in any order and leave holes. */
static davy_result take_id(dv_tokenizer *t, const char *field, int64_t id) {
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

static davy_result refuse_name(const dv_tokenizer *t, const char *field, dv_name name, int64_t id, const char *why) {
    char shown[SHOWN];
    return dv_fail(DAVY_E_FORMAT, "%s: %s: \"%s\" (id %" PRId64 ") %s", t->where, field,
                   dv_printable(shown, sizeof shown, name.p, name.bytes), id, why);
}

davy_result dv_tokenizer_add(dv_tokenizer *t, const char *field, dv_name name, int64_t id) {
    uint8_t *at = NULL;
    davy_result r = take_id(t, field, id);
    r = r < 0 ? r : dv_tokenizer_room(t, name.bytes, &at);
    if (r < 0) {
        return r;
    }
    if ((t->tokens[id].flags & DV_TOKEN_PRESENT) != 0) {
        return refuse_name(t, field, name, id, "has an id that is taken");
    }
    uint64_t n = 0;
    const bool literal = !dv_name_bytes(t, name, at, &n);
    const uint64_t key = key_of(at, n, literal);
    dv_slot *slot = slot_of(t, at, n, literal, key);
    if (slot == NULL || slot->id != 0) {
        return refuse_name(t, field, name, id, slot == NULL ? "collides with too many others" : "is there twice");
    }
    *slot = (dv_slot){key, (uint32_t)id + 1};
    t->tokens[id] = (dv_token){.at = (uint32_t)t->n_bytes,
                               .bytes = (uint32_t)n,
                               .flags = DV_TOKEN_PRESENT | (literal ? (uint32_t)DV_TOKEN_LITERAL : 0)};
    t->n_bytes += (int64_t)n;
    t->n_vocabulary++;
    return DAVY_OK;
}

/* A name's id, by way of the free end of t->bytes. */
static davy_result look_up(dv_tokenizer *t, dv_name name, int32_t *id) {
    uint8_t *at = NULL;
    const davy_result r = dv_tokenizer_room(t, name.bytes, &at);
    if (r == DAVY_OK) {
        uint64_t n = 0;
        const bool literal = !dv_name_bytes(t, name, at, &n);
        *id = dv_vocabulary_find(t, at, n, literal);
    }
    return r;
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

/* ---- added tokens, the end ---- */

static davy_result set_pattern(dv_tokenizer *t, dv_added *a) {
    char *changed = NULL;
    uint64_t n = 0;
    a->pattern_at = a->at;
    a->pattern_bytes = a->bytes;
    const char *content = (const char *)t->bytes + a->at;
    davy_result r = DAVY_OK;
    if (a->normalized && t->nfc) {
        r = dv_nfc(content, a->bytes, &changed, &n);
    } else if (a->normalized && t->spaces && !t->spaces_late && t->scores == NULL) {
        r = dv_spaces_put(content, a->bytes, dv_spaces_prefix(t, content, a->bytes, true), &changed, &n);
    }
    if (r == DAVY_OK && changed != NULL) {
        uint8_t *at = NULL;
        r = dv_tokenizer_room(t, n, &at);
        if (r == DAVY_OK) {
            memcpy(at, changed, (size_t)n);
            a->pattern_at = (uint32_t)t->n_bytes;
            a->pattern_bytes = (uint32_t)n;
            t->n_bytes += (int64_t)n;
        }
    }
    dv_free(changed);
    return r;
}

davy_result dv_tokenizer_add_added(dv_tokenizer *t, int64_t index, dv_name content, const dv_added *flags) {
    char field[40];
    snprintf(field, sizeof field, "added_tokens[%" PRId64 "]", index);
    if (content.bytes == 0 || content.bytes > MAX_ADDED_BYTES) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s: a content of %" PRIu64 " bytes; 1 to %d are possible", t->where, field,
                       content.bytes, MAX_ADDED_BYTES);
    }
    int32_t known = -1;
    uint8_t *at = NULL;
    davy_result r = look_up(t, content, &known);
    r = r < 0 ? r : take_id(t, field, flags->id);
    r = r < 0 ? r : dv_tokenizer_room(t, content.bytes, &at);
    dv_added *grown = r < 0 ? NULL : dv_grow(t->added, t->n_added + 1, &t->added_room, sizeof *grown);
    if (grown == NULL) {
        return r < 0 ? r : no_memory(t);
    }
    t->added = grown;
    dv_token *token = &t->tokens[flags->id];
    if (known >= 0 && known != flags->id) {
        return refuse_name(t, field, content, flags->id, "has another id in the vocabulary");
    }
    if ((known < 0 && (token->flags & DV_TOKEN_PRESENT) != 0) || token->added != 0) {
        return refuse_name(t, field, content, flags->id, "has an id that is taken");
    }
    dv_added *a = &t->added[t->n_added++];
    *a = *flags;
    a->at = (uint32_t)t->n_bytes;
    a->bytes = (uint32_t)content.bytes;
    memcpy(at, content.p, (size_t)content.bytes);
    t->n_bytes += (int64_t)content.bytes;
    token->added = (uint32_t)t->n_added;
    token->flags |= (uint32_t)DV_TOKEN_PRESENT | (a->special ? (uint32_t)DV_TOKEN_SPECIAL : 0);
    return set_pattern(t, a);
}

davy_result dv_tokenizer_done(dv_tokenizer *t, const char *unk_token) {
    if (unk_token != NULL) {
        t->unk = dv_tokenizer_find_name(t, (dv_name){unk_token, strlen(unk_token)});
        if (t->unk < 0) {
            char shown[SHOWN];
            return dv_fail(DAVY_E_FORMAT, "%s: model.unk_token \"%s\" is not in the vocabulary", t->where,
                           dv_printable(shown, sizeof shown, unk_token, strlen(unk_token)));
        }
    }
    for (int b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;
        t->byte_id[b] = dv_vocabulary_find(t, &byte, 1, false);
    }
    davy_result r = t->spaces ? dv_spaces_finish(t) : DAVY_OK;
    r = r < 0 ? r : dv_added_set_make(t, false, &t->raw);
    return r < 0 ? r : dv_added_set_make(t, true, &t->normal);
}

davy_result dv_tokenizer_add_placeholder(dv_tokenizer *t, const char *content) {
    const dv_name name = {content, strlen(content)};
    if (dv_added_find(t, name) != NULL) {
        return DAVY_OK;
    }
    const int32_t known = dv_tokenizer_find_name(t, name);
    const dv_added flags = {.id = known >= 0 ? known : (int32_t)t->n_tokens, .special = true};
    const davy_result r = dv_tokenizer_add_added(t, t->n_added, name, &flags);
    if (r < 0) {
        return r;
    }
    dv_free(t->raw.order);
    t->raw = (dv_added_set){.n = 0};
    return dv_added_set_make(t, false, &t->raw);
}
