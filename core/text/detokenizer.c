/* detokenizer.c - see detokenizer.h. Text passes three stages: bytes of an incomplete character, characters that may belong
 * to a stop text, and characters that were returned. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 1024 };

static const char think_open[] = "<think>";
static const char think_close[] = "</think>";
enum { THINK_OPEN = 7, THINK_CLOSE = 8 };

struct dv_detokenizer {
    const dv_tokenizer *t;
    int32_t *stop_ids;
    int64_t n_stop_ids;
    char **stop_texts;
    int64_t n_stop_texts;
    bool keep_special, trim_start;
    bool begun; /* the text has more than white space */
    bool strip; /* one space is removed from the start of the text */
    bool hide_thoughts, thinking;
    bool passed; /* a block of thoughts was dropped */
    enum { THOUGHTS_NONE, THOUGHTS_PERHAPS, THOUGHTS_INSIDE } thoughts;
    bool stopped;
    uint8_t cut[4]; /* the start of an incomplete character */
    uint32_t n_cut;
    char *held; /* whole characters; the last call returned the first `given` bytes */
    int64_t n_held, held_room, given;
    uint8_t *bytes; /* of one call: cut, then the token's */
    int64_t bytes_room;
};

static davy_result no_memory(void) {
    return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for generated text");
}

static davy_result copy_options(dv_detokenizer *s, const dv_detokenizer_options *o) {
    if (o->n_stop_texts > MAX_STOPS || o->n_stop_ids > MAX_STOPS) {
        return dv_fail(DAVY_E_INVALID, "more than %d stop texts or stop tokens", MAX_STOPS);
    }
    s->stop_ids = dv_calloc((uint64_t)o->n_stop_ids, sizeof *s->stop_ids);
    s->stop_texts = dv_calloc((uint64_t)o->n_stop_texts, sizeof *s->stop_texts);
    if (s->stop_ids == NULL || s->stop_texts == NULL) {
        return no_memory();
    }
    for (int64_t i = 0; i < o->n_stop_ids; i++) {
        s->stop_ids[s->n_stop_ids++] = o->stop_ids[i];
    }
    for (int64_t i = 0; i < o->n_stop_texts; i++) {
        const size_t n = strlen(o->stop_texts[i]);
        if (n == 0 || n > MAX_STOP_BYTES) {
            return dv_fail(DAVY_E_INVALID, "a stop text has %llu bytes; 1 to %d are allowed", (unsigned long long)n,
                           MAX_STOP_BYTES);
        }
        s->stop_texts[i] = dv_strdup(o->stop_texts[i]);
        if (s->stop_texts[i] == NULL) {
            return no_memory();
        }
        s->n_stop_texts++;
    }
    return DAVY_OK;
}

davy_result dv_detokenizer_create(const dv_tokenizer *t, const dv_detokenizer_options *options, dv_detokenizer **out) {
    const dv_detokenizer_options plain = {.keep_special = true};
    const dv_detokenizer_options *o = options != NULL ? options : &plain;
    dv_detokenizer *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return no_memory();
    }
    s->t = t;
    s->keep_special = o->keep_special;
    s->trim_start = o->trim_start;
    s->hide_thoughts = o->hide_thoughts;
    s->thinking = o->thinking;
    const davy_result r = copy_options(s, o);
    dv_detokenizer_reset(s);
    if (r < 0) {
        dv_detokenizer_release(s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

void dv_detokenizer_release(dv_detokenizer *s) {
    if (s == NULL) {
        return;
    }
    for (int64_t i = 0; i < s->n_stop_texts; i++) {
        dv_free(s->stop_texts[i]);
    }
    dv_free(s->stop_ids);
    dv_free(s->stop_texts);
    dv_free(s->held);
    dv_free(s->bytes);
    dv_free(s);
}

void dv_detokenizer_reset(dv_detokenizer *s) {
    s->begun = !s->trim_start;
    s->strip = s->t->spaces_strip;
    s->thoughts = !s->hide_thoughts ? THOUGHTS_NONE : s->thinking ? THOUGHTS_INSIDE : THOUGHTS_PERHAPS;
    s->passed = false;
    s->stopped = false;
    s->n_cut = 0;
    s->n_held = 0;
    s->given = 0;
}

/* Appends the whole characters of s->bytes to s->held. An incomplete character at the end is kept in s->cut, or replaced if
 * these are the last bytes. */
static davy_result take_bytes(dv_detokenizer *s, int64_t n, bool last) {
    char *held = dv_grow(s->held, s->n_held + 3 * n + 1, &s->held_room, 1);
    if (held == NULL) {
        return no_memory();
    }
    s->held = held;
    s->n_cut = 0;
    for (int64_t i = 0; i < n;) {
        uint32_t bad = 0;
        bool cut = false;
        const uint8_t *p = s->bytes + i;
        const uint32_t good = dv_utf8_check(p, (uint64_t)(n - i), &bad, &cut);
        if (cut && !last) {
            memcpy(s->cut, p, bad);
            s->n_cut = bad;
            break;
        }
        i += good > 0 ? good : bad;
        uint32_t length = 0;
        if (!s->begun && good > 0 && (dv_uc_class(dv_utf8_next(p, &length)) & DV_UC_SPACE) != 0) {
            continue;
        }
        s->begun = true;
        if (s->strip && *p == ' ') {
            s->strip = false;
            continue;
        }
        s->strip = false;
        memcpy(held + s->n_held, good > 0 ? (const void *)p : "\xef\xbf\xbd", good > 0 ? good : 3);
        s->n_held += good > 0 ? good : 3;
    }
    return DAVY_OK;
}

static void drop_front(dv_detokenizer *s, int64_t n) {
    memmove(s->held, s->held + n, (size_t)(s->n_held - n));
    s->n_held -= n;
}

/* Drops the block of thoughts that ends at `at`, and the white space after it. The answer begins there. */
static void end_thoughts(dv_detokenizer *s, int64_t at) {
    uint32_t length = 0;
    int64_t from = at + THINK_CLOSE;
    while (from < s->n_held &&
           (dv_uc_class(dv_utf8_next((const uint8_t *)s->held + from, &length)) & DV_UC_SPACE) != 0) {
        from += length;
    }
    drop_front(s, from);
    s->begun = s->n_held > 0;
    s->passed = true;
    s->thoughts = THOUGHTS_NONE;
}

/* Drops thoughts from the front of s->held. true: the rest is the answer. */
static bool pass_thoughts(dv_detokenizer *s, bool last) {
    if (s->thoughts == THOUGHTS_PERHAPS) {
        const int64_t n = dv_min(s->n_held, THINK_OPEN);
        const bool alike = n == 0 || memcmp(s->held, think_open, (size_t)n) == 0;
        s->thoughts = !alike || (last && n < THINK_OPEN) ? THOUGHTS_NONE
                      : n == THINK_OPEN                  ? THOUGHTS_INSIDE
                                                         : THOUGHTS_PERHAPS;
    }
    for (int64_t i = 0; s->thoughts == THOUGHTS_INSIDE && i + THINK_CLOSE <= s->n_held; i++) {
        if (memcmp(s->held + i, think_close, THINK_CLOSE) == 0) {
            end_thoughts(s, i);
        }
    }
    if (s->thoughts == THOUGHTS_INSIDE) {
        drop_front(s, last ? s->n_held : dv_max(0, s->n_held - (THINK_CLOSE - 1)));
    }
    return s->thoughts == THOUGHTS_NONE;
}

/* The number of certain bytes in s->held: up to the stop text that is complete first (*found), or up to a possible start of
 * a stop text. */
static int64_t certain(const dv_detokenizer *s, bool *found) {
    int64_t stop = 0;
    int64_t stop_end = INT64_MAX;
    int64_t begins = s->n_held;
    for (int64_t at = 0; s->n_stop_texts > 0 && at < s->n_held; at++) {
        const int64_t left = s->n_held - at;
        for (int64_t k = 0; k < s->n_stop_texts; k++) {
            const int64_t n = (int64_t)strlen(s->stop_texts[k]);
            if (memcmp(s->held + at, s->stop_texts[k], (size_t)dv_min(n, left)) != 0) {
                continue;
            }
            if (n <= left && at + n < stop_end) {
                stop = at;
                stop_end = at + n;
            }
            begins = dv_min(begins, at);
        }
    }
    *found = stop_end != INT64_MAX;
    return *found ? stop : begins;
}

static void drop_given(dv_detokenizer *s) {
    drop_front(s, s->given);
    s->given = 0;
}

static davy_result run(dv_detokenizer *s, const char *token, uint64_t bytes, bool last, bool *stop) {
    if (s->given > 0) {
        drop_given(s);
    }
    uint8_t *grown = dv_grow(s->bytes, (int64_t)bytes + 4, &s->bytes_room, 1);
    if (grown == NULL) {
        return no_memory();
    }
    s->bytes = grown;
    memcpy(grown, s->cut, s->n_cut);
    if (bytes > 0) {
        memcpy(grown + s->n_cut, token, (size_t)bytes);
    }
    const davy_result r = take_bytes(s, (int64_t)bytes + s->n_cut, last);
    if (r == DAVY_OK) {
        *stop = false;
    }
    const int64_t n = r == DAVY_OK && pass_thoughts(s, last) ? certain(s, stop) : 0;
    s->given = last && !*stop ? s->n_held : n;
    return r;
}

static bool is_stop_id(const dv_detokenizer *s, int32_t id) {
    for (int64_t i = 0; i < s->n_stop_ids; i++) {
        if (s->stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

davy_result dv_detokenizer_push(dv_detokenizer *s, int32_t id, const char **text, uint64_t *bytes, bool *stop) {
    uint64_t n = 0;
    const bool ends = is_stop_id(s, id);
    const bool hidden = ends || (!s->keep_special && dv_tokenizer_is_special(s->t, id));
    const char *token = hidden ? NULL : dv_tokenizer_bytes(s->t, id, &n);
    *text = "";
    *bytes = 0;
    *stop = true;
    if (s->stopped) {
        return DAVY_OK;
    }
    const davy_result r = run(s, token, token != NULL ? n : 0, ends, stop);
    if (r == DAVY_OK) {
        *stop = *stop || ends;
        s->stopped = *stop;
        *text = s->held;
        *bytes = (uint64_t)s->given;
    }
    return r;
}

davy_result dv_detokenizer_end(dv_detokenizer *s, const char **text, uint64_t *bytes) {
    bool stop = false;
    *text = "";
    *bytes = 0;
    if (s->stopped) {
        return DAVY_OK;
    }
    const davy_result r = run(s, NULL, 0, true, &stop);
    if (r == DAVY_OK) {
        s->stopped = true;
        *text = s->held;
        *bytes = (uint64_t)s->given;
    }
    return r;
}

bool dv_detokenizer_only_thought(const dv_detokenizer *s) {
    return s->thoughts == THOUGHTS_INSIDE || (s->passed && !s->begun);
}
