/* json_write.c - see json_write.h. */
#include "core/base/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/base/mem.h"

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
            *p = *p == ',' ? '.' : *p; /* some locales' decimal sign */
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
