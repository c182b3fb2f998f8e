/* interop.c - see interop.h. Structs and enum values follow the CUDA driver's published ABI. */
#include "interop.h"

#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#define CU __stdcall
#else
#include <dlfcn.h>
#define CU
#endif

enum { GL_TEXTURE_2D_ = 0x0DE1, ALL_GL_DEVICES = 1, IN_DEVICE = 2, IN_ARRAY = 3 };
enum { NO_FLAGS = 0, READ_ONLY = 1, WRITE_DISCARD = 2 }; /* flags of registering with OpenGL and of mapping */

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
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                              \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                                  \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                                           \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                                            \
    X(alloc, "cuMemAllocAsync", (uint64_t *, size_t, void *))                                                          \
    X(free, "cuMemFreeAsync", (uint64_t, void *))                                                                      \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                                                  \
    X(stream_wait, "cuStreamSynchronize", (void *))                                                                    \
    X(stream_follow, "cuStreamWaitEvent", (void *, void *, unsigned))                                                  \
    X(event_create, "cuEventCreate", (void **, unsigned))                                                              \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                                    \
    X(event_record, "cuEventRecord", (void *, void *))                                                                 \
    X(unregister, "cuGraphicsUnregisterResource", (void *))                                                            \
    X(map, "cuGraphicsMapResources", (unsigned, void **, void *))                                                      \
    X(unmap, "cuGraphicsUnmapResources", (unsigned, void **, void *))                                                  \
    X(array, "cuGraphicsSubResourceGetMappedArray", (void **, void *, unsigned, unsigned))                             \
    X(copy, "cuMemcpy2DAsync_v2", (const copy_2d *, void *))

/* Only one of the two groups is loaded. */
#define OPENGL_FUNCTIONS(X)                                                                                            \
    X(gl_devices, "cuGLGetDevices_v2", (unsigned *, int *, unsigned, int))                                             \
    X(gl_register, "cuGraphicsGLRegisterImage", (void **, unsigned, unsigned, unsigned))
#define D3D11_FUNCTIONS(X)                                                                                             \
    X(d3d11_device, "cuD3D11GetDevice", (int *, void *))                                                               \
    X(d3d11_register, "cuGraphicsD3D11RegisterResource", (void **, void *, unsigned))                                  \
    X(map_flags, "cuGraphicsResourceSetMapFlags_v2", (void *, unsigned))

#define MEMBER(name, symbol, args) int(CU * name) args;

typedef struct driver {
    DRIVER_FUNCTIONS(MEMBER)
    OPENGL_FUNCTIONS(MEMBER)
    D3D11_FUNCTIONS(MEMBER)
} driver;

struct interop {
    driver cu;
    bool d3d11;
    void *context;
    void *stream; /* of all copies */
    void *copied; /* an event on it */
    int device;
};

static void *open_driver(void) {
#if defined(_WIN32)
    const wchar_t *other = _wgetenv(L"DAVY_CUDA_DRIVER"); /* libdavy reads it too; for tests */
    return other != NULL ? (void *)LoadLibraryW(other)
                         : (void *)LoadLibraryExW(L"nvcuda.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
#else
    const char *other = getenv("DAVY_CUDA_DRIVER");
    return dlopen(other != NULL ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* never closed */
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

static bool load(driver *cu, bool d3d11) {
    void *library = open_driver();
    bool all = library != NULL;
#define FIND(name, symbol, args) all = all && find(library, symbol, &cu->name);
    DRIVER_FUNCTIONS(FIND)
    if (d3d11) {
        D3D11_FUNCTIONS(FIND)
    } else {
        OPENGL_FUNCTIONS(FIND)
    }
    return all;
}

/* Finds the CUDA number of the GPU that draws. */
static bool find_device(interop *i, void *d3d11) {
#if defined(_WIN32)
    if (d3d11 != NULL) {
        void *adapter = interop_adapter(d3d11);
        const bool found = adapter != NULL && i->cu.d3d11_device(&i->device, adapter) == 0;
        interop_adapter_release(adapter);
        return found;
    }
#else
    (void)d3d11;
#endif
    unsigned count = 0;
    int devices[8] = {0};
    const bool found = i->cu.gl_devices(&count, devices, 8, ALL_GL_DEVICES) == 0 && count > 0;
    i->device = devices[0];
    return found;
}

static void *new_stream(const interop *i) {
    void *stream = NULL;
    return i->cu.stream_create(&stream, 1) == 0 ? stream : NULL; /* 1: does not wait for the default stream */
}

static bool open_stream(interop *i) {
    enum { NO_TIMES = 2 };
    void *before = NULL;
    if (i->cu.retain(&i->context, i->device) != 0) {
        return false;
    }
    i->cu.push(i->context);
    i->stream = new_stream(i);
    const bool ok = i->stream != NULL && i->cu.event_create(&i->copied, NO_TIMES) == 0;
    if (i->stream != NULL && !ok) {
        i->cu.stream_destroy(i->stream);
    }
    i->cu.pop(&before);
    if (!ok) {
        i->cu.release(i->device);
    }
    return ok;
}

interop *interop_open(void *d3d11, const char **why) {
    interop *i = calloc(1, sizeof *i);
    *why = i == NULL || !load(&i->cu, d3d11 != NULL) || i->cu.init(0) != 0 ? "no NVIDIA driver"
           : !find_device(i, d3d11)                                        ? "OBS does not draw on an NVIDIA GPU"
           : !open_stream(i)                                               ? "no CUDA context"
                                                                           : "";
    if ((*why)[0] != '\0') {
        free(i);
        return NULL;
    }
    i->d3d11 = d3d11 != NULL;
    return i;
}

void interop_close(interop *i) {
    if (i != NULL) {
        void *before = NULL;
        i->cu.push(i->context);
        i->cu.stream_wait(i->stream);
        i->cu.event_destroy(i->copied);
        i->cu.stream_destroy(i->stream);
        i->cu.pop(&before);
        i->cu.release(i->device);
        free(i);
    }
}

int32_t interop_device(const interop *i) {
    return i->device;
}

void *interop_line_open(interop *i) {
    void *before = NULL;
    i->cu.push(i->context);
    void *line = new_stream(i);
    i->cu.pop(&before);
    return line;
}

void interop_line_close(interop *i, void *line) {
    void *before = NULL;
    if (line != NULL) {
        i->cu.push(i->context);
        i->cu.stream_destroy(line);
        i->cu.pop(&before);
    }
}

bool interop_follow(interop *i, void *line) {
    void *before = NULL;
    i->cu.push(i->context);
    const bool ok = i->cu.event_record(i->copied, i->stream) == 0 && i->cu.stream_follow(line, i->copied, 0) == 0;
    i->cu.pop(&before);
    return ok;
}

bool interop_wait(interop *i, void *line) {
    void *before = NULL;
    i->cu.push(i->context);
    const bool ok = i->cu.stream_wait(line) == 0;
    i->cu.pop(&before);
    return ok;
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

bool interop_register(interop *i, uint64_t name, bool write, interop_texture *out) {
    void *before = NULL;
    const unsigned use = write ? WRITE_DISCARD : READ_ONLY;
    i->cu.push(i->context);
    const int r = i->d3d11 ? i->cu.d3d11_register(&out->resource, (void *)(uintptr_t)name, NO_FLAGS)
                           : i->cu.gl_register(&out->resource, (unsigned)name, GL_TEXTURE_2D_, use);
    if (r == 0 && i->d3d11) {
        i->cu.map_flags(out->resource, use); /* a hint for speed */
    }
    i->cu.pop(&before);
    out->resource = r == 0 ? out->resource : NULL;
    out->name = name;
    return r == 0;
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

bool interop_read(interop *i, interop_texture *t, const interop_picture *p) {
    copy_2d copy = {.src_type = IN_ARRAY,
                    .dst_type = IN_DEVICE,
                    .dst_device = p->memory,
                    .dst_pitch = (size_t)p->pitch * 4,
                    .width_bytes = (size_t)p->width * 4,
                    .height = p->height};
    return move(i, t, &copy, &copy.src_array);
}

bool interop_write(interop *i, interop_texture *t, const interop_picture *p) {
    copy_2d copy = {.src_type = IN_DEVICE,
                    .src_device = p->memory,
                    .src_pitch = (size_t)p->pitch * 4,
                    .dst_type = IN_ARRAY,
                    .width_bytes = (size_t)p->width * 4,
                    .height = p->height};
    return move(i, t, &copy, &copy.dst_array);
}
