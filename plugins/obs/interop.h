/* interop.h - copies between textures of OpenGL or Direct3D 11 and CUDA memory, without a detour through host memory. It does not
 * depend on libobs and links no NVIDIA library: it opens the driver at run time.
 *
 * Threads: all functions but interop_close and interop_wait run on the drawing thread. That is the thread with the current OpenGL
 * context, or the owner of Direct3D's immediate context.
 * Streams: all copies use one stream. They are ordered behind earlier drawing and ahead of later drawing. Other work uses lines,
 * which are streams of their own; on the copies' stream it would delay drawing. Only interop_close and interop_wait wait for the
 * GPU. */
#ifndef DAVY_OBS_INTEROP_H
#define DAVY_OBS_INTEROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct interop interop;

/* A registered texture of 8-bit RGBA. CUDA accepts no sRGB formats. */
typedef struct interop_texture {
    void *resource;
    uint64_t name; /* OpenGL's name, or the address of the ID3D11Texture2D */
} interop_texture;

/* Opens the driver. d3d11: the ID3D11Device that draws (Windows), or NULL for OpenGL. Returns NULL if there is no driver or if CUDA
 * does not have the GPU that draws; *why is then a short reason. */
interop *interop_open(void *d3d11, const char **why);
void interop_close(interop *i);           /* unregister all textures and free all memory first */
int32_t interop_device(const interop *i); /* N of cuda:N */

/* Creates a line (CUstream); NULL: out of resources. After interop_follow, new work on the line waits for all copies so far. */
void *interop_line_open(interop *i);
void interop_line_close(interop *i, void *line); /* after its work has finished */
bool interop_follow(interop *i, void *line);
/* Waits until the line's work has finished. false: the work failed. Any thread. */
bool interop_wait(interop *i, void *line);

/* Allocates and frees device memory, in order with the copies. Unlike plain allocation, neither waits for running GPU work.
 * 0: out of memory. Free memory only after the lines' work on it has finished. */
uint64_t interop_alloc(interop *i, size_t bytes);
void interop_free(interop *i, uint64_t memory);

/* Registers a texture. write: CUDA will overwrite all of it; else CUDA reads it. Unregister it before it is destroyed. */
bool interop_register(interop *i, uint64_t name, bool write, interop_texture *out);
void interop_unregister(interop *i, interop_texture *t);
typedef struct interop_picture { /* device memory of 4-byte pixels */
    uint64_t memory;
    uint32_t pitch; /* pixels from one row to the next */
    uint32_t width, height;
} interop_picture;

/* Copy the whole texture to or from such memory. */
bool interop_read(interop *i, interop_texture *t, const interop_picture *p);
bool interop_write(interop *i, interop_texture *t, const interop_picture *p);

/* interop_d3d11.c. The IDXGIAdapter of an ID3D11Device, or NULL. The caller releases it. */
void *interop_adapter(void *d3d11);
void interop_adapter_release(void *adapter);

#endif
