/* fake_cuda.h - a mock CUDA driver with only the functions that copy between textures and memory. Its one device is the CPU (-1), so
 * its "device memory" comes from malloc and works with davy's CPU back end. Tests load it with DAVY_CUDA_DRIVER; libdavy sees a
 * driver that lacks functions. fake_gl_cuda.c and fake_d3d11_cuda.c include this file and add their textures. */
#ifndef DAVY_TESTS_FAKE_CUDA_H
#define DAVY_TESTS_FAKE_CUDA_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define FAKE __declspec(dllexport)
#define CU   __stdcall
#else
#define FAKE
#define CU
#endif

enum { IN_ARRAY = 3, THE_CPU = -1 };

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

/* Defined by the including file: copy the whole texture of `resource` to or from rows of `pitch` pixels. 0: success. */
static int texture_read(void *resource, void *memory, uint32_t pitch, uint32_t width, uint32_t height);
static int texture_write(void *resource, const void *memory, uint32_t pitch, uint32_t width, uint32_t height);

FAKE int CU cuInit(unsigned flags) {
    return (int)flags * 0;
}

static char context;

FAKE int CU cuDevicePrimaryCtxRetain(void **out, int device) {
    (void)device;
    *out = &context;
    return 0;
}

FAKE int CU cuDevicePrimaryCtxRelease_v2(int device) {
    return device * 0;
}

FAKE int CU cuCtxPushCurrent_v2(void *pushed) {
    return pushed == &context ? 0 : 1;
}

FAKE int CU cuCtxPopCurrent_v2(void **out) {
    *out = &context;
    return 0;
}

FAKE int CU cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) {
    *out = (uint64_t)(uintptr_t)malloc(bytes);
    return *out == 0 || stream == NULL;
}

FAKE int CU cuMemFreeAsync(uint64_t memory, void *stream) {
    free((void *)(uintptr_t)memory);
    return stream == NULL;
}

FAKE int CU cuStreamCreate(void **out, unsigned flags) {
    (void)flags;
    *out = &context;
    return 0;
}

FAKE int CU cuStreamDestroy_v2(void *stream) {
    return stream == NULL;
}

FAKE int CU cuStreamSynchronize(void *stream) {
    return stream == NULL;
}

FAKE int CU cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return stream == NULL || event == NULL || flags != 0;
}

FAKE int CU cuEventCreate(void **out, unsigned flags) {
    (void)flags;
    *out = &context;
    return 0;
}

FAKE int CU cuEventDestroy_v2(void *event) {
    return event == NULL;
}

FAKE int CU cuEventRecord(void *event, void *stream) {
    return stream == NULL || event == NULL;
}

FAKE int CU cuGraphicsMapResources(unsigned count, void **resources, void *stream) {
    return count == 1 && resources[0] != NULL && stream != NULL ? 0 : 1;
}

FAKE int CU cuGraphicsUnmapResources(unsigned count, void **resources, void *stream) {
    return cuGraphicsMapResources(count, resources, stream);
}

FAKE int CU cuGraphicsSubResourceGetMappedArray(void **array, void *resource, unsigned index, unsigned level) {
    *array = resource;
    return index + level > 0;
}

static int copies;

FAKE int CU cuMemcpy2DAsync_v2(const copy_2d *c, void *stream) {
    const uint32_t width = (uint32_t)(c->width_bytes / 4);
    const uint32_t height = (uint32_t)c->height;
    const int r = c->src_type == IN_ARRAY ? texture_read(c->src_array, (void *)(uintptr_t)c->dst_device,
                                                         (uint32_t)(c->dst_pitch / 4), width, height)
                                          : texture_write(c->dst_array, (const void *)(uintptr_t)c->src_device,
                                                          (uint32_t)(c->src_pitch / 4), width, height);
    copies += r == 0;
    return r != 0 || stream == NULL;
}

/* Number of copies so far, for tests. */
FAKE int fake_copies(void) {
    return copies;
}

#endif
