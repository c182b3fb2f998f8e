/* fake_gl_cuda.c - a CUDA driver of which there is only what joins OpenGL's textures and memory, played by OpenGL and malloc.
 * Its one device is the CPU (-1), so that "device memory" is what davy's CPU back end works in. Loaded with DAVY_CUDA_DRIVER;
 * to libdavy it is a driver that lacks functions. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXTURE_2D = 0x0DE1,
    BINDING_2D = 0x8069,
    PACK = 0x88EB,
    UNPACK = 0x88EC,
    PACK_BINDING = 0x88ED,
    UNPACK_BINDING = 0x88EF
};
enum { RGBA = 0x1908, BYTES = 0x1401, IN_ARRAY = 3 };

typedef struct copy_2d {
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

static void *gl(const char *name) {
    void *(*find)(const char *) = NULL;
    void *egl = dlopen("libEGL.so.1", RTLD_NOW);
    void *symbol = egl != NULL ? dlsym(egl, "eglGetProcAddress") : NULL;
    memcpy(&find, &symbol, sizeof find);
    return find != NULL ? find(name) : NULL;
}

#define GL(type, name, args)                                                                                           \
    type(*name) args = NULL;                                                                                           \
    do {                                                                                                               \
        void *symbol_ = gl(#name);                                                                                     \
        memcpy(&name, &symbol_, sizeof name);                                                                          \
    } while (0)

int cuInit(unsigned flags) {
    return (int)flags * 0;
}

int cuGLGetDevices_v2(unsigned *count, int *devices, unsigned room, int list) {
    (void)room;
    (void)list;
    *count = 1;
    devices[0] = -1;
    return 0;
}

static char context;

int cuDevicePrimaryCtxRetain(void **out, int device) {
    (void)device;
    *out = &context;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    return device * 0;
}

int cuCtxPushCurrent_v2(void *pushed) {
    return pushed == &context ? 0 : 1;
}

int cuCtxPopCurrent_v2(void **out) {
    *out = &context;
    return 0;
}

int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) {
    *out = (uint64_t)(uintptr_t)malloc(bytes);
    return *out == 0 || stream == NULL;
}

int cuMemFreeAsync(uint64_t memory, void *stream) {
    free((void *)(uintptr_t)memory);
    return stream == NULL;
}

int cuStreamCreate(void **out, unsigned flags) {
    (void)flags;
    *out = &context;
    return 0;
}

int cuStreamDestroy_v2(void *stream) {
    return stream == NULL;
}

int cuStreamSynchronize(void *stream) {
    return stream == NULL;
}

/* A resource is the texture's name. */
int cuGraphicsGLRegisterImage(void **out, unsigned name, unsigned target, unsigned flags) {
    (void)flags;
    uint32_t *r = malloc(sizeof *r);
    *r = name;
    *out = r;
    return target == TEXTURE_2D ? 0 : 1;
}

int cuGraphicsUnregisterResource(void *resource) {
    free(resource);
    return 0;
}

int cuGraphicsMapResources(unsigned count, void **resources, void *stream) {
    return count == 1 && resources[0] != NULL && stream != NULL ? 0 : 1;
}

int cuGraphicsUnmapResources(unsigned count, void **resources, void *stream) {
    return cuGraphicsMapResources(count, resources, stream);
}

int cuGraphicsSubResourceGetMappedArray(void **array, void *resource, unsigned index, unsigned level) {
    *array = resource;
    return index + level > 0;
}

int cuMemcpy2DAsync_v2(const copy_2d *c, void *stream) {
    GL(void, glGetIntegerv, (unsigned, int *));
    GL(void, glBindTexture, (unsigned, unsigned));
    GL(void, glBindBuffer, (unsigned, unsigned));
    GL(void, glGetTexImage, (unsigned, int, unsigned, unsigned, void *));
    GL(void, glTexSubImage2D, (unsigned, int, int, int, int, int, unsigned, unsigned, const void *));
    const int read = c->src_type == IN_ARRAY;
    int texture = 0;
    int pack = 0;
    int unpack = 0;
    (void)stream;
    glGetIntegerv(BINDING_2D, &texture);
    glGetIntegerv(PACK_BINDING, &pack);
    glGetIntegerv(UNPACK_BINDING, &unpack);
    glBindBuffer(PACK, 0);
    glBindBuffer(UNPACK, 0);
    glBindTexture(TEXTURE_2D, *(uint32_t *)(read ? c->src_array : c->dst_array));
    if (read) {
        glGetTexImage(TEXTURE_2D, 0, RGBA, BYTES, (void *)(uintptr_t)c->dst_device);
    } else {
        glTexSubImage2D(TEXTURE_2D, 0, 0, 0, (int)(c->width_bytes / 4), (int)c->height, RGBA, BYTES,
                        (void *)(uintptr_t)c->src_device);
    }
    glBindTexture(TEXTURE_2D, (unsigned)texture);
    glBindBuffer(PACK, (unsigned)pack);
    glBindBuffer(UNPACK, (unsigned)unpack);
    return 0;
}
