/* interop.c - see interop.h. The numbers of the driver's structs and enums are those of its published ABI. */
#include "interop.h"

#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#define DRIVER "nvcuda.dll"
#define CU     __stdcall
#else
#include <dlfcn.h>
#define DRIVER "libcuda.so.1"
#define CU
#endif

enum { GL_TEXTURE_2D_ = 0x0DE1, ALL_GL_DEVICES = 1, READ_ONLY = 1, WRITE_DISCARD = 2, IN_DEVICE = 2, IN_ARRAY = 3 };

typedef struct copy_2d { /* CUDA_MEMCPY2D */
    size_t src_x, src_y;
    int32_t src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int32_t dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width_bytes, height;
} copy_2d;

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(gl_devices, "cuGLGetDevices_v2", (unsigned *, int *, unsigned, int))                                             \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                              \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                                  \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                                           \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                                            \
    X(alloc, "cuMemAllocAsync", (uint64_t *, size_t, void *))                                                          \
    X(free, "cuMemFreeAsync", (uint64_t, void *))                                                                      \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                                                  \
    X(stream_wait, "cuStreamSynchronize", (void *))                                                                    \
    X(register_image, "cuGraphicsGLRegisterImage", (void **, unsigned, unsigned, unsigned))                            \
    X(unregister, "cuGraphicsUnregisterResource", (void *))                                                            \
    X(map, "cuGraphicsMapResources", (unsigned, void **, void *))                                                      \
    X(unmap, "cuGraphicsUnmapResources", (unsigned, void **, void *))                                                  \
    X(array, "cuGraphicsSubResourceGetMappedArray", (void **, void *, unsigned, unsigned))                             \
    X(copy, "cuMemcpy2DAsync_v2", (const copy_2d *, void *))

#define MEMBER(name, symbol, args) int(CU * name) args;

typedef struct driver {
    DRIVER_FUNCTIONS(MEMBER)
} driver;

struct interop {
    driver cu;
    void *context, *stream;
    int device;
};

static void *open_driver(void) {
#if defined(_WIN32)
    return (void *)LoadLibraryExW(L"nvcuda.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
#else
    const char *other = getenv("DAVY_CUDA_DRIVER");                       /* as libdavy has it, for tests */
    return dlopen(other != NULL ? other : DRIVER, RTLD_NOW | RTLD_LOCAL); /* stays: libdavy has it too */
#endif
}

static bool find(void *library, const char *name, void *to) {
#if defined(_WIN32)
    FARPROC symbol = GetProcAddress((HMODULE)library, name);
#else
    void *symbol = dlsym(library, name);
#endif
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(driver *cu) {
    void *library = open_driver();
    bool all = library != NULL;
#define FIND(name, symbol, args) all = all && find(library, symbol, &cu->name);
    DRIVER_FUNCTIONS(FIND)
    return all;
}

interop *interop_open(const char **why) {
    interop *i = calloc(1, sizeof *i);
    unsigned count = 0;
    int devices[8] = {0};
    *why = "no NVIDIA driver";
    if (i == NULL || !load(&i->cu) || i->cu.init(0) != 0) {
        free(i);
        return NULL;
    }
    *why = "OBS does not draw on an NVIDIA GPU";
    if (i->cu.gl_devices(&count, devices, 8, ALL_GL_DEVICES) != 0 || count == 0) {
        free(i);
        return NULL;
    }
    *why = "no CUDA context";
    i->device = devices[0];
    if (i->cu.retain(&i->context, i->device) != 0) {
        free(i);
        return NULL;
    }
    void *before = NULL;
    i->cu.push(i->context);
    const bool ok = i->cu.stream_create(&i->stream, 1) == 0; /* does not wait for the default stream */
    i->cu.pop(&before);
    if (!ok) {
        i->cu.release(i->device);
        free(i);
        return NULL;
    }
    *why = "";
    return i;
}

void interop_close(interop *i) {
    if (i != NULL) {
        void *before = NULL;
        i->cu.push(i->context);
        i->cu.stream_wait(i->stream);
        i->cu.stream_destroy(i->stream);
        i->cu.pop(&before);
        i->cu.release(i->device);
        free(i);
    }
}

int32_t interop_device(const interop *i) {
    return i->device;
}

void *interop_stream(const interop *i) {
    return i->stream;
}

uint64_t interop_alloc(interop *i, size_t bytes) {
    uint64_t memory = 0;
    void *before = NULL;
    i->cu.push(i->context);
    const bool ok = i->cu.alloc(&memory, bytes, i->stream) == 0;
    i->cu.pop(&before);
    return ok ? memory : 0;
}

void interop_free(interop *i, uint64_t memory) {
    void *before = NULL;
    if (memory != 0) {
        i->cu.push(i->context);
        i->cu.free(memory, i->stream);
        i->cu.pop(&before);
    }
}

bool interop_register(interop *i, uint32_t name, bool write, interop_texture *out) {
    void *before = NULL;
    i->cu.push(i->context);
    const bool ok = i->cu.register_image(&out->resource, name, GL_TEXTURE_2D_, write ? WRITE_DISCARD : READ_ONLY) == 0;
    i->cu.pop(&before);
    out->resource = ok ? out->resource : NULL;
    out->name = name;
    return ok;
}

void interop_unregister(interop *i, interop_texture *t) {
    void *before = NULL;
    if (t->resource != NULL) {
        i->cu.push(i->context);
        i->cu.unregister(t->resource);
        i->cu.pop(&before);
        t->resource = NULL;
    }
}

static bool move(interop *i, interop_texture *t, copy_2d *copy, void **array) {
    void *before = NULL;
    i->cu.push(i->context);
    bool ok = t->resource != NULL && i->cu.map(1, &t->resource, i->stream) == 0;
    if (ok) {
        ok = i->cu.array(array, t->resource, 0, 0) == 0 && i->cu.copy(copy, i->stream) == 0;
        i->cu.unmap(1, &t->resource, i->stream);
    }
    i->cu.pop(&before);
    return ok;
}

bool interop_read(interop *i, interop_texture *t, uint64_t memory, uint32_t width, uint32_t height) {
    copy_2d copy = {.src_type = IN_ARRAY,
                    .dst_type = IN_DEVICE,
                    .dst_device = memory,
                    .dst_pitch = (size_t)width * 4,
                    .width_bytes = (size_t)width * 4,
                    .height = height};
    return move(i, t, &copy, &copy.src_array);
}

bool interop_write(interop *i, interop_texture *t, uint64_t memory, uint32_t width, uint32_t height) {
    copy_2d copy = {.src_type = IN_DEVICE,
                    .src_device = memory,
                    .src_pitch = (size_t)width * 4,
                    .dst_type = IN_ARRAY,
                    .width_bytes = (size_t)width * 4,
                    .height = height};
    return move(i, t, &copy, &copy.dst_array);
}
