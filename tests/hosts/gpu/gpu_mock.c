/* gpu_mock.c - see gpu_mock.h. */
#include "tests/hosts/gpu/gpu_mock.h"

const davy_api *api;
mock_state *mock;
void *mock_library;
char heard[4096];

void mock_again(void) {
    mock_reset_fn fn = NULL;
    void *symbol = dlsym(mock_library, "mock_reset");
    memcpy(&fn, &symbol, sizeof fn);
    fn();
}

void mock_begin(void) {
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

void DAVY_CALL hear_all(void *user, davy_log_level level, const char *utf8) {
    const size_t n = strlen(heard);
    (void)user;
    snprintf(heard + n, sizeof heard - n, "%d %s\n", (int)level, utf8);
}

davy_result open_on(const char *device, uint64_t budget, davy_context **out) {
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

davy_memory_info memory_of(davy_context *ctx) {
    davy_memory_info m = {.struct_size = sizeof m};
    IS(api->context_memory(ctx, &m), DAVY_OK);
    return m;
}

void mock_is_empty(const char *after) {
    CHECKF(mock->live == 0 && mock->streams == 0 && mock->events == 0 && mock->graphs == 0 && mock->pinned == 0 &&
               mock->modules == 0 && mock->retained == 0,
           "%s: %lld blocks, %lld streams, %lld events, %lld graphs, %lld pinned, %lld modules, %lld contexts are left",
           after, (long long)mock->live, (long long)mock->streams, (long long)mock->events, (long long)mock->graphs,
           (long long)mock->pinned, (long long)mock->modules, (long long)mock->retained);
    CHECKF(mock->pushes == mock->pops && mock->bad_context == 0, "%s: the thread's CUDA context is not what it was",
           after);
}
