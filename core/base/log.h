/* log.h - messages for the host's log callback. A message more detailed than the host's level is not formatted. */
#ifndef DV_LOG_H
#define DV_LOG_H

#include "core/base/common.h"

typedef struct dv_log {
    davy_log_fn fn; /* NULL: no log */
    void *user;
    davy_log_level level;
} dv_log;

void dv_logf(const dv_log *log, davy_log_level level, const char *fmt, ...) DV_PRINTF(3, 4);

#endif
