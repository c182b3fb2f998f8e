/* test_interop.c - plugins/obs/interop.h with OpenGL on an NVIDIA GPU, without a display and without OBS. Pictures go from a
 * texture through davy into a texture; the result must equal that of pictures in host memory. Skipped on other machines.
 * usage: test_interop [WIDTH HEIGHT]  also times a stream of pictures of this size */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/davy_loader.h"
#include "plugins/obs/interop.h"
#include "tests/lib/check.h"

/* ---- the functions of EGL and OpenGL that the test needs ---- */

enum {
    PLATFORM_DEVICE = 0x313F,
    OPENGL_API = 0x30A2,
    EGL_NONE_ = 0x3038,
    TEXTURE_2D = 0x0DE1,
    RGBA = 0x1908,
    RGBA8 = 0x8058
};
enum { BYTES = 0x1401, MIN_FILTER = 0x2801, NEAREST = 0x2600 };

static struct {
    void *(*address)(const char *);
    unsigned (*query_devices)(int, void **, int *);
    void *(*display)(unsigned, void *, const int *);
    unsigned (*initialize)(void *, int *, int *);
    unsigned (*bind_api)(unsigned);
    void *(*create)(void *, void *, void *, const int *);
    unsigned (*current)(void *, void *, void *, void *);
    void (*gen)(int, unsigned *);
    void (*bind)(unsigned, unsigned);
    void (*image)(unsigned, int, int, int, int, int, unsigned, unsigned, const void *);
    void (*parameter)(unsigned, unsigned, int);
    void (*get)(unsigned, int, unsigned, unsigned, void *);
    void (*finish)(void);
} gl;

static void found(const char *name, void *to) {
    void *symbol = gl.address(name);
    memcpy(to, &symbol, sizeof symbol);
}

/* Makes an OpenGL context current on the first GPU that CUDA sees too. Some GPUs may be visible to only one of them. */
static interop *make_current(const char **why) {
    void *egl = dlopen("libEGL.so.1", RTLD_NOW);
    void *symbol = egl != NULL ? dlsym(egl, "eglGetProcAddress") : NULL;
    memcpy(&gl.address, &symbol, sizeof symbol);
    *why = "no OpenGL without a display";
    if (gl.address == NULL) {
        return NULL;
    }
    void *devices[16];
    int count = 0;
    found("eglQueryDevicesEXT", &gl.query_devices);
    found("eglGetPlatformDisplayEXT", &gl.display);
    found("eglInitialize", &gl.initialize);
    found("eglBindAPI", &gl.bind_api);
    found("eglCreateContext", &gl.create);
    found("eglMakeCurrent", &gl.current);
    if (gl.query_devices == NULL || gl.display == NULL || !gl.query_devices(16, devices, &count)) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        void *display = gl.display(PLATFORM_DEVICE, devices[i], NULL);
        const int none[] = {EGL_NONE_};
        if (display == NULL || !gl.initialize(display, NULL, NULL) || !gl.bind_api(OPENGL_API)) {
            continue;
        }
        void *context = gl.create(display, NULL, NULL, none);
        if (context != NULL && gl.current(display, NULL, NULL, context)) {
            found("glGenTextures", &gl.gen);
            found("glBindTexture", &gl.bind);
            found("glTexImage2D", &gl.image);
            found("glTexParameteri", &gl.parameter);
            found("glGetTexImage", &gl.get);
            found("glFinish", &gl.finish);
            interop *cuda = interop_open(NULL, why);
            if (cuda != NULL) {
                return cuda;
            }
        }
    }
    return NULL;
}

static unsigned texture(uint32_t width, uint32_t height, const void *pixels) {
    unsigned name = 0;
    gl.gen(1, &name);
    gl.bind(TEXTURE_2D, name);
    gl.image(TEXTURE_2D, 0, RGBA8, (int)width, (int)height, 0, RGBA, BYTES, pixels);
    gl.parameter(TEXTURE_2D, MIN_FILTER, NEAREST);
    gl.bind(TEXTURE_2D, 0);
    return name;
}

/* ---- davy ---- */

static davy_library lib;
static davy_context *context;
static davy_model *model;

static int open_davy(int32_t device) {
    char selector[16];
    snprintf(selector, sizeof selector, "cuda:%d", device);
    const davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = selector};
    const davy_source source = {.struct_size = sizeof source, .name = "davy-live-x2"};
    const davy_model_desc md = {.struct_size = sizeof md, .sources = &source, .n_sources = 1};
    return davy_load(&lib, NULL, DAVY_ABI_1_0) == DAVY_OK && lib.api->context_create(&cd, &context) == DAVY_OK &&
           lib.api->model_open(context, &md, &model) == DAVY_OK;
}

static davy_tensor rgba(uint64_t data, uint32_t width, uint32_t height, int32_t device) {
    return (davy_tensor){.struct_size = sizeof(davy_tensor),
                         .memory = device >= 0 ? DAVY_MEMORY_CUDA : DAVY_MEMORY_HOST,
                         .device = device >= 0 ? device : 0,
                         .dtype = DAVY_DTYPE_U8,
                         .layout = DAVY_LAYOUT_HWC,
                         .channels = DAVY_CHANNELS_RGBA,
                         .ndim = 3,
                         .data = data,
                         .shape = {height, width, 4}};
}

typedef struct stage {
    interop *cuda;
    interop_texture in, out;
    void *line;
    uint64_t from, to;
    uint32_t width, height;
} stage;

/* One picture, as a filter computes it. OpenGL waits only for the copies. */
static int frame(stage *s) {
    const davy_run run = {.struct_size = sizeof run, .stream = s->line, .flags = DAVY_RUN_STREAM_ORDERED};
    const int32_t device = interop_device(s->cuda);
    davy_tensor in = rgba(s->from, s->width, s->height, device);
    davy_tensor out = rgba(s->to, 2 * s->width, 2 * s->height, device);
    return interop_read(
               s->cuda, &s->in,
               &(interop_picture){.memory = s->from, .pitch = s->width, .width = s->width, .height = s->height}) &&
           interop_follow(s->cuda, s->line) && lib.api->upscale(model, &in, &out, &run, NULL) == DAVY_OK &&
           interop_wait(s->cuda, s->line) &&
           interop_write(s->cuda, &s->out,
                         &(interop_picture){
                             .memory = s->to, .pitch = 2 * s->width, .width = 2 * s->width, .height = 2 * s->height});
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Times a stream of pictures, and the drawing thread's share of one picture on an idle GPU. */
static void time_frames(stage *s) {
    enum { WARM = 10, FRAMES = 200, LOOKS = 50 };
    double taking = 0.0;
    double showing = 0.0;
    for (int i = 0; i < WARM; i++) {
        frame(s);
    }
    gl.finish();
    const double start = now();
    for (int i = 0; i < FRAMES; i++) {
        frame(s);
    }
    gl.finish();
    const double seconds = now() - start;
    for (int i = 0; i < LOOKS; i++) {
        const double before = now();
        interop_read(s->cuda, &s->in,
                     &(interop_picture){.memory = s->from, .pitch = s->width, .width = s->width, .height = s->height});
        taking += now() - before;
        gl.finish();
        const double again = now();
        interop_write(
            s->cuda, &s->out,
            &(interop_picture){.memory = s->to, .pitch = 2 * s->width, .width = 2 * s->width, .height = 2 * s->height});
        showing += now() - again;
        gl.finish();
    }
    printf("%ux%u to %ux%u: %.2f ms a frame, %.0f a second; the drawing thread: %.3f ms to take, %.3f ms to show\n",
           s->width, s->height, 2 * s->width, 2 * s->height, 1e3 * seconds / FRAMES, FRAMES / seconds,
           1e3 * taking / LOOKS, 1e3 * showing / LOOKS);
}

/* While the GPU computes, memory is allocated and freed, as when a source changes its size, and pictures are copied. The caller must
 * not wait for the GPU's work. */
static void time_beside(stage *s) {
    enum { BUSY = 20 };
    const davy_run how = {.struct_size = sizeof how, .stream = s->line, .flags = DAVY_RUN_STREAM_ORDERED};
    davy_tensor in = rgba(s->from, s->width, s->height, interop_device(s->cuda));
    davy_tensor out = rgba(s->to, 2 * s->width, 2 * s->height, interop_device(s->cuda));
    interop_free(s->cuda, interop_alloc(s->cuda, 64 << 20)); /* afterwards the pool has this memory */
    const double start = now();
    for (int i = 0; i < BUSY; i++) {
        CHECK(lib.api->upscale(model, &in, &out, &how, NULL) == DAVY_OK);
    }
    const double enqueued = now();
    const uint64_t memory = interop_alloc(s->cuda, 64 << 20);
    interop_free(s->cuda, memory);
    const double given = now();
    CHECK(
        interop_read(s->cuda, &s->in,
                     &(interop_picture){.memory = s->from, .pitch = s->width, .width = s->width, .height = s->height}));
    gl.finish();
    const double drawn = now();
    const davy_run wait = {.struct_size = sizeof wait, .stream = s->line};
    CHECK(memory != 0 && lib.api->upscale(model, &in, &out, &wait, NULL) == DAVY_OK);
    const double done = now();
    printf("%d frames enqueued in %.2f ms, memory allocated and freed in %.3f ms, the next frame copied after %.2f ms, "
           "all "
           "finished after %.2f ms\n",
           (int)BUSY, 1e3 * (enqueued - start), 1e3 * (given - enqueued), 1e3 * (drawn - given), 1e3 * (done - start));
    CHECK(drawn - given < 0.5 * (done - enqueued));
}

static void test_picture(interop *cuda, uint32_t width, uint32_t height, int timed) {
    const size_t pixels = (size_t)width * height;
    uint8_t *from = malloc(4 * pixels);
    uint8_t *want = malloc(16 * pixels);
    uint8_t *got = malloc(16 * pixels);
    for (size_t i = 0; i < pixels; i++) {
        from[4 * i] = (uint8_t)(i % width * 3);
        from[4 * i + 1] = (uint8_t)(i / width * 5);
        from[4 * i + 2] = (uint8_t)((i % 7) * 30);
        from[4 * i + 3] = 255;
    }
    davy_tensor in = rgba((uint64_t)(uintptr_t)from, width, height, -1);
    davy_tensor out = rgba((uint64_t)(uintptr_t)want, 2 * width, 2 * height, -1);
    CHECK(lib.api->upscale(model, &in, &out, NULL, NULL) == DAVY_OK);
    const unsigned names[2] = {texture(width, height, from), texture(2 * width, 2 * height, NULL)};
    stage s = {.cuda = cuda, .width = width, .height = height};
    CHECK(interop_register(cuda, names[0], false, &s.in));
    CHECK(interop_register(cuda, names[1], true, &s.out));
    s.line = interop_line_open(cuda);
    s.from = interop_alloc(cuda, 4 * pixels);
    s.to = interop_alloc(cuda, 16 * pixels);
    CHECK(s.line != NULL && s.from != 0 && s.to != 0);
    CHECK(frame(&s));
    gl.bind(TEXTURE_2D, names[1]);
    gl.get(TEXTURE_2D, 0, RGBA, BYTES, got);
    CHECKF(memcmp(got, want, 16 * pixels) == 0, "%ux%u: the texture's values differ from the host's", width, height);
    if (timed) {
        time_frames(&s);
        time_beside(&s);
    }
    interop_unregister(cuda, &s.in);
    interop_unregister(cuda, &s.out);
    interop_free(cuda, s.from);
    interop_free(cuda, s.to);
    interop_line_close(cuda, s.line);
    free(from);
    free(want);
    free(got);
}

int main(int argc, char **argv) {
    const char *why = "";
    interop *cuda = make_current(&why);
    if (cuda == NULL) {
        check_skip(why);
        return check_done();
    }
    if (CHECK(open_davy(interop_device(cuda)))) {
        test_picture(cuda, 96, 64, 0);
        test_picture(cuda, 333, 217, 0);
        if (argc > 2) {
            test_picture(cuda, (uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]), 1);
        }
        lib.api->model_release(model);
        lib.api->context_release(context);
    }
    interop_close(cuda);
    return check_done();
}
