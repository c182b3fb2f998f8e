/* json_big.c - see json_big.h. One pass finds the start and end of the two members. The text without them goes to the JSON
 * reader, which checks it. The members are checked when they are read. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/text/json_big.h"
#include "core/text/unicode.h"

enum { MAX_DEPTH = 64, MAX_BYTES = 100 * 1000 * 1000 }; /* the limits of core/base/json.c */

typedef struct scan {
    const char *p, *end;
    const char *begin, *where; /* for messages */
    char *text;                /* a string with its escapes decoded */
    int64_t room;
} scan;

static davy_result bad(const scan *s, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_JSON, 0, "%s: JSON at byte %" PRIu64 ": %s", s->where,
                      (uint64_t)(s->p - s->begin), why);
}

static char look(scan *s) { /* the next character except white space; 0 at the end */
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) {
        s->p++;
    }
    return s->p < s->end ? *s->p : '\0';
}

static bool take(scan *s, char c) {
    const bool is = look(s) == c;
    s->p += is;
    return is;
}

/* ---- finding ---- */

static bool skip_string(scan *s) {
    for (s->p++; s->p < s->end && *s->p != '"'; s->p++) {
        s->p += *s->p == '\\';
    }
    s->p++;
    return s->p <= s->end;
}

/* Skips one value of any kind; false: it has no end, or is nested too deep. entries: commas of its outermost level, plus
 * one. */
static bool skip_value(scan *s, int64_t *entries) {
    int depth = 0;
    *entries = 0;
    do {
        const char c = look(s);
        if (c == '\0') {
            return false;
        }
        *entries += depth == 1 && (c == ',' || (*entries == 0 && c != ']' && c != '}'));
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (c == '"') {
            if (!skip_string(s)) {
                return false;
            }
        } else {
            s->p++;
        }
        while (depth == 0 && s->p < s->end && strchr(",]} \n\t\r", *s->p) == NULL) { /* the rest of a word */
            s->p++;
        }
    } while (depth > 0 && depth <= MAX_DEPTH);
    return depth == 0;
}

typedef davy_result (*member_fn)(scan *s, dv_json_big *big, const char *key, size_t bytes);

/* Calls `each` for each member of the object at s->p; it skips the value. Other values are left to the JSON reader. */
static davy_result members(scan *s, dv_json_big *big, member_fn each) {
    davy_result r = DAVY_OK;
    if (!take(s, '{') || take(s, '}')) {
        return DAVY_OK;
    }
    do {
        const char *key = look(s) == '"' ? s->p + 1 : NULL;
        if (key == NULL || !skip_string(s)) {
            return bad(s, "a member has no name");
        }
        const size_t bytes = (size_t)(s->p - key - 1);
        r = take(s, ':') ? each(s, big, key, bytes) : bad(s, "a member has no value");
    } while (r == DAVY_OK && take(s, ','));
    return r == DAVY_OK && !take(s, '}') ? bad(s, "an object has no end") : r;
}

static bool named(const char *key, size_t bytes, const char *name) {
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

static davy_result each_of_model(scan *s, dv_json_big *big, const char *key, size_t bytes) {
    dv_json_span *span = named(key, bytes, "vocab")    ? &big->vocabulary
                         : named(key, bytes, "merges") ? &big->merges
                                                       : NULL;
    const char first = look(s);
    const char *from = s->p;
    int64_t entries = 0;
    if (!skip_value(s, &entries)) {
        return bad(s, "a value has no end, or is nested deeper than 64");
    }
    if (span == NULL || first != (span == &big->vocabulary ? '{' : '[')) {
        return DAVY_OK;
    }
    if (span->from != NULL) {
        return bad(s, "model.vocab or model.merges occurs twice");
    }
    *span = (dv_json_span){from, (uint64_t)(s->p - from), entries};
    return DAVY_OK;
}

static davy_result each_of_root(scan *s, dv_json_big *big, const char *key, size_t bytes) {
    int64_t entries = 0;
    if (named(key, bytes, "model") && look(s) == '{') {
        return members(s, big, each_of_model);
    }
    return skip_value(s, &entries) ? DAVY_OK : bad(s, "a value has no end, or is nested deeper than 64");
}

/* A copy of the text without the contents of the two members' brackets. */
static char *cut(const char *text, uint64_t bytes, const dv_json_big *big, uint64_t *left) {
    const dv_json_span *a = &big->vocabulary;
    const dv_json_span *b = &big->merges;
    if (b->from != NULL && (a->from == NULL || b->from < a->from)) {
        a = &big->merges;
        b = &big->vocabulary;
    }
    char *out = dv_calloc(bytes - (a->bytes + b->bytes) + 5, 1);
    const char *from = text;
    uint64_t n = 0;
    for (int k = 0; out != NULL && k < 2; k++) {
        const dv_json_span *span = k == 0 ? a : b;
        if (span->from != NULL) {
            memcpy(out + n, from, (size_t)(span->from - from) + 1);
            n += (uint64_t)(span->from - from) + 1;
            from = span->from + span->bytes - 1;
        }
    }
    if (out != NULL) {
        memcpy(out + n, from, (size_t)(text + bytes - from));
        *left = n + (uint64_t)(text + bytes - from);
    }
    return out;
}

davy_result dv_json_big_open(const char *text, uint64_t bytes, const char *where, dv_json_big *big) {
    scan s = {.p = text, .end = text + bytes, .begin = text, .where = where};
    uint64_t left = 0;
    big->where = where;
    if (bytes > MAX_BYTES) {
        return bad(&s, "the text is longer than 100 MB");
    }
    davy_result r = members(&s, big, each_of_root);
    if (r < 0) {
        return r;
    }
    if ((big->vocabulary.from != NULL && !dv_utf8_valid(big->vocabulary.from, big->vocabulary.bytes)) ||
        (big->merges.from != NULL && !dv_utf8_valid(big->merges.from, big->merges.bytes))) {
        return bad(&s, "model.vocab or model.merges is not valid UTF-8");
    }
    char *rest = cut(text, bytes, big, &left);
    if (rest == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the parsed JSON", where);
    }
    r = dv_json_parse(rest, left, where, &big->rest);
    dv_free(rest);
    if (r == DAVY_E_FORMAT) { /* parsed again as a whole, for the right byte in the message */
        dv_json *whole = NULL;
        const davy_result again = dv_json_parse(text, bytes, where, &whole);
        dv_json_release(whole);
        return again < 0 ? again : bad(&s, "the JSON around model.vocab and model.merges is not valid");
    }
    return r;
}

void dv_json_big_clear(dv_json_big *big) {
    dv_json_release(big->rest);
    big->rest = NULL;
}

/* ---- reading ---- */

static bool hex4(const char *p, const char *end, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const char c = p + i < end ? p[i] : 'x';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return false;
        }
        *out = *out * 16 + (uint32_t)digit;
    }
    return true;
}

/* Decodes \uXXXX, with its second half if it is a surrogate pair; *p is at the 'u'. 0: malformed, or NUL. */
static uint32_t unicode_escape(const char **p, const char *end) {
    uint32_t c = 0;
    uint32_t low = 0;
    if (!hex4(*p + 1, end, &c) || (c >= 0xdc00 && c < 0xe000)) {
        return 0;
    }
    *p += 5;
    if (c < 0xd800 || c >= 0xe000) {
        return c;
    }
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u' || !hex4(*p + 2, end, &low) || low < 0xdc00 ||
        low >= 0xe000) {
        return 0;
    }
    *p += 6;
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* Decodes the string from p to the quote into s->text. A decoded escape is never longer than the escape. */
static davy_result undo_escapes(scan *s, const char *p, dv_name *out) {
    static const char plain[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *from = s->p;
    int64_t n = 0;
    while (p < s->end && *p != '"') {
        p += *p == '\\' ? 2 : 1;
    }
    char *grown = dv_grow(s->text, p - from + 4, &s->room, 1);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the parsed JSON", s->where);
    }
    s->text = grown;
    const char *end = p < s->end ? p : s->end;
    for (p = from; p < end;) {
        if (*p != '\\') {
            grown[n++] = *p++;
            continue;
        }
        p++;
        const char *known = p < end && *p != '\0' ? strchr(plain, *p) : NULL;
        if (known != NULL) {
            grown[n++] = meant[known - plain];
            p++;
            continue;
        }
        const uint32_t c = p < end && *p == 'u' ? unicode_escape(&p, end) : 0;
        if (c == 0) {
            return bad(s, "an invalid escape, or a NUL, inside a string");
        }
        n += dv_utf8_put((uint8_t *)grown + n, c);
    }
    s->p = end;
    *out = (dv_name){grown, (uint64_t)n};
    return DAVY_OK;
}

/* Reads the string at s->p; out is valid until the next call. */
static davy_result read_string(scan *s, dv_name *out) {
    if (!take(s, '"')) {
        return bad(s, "an entry of model.vocab or model.merges is not a string");
    }
    const char *p = s->p;
    while (p < s->end && *p != '"' && *p != '\\' && (uint8_t)*p >= 0x20) {
        p++;
    }
    davy_result r = DAVY_OK;
    if (p < s->end && *p == '\\') {
        r = undo_escapes(s, p, out);
    } else {
        *out = (dv_name){s->p, (uint64_t)(p - s->p)};
        s->p = p;
    }
    if (r == DAVY_OK && (s->p >= s->end || *s->p != '"')) {
        return bad(s, "a string has a control character or no closing quote");
    }
    s->p += r == DAVY_OK;
    return r;
}

static davy_result read_id(scan *s, int64_t *id) {
    const bool minus = take(s, '-');
    const char *first = s->p;
    int64_t v = 0;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9' && s->p - first < 15; s->p++) {
        v = v * 10 + (*s->p - '0');
    }
    *id = minus ? -v : v;
    const char next = look(s);
    return s->p > first && (next == ',' || next == '}')
               ? DAVY_OK
               : dv_fail(DAVY_E_FORMAT, "%s: model.vocab has an id that is not an integer", s->where);
}

static scan scan_of(const dv_json_big *big, const dv_json_span *span) {
    return (scan){.p = span->from + 1, .end = span->from + span->bytes, .begin = span->from, .where = big->where};
}

/* Reads the comma or the closing bracket after an entry. */
static davy_result go_on(scan *s, char close, bool *ended) {
    *ended = take(s, close);
    return *ended || take(s, ',')
               ? DAVY_OK
               : bad(s, "an entry of model.vocab or model.merges is not followed by a comma or the end");
}

davy_result dv_json_big_vocabulary(const dv_json_big *big, dv_tokenizer *t) {
    scan s = scan_of(big, &big->vocabulary);
    davy_result r = DAVY_OK;
    bool ended = take(&s, '}');
    while (r == DAVY_OK && !ended) {
        dv_name name = {0};
        int64_t id = 0;
        r = read_string(&s, &name);
        r = r == DAVY_OK && !take(&s, ':') ? bad(&s, "a name in model.vocab has no id") : r;
        r = r < 0 ? r : read_id(&s, &id);
        r = r < 0 ? r : dv_tokenizer_add(t, "model.vocab", name, id);
        r = r < 0 ? r : go_on(&s, '}', &ended);
    }
    dv_free(s.text);
    return r;
}

static davy_result read_pair(scan *s, dv_tokenizer *t, int64_t index) {
    dv_name left = {0};
    dv_name right = {0};
    char *kept = NULL;
    davy_result r =
        take(s, '[') ? read_string(s, &left) : bad(s, "an entry of model.merges is neither a string nor a pair");
    if (r == DAVY_OK && left.p == s->text) { /* the next string may overwrite this one */
        kept = dv_strndup(left.p, (size_t)left.bytes);
        left.p = kept;
        r = kept != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the parsed JSON", s->where);
    }
    r = r == DAVY_OK && !take(s, ',') ? bad(s, "a pair of model.merges has one string") : r;
    r = r < 0 ? r : read_string(s, &right);
    r = r == DAVY_OK && !take(s, ']') ? bad(s, "a pair of model.merges has more than two strings") : r;
    r = r < 0 ? r : dv_tokenizer_merge(t, index, left, right);
    dv_free(kept);
    return r;
}

davy_result dv_json_big_merges(const dv_json_big *big, dv_tokenizer *t) {
    scan s = scan_of(big, &big->merges);
    davy_result r = DAVY_OK;
    int64_t index = 0;
    bool ended = take(&s, ']');
    while (r == DAVY_OK && !ended) {
        dv_name line = {0};
        if (look(&s) != '"') {
            r = read_pair(&s, t, index++);
        } else {
            r = read_string(&s, &line);
            /* Some files include the first line of merges.txt. */
            if (r == DAVY_OK && (line.bytes < 8 || memcmp(line.p, "#version", 8) != 0)) {
                r = dv_tokenizer_merge_line(t, index++, line);
            }
        }
        r = r < 0 ? r : go_on(&s, ']', &ended);
    }
    dv_free(s.text);
    return r;
}
