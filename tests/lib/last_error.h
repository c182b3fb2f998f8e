/* last_error.h - the sentence of the calling thread's last error, for tests that see inside the library. */
#ifndef DV_TESTS_LAST_ERROR_H
#define DV_TESTS_LAST_ERROR_H

#include "core/base/error.h"

const char *last_error(void);

#endif
