/* utf8.h - checks and printing of strings from files. They may be invalid UTF-8 and may contain terminal escapes. */
#ifndef DV_UTF8_H
#define DV_UTF8_H

#include "core/base/common.h"

/* Well-formed UTF-8 without NUL: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool dv_utf8_valid(const char *s, uint64_t bytes);

/* For messages: copies as much as fits into size bytes, NUL included. Bytes outside printable ASCII become '?'. Returns
 * out. */
const char *dv_printable(char *out, size_t size, const char *s, uint64_t bytes);

/* "[64,3,3,3]" for messages, cut to what fits. Returns out. */
const char *dv_shape_text(char *out, size_t size, const int64_t *shape, int32_t ndim);

/* The case of ASCII letters in s is ignored; head and tail are lower case. */
bool dv_ends_with(const char *s, const char *tail);
bool dv_starts_with(const char *s, const char *head);

/* Little-endian integers at any alignment. */
static inline uint16_t dv_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}

static inline uint32_t dv_le32(const uint8_t *p) {
    return (uint32_t)dv_le16(p) | ((uint32_t)dv_le16(p + 2) << 16);
}

static inline uint64_t dv_le64(const uint8_t *p) {
    return (uint64_t)dv_le32(p) | ((uint64_t)dv_le32(p + 4) << 32);
}

#endif
