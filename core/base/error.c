/* error.c - the error record of the calling thread. It is plain data in thread-local storage. No destructor runs when a
 * thread ends, so unloading the library is safe. Nothing is allocated, so that running out of memory can be reported. */
#include "core/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local davy_error_info record = {.struct_size = sizeof(davy_error_info)};

/* A message cut in the middle of a UTF-8 character would be invalid text for the host. */
static void trim_utf8(char *text, size_t bytes, int written) {
    if (written >= 0 && (size_t)written < bytes) {
        return;
    }
    size_t end = strlen(text);
    size_t start = end;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0u) == 0x80u) {
        start--;
    }
    if (start == 0) {
        return;
    }
    const unsigned char lead = (unsigned char)text[start - 1];
    const size_t need = lead >= 0xf0u ? 4 : lead >= 0xe0u ? 3 : lead >= 0xc0u ? 2 : 1;
    if (need > 1 && end - (start - 1) < need) {
        text[start - 1] = '\0';
    }
}

static void fill(davy_result code, int32_t domain, int32_t native, const char *fmt, va_list ap) {
    char text[sizeof record.message]; /* the arguments may point into the old message */
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0) {
        text[0] = '\0';
    }
    trim_utf8(text, sizeof text, n);
    record.struct_size = sizeof record;
    record.code = code;
    record.domain = domain;
    record.native = native;
    memcpy(record.message, text, sizeof text);
}

davy_result dv_fail(davy_result code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fill(code, DAVY_DOMAIN_DAVY, 0, fmt, ap);
    va_end(ap);
    return code;
}

davy_result dv_fail_in(davy_result code, int32_t domain, int32_t native, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fill(code, domain, native, fmt, ap);
    va_end(ap);
    return code;
}

davy_result dv_fail_prefix(const char *fmt, ...) {
    char text[sizeof record.message];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return record.code;
    }
    trim_utf8(text, sizeof text, n);
    char old[sizeof record.message];
    memcpy(old, record.message, sizeof old);
    const int total = snprintf(record.message, sizeof record.message, "%s: ", text);
    const size_t used = total < 0 ? 0 : (size_t)dv_min(total, (int64_t)sizeof record.message - 1);
    const int tail = snprintf(record.message + used, sizeof record.message - used, "%s", old);
    trim_utf8(record.message, sizeof record.message, tail < 0 ? tail : tail + (int)used);
    return record.code;
}

void dv_error_get(davy_error_info *out) {
    *out = record;
    out->struct_size = sizeof *out;
}

void dv_error_set(const davy_error_info *info) {
    record = *info;
    record.struct_size = sizeof record;
}

const char *dv_result_name(davy_result r) {
    static const char *const positive[] = {"OK", "PENDING", "NEED_INPUT", "FULL", "END"};
    static const char *const negative[] = {
        "E_INVALID",   "E_STRUCT",       "E_STATE",       "E_BUSY",      "E_NOMEM_HOST",  "E_NOMEM_DEVICE", "E_BUDGET",
        "E_CANCELLED", "E_TIMEOUT",      "E_IO",          "E_NOT_FOUND", "E_FORMAT",      "E_UNSAFE",       "E_ARCH",
        "E_TENSOR",    "E_SHAPE",        "E_UNSUPPORTED", "E_DEVICE",    "E_DEVICE_LOST", "E_LIBRARY",      "E_INTEROP",
        "E_TOKENIZER", "E_CONTEXT_FULL", "E_OPTION",      "E_FORKED",    "E_INTERNAL"};
    if (r >= 0) {
        return r < (int32_t)DV_ARRAY_LEN(positive) ? positive[r] : "?";
    }
    return r >= -(int32_t)DV_ARRAY_LEN(negative) ? negative[-(r + 1)] : "?";
}
