/* mock_nvdec.c - a mock in host memory of libcuda.so.1 and libnvcuvid.so.1, as far as FFmpeg uses them to decode 8-bit 4:2:0 H.264
 * and AV1. Picture n in decoding order is grey: its luma is 32 + 8 * (n % 24). Environment variables make it fail:
 * MOCK_NVDEC_FAILS=n at picture n and all later ones, MOCK_NVDEC_MAP=n when displayed frame n is fetched, MOCK_NVDEC_NONE=1 as if
 * the GPU decoded nothing. At exit it prints the number of objects that were not released. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN __attribute__((visibility("default")))

enum { OK = 0, BAD_VALUE = 1, UNSUPPORTED = 801, UNKNOWN = 999 };
enum { SURFACES = 32, PITCH = 512, H264 = 4, AV1 = 11, YUV420 = 1 };

typedef struct decode_caps {
    int codec, chroma;
    unsigned depth_minus8, reserved1[3];
    uint8_t supported, decoders;
    uint16_t formats;
    unsigned max_width, max_height, max_blocks;
    uint16_t min_width, min_height;
} decode_caps;

typedef struct create_info { /* the members that are read */
    unsigned long width, height, surfaces;
} create_info;

typedef struct picture_params { /* the members that are read */
    int blocks_wide, blocks_high, index, field, bottom, second_field;
    unsigned bytes;
} picture_params;

typedef struct copy_2d {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    uintptr_t from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_kind;
    void *to_host;
    uintptr_t to;
    void *to_array;
    size_t to_pitch;
    size_t bytes, rows;
} copy_2d;

typedef struct decoder {
    unsigned long width, height;
    int luma[SURFACES];
} decoder;

static int live; /* contexts, decoders and mapped frames */
static int pictures, shown;

__attribute__((destructor)) static void look(void) {
    if (live != 0) {
        fprintf(stderr, "mock nvdec: %d things are left\n", live);
    }
}

static int reached(const char *variable, int n) {
    const char *at = getenv(variable);
    return at != NULL && n >= atoi(at);
}

/* ---- libcuda ---- */

GIVEN int cuInit(unsigned flags);
GIVEN int cuDeviceGet(int *device, int n);
GIVEN int cuDeviceGetAttribute(int *value, int attribute, int device);
GIVEN int cuCtxCreate_v2(void **context, unsigned flags, int device);
GIVEN int cuCtxDestroy_v2(void *context);
GIVEN int cuCtxPushCurrent_v2(void *context);
GIVEN int cuCtxPopCurrent_v2(void **context);
GIVEN int cuStreamSynchronize(void *stream);
GIVEN int cuMemcpy2DAsync_v2(const copy_2d *c, void *stream);
GIVEN int cuGetErrorName(int error, const char **text);
GIVEN int cuGetErrorString(int error, const char **text);

int cuInit(unsigned flags) {
    return (int)flags;
}

int cuDeviceGet(int *device, int n) {
    *device = n;
    return n == 0 ? OK : BAD_VALUE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute, (void)device;
    *value = PITCH;
    return OK;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags, (void)device;
    live++;
    *context = &live;
    return OK;
}

int cuCtxDestroy_v2(void *context) {
    (void)context;
    live--;
    return OK;
}

int cuCtxPushCurrent_v2(void *context) {
    return context == &live ? OK : BAD_VALUE;
}

int cuCtxPopCurrent_v2(void **context) {
    *context = &live;
    return OK;
}

int cuStreamSynchronize(void *stream) {
    return stream == NULL ? OK : BAD_VALUE;
}

int cuMemcpy2DAsync_v2(const copy_2d *c, void *stream) {
    const char *from =
        (const char *)c->from + c->from_y * c->from_pitch + c->from_x; // NOLINT: an address of the device
    char *to = (char *)c->to_host + c->to_y * c->to_pitch + c->to_x;
    for (size_t row = 0; row < c->rows; row++) {
        memcpy(to + row * c->to_pitch, from + row * c->from_pitch, c->bytes);
    }
    return stream == NULL ? OK : BAD_VALUE;
}

int cuGetErrorName(int error, const char **text) {
    *text = error == UNKNOWN ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR";
    return OK;
}

int cuGetErrorString(int error, const char **text) {
    return cuGetErrorName(error, text);
}

/* ---- libnvcuvid ---- */

GIVEN int cuvidGetDecoderCaps(decode_caps *c);
GIVEN int cuvidCreateDecoder(decoder **out, const create_info *info);
GIVEN int cuvidDestroyDecoder(decoder *d);
GIVEN int cuvidDecodePicture(decoder *d, const picture_params *p);
GIVEN int cuvidMapVideoFrame64(decoder *d, int index, unsigned long long *at, unsigned *pitch, const void *how);
GIVEN int cuvidUnmapVideoFrame64(decoder *d, unsigned long long at);

int cuvidGetDecoderCaps(decode_caps *c) {
    c->supported = (c->codec == H264 || c->codec == AV1) && c->chroma == YUV420 && c->depth_minus8 == 0 &&
                   getenv("MOCK_NVDEC_NONE") == NULL;
    c->min_width = c->min_height = 16;
    c->max_width = c->max_height = PITCH;
    c->max_blocks = 1024;
    return OK;
}

int cuvidCreateDecoder(decoder **out, const create_info *info) {
    decoder *d = info->surfaces <= SURFACES && info->width <= PITCH ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) {
        return BAD_VALUE;
    }
    d->width = info->width;
    d->height = info->height;
    *out = d;
    live++;
    return OK;
}

int cuvidDestroyDecoder(decoder *d) {
    free(d);
    live--;
    return OK;
}

int cuvidDecodePicture(decoder *d, const picture_params *p) {
    if (p->index < 0 || p->index >= SURFACES || p->bytes == 0) {
        return BAD_VALUE;
    }
    d->luma[p->index] = 32 + 8 * (pictures % 24);
    return reached("MOCK_NVDEC_FAILS", pictures++) ? UNKNOWN : OK;
}

int cuvidMapVideoFrame64(decoder *d, int index, unsigned long long *at, unsigned *pitch, const void *how) {
    (void)how;
    char *frame = reached("MOCK_NVDEC_MAP", shown++) ? NULL : malloc(PITCH * d->height * 3 / 2);
    if (frame == NULL) {
        return UNKNOWN;
    }
    memset(frame, d->luma[index], PITCH * d->height);
    memset(frame + PITCH * d->height, 128, PITCH * d->height / 2);
    *at = (uintptr_t)frame;
    *pitch = PITCH;
    live++;
    return OK;
}

int cuvidUnmapVideoFrame64(decoder *d, unsigned long long at) {
    (void)d;
    free((void *)(uintptr_t)at); // NOLINT: an address of the device
    live--;
    return OK;
}

/* ---- loaded by FFmpeg, never called ---- */

#define UNUSED(name)                                                                                                   \
    GIVEN int name(void);                                                                                              \
    int name(void) {                                                                                                   \
        return UNSUPPORTED;                                                                                            \
    }
UNUSED(cuDeviceGetCount)
UNUSED(cuDeviceGetName)
UNUSED(cuDeviceComputeCapability)
UNUSED(cuCtxSetLimit)
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemAllocPitch_v2)
UNUSED(cuMemAllocManaged)
UNUSED(cuMemsetD8Async)
UNUSED(cuMemFree_v2)
UNUSED(cuMemcpy)
UNUSED(cuMemcpyAsync)
UNUSED(cuMemcpy2D_v2)
UNUSED(cuMemcpyHtoD_v2)
UNUSED(cuMemcpyHtoDAsync_v2)
UNUSED(cuMemcpyDtoH_v2)
UNUSED(cuMemcpyDtoHAsync_v2)
UNUSED(cuMemcpyDtoD_v2)
UNUSED(cuMemcpyDtoDAsync_v2)
UNUSED(cuCtxGetDevice)
UNUSED(cuDevicePrimaryCtxRetain)
UNUSED(cuDevicePrimaryCtxRelease)
UNUSED(cuDevicePrimaryCtxSetFlags)
UNUSED(cuDevicePrimaryCtxGetState)
UNUSED(cuDevicePrimaryCtxReset)
UNUSED(cuStreamCreate)
UNUSED(cuStreamQuery)
UNUSED(cuStreamDestroy_v2)
UNUSED(cuStreamAddCallback)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventSynchronize)
UNUSED(cuEventQuery)
UNUSED(cuEventRecord)
UNUSED(cuLaunchKernel)
UNUSED(cuLinkCreate)
UNUSED(cuLinkAddData)
UNUSED(cuLinkComplete)
UNUSED(cuLinkDestroy)
UNUSED(cuModuleLoadData)
UNUSED(cuModuleUnload)
UNUSED(cuModuleGetFunction)
UNUSED(cuModuleGetGlobal)
UNUSED(cuTexObjectCreate)
UNUSED(cuTexObjectDestroy)
UNUSED(cuGLGetDevices_v2)
UNUSED(cuGraphicsGLRegisterImage)
UNUSED(cuGraphicsUnregisterResource)
UNUSED(cuGraphicsMapResources)
UNUSED(cuGraphicsUnmapResources)
UNUSED(cuGraphicsSubResourceGetMappedArray)
UNUSED(cuGraphicsResourceGetMappedPointer_v2)
UNUSED(cuArray3DCreate_v2)
UNUSED(cuArrayDestroy)
UNUSED(cuvidGetDecodeStatus)
UNUSED(cuvidReconfigureDecoder)
UNUSED(cuvidCtxLockCreate)
UNUSED(cuvidCtxLockDestroy)
UNUSED(cuvidCtxLock)
UNUSED(cuvidCtxUnlock)
UNUSED(cuvidCreateVideoSource)
UNUSED(cuvidCreateVideoSourceW)
UNUSED(cuvidDestroyVideoSource)
UNUSED(cuvidSetVideoSourceState)
UNUSED(cuvidGetVideoSourceState)
UNUSED(cuvidGetSourceVideoFormat)
UNUSED(cuvidGetSourceAudioFormat)
UNUSED(cuvidCreateVideoParser)
UNUSED(cuvidParseVideoData)
UNUSED(cuvidDestroyVideoParser)
