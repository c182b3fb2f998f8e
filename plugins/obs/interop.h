/* interop.h - textures of OpenGL or Direct3D 11 and CUDA memory, without a way through host memory. Knows nothing of libobs and
 * links no NVIDIA library: the driver is opened at run time.
 *
 * All but interop_close and interop_wait are called on the thread that draws (OpenGL: whose context is current; Direct3D: that has the immediate
 * context). Copies go to one stream, behind what was drawn before and ahead of what comes after, so that nothing else may be on
 * it: what draws would wait for it. Work goes to lines, streams of their own. Nothing else here waits for the GPU. */
#ifndef DAVY_OBS_INTEROP_H
#define DAVY_OBS_INTEROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct interop interop;

/* A texture of 8-bit RGBA (no sRGB format: CUDA takes none) that CUDA may touch. */
typedef struct interop_texture {
    void *resource;
    uint64_t name; /* OpenGL's, or the ID3D11Texture2D */
} interop_texture;

/* d3d11: the ID3D11Device that draws (Windows); NULL: OpenGL does. NULL: what draws does not run on a GPU that CUDA has, or there
 * is no driver; *why is a short reason. */
interop *interop_open(void *d3d11, const char **why);
void interop_close(interop *i);           /* textures unregistered, memory freed before */
int32_t interop_device(const interop *i); /* N of cuda:N */

/* A CUstream; NULL: there is none. What is put on it after interop_follow waits for all copies so far. */
void *interop_line_open(interop *i);
void interop_line_close(interop *i, void *line); /* its work is done */
bool interop_follow(interop *i, void *line);
/* Any thread: until what is on the line is done. false: it failed. */
bool interop_wait(interop *i, void *line);

/* Device memory, in order with the copies: neither waits for what the GPU is at, as plain allocation does. 0: none left. Free what
 * no line works with any more. */
uint64_t interop_alloc(interop *i, size_t bytes);
void interop_free(interop *i, uint64_t memory);

/* `write`: CUDA will write all of it, else it reads. Before the texture is destroyed: interop_unregister. */
bool interop_register(interop *i, uint64_t name, bool write, interop_texture *out);
void interop_unregister(interop *i, interop_texture *t);
typedef struct interop_picture { /* device memory of 4-byte pixels */
    uint64_t memory;
    uint32_t pitch; /* pixels from one row to the next */
    uint32_t width, height;
} interop_picture;

/* All of the texture, from or to such memory. */
bool interop_read(interop *i, interop_texture *t, const interop_picture *p);
bool interop_write(interop *i, interop_texture *t, const interop_picture *p);

/* interop_d3d11.c: the IDXGIAdapter of an ID3D11Device; NULL: it tells none. Release it. */
void *interop_adapter(void *d3d11);
void interop_adapter_release(void *adapter);

#endif
