/* gpu_mock.h - hosts of davy on a machine whose NVIDIA driver is a mock: its state, what davy logs, and a context on it. */
#ifndef DV_TESTS_GPU_MOCK_H
#define DV_TESTS_GPU_MOCK_H

#include <dlfcn.h>

#include "tests/cuda/mock_driver.h"
#include "tests/hosts/host.h"

static const davy_api *api;
static mock_state *mock;
static void *mock_library;
static char heard[4096]; /* all log lines since the last look */

static inline void mock_again(void) {
    mock_reset_fn fn = NULL;
    void *symbol = dlsym(mock_library, "mock_reset");
    memcpy(&fn, &symbol, sizeof fn);
    fn();
}

static inline void mock_begin(void) {
    mock_fn fn = NULL;
    const char *path = getenv("DAVY_CUDA_DRIVER");
    mock_library = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
    if (mock_library == NULL) {
        fprintf(stderr, "DAVY_CUDA_DRIVER must name the mock\n");
        exit(2);
    }
    void *symbol = dlsym(mock_library, "mock");
    memcpy(&fn, &symbol, sizeof fn);
    mock = fn();
    mock_again();
    api = host_load();
}

static void DAVY_CALL hear_all(void *user, davy_log_level level, const char *utf8) {
    const size_t n = strlen(heard);
    (void)user;
    snprintf(heard + n, sizeof heard - n, "%d %s\n", (int)level, utf8);
}

static inline davy_result open_on(const char *device, uint64_t budget, davy_context **out) {
    const davy_host host = {.struct_size = sizeof host, .log_level = DAVY_LOG_DEBUG, .log = hear_all};
    const davy_context_desc d = {.struct_size = sizeof d,
                                 .abi_version = DAVY_ABI_VERSION,
                                 .host = &host,
                                 .device = device,
                                 .device_budget_bytes = budget,
                                 .n_threads = 2};
    heard[0] = '\0';
    return api->context_create(&d, out);
}

static inline davy_memory_info memory_of(davy_context *ctx) {
    davy_memory_info m = {.struct_size = sizeof m};
    IS(api->context_memory(ctx, &m), DAVY_OK);
    return m;
}

/* Everything of the driver's is given back. */
static inline void mock_is_empty(const char *after) {
    CHECKF(mock->live == 0 && mock->streams == 0 && mock->events == 0 && mock->graphs == 0 && mock->pinned == 0 &&
               mock->modules == 0 && mock->retained == 0,
           "%s: %lld blocks, %lld streams, %lld events, %lld graphs, %lld pinned, %lld modules, %lld contexts are left",
           after, (long long)mock->live, (long long)mock->streams, (long long)mock->events, (long long)mock->graphs,
           (long long)mock->pinned, (long long)mock->modules, (long long)mock->retained);
    CHECKF(mock->pushes == mock->pops && mock->bad_context == 0, "%s: the thread's CUDA context is not what it was",
           after);
}

#define SAYS(words)  CHECKF(strstr(host_error(api), words) != NULL, "\"%s\" is not in: %s", words, host_error(api))
#define HEARD(words) CHECKF(strstr(heard, words) != NULL, "\"%s\" is not in the log: %s", words, heard)

#endif
