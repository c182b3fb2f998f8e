/* cuda_host.c - see cuda_host.h. The driver is never closed, because libdavy uses it too. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench/cuda_host.h"

typedef struct driver {
    int (*device_get)(int *device, int index);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*finish)(void *stream);
} driver;

static int find(void *library, const char *name, void *out) {
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol); /* C has no cast from an object pointer to a function pointer */
    return symbol != NULL ? 0 : -1;
}

static int load(driver *d) {
    const char *given = getenv("DAVY_CUDA_DRIVER");
    void *library = dlopen(given != NULL ? given : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == NULL || find(library, "cuDeviceGet", &d->device_get) != 0 ||
                   find(library, "cuDevicePrimaryCtxRetain", &d->retain) != 0 ||
                   find(library, "cuDevicePrimaryCtxRelease_v2", &d->release) != 0 ||
                   find(library, "cuCtxPushCurrent_v2", &d->push) != 0 ||
                   find(library, "cuCtxPopCurrent_v2", &d->pop) != 0 || find(library, "cuMemcpyAsync", &d->copy) != 0 ||
                   find(library, "cuStreamSynchronize", &d->finish) != 0
               ? -1
               : 0;
}

/* The driver, loaded once. */
static driver *driver_of(void) {
    static driver d;
    static int loaded;
    if (loaded == 0) {
        loaded = load(&d) == 0 ? 1 : -1;
    }
    return loaded > 0 ? &d : NULL;
}

static int enter(driver *d, int index, int *device) {
    void *context = NULL;
    if (d == NULL || d->device_get(device, index) != 0 || d->retain(&context, *device) != 0) {
        return -1;
    }
    if (d->push(context) != 0) {
        d->release(*device);
        return -1;
    }
    return 0;
}

static void leave(driver *d, int device) {
    void *context = NULL;
    d->pop(&context);
    d->release(device);
}

int cli_cuda_upload(int index, uint64_t to, const void *from, size_t bytes) {
    driver *d = driver_of();
    int device = 0;
    if (enter(d, index, &device) != 0) {
        return -1;
    }
    const int r = d->copy(to, (uint64_t)(uintptr_t)from, bytes, CLI_CUDA_STREAM);
    const int finished = d->finish(CLI_CUDA_STREAM);
    leave(d, device);
    return r == 0 && finished == 0 ? 0 : -1;
}

int cli_cuda_finish(int index) {
    driver *d = driver_of();
    int device = 0;
    if (enter(d, index, &device) != 0) {
        return -1;
    }
    const int r = d->finish(CLI_CUDA_STREAM);
    leave(d, device);
    return r == 0 ? 0 : -1;
}
