/* gpu_host.c - see gpu_host.h. */
#include "tests/hosts/gpu/gpu_host.h"

static void *driver_symbol(const char *name) {
    static void *library;
    const char *given = getenv("DAVY_CUDA_DRIVER");
    library = library != NULL ? library : dlopen(given != NULL ? given : "libcuda.so.1", RTLD_NOW);
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Copies, in the primary context of device 0, and waits. */
static void driver_copy(uint64_t to, uint64_t from, uint64_t bytes) {
    int (*retain)(void **, int), (*release)(int), (*push)(void *), (*pop)(void **), (*finish)(void *);
    int (*copy)(uint64_t, uint64_t, size_t, void *);
    void *const found[] = {driver_symbol("cuDevicePrimaryCtxRetain"),
                           driver_symbol("cuDevicePrimaryCtxRelease_v2"),
                           driver_symbol("cuCtxPushCurrent_v2"),
                           driver_symbol("cuCtxPopCurrent_v2"),
                           driver_symbol("cuMemcpyAsync"),
                           driver_symbol("cuStreamSynchronize")};
    void *context = NULL;
    memcpy(&retain, &found[0], sizeof retain);
    memcpy(&release, &found[1], sizeof release);
    memcpy(&push, &found[2], sizeof push);
    memcpy(&pop, &found[3], sizeof pop);
    memcpy(&copy, &found[4], sizeof copy);
    memcpy(&finish, &found[5], sizeof finish);
    CHECK(retain(&context, 0) == 0 && push(context) == 0);
    CHECK(copy(to, from, bytes, NULL) == 0 && finish(NULL) == 0);
    CHECK(pop(&context) == 0 && release(0) == 0);
}

device_block device_take(const davy_api *api, davy_context *ctx, const void *from, uint64_t bytes) {
    device_block b = {0};
    davy_tensor t = {.struct_size = sizeof t};
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_CUDA, bytes, &b.buffer), DAVY_OK);
    IS(api->buffer_tensor(b.buffer, &t), DAVY_OK);
    b.address = t.data;
    driver_copy(b.address, (uint64_t)(uintptr_t)from, bytes);
    return b;
}

void device_fetch(const device_block *b, void *to, uint64_t bytes) {
    driver_copy((uint64_t)(uintptr_t)to, b->address, bytes);
}

void device_give(const davy_api *api, device_block *b) {
    api->buffer_release(b->buffer);
}
