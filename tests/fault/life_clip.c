/* life_clip.c - the life of a clip: opens a video VAE, encodes five frames at once or (as_job) through a sequence, releases all.
 * It replaces life.c and also has no checks and no output. */
#include <stdlib.h>
#include <string.h>

#include "tests/fault/life.h"

enum { SIDE = 8, FRAMES = 5, LATENTS = 2, Z = 4 };

static float latents[LATENTS * Z], wanted[LATENTS * Z];

void life_begin(life *l, const davy_api *api, davy_context *ctx) {
    memset(l, 0, sizeof *l);
    l->api = api;
    l->ctx = ctx;
    l->file = synth_taehv(5);
    l->source = (davy_source){.struct_size = sizeof l->source,
                              .name = "small.safetensors",
                              .data = l->file.data,
                              .data_bytes = l->file.bytes};
    l->in = picture_new(FRAMES, SIDE, SIDE, 3);
    picture_fill(&l->in, 6);
    if (ctx != NULL && life_live(l) == DAVY_OK) {
        memcpy(wanted, latents, sizeof latents);
    }
}

const int life_ways = 2;

void life_end(life *l) {
    free(l->file.data);
    picture_free(&l->in);
}

bool life_right(const life *l, double bound) {
    (void)l;
    (void)bound;
    return memcmp(latents, wanted, sizeof latents) == 0;
}

static davy_tensor frames_of(const life *l, int64_t first, int64_t n) {
    davy_tensor t = host_tensor(&l->in);
    const int64_t shape[6] = {1, n, SIDE, SIDE, 3};
    t.layout = DAVY_LAYOUT_NTHWC;
    t.ndim = 5;
    t.data += (uint64_t)first * SIDE * SIDE * 3 * sizeof(float);
    memcpy(t.shape, shape, sizeof shape);
    memset(t.stride_bytes, 0, sizeof t.stride_bytes);
    return t;
}

static davy_tensor latents_of(int64_t first, int64_t n) {
    const davy_tensor t = {.struct_size = sizeof t,
                           .dtype = DAVY_DTYPE_F32,
                           .layout = DAVY_LAYOUT_NTHWC,
                           .ndim = 5,
                           .data = (uint64_t)(uintptr_t)(latents + first * Z),
                           .shape = {1, n, 1, 1, Z}};
    return t;
}

static davy_result run_frames(life *l, davy_model *m) {
    const davy_api *api = l->api;
    const davy_tensor frame = frames_of(l, 0, 1);
    const davy_sequence_desc desc = {
        .struct_size = sizeof desc, .op = DAVY_OP_VAE_ENCODE, .input = &frame, .run = l->run, .max_in_flight = FRAMES};
    davy_sequence *s = NULL;
    davy_result r = api->sequence_open(m, &desc, &s);
    for (int64_t i = 0; r == DAVY_OK && i < FRAMES; i++) {
        const davy_tensor in = frames_of(l, i, 1);
        r = api->sequence_push(s, &in, UINT64_MAX);
    }
    r = r == DAVY_OK ? api->sequence_finish(s) : r;
    for (int64_t i = 0; r == DAVY_OK && i < LATENTS; i++) {
        davy_tensor out = latents_of(i, 1);
        r = api->sequence_pull(s, &out, UINT64_MAX);
    }
    api->sequence_release(s);
    return r;
}

davy_result life_live(life *l) {
    davy_model *m = NULL;
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &l->source, .n_sources = 1};
    const davy_tensor src = frames_of(l, 0, FRAMES);
    davy_tensor dst = latents_of(0, LATENTS);
    memset(latents, 0, sizeof latents);
    davy_result r = l->api->model_open(l->ctx, &desc, &m);
    if (r == DAVY_OK) {
        r = l->as_job ? run_frames(l, m) : l->api->vae_encode(m, &src, &dst, l->run, NULL);
    }
    l->api->model_release(m);
    return r;
}
