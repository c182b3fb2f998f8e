/* obs_world.c - see obs_world.h. */
#include "obs_world.h"

#include <X11/Xlib.h>
#include <execinfo.h>
#include <obs-nix-platform.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <util/platform.h>

#include "abi/davy_loader.h"
#include "plugins/cli/pictures/picture.h"

#define OBS_PLUGINS "/usr/lib/x86_64-linux-gnu/obs-plugins"
#define OBS_DATA    "/usr/share/obs/obs-plugins"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t frames;
    world_frame last;
    bool hdr;
    Display *display;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};

static void rendered(void *unused, struct video_data *data) {
    (void)unused;
    const size_t row = (size_t)world.last.width * (world.hdr ? 2 : 4);
    uint8_t *to = world.last.pixels;
    pthread_mutex_lock(&world.lock);
    for (int plane = 0; plane < (world.hdr ? 2 : 1); plane++) {
        for (uint32_t y = 0; y < world.last.height >> plane; y++, to += row) {
            memcpy(to, data->data[plane] + (size_t)y * data->linesize[plane], row);
        }
    }
    world.frames++;
    pthread_cond_broadcast(&world.turned);
    pthread_mutex_unlock(&world.lock);
}

static bool open_module(const char *so, const char *data) {
    obs_module_t *module = NULL;
    return obs_open_module(&module, so, data) == MODULE_SUCCESS && obs_init_module(module);
}

static char folder[512];

void world_folder(const char *path) {
    snprintf(folder, sizeof folder, "%s", path);
    os_mkdirs(folder);
}

const char *world_file(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

bool world_module(const char *name) {
    char so[512];
    char data[512];
    snprintf(so, sizeof so, OBS_PLUGINS "/%s.so", name);
    snprintf(data, sizeof data, OBS_DATA "/%s", name);
    return open_module(so, data);
}

/* Prints the stack of a crash, because not every crash can be reproduced. */
static void crashed(int signal_number) {
    void *frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static bool reset_video(uint32_t width, uint32_t height, uint32_t fps) {
    struct obs_video_info video = {.graphics_module = "libobs-opengl",
                                   .fps_num = fps,
                                   .fps_den = 1,
                                   .base_width = width,
                                   .base_height = height,
                                   .output_width = width,
                                   .output_height = height,
                                   .output_format = world.hdr ? VIDEO_FORMAT_P010 : VIDEO_FORMAT_BGRA,
                                   .gpu_conversion = true,
                                   .colorspace = world.hdr ? VIDEO_CS_2100_PQ : VIDEO_CS_SRGB,
                                   .range = world.hdr ? VIDEO_RANGE_PARTIAL : VIDEO_RANGE_FULL,
                                   .scale_type = OBS_SCALE_BICUBIC};
    const struct obs_audio_info audio = {.samples_per_sec = 48000, .speakers = SPEAKERS_STEREO};
    return obs_reset_video(&video) == OBS_VIDEO_SUCCESS && obs_reset_audio(&audio);
}

static void listen(void) {
    const struct video_scale_info as_it_is = {.format = world.hdr ? VIDEO_FORMAT_P010 : VIDEO_FORMAT_BGRA,
                                              .width = world.last.width,
                                              .height = world.last.height,
                                              .range = world.hdr ? VIDEO_RANGE_PARTIAL : VIDEO_RANGE_FULL,
                                              .colorspace = world.hdr ? VIDEO_CS_2100_PQ : VIDEO_CS_SRGB};
    obs_add_raw_video_callback(&as_it_is, rendered, NULL);
}

bool world_open(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data) {
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    world.display = XOpenDisplay(NULL);
    if (world.display == NULL) {
        return false;
    }
    obs_set_nix_platform(OBS_NIX_PLATFORM_X11_EGL);
    obs_set_nix_platform_display(world.display);
    world.last = (world_frame){width, height, calloc((size_t)width * height, 4)};
    if (!obs_startup("en-US", getenv("XDG_CONFIG_HOME"), NULL) || !reset_video(width, height, fps)) {
        return false;
    }
    listen();
    return open_module(module, data);
}

bool world_rate(uint32_t fps) {
    obs_remove_raw_video_callback(rendered, NULL); /* OBS keeps the old rate while a callback is registered */
    const bool ok = reset_video(world.last.width, world.last.height, fps);
    listen();
    return ok;
}

bool world_open_hdr(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data) {
    world.hdr = true;
    return world_open(width, height, fps, module, data);
}

long world_close(void) {
    obs_remove_raw_video_callback(rendered, NULL);
    obs_set_output_source(0, NULL);
    obs_shutdown();
    XCloseDisplay(world.display);
    free(world.last.pixels);
    world.last.pixels = NULL;
    return bnum_allocs();
}

void world_show(obs_source_t *source) {
    obs_set_output_source(0, source);
}

uint64_t world_frames(void) {
    pthread_mutex_lock(&world.lock);
    const uint64_t frames = world.frames;
    pthread_mutex_unlock(&world.lock);
    return frames;
}

uint64_t world_drawn(void) {
    return (uint64_t)obs_get_total_frames() - obs_get_lagged_frames();
}

void world_wait_frames(uint64_t more) {
    enum { ON_THE_WAY = 2 }; /* drawn, but not output yet */
    pthread_mutex_lock(&world.lock);
    const uint64_t until = world.frames + more;
    const uint64_t drawn_until = world_drawn() + more + ON_THE_WAY;
    while (world.frames < until || world_drawn() < drawn_until) {
        pthread_cond_wait(&world.turned, &world.lock);
    }
    pthread_mutex_unlock(&world.lock);
}

world_frame world_grab(int after) {
    world_wait_frames((uint64_t)after);
    pthread_mutex_lock(&world.lock);
    world_frame f = world.last;
    const size_t bytes = (size_t)f.width * f.height * 4;
    f.pixels = malloc(bytes);
    if (f.pixels != NULL) {
        memcpy(f.pixels, world.last.pixels, bytes);
    }
    pthread_mutex_unlock(&world.lock);
    return f;
}

void world_frame_free(world_frame *f) {
    free(f->pixels);
    f->pixels = NULL;
}

obs_source_t *world_image(const char *name, const char *file) {
    obs_data_t *settings = obs_data_create();
    obs_data_set_string(settings, "file", file);
    obs_source_t *source = obs_source_create("image_source", name, settings, NULL);
    obs_data_release(settings);
    return source;
}

obs_source_t *world_colour(const char *name, uint32_t abgr, uint32_t width, uint32_t height) {
    obs_data_t *settings = obs_data_create();
    obs_data_set_int(settings, "color", abgr);
    obs_data_set_int(settings, "width", width);
    obs_data_set_int(settings, "height", height);
    obs_source_t *source = obs_source_create("color_source_v3", name, settings, NULL);
    obs_data_release(settings);
    return source;
}

long long world_number(obs_source_t *filter, const char *what) {
    calldata_t call;
    calldata_init(&call);
    proc_handler_call(obs_source_get_proc_handler(filter), "davy_get_status", &call);
    const long long n = calldata_int(&call, what);
    calldata_free(&call);
    return n;
}

void world_wait_done(obs_source_t *filter, long long results, int seconds) {
    for (int i = 0; i < seconds * 20 && world_number(filter, "done") < results; i++) {
        os_sleep_ms(50);
    }
}

obs_source_t *world_filter(obs_source_t *on, const char *id, const char *settings, ...) {
    char json[4096];
    va_list args;
    va_start(args, settings);
    vsnprintf(json, sizeof json, settings, args);
    va_end(args);
    obs_data_t *data = obs_data_create_from_json(json);
    obs_source_t *filter = obs_source_create_private(id, "davy", data);
    obs_source_filter_add(on, filter);
    obs_data_release(data);
    return filter;
}

void world_unfilter(obs_source_t *from, obs_source_t *filter) {
    obs_source_filter_remove(from, filter);
    obs_source_release(filter);
}

void world_status(obs_source_t *filter, char *out, size_t bytes) {
    obs_properties_t *props = obs_source_properties(filter);
    snprintf(out, bytes, "%s", obs_property_description(obs_properties_get(props, "status")));
    obs_properties_destroy(props);
}

typedef struct wanted {
    const char *name;
    obs_hotkey_id id;
} wanted;

static bool look_for(void *data, obs_hotkey_id id, obs_hotkey_t *hotkey) {
    wanted *w = data;
    if (strcmp(obs_hotkey_get_name(hotkey), w->name) == 0) {
        w->id = id;
    }
    return w->id == OBS_INVALID_HOTKEY_ID;
}

bool world_press(const char *hotkey) {
    wanted w = {hotkey, OBS_INVALID_HOTKEY_ID};
    obs_enum_hotkeys(look_for, &w);
    if (w.id != OBS_INVALID_HOTKEY_ID) {
        obs_hotkey_enable_callback_rerouting(true);
        obs_hotkey_trigger_routed_callback(w.id, true);
        obs_hotkey_trigger_routed_callback(w.id, false);
        obs_hotkey_enable_callback_rerouting(false);
    }
    return w.id != OBS_INVALID_HOTKEY_ID;
}

void world_pattern(uint32_t width, uint32_t height, bool alpha, uint8_t *rgba) {
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *p = rgba + 4 * ((size_t)y * width + x);
            const bool check = ((x / 6) + (y / 5)) % 2 == 0;
            p[0] = (uint8_t)(check ? 40 + x * 150 / width : 230 - y * 100 / height);
            p[1] = (uint8_t)(x * 255 / width);
            p[2] = (uint8_t)((x * x + y * y) / 9 % 200 + 20);
            p[3] = (uint8_t)(alpha ? (x * 5 + y * 3) % 256 : 255);
        }
    }
}

bool world_picture(const char *path, uint32_t width, uint32_t height, bool alpha, uint8_t *rgba) {
    world_pattern(width, height, alpha, rgba);
    cli_picture p = {.width = width, .height = height, .channels = 4, .bits = 8, .pixels = rgba};
    const cli_encoding e = {0};
    return cli_picture_save(path, &p, &e) == 0;
}

bool world_network(const char *path, float brighter) {
    enum { NUMBERS = 451, LAST = 3 };
    static const char header[] =
        "{\"body.0.weight\":{\"dtype\":\"F32\",\"shape\":[8,3,3,3],\"data_offsets\":[0,864]},"
        "\"body.0.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[864,896]},"
        "\"body.1.weight\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[896,928]},"
        "\"body.2.weight\":{\"dtype\":\"F32\",\"shape\":[3,8,3,3],\"data_offsets\":[928,1792]},"
        "\"body.2.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[1792,1804]}}";
    float numbers[NUMBERS] = {0};
    for (int i = 1; i <= LAST; i++) {
        numbers[NUMBERS - i] = brighter;
    }
    const uint64_t bytes = sizeof header - 1;
    FILE *f = fopen(path, "wb");
    const bool ok = f != NULL && fwrite(&bytes, sizeof bytes, 1, f) == 1 && fwrite(header, bytes, 1, f) == 1 &&
                    fwrite(numbers, sizeof numbers, 1, f) == 1;
    return f != NULL && fclose(f) == 0 && ok;
}

davy_tensor world_rgba(void *pixels, bool floats, uint32_t width, uint32_t height) {
    return (davy_tensor){.struct_size = sizeof(davy_tensor),
                         .dtype = floats ? DAVY_DTYPE_F32 : DAVY_DTYPE_U8,
                         .layout = DAVY_LAYOUT_HWC,
                         .channels = DAVY_CHANNELS_RGBA,
                         .ndim = 3,
                         .data = (uint64_t)(uintptr_t)pixels,
                         .shape = {height, width, 4}};
}

bool world_davy(const char *device, const char *model, const char *precision, davy_tensor in, davy_tensor out) {
    davy_library lib;
    davy_context *ctx = NULL;
    davy_model *opened = NULL;
    const bool file = strchr(model, '/') != NULL;
    const davy_context_desc cd = {.struct_size = sizeof cd, .abi_version = DAVY_ABI_VERSION, .device = device};
    const davy_source source = {.struct_size = sizeof source, .name = file ? NULL : model, .path = file ? model : NULL};
    const davy_model_desc md = {.struct_size = sizeof md,
                                .sources = &source,
                                .n_sources = 1,
                                .compute = strcmp(precision, "fp32") == 0   ? DAVY_DTYPE_F32
                                           : strcmp(precision, "fp16") == 0 ? DAVY_DTYPE_F16
                                           : strcmp(precision, "bf16") == 0 ? DAVY_DTYPE_BF16
                                                                            : DAVY_DTYPE_AUTO};
    const bool ok = davy_load(&lib, NULL, DAVY_ABI_1_0) == DAVY_OK && lib.api->context_create(&cd, &ctx) == DAVY_OK &&
                    lib.api->model_open(ctx, &md, &opened) == DAVY_OK &&
                    lib.api->upscale(opened, &in, &out, NULL, NULL) == DAVY_OK;
    if (lib.api != NULL) {
        lib.api->model_release(opened);
        lib.api->context_release(ctx);
    }
    return ok;
}

int world_compare(const world_frame *f, const uint8_t *rgba, uint32_t width, uint32_t height, double *share) {
    int worst = 0;
    size_t beyond = 0;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint8_t *is = f->pixels + 4 * ((size_t)y * f->width + x);
            const uint8_t *want = rgba + 4 * ((size_t)y * width + x);
            for (int c = 0; c < 3; c++) {
                const int d = abs((int)is[2 - c] - (int)want[c]);
                worst = d > worst ? d : worst;
                beyond += d > 1;
            }
        }
    }
    *share = (double)beyond / ((double)width * height * 3);
    return worst;
}

int world_difference(const world_frame *a, const world_frame *b, int within, double *share) {
    int worst = 0;
    size_t beyond = 0;
    const size_t pixels = (size_t)a->width * a->height;
    for (size_t i = 0; i < 4 * pixels; i++) {
        const int d = abs((int)a->pixels[i] - (int)b->pixels[i]);
        worst = d > worst ? d : worst;
        beyond += d > within;
    }
    if (share != NULL) {
        *share = (double)beyond / (double)(4 * pixels);
    }
    return worst;
}

bool world_save(const char *path, const world_frame *f) {
    const size_t pixels = (size_t)f->width * f->height;
    uint8_t *rgb = malloc(3 * pixels);
    for (size_t i = 0; rgb != NULL && i < pixels; i++) {
        for (int c = 0; c < 3; c++) {
            rgb[3 * i + (size_t)c] = f->pixels[4 * i + 2 - (size_t)c];
        }
    }
    cli_picture p = {.width = f->width, .height = f->height, .channels = 3, .bits = 8, .pixels = rgb};
    const cli_encoding e = {0};
    const bool ok = rgb != NULL && cli_picture_save(path, &p, &e) == 0;
    free(rgb);
    return ok;
}
