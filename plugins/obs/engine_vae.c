/* engine_vae.c - runs a picture through a VAE's encoder and decoder, and changes the latent in between. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine_work.h"

static davy_tensor rgba8(void *data, uint32_t width, uint32_t height) {
    return (davy_tensor){.struct_size = sizeof(davy_tensor),
                         .memory = DAVY_MEMORY_HOST,
                         .dtype = DAVY_DTYPE_U8,
                         .layout = DAVY_LAYOUT_HWC,
                         .channels = DAVY_CHANNELS_RGBA,
                         .ndim = 3,
                         .data = (uint64_t)(uintptr_t)data,
                         .shape = {height, width, 4}};
}

/* Pixels with straight alpha, padded to the encoder's size by repeating the edges. */
static uint8_t *enlarged(const work *w, uint32_t width, uint32_t height) {
    uint8_t *to = malloc((size_t)width * height * 4);
    for (uint32_t y = 0; to != NULL && y < height; y++) {
        const uint32_t from = y < w->height ? y : w->height - 1;
        uint8_t *row = to + (size_t)y * width * 4;
        light_to_straight8(w->in + (size_t)from * w->in_stride, row, w->width);
        for (uint32_t x = w->width; x < width; x++) {
            memcpy(row + 4 * (size_t)x, row + 4 * ((size_t)w->width - 1), 4);
        }
    }
    return to;
}

/* Two normally distributed numbers from a 64-bit state (Box-Muller). The same frame number gives the same noise. */
static void normal2(uint64_t *state, float out[2]) {
    *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const float u = ((float)(uint32_t)(z >> 40) + 1.0f) / 16777217.0f;
    const float v = (float)(uint32_t)(z & 0xffffffu) / 16777216.0f;
    const float r = sqrtf(-2.0f * logf(u));
    out[0] = r * cosf(6.2831853f * v);
    out[1] = r * sinf(6.2831853f * v);
}

static void change(const engine_model *m, const work *w, float *z, int64_t count) {
    const latent_change *c = &w->latent;
    const float unit = m->info->latent_scale > 0.0f ? 1.0f / m->info->latent_scale : 1.0f;
    const float shift = m->info->latent_shift;
    const float step = c->bits > 0 ? 8.0f * unit / (float)((1 << c->bits) - 1) : 0.0f;
    uint64_t seed = w->number;
    for (int64_t i = 0; i < count; i++) {
        float noise[2];
        float v = (z[i] - shift) * c->strength;
        if (c->noise > 0.0f) {
            normal2(&seed, noise);
            v += noise[0] * c->noise * unit;
        }
        if (step > 0.0f) {
            v = fminf(fmaxf(v, -4.0f * unit), 4.0f * unit);
            v = roundf((v + 4.0f * unit) / step) * step - 4.0f * unit;
        }
        z[i] = v + shift;
    }
}

/* Writes the decoded picture, cropped to size, with the source's alpha. */
static bool put_back(const work *w, const uint8_t *rgb, uint32_t width) {
    uint8_t *row = malloc((size_t)w->width * 4);
    for (uint32_t y = 0; row != NULL && y < w->height; y++) {
        const uint8_t *in = w->in + (size_t)y * w->in_stride;
        for (uint32_t x = 0; x < w->width; x++) {
            memcpy(row + 4 * x, rgb + 3 * ((size_t)y * width + x), 3);
            row[4 * x + 3] = in[4 * x + 3];
        }
        light_from_straight8(row, w->out + (size_t)y * w->out_stride, w->width);
    }
    free(row);
    return row != NULL;
}

/* Offers the decoded latent to borrowers. The shelf takes over its memory. */
static void hand_on(const engine_model *m, const work *w, const davy_tensor *z) {
    latent *l = calloc(1, sizeof *l);
    if (l == NULL) {
        m->api->buffer_release(z->buffer);
        return;
    }
    atomic_init(&l->holders, 1);
    l->tensor = *z;
    l->api = m->api;
    l->scale = m->info->latent_scale;
    l->shift = m->info->latent_shift;
    l->frame = w->number;
    l->ns = plugin_now_ns();
    latent_put(&w->owner->latent, l);
}

static bool code(const engine_model *m, const work *w, davy_tensor *in, davy_tensor *out) {
    const davy_run how = {.struct_size = sizeof how,
                          .stream = in->memory == DAVY_MEMORY_CUDA ? w->stream : NULL,
                          .progress = engine_unwanted,
                          .progress_user = (void *)(uintptr_t)w};
    davy_tensor z = {.struct_size = sizeof z,
                     .dtype = DAVY_DTYPE_F32}; /* in host memory, where it is changed and lent */
    bool ok = m->api->vae_encode(m->model, in, &z, &how, NULL) == DAVY_OK;
    if (ok) {
        change(m, w, (float *)(uintptr_t)z.data, z.shape[0] * z.shape[1] * z.shape[2]);
        ok = m->api->vae_decode(m->model, &z, out, &how, NULL) == DAVY_OK;
    }
    if (ok) {
        hand_on(m, w, &z);
    } else {
        m->api->buffer_release(z.buffer);
    }
    return ok;
}

/* The decoder overwrites the colours of the input; the input's alpha stays. */
static bool code_on_device(const engine_model *m, const work *w, uint32_t width, uint32_t height) {
    davy_tensor in = engine_device_picture(
        m, w, &(engine_pixels){.data = w->in, .width = width, .height = height, .stride = w->in_stride});
    davy_tensor out = in;
    out.channels = DAVY_CHANNELS_RGB;
    out.shape[2] = 3;
    return code(m, w, &in, &out);
}

bool engine_vae(const engine_model *m, const work *w) {
    const uint32_t width = engine_padded(w->width, m->info->size_multiple);
    const uint32_t height = engine_padded(w->height, m->info->size_multiple);
    if (w->format == WORK_STRAIGHT8) {
        return code_on_device(m, w, width, height);
    }
    uint8_t *pixels = enlarged(w, width, height);
    bool ok = pixels != NULL;
    if (ok) {
        davy_tensor in = rgba8(pixels, width, height);
        davy_tensor out = rgba8(pixels, width, height);
        out.channels = DAVY_CHANNELS_RGB;
        out.shape[2] = 3;
        ok = code(m, w, &in, &out) && put_back(w, pixels, width);
    }
    free(pixels);
    return ok;
}
