/* last_error.h - the sentence of the calling thread's last error, for tests that see inside the library. */
#ifndef DV_TESTS_LAST_ERROR_H
#define DV_TESTS_LAST_ERROR_H

#include "core/base/error.h"

static inline const char *last_error(void) {
    static davy_error_info info;
    info.struct_size = sizeof info;
    dv_error_get(&info);
    return info.message;
}

#endif
