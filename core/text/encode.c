/* encode.c - text to ids in five steps: added tokens, normaliser, added tokens again, pieces, merges. Decoding, too. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

/* ---- encoding ---- */

typedef struct encoding {
    const dv_tokenizer *t;
    const char *text; /* of the current step */
    const dv_guard *guard;
    uint64_t begins; /* see dv_text_around */
    bool at_start;   /* the current part is at `begins` */
    dv_ids *ids;
    dv_bpe_scratch scratch;
} encoding;

static davy_result encode_segment(encoding *e, const uint8_t *p, uint64_t bytes, int32_t stage) {
    if (stage == e->t->n_stages) {
        return e->t->scores != NULL ? dv_pieces_merge(e->t, p, bytes, &e->scratch, e->ids)
                                    : dv_bpe(e->t, p, bytes, &e->scratch, e->ids);
    }
    davy_result r = DAVY_OK;
    for (uint64_t at = 0; r == DAVY_OK && at < bytes;) {
        const uint64_t end = dv_pretokenizer_next(e->t->stages[stage], p, at, bytes);
        r = encode_segment(e, p + at, end - at, stage + 1);
        at = end;
    }
    return r;
}

/* Metaspace: spaces become U+2581, and with spaces_split a piece begins at each of them. */
static davy_result encode_spaces(encoding *e, const char *text, uint64_t bytes, bool begins) {
    char *changed = NULL;
    uint64_t n = 0;
    davy_result r = dv_spaces_put(text, bytes, dv_spaces_prefix(e->t, text, bytes, begins), &changed, &n);
    uint64_t from = 0;
    for (uint64_t at = 1; r == DAVY_OK && from < n; at++) {
        const bool cut = e->t->spaces_split && n - at >= 3 && memcmp(changed + at, "\xe2\x96\x81", 3) == 0;
        if (at == n || cut) {
            r = encode_segment(e, (const uint8_t *)changed + from, at - from, 0);
            from = at;
        }
    }
    dv_free(changed);
    return r;
}

static davy_result normal_part(void *user, const dv_added *added, uint64_t at, uint64_t bytes) {
    encoding *e = user;
    if (added != NULL) {
        return dv_ids_add(e->ids, added->id);
    }
    return e->t->spaces_late ? encode_spaces(e, e->text + at, bytes, e->at_start && at == 0)
                             : encode_segment(e, (const uint8_t *)e->text + at, bytes, 0);
}

/* Normalisation moves positions. In a part that touches a span, special tokens are therefore not searched for after it. */
static davy_result raw_part(void *user, const dv_added *added, uint64_t at, uint64_t bytes) {
    encoding *e = user;
    if (added != NULL) {
        return dv_ids_add(e->ids, added->id);
    }
    const char *text = e->text;
    char *changed = NULL;
    uint64_t n = bytes;
    e->at_start = at == e->begins;
    davy_result r = DAVY_OK;
    if (e->t->nfc) {
        r = dv_nfc(text + at, bytes, &changed, &n);
    } else if (e->t->spaces && !e->t->spaces_late) {
        r = dv_spaces_put(text + at, bytes, dv_spaces_prefix(e->t, text + at, bytes, e->at_start), &changed, &n);
    }
    dv_guard guard = {.everywhere = e->guard->everywhere};
    for (int64_t i = 0; i < e->guard->n; i++) {
        guard.everywhere = guard.everywhere || (e->guard->spans[i].from < at + bytes && e->guard->spans[i].to > at);
    }
    if (r == DAVY_OK) {
        e->text = changed != NULL ? changed : text + at;
        const dv_splitting splitting = {
            .text = e->text, .bytes = changed != NULL ? n : bytes, .guard = &guard, .part = normal_part, .user = e};
        r = dv_added_split(e->t, &e->t->normal, &splitting);
        e->text = text;
    }
    dv_free(changed);
    return r;
}

static davy_result check_text(const char *text, uint64_t bytes) {
    if (bytes > DV_MAX_TEXT_BYTES) {
        return dv_fail(DAVY_E_INVALID, "the text has %" PRIu64 " bytes; at most %d are allowed", bytes,
                       DV_MAX_TEXT_BYTES);
    }
    uint32_t n = 0;
    uint32_t bad = 0;
    bool cut = false;
    for (uint64_t i = 0; i < bytes; i += n) {
        n = dv_utf8_check((const uint8_t *)text + i, bytes - i, &bad, &cut);
        if (n == 0) {
            return dv_fail(DAVY_E_INVALID, "the text is not valid UTF-8 (byte %" PRIu64 ")", i);
        }
    }
    return DAVY_OK;
}

static davy_result add_all(dv_ids *ids, const dv_ids *more) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < more->n; i++) {
        r = dv_ids_add(ids, more->p[i]);
    }
    return r;
}

typedef struct how {
    dv_guard guard;
    uint64_t begins;
    bool post;
} how;

static davy_result encode(const dv_tokenizer *t, const char *text, uint64_t bytes, const how *h, dv_ids *ids) {
    encoding e = {.t = t, .text = text, .guard = &h->guard, .begins = h->begins, .ids = ids};
    const int64_t n = ids->n;
    davy_result r = check_text(text, bytes);
    r = r == DAVY_OK && h->post ? add_all(ids, &t->before) : r;
    const dv_splitting splitting = {.text = text, .bytes = bytes, .guard = &h->guard, .part = raw_part, .user = &e};
    r = r < 0 ? r : dv_added_split(t, &t->raw, &splitting);
    r = r == DAVY_OK && h->post ? add_all(ids, &t->after) : r;
    dv_bpe_scratch_clear(&e.scratch);
    ids->n = r < 0 ? n : ids->n;
    return r;
}

davy_result dv_encode(const dv_tokenizer *t, const char *text, uint64_t bytes, uint32_t flags, dv_ids *ids) {
    const how h = {.guard.everywhere = (flags & DV_ENCODE_PLAIN) != 0, .post = (flags & DV_ENCODE_POST) != 0};
    return encode(t, text, bytes, &h, ids);
}

davy_result dv_encode_around(const dv_tokenizer *t, const char *text, uint64_t bytes, const dv_text_around *around,
                             dv_ids *ids) {
    const how h = {.guard = {.spans = around->spans, .n = around->n}, .begins = around->begins};
    return encode(t, text, bytes, &h, ids);
}

/* ---- decoding ---- */

davy_result dv_decode(const dv_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **out,
                      uint64_t *out_bytes) {
    uint8_t *all = NULL;
    uint8_t *text = NULL;
    int64_t room = 0;
    int64_t total = 0;
    uint64_t at = 0;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        uint64_t bytes = 0;
        const char *p =
            skip_special && dv_tokenizer_is_special(t, ids[i]) ? NULL : dv_tokenizer_bytes(t, ids[i], &bytes);
        uint8_t *grown = dv_grow(all, total + (int64_t)bytes, &room, 1);
        ok = grown != NULL;
        all = ok ? grown : all;
        if (ok && p != NULL) {
            memcpy(all + total, p, (size_t)bytes);
            total += (int64_t)bytes;
        }
    }
    text = ok ? dv_calloc((uint64_t)total * 3 + 1, 1) : NULL; /* a malformed byte becomes the three of U+FFFD */
    for (int64_t i = text != NULL && t->spaces_strip && total > 0 && all[0] == ' ' ? 1 : 0;
         text != NULL && i < total;) {
        uint32_t bad = 0;
        bool cut = false;
        const uint32_t good = dv_utf8_check(all + i, (uint64_t)(total - i), &bad, &cut);
        memcpy(text + at, good > 0 ? (const void *)(all + i) : "\xef\xbf\xbd", good > 0 ? good : 3);
        at += good > 0 ? good : 3;
        i += good > 0 ? good : bad;
    }
    dv_free(all);
    if (text == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the text of %" PRId64 " tokens", n);
    }
    *out = (char *)text;
    *out_bytes = at;
    return DAVY_OK;
}
