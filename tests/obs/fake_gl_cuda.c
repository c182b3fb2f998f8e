/* fake_gl_cuda.c - the mock driver of fake_cuda.h, for textures of OpenGL. FAKE_DRAWS_ELSEWHERE: OpenGL draws on another GPU. */
#include <dlfcn.h>

#include "fake_cuda.h"

enum {
    TEXTURE_2D = 0x0DE1,
    BINDING_2D = 0x8069,
    PACK = 0x88EB,
    UNPACK = 0x88EC,
    PACK_BINDING = 0x88ED,
    UNPACK_BINDING = 0x88EF
};
enum { NO_DEVICE = 100, RGBA = 0x1908, BYTES = 0x1401, PACK_ROW = 0x0D02, UNPACK_ROW = 0x0CF2 };

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

int cuGLGetDevices_v2(unsigned *count, int *devices, unsigned room, int list) {
    (void)room;
    (void)list;
    *count = 1;
    devices[0] = THE_CPU;
    return getenv("FAKE_DRAWS_ELSEWHERE") != NULL ? NO_DEVICE : 0;
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

static void bind_all(unsigned texture, unsigned pack, unsigned unpack, int row) {
    GL(void, glBindTexture, (unsigned, unsigned));
    GL(void, glBindBuffer, (unsigned, unsigned));
    GL(void, glPixelStorei, (unsigned, int));
    glBindTexture(TEXTURE_2D, texture);
    glBindBuffer(PACK, pack);
    glBindBuffer(UNPACK, unpack);
    glPixelStorei(PACK_ROW, row);
    glPixelStorei(UNPACK_ROW, row);
}

/* Binds the texture and saves OBS's bindings in `before`, to restore them later. */
static void bind(const void *resource, uint32_t pitch, int before[3]) {
    GL(void, glGetIntegerv, (unsigned, int *));
    glGetIntegerv(BINDING_2D, &before[0]);
    glGetIntegerv(PACK_BINDING, &before[1]);
    glGetIntegerv(UNPACK_BINDING, &before[2]);
    bind_all(*(const uint32_t *)resource, 0, 0, (int)pitch);
}

static int texture_read(void *resource, void *memory, uint32_t pitch, uint32_t width, uint32_t height) {
    GL(void, glGetTexImage, (unsigned, int, unsigned, unsigned, void *));
    int before[3];
    (void)width;
    (void)height;
    bind(resource, pitch, before);
    glGetTexImage(TEXTURE_2D, 0, RGBA, BYTES, memory);
    bind_all((unsigned)before[0], (unsigned)before[1], (unsigned)before[2], 0);
    return 0;
}

static int texture_write(void *resource, const void *memory, uint32_t pitch, uint32_t width, uint32_t height) {
    GL(void, glTexSubImage2D, (unsigned, int, int, int, int, int, unsigned, unsigned, const void *));
    int before[3];
    bind(resource, pitch, before);
    glTexSubImage2D(TEXTURE_2D, 0, 0, 0, (int)width, (int)height, RGBA, BYTES, memory);
    bind_all((unsigned)before[0], (unsigned)before[1], (unsigned)before[2], 0);
    return 0;
}
