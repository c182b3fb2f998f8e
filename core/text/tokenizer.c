/* tokenizer.c - builds a tokenizer from a file's vocabulary and added tokens, and checks them. */
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
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", t->where);
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
        dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", where);
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

/* Finds a name's id; the free end of t->bytes is the buffer for the decoded name. */
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
        return dv_fail(DAVY_E_FORMAT, "%s: %s: the content has %" PRIu64 " bytes; 1 to %d are allowed", t->where, field,
                       content.bytes, MAX_ADDED_BYTES);
    }
    int32_t known = -1;
    uint8_t *at = NULL;
    davy_result r = look_up(t, content, &known);
    r = r < 0 ? r : dv_tokenizer_take_id(t, field, flags->id);
    r = r < 0 ? r : dv_tokenizer_room(t, content.bytes, &at);
    dv_added *grown = r < 0 ? NULL : dv_grow(t->added, t->n_added + 1, &t->added_room, sizeof *grown);
    if (grown == NULL) {
        return r < 0 ? r : no_memory(t);
    }
    t->added = grown;
    dv_token *token = &t->tokens[flags->id];
    if (known >= 0 && known != flags->id) {
        return dv_tokenizer_refuse(t, field, content, flags->id, "has another id in the vocabulary");
    }
    if ((known < 0 && (token->flags & DV_TOKEN_PRESENT) != 0) || token->added != 0) {
        return dv_tokenizer_refuse(t, field, content, flags->id, "has the id of another token");
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

/* ---- SentencePiece's pieces ---- */

davy_result dv_pieces_begin(dv_tokenizer *t, int64_t n, bool prefix) {
    t->spaces = true;
    t->spaces_strip = prefix;
    t->prefix = prefix ? DV_PREFIX_ALWAYS : DV_PREFIX_NEVER;
    t->fuse_unk = true;
    const davy_result r = dv_tokenizer_reserve(t, n, 0);
    t->scores = r == DAVY_OK ? dv_calloc((uint64_t)n, sizeof *t->scores) : NULL;
    return r == DAVY_OK && t->scores == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", t->where)
                                             : r;
}

davy_result dv_pieces_add(dv_tokenizer *t, int64_t id, const dv_vocab_piece *piece) {
    if (piece->type < DV_PIECE_NORMAL || piece->type > DV_PIECE_BYTE ||
        !(piece->score <= 3e38f && piece->score >= -3e38f)) {
        return dv_fail(DAVY_E_FORMAT, "%s: piece %" PRId64 ": type %" PRId64 " or score %g is out of range", t->where,
                       id, piece->type, (double)piece->score);
    }
    if (piece->type == DV_PIECE_UNUSED) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: piece %" PRId64 ": unused pieces are not supported", t->where, id);
    }
    davy_result r = dv_tokenizer_add(t, "pieces", piece->name, id);
    if (r < 0) {
        return r;
    }
    t->scores[id] = piece->score;
    if (piece->type != DV_PIECE_NORMAL && piece->type != DV_PIECE_USER) {
        t->tokens[id].flags |= (uint32_t)DV_TOKEN_RESERVED;
    }
    if (piece->type == DV_PIECE_UNKNOWN && t->unk >= 0) {
        return dv_fail(DAVY_E_FORMAT, "%s: pieces %d and %" PRId64 " are both of type unknown", t->where, (int)t->unk,
                       id);
    }
    t->unk = piece->type == DV_PIECE_UNKNOWN ? (int32_t)id : t->unk;
    const bool user = piece->type == DV_PIECE_USER;
    if (user || piece->type == DV_PIECE_UNKNOWN || piece->type == DV_PIECE_CONTROL) {
        const dv_added flags = {.id = (int32_t)id, .special = !user, .normalized = user};
        r = dv_tokenizer_add_added(t, id, piece->name, &flags);
    }
    return r;
}

davy_result dv_pieces_done(dv_tokenizer *t, bool byte_fallback) {
    t->byte_fallback = byte_fallback;
    davy_result r = dv_tokenizer_done(t, NULL);
    for (int b = 0; r == DAVY_OK && byte_fallback && b < 256; b++) {
        if (t->byte_id[b] < 0) {
            r = dv_fail(DAVY_E_FORMAT, "%s: the piece <0x%02X> is missing", t->where, (unsigned)b);
        }
    }
    return r == DAVY_OK && !byte_fallback && t->unk < 0
               ? dv_fail(DAVY_E_FORMAT, "%s: the unknown piece is missing", t->where)
               : r;
}

/* ---- queries ---- */

const char *dv_tokenizer_note(const dv_tokenizer *t) {
    return t->note;
}

int32_t dv_tokenizer_size(const dv_tokenizer *t) {
    return (int32_t)t->n_tokens;
}

int32_t dv_tokenizer_find(const dv_tokenizer *t, const char *content) {
    return dv_tokenizer_find_name(t, (dv_name){content, strlen(content)});
}

bool dv_tokenizer_is_special(const dv_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_tokens && (t->tokens[id].flags & DV_TOKEN_SPECIAL) != 0;
}

const char *dv_tokenizer_bytes(const dv_tokenizer *t, int32_t id, uint64_t *bytes) {
    if (id < 0 || id >= t->n_tokens || (t->tokens[id].flags & DV_TOKEN_PRESENT) == 0) {
        return NULL;
    }
    const dv_token *token = &t->tokens[id];
    const dv_added *a = token->added != 0 ? &t->added[token->added - 1] : NULL;
    if (t->spaces) {
        *bytes = token->text_bytes;
        return (const char *)t->bytes + token->text_at;
    }
    *bytes = a != NULL ? a->bytes : token->bytes;
    return (const char *)t->bytes + (a != NULL ? a->at : token->at);
}
