/* engine_work.c - decides whether a picture is worth computing, and computes it. */
#include "engine_work.h"

#include <stdlib.h>
#include <string.h>

#include "sync.h"

#define PROBE_NS 2000000000u /* retry interval over the time limit and after a failed picture */

static size_t pixel_bytes(const work *w) {
    return w->format == WORK_SRGB8 ? 4 : 8;
}

static size_t row_bytes(const work *w) {
    return (size_t)w->width * pixel_bytes(w);
}

/* Stored in front of a kept picture's packed rows, so that pictures of different size or settings never compare equal. */
typedef struct shape_key {
    uint32_t width, height, out_width, out_height;
    uint32_t format;
    latent_change latent;
    uint32_t noise; /* differs in each frame */
} shape_key;

static size_t key_bytes(const work *w) {
    return sizeof(shape_key) + row_bytes(w) * w->height;
}

static shape_key shape_of(const work *w) {
    return (shape_key){.width = w->width,
                       .height = w->height,
                       .out_width = w->out_width,
                       .out_height = w->out_height,
                       .format = (uint32_t)w->format,
                       .latent = w->latent,
                       .noise = w->latent.noise > 0.0f ? (uint32_t)w->number : 0};
}

/* A picture in device memory is not compared: it always counts as new. */
static bool equals(const work *w, const uint8_t *kept, size_t bytes) {
    const shape_key shape = shape_of(w);
    bool same =
        w->format != WORK_STRAIGHT8 && kept != NULL && bytes == key_bytes(w) && memcmp(kept, &shape, sizeof shape) == 0;
    for (uint32_t y = 0; same && y < w->height; y++) {
        same = memcmp(kept + sizeof shape + y * row_bytes(w), w->in + (size_t)y * w->in_stride, row_bytes(w)) == 0;
    }
    return same;
}

static void keep(const work *w, uint8_t **kept, size_t *bytes) {
    const shape_key shape = shape_of(w);
    if (w->format == WORK_STRAIGHT8) {
        *bytes = 0;
        return;
    }
    if (*bytes != key_bytes(w) || *kept == NULL) {
        free(*kept);
        *kept = malloc(key_bytes(w));
        *bytes = *kept != NULL ? key_bytes(w) : 0;
    }
    if (*kept != NULL) {
        memcpy(*kept, &shape, sizeof shape);
        for (uint32_t y = 0; y < w->height; y++) {
            memcpy(*kept + sizeof shape + y * row_bytes(w), w->in + (size_t)y * w->in_stride, row_bytes(w));
        }
    }
}

/* ---- running ---- */

int32_t DAVY_CALL engine_unwanted(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    const work *w = user;
    return atomic_load(&w->owner->gone) || atomic_load(&w->owner->engine) != w->engine ? 1 : 0;
}

static davy_tensor picture(void *data, davy_dtype dtype, uint32_t width, uint32_t height, uint32_t stride) {
    davy_tensor t = {.struct_size = sizeof t,
                     .memory = DAVY_MEMORY_HOST,
                     .dtype = dtype,
                     .layout = DAVY_LAYOUT_HWC,
                     .channels = DAVY_CHANNELS_RGBA,
                     .ndim = 3,
                     .data = (uint64_t)(uintptr_t)data,
                     .shape = {height, width, 4}};
    const int64_t element = dtype == DAVY_DTYPE_U8 ? 1 : 4;
    t.stride_bytes[0] = stride;
    t.stride_bytes[1] = 4 * element;
    t.stride_bytes[2] = element;
    return t;
}

static bool run(const engine_model *m, const work *w, davy_tensor *in, davy_tensor *out) {
    const davy_run how = {
        .struct_size = sizeof how, .progress = engine_unwanted, .progress_user = (void *)(uintptr_t)w};
    return m->api->upscale(m->model, in, out, &how, NULL) == DAVY_OK;
}

static bool opaque(const work *w) {
    uint8_t all = 255;
    for (uint32_t y = 0; y < w->height && all == 255; y++) {
        const uint8_t *row = w->in + (size_t)y * w->in_stride;
        for (uint32_t x = 0; x < w->width; x++) {
            all &= row[4 * x + 3];
        }
    }
    return all == 255;
}

/* Reads and writes the mapped memory directly. The library sees RGB only. */
static bool run_opaque(const engine_model *m, const work *w) {
    davy_tensor in = picture((void *)(uintptr_t)w->in, DAVY_DTYPE_U8, w->width, w->height, w->in_stride);
    davy_tensor out = picture(w->out, DAVY_DTYPE_U8, w->out_width, w->out_height, w->out_stride);
    in.channels = out.channels = DAVY_CHANNELS_RGB;
    in.shape[2] = out.shape[2] = 3;
    for (uint32_t y = 0; y < w->out_height; y++) {
        memset(w->out + (size_t)y * w->out_stride, 255, (size_t)w->out_width * 4);
    }
    return run(m, w, &in, &out);
}

static bool run_srgb8(const engine_model *m, const work *w) {
    if (opaque(w)) {
        return run_opaque(m, w);
    }
    const size_t in_row = row_bytes(w);
    const size_t out_row = (size_t)w->out_width * 4;
    uint8_t *from = malloc(in_row * w->height + out_row * w->out_height);
    if (from == NULL) {
        return false;
    }
    uint8_t *to = from + in_row * w->height;
    for (uint32_t y = 0; y < w->height; y++) {
        light_to_straight8(w->in + (size_t)y * w->in_stride, from + y * in_row, w->width);
    }
    davy_tensor in = picture(from, DAVY_DTYPE_U8, w->width, w->height, (uint32_t)in_row);
    davy_tensor out = picture(to, DAVY_DTYPE_U8, w->out_width, w->out_height, (uint32_t)out_row);
    const bool ok = run(m, w, &in, &out);
    for (uint32_t y = 0; ok && y < w->out_height; y++) {
        light_from_straight8(to + y * out_row, w->out + (size_t)y * w->out_stride, w->out_width);
    }
    free(from);
    return ok;
}

davy_tensor engine_device_picture(const engine_model *m, const work *w, const engine_pixels *p) {
    davy_tensor t = picture((void *)(uintptr_t)p->data, DAVY_DTYPE_U8, p->width, p->height, p->stride);
    const bool cuda = w->stream != NULL && m->device >= 0;
    t.memory = cuda ? DAVY_MEMORY_CUDA : DAVY_MEMORY_HOST;
    t.device = cuda ? m->device : 0;
    return t;
}

/* Runs in order on the stream, so the host cannot check whether the picture is opaque. The result is complete on return. */
static bool run_device(const engine_model *m, const work *w) {
    const bool cuda = w->stream != NULL && m->device >= 0;
    const davy_run how = {.struct_size = sizeof how,
                          .flags = cuda ? DAVY_RUN_STREAM_ORDERED : 0,
                          .stream = cuda ? w->stream : NULL,
                          .progress = engine_unwanted,
                          .progress_user = (void *)(uintptr_t)w};
    davy_tensor in = engine_device_picture(
        m, w, &(engine_pixels){.data = w->in, .width = w->width, .height = w->height, .stride = w->in_stride});
    davy_tensor out = engine_device_picture(
        m, w,
        &(engine_pixels){.data = w->out, .width = w->out_width, .height = w->out_height, .stride = w->out_stride});
    const bool ok = m->api->upscale(m->model, &in, &out, &how, NULL) == DAVY_OK;
    return cuda ? w->wait(w->wait_with, w->stream) && ok : ok; /* wait after an error too: work may be running */
}

static bool run_linear16(const engine_model *m, const work *w) {
    const size_t in_pixels = (size_t)w->width * w->height;
    const size_t out_pixels = (size_t)w->out_width * w->out_height;
    float *from = malloc((in_pixels + out_pixels) * 4 * sizeof *from);
    if (from == NULL) {
        return false;
    }
    float *to = from + 4 * in_pixels;
    for (uint32_t y = 0; y < w->height; y++) {
        light_to_signal((const uint16_t *)(const void *)(w->in + (size_t)y * w->in_stride),
                        from + (size_t)y * w->width * 4, w->width, w->sdr_white);
    }
    davy_tensor in = picture(from, DAVY_DTYPE_F32, w->width, w->height, w->width * 16);
    davy_tensor out = picture(to, DAVY_DTYPE_F32, w->out_width, w->out_height, w->out_width * 16);
    const bool ok = run(m, w, &in, &out);
    for (uint32_t y = 0; ok && y < w->out_height; y++) {
        light_from_signal(to + (size_t)y * w->out_width * 4, (uint16_t *)(void *)(w->out + (size_t)y * w->out_stride),
                          w->out_width, w->sdr_white);
    }
    free(from);
    return ok;
}

/* Over the time limit, only still pictures are computed, and one moving picture every PROBE_NS to measure the time again. */
static bool worth(client *c, bool still, uint64_t now, bool *probe) {
    const bool over = c->average_us > (float)atomic_load(&c->budget_us);
    *probe = over && !still;
    return !*probe || now - c->probed_ns >= PROBE_NS;
}

static work_state failed(const engine_model *m, work *w, uint64_t now) {
    davy_error_info error = {.struct_size = sizeof error};
    if (m->api->last_error(&error) == DAVY_OK && error.code == DAVY_E_CANCELLED) {
        return WORK_STALE; /* even if the filter is shown again by now */
    }
    w->owner->failed_on = m->engine;
    w->owner->failed_ns = now;
    w->owner->failed_width = w->width;
    w->owner->failed_height = w->height;
    return WORK_FAILED;
}

/* A picture of the same size failed on this engine less than PROBE_NS ago; this one would most likely fail too. */
static bool fails(const engine_model *m, const work *w, uint64_t now) {
    const client *c = w->owner;
    return c->failed_on == m->engine && c->failed_width == w->width && c->failed_height == w->height &&
           now - c->failed_ns < PROBE_NS;
}

static work_state take_turn(const engine_model *m, work *w) {
    client *c = w->owner;
    if (w->number != atomic_load(&c->newest) || engine_unwanted(w, NULL, 0, 0) != 0) {
        return WORK_STALE;
    }
    if (m->task == DAVY_TASK_CAPTION) {
        return engine_caption(m, w) ? WORK_DONE : failed(m, w, plugin_now_ns());
    }
    if (atomic_exchange(&c->forget, false)) {
        c->done_bytes = 0;
    }
    if (c->ran_on == m->engine && equals(w, c->done, c->done_bytes)) {
        return WORK_SAME;
    }
    const bool still = equals(w, c->seen, c->seen_bytes);
    const uint64_t start = plugin_now_ns();
    bool probe = false;
    if (!still) {
        keep(w, &c->seen, &c->seen_bytes);
    }
    if (c->ran_on != m->engine) { /* a new model: its speed is unknown */
        c->average_us = 0.0f;
    }
    if (!worth(c, still, start, &probe) || fails(m, w, start)) {
        return WORK_PASSED;
    }
    const bool ok = m->task == DAVY_TASK_VAE      ? engine_vae(m, w)
                    : w->format == WORK_STRAIGHT8 ? run_device(m, w)
                    : w->format == WORK_SRGB8     ? run_srgb8(m, w)
                                                  : run_linear16(m, w);
    const uint64_t end = plugin_now_ns();
    if (!ok) {
        return failed(m, w, end);
    }
    c->failed_on = 0;
    const float us = (float)(end - start) / 1000.0f;
    const bool first = c->ran_on != m->engine; /* its time includes planning and does not count */
    c->ran_on = m->engine;
    c->probed_ns = end;
    c->average_us = first ? 0.0f : c->average_us > 0.0f ? 0.7f * c->average_us + 0.3f * us : us;
    atomic_store(&c->last_us, (int)us);
    if (probe && c->average_us > (float)atomic_load(&c->budget_us)) {
        return WORK_PASSED; /* still over the time limit */
    }
    keep(w, &c->done, &c->done_bytes);
    return WORK_DONE;
}

/* After a change of model a filter may have pictures in two engines. The lock makes them take turns; the old engine stops at its
 * next progress call. */
work_state engine_work(const engine_model *m, work *w) {
    plugin_lock_take(&w->owner->turn);
    const work_state state = take_turn(m, w);
    plugin_lock_give(&w->owner->turn);
    return state;
}
