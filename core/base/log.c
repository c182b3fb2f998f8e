/* log.c - formats one message and passes it to the host's callback. The library itself never prints. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>

void dv_logf(const dv_log *log, davy_log_level level, const char *fmt, ...) {
    if (log == NULL || log->fn == NULL || level > log->level || level <= DAVY_LOG_NONE) {
        return;
    }
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        log->fn(log->user, level, text);
    }
}
