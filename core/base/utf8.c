/* utf8.c - checks and printing of strings from files. isprint and tolower are not used: they follow the host's setlocale. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

/* Length of the sequence at p, 0 if malformed. Its second byte's range excludes overlong forms, surrogates and code points
 * above U+10FFFF. */
static uint64_t sequence(const uint8_t *p, uint64_t left) {
    const uint8_t b = p[0];
    if (b < 0x80) {
        return b != 0;
    }
    const uint64_t n = b >= 0xc2 && b <= 0xdf ? 2u : b >= 0xe0 && b <= 0xef ? 3u : b >= 0xf0 && b <= 0xf4 ? 4u : 0u;
    if (n == 0 || n > left) {
        return 0;
    }
    const uint8_t low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (uint64_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool dv_utf8_valid(const char *s, uint64_t bytes) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    const uint8_t *p = (const uint8_t *)s;
    for (uint64_t i = 0; i < bytes;) {
        uint64_t word = tops;
        if (bytes - i >= sizeof word) {
            memcpy(&word, p + i, sizeof word);
        }
        if (((word | (word - ones)) & tops) == 0) { /* eight ASCII bytes without NUL */
            i += sizeof word;
            continue;
        }
        const uint64_t n = sequence(p + i, bytes - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

const char *dv_printable(char *out, size_t size, const char *s, uint64_t bytes) {
    size_t n = 0;
    for (; n + 1 < size && n < bytes; n++) {
        out[n] = s[n] >= 0x20 && s[n] < 0x7f ? s[n] : '?';
    }
    out[n] = '\0';
    return out;
}

const char *dv_shape_text(char *out, size_t size, const int64_t *shape, int32_t ndim) {
    size_t at = 0;
    for (int32_t i = 0; i < ndim && at < size; i++) {
        const int n = snprintf(out + at, size - at, "%c%" PRId64, i == 0 ? '[' : ',', shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at < size) {
        snprintf(out + at, size - at, "%s", ndim == 0 ? "[]" : "]");
    }
    return out;
}

bool dv_ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s);
    const size_t m = strlen(tail);
    return n >= m && dv_starts_with(s + (n - m), tail);
}

bool dv_starts_with(const char *s, const char *head) {
    for (; *head != '\0'; s++, head++) {
        if (lower(*s) != *head) {
            return false;
        }
    }
    return true;
}
