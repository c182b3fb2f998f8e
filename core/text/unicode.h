/* unicode.h - the parts of Unicode 16.0 that tokenizers use: classes of code points, UTF-8, normalisation form C. */
#ifndef DV_TEXT_UNICODE_H
#define DV_TEXT_UNICODE_H

#include "core/base/common.h"
#include "core/text/unicode_data.h"

enum {
    DV_UC_LETTER = 1,  /* general category L* */
    DV_UC_NUMBER = 2,  /* N* */
    DV_UC_SPACE = 4,   /* White_Space */
    DV_UC_WORD = 8,    /* \w of regular expressions */
    DV_UC_NOT_NFC = 16 /* a mark, or a character that form C may change */
};

static inline uint32_t dv_uc_class(uint32_t c) { /* c <= 0x10ffff */
    return dv_uc_class_blocks[(uint32_t)dv_uc_class_index[c >> 7] * 128u + (c & 127u)];
}

/* The code point at p, which must be well-formed UTF-8, and its length. */
static inline uint32_t dv_utf8_next(const uint8_t *p, uint32_t *bytes) {
    if (p[0] < 0x80) {
        *bytes = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *bytes = 2;
        return ((p[0] & 0x1fu) << 6) | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *bytes = 3;
        return ((p[0] & 0x0fu) << 12) | ((p[1] & 0x3fu) << 6) | (p[2] & 0x3fu);
    }
    *bytes = 4;
    return ((p[0] & 0x07u) << 18) | ((p[1] & 0x3fu) << 12) | ((p[2] & 0x3fu) << 6) | (p[3] & 0x3fu);
}

uint32_t dv_utf8_put(uint8_t *out, uint32_t c); /* writes up to 4 bytes; returns their number */

/* The length of the character at p, in any bytes. 0: it is malformed. *bad is then the length of the longest valid start of a
 * character (at least 1), which one U+FFFD replaces. *cut: the bytes end inside that character. */
uint32_t dv_utf8_check(const uint8_t *p, uint64_t left, uint32_t *bad, bool *cut);

/* Converts well-formed text to form C. *out is a new block (dv_free) of *out_bytes, or NULL if the text is in form C
 * already. */
davy_result dv_nfc(const char *text, uint64_t bytes, char **out, uint64_t *out_bytes);

#endif
