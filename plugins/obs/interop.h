/* interop.h - OpenGL textures and CUDA memory, without a way through host memory. Knows nothing of libobs and links no NVIDIA
 * library: the driver is opened at run time.
 *
 * All but interop_close are called on the thread whose OpenGL context is current. Copies go to one stream, behind the OpenGL
 * commands that were given before and ahead of those that come after; nothing here waits for the GPU. */
#ifndef DAVY_OBS_INTEROP_H
#define DAVY_OBS_INTEROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct interop interop;

/* A texture of 8-bit RGBA (no sRGB format: CUDA takes none) that CUDA may touch. */
typedef struct interop_texture {
    void *resource;
    uint32_t name; /* OpenGL's */
} interop_texture;

/* NULL: OpenGL does not run on a GPU that CUDA has, or there is no driver; *why is a short reason. */
interop *interop_open(const char **why);
void interop_close(interop *i);           /* textures unregistered, memory freed before */
int32_t interop_device(const interop *i); /* N of cuda:N */
void *interop_stream(const interop *i);

/* Device memory, in order on the stream: neither waits for what the GPU is at, as plain allocation does. 0: none left. */
uint64_t interop_alloc(interop *i, size_t bytes);
void interop_free(interop *i, uint64_t memory);

/* `write`: CUDA will write all of it, else it reads. Before the texture is destroyed: interop_unregister. */
bool interop_register(interop *i, uint32_t name, bool write, interop_texture *out);
void interop_unregister(interop *i, interop_texture *t);
bool interop_read(interop *i, interop_texture *t, uint64_t memory, uint32_t width, uint32_t height);
bool interop_write(interop *i, interop_texture *t, uint64_t memory, uint32_t width, uint32_t height);

#endif
