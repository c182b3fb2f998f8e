/* json.c - cJSON behind checks of the text, and the JSON writer. The parser cJSON recurses once for each nesting level,
 * allocates a node of 64 bytes for each value, and ends a string at an escaped NUL. One pass over the text therefore limits
 * depth, values and characters before cJSON parses it. */
#include "core/base/json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

enum {
    MAX_DEPTH = 64,
    MAX_NODES = 1 << 22, /* a large tokenizer.json has a million */
    MAX_BYTES = 100 * 1000 * 1000
};

static davy_result bad(const char *where, uint64_t at, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_JSON, 0, "%s: JSON at byte %" PRIu64 ": %s", where, at, why);
}

/* Steps over a string that starts at text[i] (the quote); returns the index after it, or 0 with an error set. */
static uint64_t skip_string(const char *text, uint64_t i, uint64_t bytes, const char *where) {
    const uint64_t start = i;
    for (i++; i < bytes; i++) {
        if (text[i] == '"') {
            return i + 1;
        }
        if ((uint8_t)text[i] < 0x20) {
            bad(where, i, "a control character inside a string");
            return 0;
        }
        if (text[i] == '\\') {
            if (bytes - i > 5 && memcmp(text + i, "\\u0000", 6) == 0) {
                bad(where, i, "a NUL inside a string");
                return 0;
            }
            i++;
        }
    }
    bad(where, start, "a string has no closing quote");
    return 0;
}

static davy_result check_text(const char *text, uint64_t bytes, const char *where) {
    if (bytes == 0 || bytes > MAX_BYTES) {
        return bad(where, 0, bytes == 0 ? "the text is empty" : "the text is longer than 100 MB");
    }
    if (!dv_utf8_valid(text, bytes)) {
        return bad(where, 0, "the text is not valid UTF-8");
    }
    int64_t depth = 0;
    int64_t nodes = 1;
    for (uint64_t i = 0; i < bytes;) {
        const char c = text[i];
        if (c == '"') {
            i = skip_string(text, i, bytes, where);
            if (i == 0) {
                return DAVY_E_FORMAT;
            }
            continue;
        }
        nodes += c == ',' || c == '{' || c == '[';
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth > MAX_DEPTH) {
            return bad(where, i, "values are nested deeper than 64 levels");
        }
        if (nodes > MAX_NODES) {
            return bad(where, i, "more than 4 million values");
        }
        i++;
    }
    return DAVY_OK;
}

davy_result dv_json_parse(const char *text, uint64_t bytes, const char *where, dv_json **out) {
    const davy_result r = check_text(text, bytes, where);
    if (r < 0) {
        return r;
    }
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, (size_t)bytes, &end, 0);
    uint64_t at = end != NULL ? (uint64_t)(end - text) : 0;
    if (root == NULL) {
        /* cJSON reports no reason. If a small block cannot be allocated now, memory has run out. */
        void *probe = dv_calloc(1, sizeof(cJSON));
        dv_free(probe);
        return probe != NULL ? bad(where, at, "not valid JSON")
                             : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the parsed JSON", where);
    }
    for (; at < bytes; at++) {
        if (strchr(" \t\r\n", text[at]) == NULL) {
            cJSON_Delete(root);
            return bad(where, at, "text after the end of the value");
        }
    }
    *out = root;
    return DAVY_OK;
}

void dv_json_release(dv_json *root) {
    cJSON_Delete(root);
}

const dv_json *dv_json_get(const dv_json *object, const char *key) {
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

bool dv_json_is_object(const dv_json *v) {
    return cJSON_IsObject(v) != 0;
}

bool dv_json_is_array(const dv_json *v) {
    return cJSON_IsArray(v) != 0;
}

bool dv_json_is_string(const dv_json *v) {
    return cJSON_IsString(v) != 0;
}

int64_t dv_json_size(const dv_json *v) {
    return cJSON_GetArraySize(v);
}

const dv_json *dv_json_first(const dv_json *v) {
    return cJSON_IsArray(v) || cJSON_IsObject(v) ? v->child : NULL;
}

const dv_json *dv_json_next(const dv_json *v) {
    return v->next;
}

const char *dv_json_key(const dv_json *v) {
    return v->string;
}

const char *dv_json_string(const dv_json *v) {
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

/* 2^53 itself is refused: the text 9007199254740993 parses to the same double. */
bool dv_json_int(const dv_json *v, int64_t *out) {
    if (!cJSON_IsNumber(v) || !(fabs(v->valuedouble) < 9007199254740992.0) || v->valuedouble != floor(v->valuedouble)) {
        return false;
    }
    *out = (int64_t)v->valuedouble;
    return true;
}

bool dv_json_double(const dv_json *v, double *out) {
    if (!cJSON_IsNumber(v)) {
        return false;
    }
    *out = v->valuedouble;
    return true;
}

bool dv_json_bool(const dv_json *v, bool *out) {
    if (!cJSON_IsBool(v)) {
        return false;
    }
    *out = cJSON_IsTrue(v) != 0;
    return true;
}

bool dv_json_is_null(const dv_json *v) {
    return cJSON_IsNull(v) != 0;
}

/* ---- writing ---- */

static void put(dv_jw *w, const char *s, size_t n) {
    char *text = w->failed ? NULL : dv_grow(w->text, w->size + (int64_t)n + 1, &w->capacity, 1);
    if (text == NULL) {
        w->failed = true;
        return;
    }
    w->text = text;
    memcpy(text + w->size, s, n);
    w->size += (int64_t)n;
    text[w->size] = '\0';
}

/* Bytes of the character at s, 0 when it is not well-formed. */
static size_t character(const char *s, size_t left) {
    const unsigned char c = (unsigned char)*s;
    const size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n <= left && dv_utf8_valid(s, n) ? n : 0;
}

static void put_quoted(dv_jw *w, const char *s) {
    char escape[8];
    const size_t len = strlen(s);
    put(w, "\"", 1);
    for (size_t i = 0; i < len;) {
        const size_t n = character(s + i, len - i);
        const unsigned char c = (unsigned char)s[i];
        if (n == 0) {
            put(w, "\xef\xbf\xbd", 3); /* the replacement character */
        } else if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = (char)c;
            put(w, escape, 2);
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
            put(w, escape, 6);
        } else {
            put(w, s + i, n);
        }
        i += n > 0 ? n : 1;
    }
    put(w, "\"", 1);
}

static void put_key(dv_jw *w, const char *key) {
    if (w->comma) {
        put(w, ",", 1);
    }
    w->comma = true;
    if (key != NULL) {
        put_quoted(w, key);
        put(w, ":", 1);
    }
}

void dv_jw_open(dv_jw *w, const char *key, char bracket) {
    put_key(w, key);
    put(w, &bracket, 1);
    w->comma = false;
}

void dv_jw_close(dv_jw *w, char bracket) {
    put(w, &bracket, 1);
    w->comma = true;
}

void dv_jw_string(dv_jw *w, const char *key, const char *value) {
    put_key(w, key);
    put_quoted(w, value);
}

void dv_jw_bool(dv_jw *w, const char *key, bool value) {
    put_key(w, key);
    put(w, value ? "true" : "false", value ? 4 : 5);
}

void dv_jw_int(dv_jw *w, const char *key, int64_t value) {
    char text[32];
    put_key(w, key);
    snprintf(text, sizeof text, "%" PRId64, value);
    put(w, text, strlen(text));
}

void dv_jw_number(dv_jw *w, const char *key, double value) {
    char text[40] = "null";
    put_key(w, key);
    if (value - value == 0.0) {
        snprintf(text, sizeof text, "%.9g", value);
        for (char *p = text; *p != '\0'; p++) {
            *p = *p == ',' ? '.' : *p; /* the decimal sign of some locales */
        }
    }
    put(w, text, strlen(text));
}

char *dv_jw_finish(dv_jw *w) {
    char *text = w->text;
    if (w->failed) {
        dv_free(text);
        text = NULL;
    }
    memset(w, 0, sizeof *w);
    return text;
}
