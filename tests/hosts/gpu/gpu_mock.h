/* gpu_mock.h - a mock of the NVIDIA driver: its state, davy's log lines, and a context on it. */
#ifndef DV_TESTS_GPU_MOCK_H
#define DV_TESTS_GPU_MOCK_H

#include <dlfcn.h>

#include "tests/cuda/mock_driver.h"
#include "tests/hosts/host.h"

extern const davy_api *api;
extern mock_state *mock;
extern void *mock_library;
extern char heard[4096]; /* all log lines since the last reset */

void mock_again(void);
void mock_begin(void);
void DAVY_CALL hear_all(void *user, davy_log_level level, const char *utf8);
davy_result open_on(const char *device, uint64_t budget, davy_context **out);
davy_memory_info memory_of(davy_context *ctx);

/* Checks that all of the driver's objects are released. */
void mock_is_empty(const char *after);

#define SAYS(words)  CHECKF(strstr(host_error(api), words) != NULL, "\"%s\" is not in: %s", words, host_error(api))
#define HEARD(words) CHECKF(strstr(heard, words) != NULL, "\"%s\" is not in the log: %s", words, heard)

#endif
