/* last_error.c - see last_error.h. */
#include "tests/lib/last_error.h"

const char *last_error(void) {
    static davy_error_info info;
    info.struct_size = sizeof info;
    dv_error_get(&info);
    return info.message;
}
