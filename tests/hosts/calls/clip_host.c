/* clip_host.c - see clip_host.h. */
#include "tests/hosts/calls/clip_host.h"

const davy_api *api;
davy_context *ctx;
davy_model *model;
davy_model_info facts;
int first;

int latents_of(int frames) {
    return frames <= first ? 1 : 1 + (frames - first + 3) / 4;
}

int lh(void) {
    return HEIGHT / facts.spatial_factor;
}

int lw(void) {
    return WIDTH / facts.spatial_factor;
}

size_t latent_bytes(int n) {
    return (size_t)(n * lh() * lw() * Z) * sizeof(float);
}

void fill_frame(uint8_t *p, int clip, int number) {
    for (int i = 0; i < PIXELS; i++) {
        p[i] = (uint8_t)((i * 5 + i / 72 * 11 + number * 37 + clip * 90) & 255);
    }
}

uint8_t *frames_of(int clips, int frames) {
    uint8_t *p = malloc((size_t)(clips * frames) * PIXELS);
    for (int i = 0; i < clips * frames; i++) {
        fill_frame(p + (size_t)i * PIXELS, i / frames, i % frames);
    }
    return p;
}

davy_tensor clip_tensor(void *data, davy_dtype dtype, int n, int t, int h, int w, int c) {
    const davy_tensor d = {.struct_size = sizeof d,
                           .dtype = dtype,
                           .layout = DAVY_LAYOUT_NTHWC,
                           .ndim = 5,
                           .data = (uint64_t)(uintptr_t)data,
                           .shape = {n, t, h, w, c}};
    return d;
}

davy_tensor pixels_tensor(uint8_t *data, int clips, int frames) {
    return clip_tensor(data, DAVY_DTYPE_U8, clips, frames, HEIGHT, WIDTH, 3);
}

davy_tensor latent_tensor(float *data, int clips, int latents) {
    return clip_tensor(data, DAVY_DTYPE_F32, clips, latents, lh(), lw(), Z);
}

davy_result encode(uint8_t *pixels, int clips, int frames, float *latent, const davy_run *run) {
    const davy_tensor in = pixels_tensor(pixels, clips, frames);
    davy_tensor out = latent_tensor(latent, clips, latents_of(frames));
    return api->vae_encode(model, &in, &out, run, NULL);
}

davy_result decode(float *latent, int latents, uint8_t *pixels, const davy_run *run) {
    const davy_tensor in = latent_tensor(latent, 1, latents);
    davy_tensor out = pixels_tensor(pixels, 1, 4 * latents - 3);
    return api->vae_decode(model, &in, &out, run, NULL);
}

/* ---- sequences ---- */

static davy_tensor frame_tensor(uint8_t *p) {
    const davy_tensor t = {.struct_size = sizeof t,
                           .dtype = DAVY_DTYPE_U8,
                           .layout = DAVY_LAYOUT_HWC,
                           .ndim = 3,
                           .data = (uint64_t)(uintptr_t)p,
                           .shape = {HEIGHT, WIDTH, 3}};
    return t;
}

davy_tensor one_latent(float *p) {
    const davy_tensor t = {.struct_size = sizeof t,
                           .dtype = DAVY_DTYPE_F32,
                           .layout = DAVY_LAYOUT_HWC,
                           .ndim = 3,
                           .data = (uint64_t)(uintptr_t)p,
                           .shape = {lh(), lw(), Z}};
    return t;
}

davy_sequence *open_sequence(davy_op op, int32_t most, const davy_run *run) {
    const davy_tensor frame = frame_tensor(NULL);
    davy_tensor latent = one_latent(NULL);
    const int64_t apart[3] = {32 * lw() * Z, 32 * Z, 4}; /* of frames to come strides say nothing */
    memcpy(latent.stride_bytes, apart, sizeof apart);
    const int encodes = op == DAVY_OP_VAE_ENCODE;
    const davy_sequence_desc desc = {.struct_size = sizeof desc,
                                     .op = op,
                                     .input = encodes ? &frame : &latent,
                                     .output = encodes ? NULL : &frame,
                                     .run = run,
                                     .max_in_flight = most};
    davy_sequence *s = NULL;
    IS(api->sequence_open(model, &desc, &s), DAVY_OK);
    return s;
}

davy_sequence_info info_of(davy_sequence *s) {
    davy_sequence_info info = {.struct_size = sizeof info};
    IS(api->sequence_info(s, &info), DAVY_OK);
    return info;
}

davy_tensor item_in(const flow *f, int i) {
    davy_tensor t = f->op == DAVY_OP_VAE_ENCODE ? frame_tensor((uint8_t *)f->in + (size_t)i * PIXELS)
                                                : one_latent((float *)(void *)(f->in + latent_bytes(i)));
    t.pts = 100 + 10 * i;
    return t;
}

static davy_tensor item_out(const flow *f, int i) {
    return f->op == DAVY_OP_VAE_ENCODE ? one_latent((float *)(void *)(f->out + latent_bytes(i)))
                                       : frame_tensor((uint8_t *)f->out + (size_t)i * PIXELS);
}

/* Which item a result is made of first. */
static int source_of(const flow *f, int i) {
    return i == 0 ? 0 : f->op == DAVY_OP_VAE_ENCODE ? first + 4 * (i - 1) : (i + 3) / 4;
}

davy_result pull_one(davy_sequence *s, const flow *f, int i, uint64_t timeout_ns) {
    davy_tensor t = item_out(f, i), none = {.struct_size = sizeof none};
    const davy_result r = api->sequence_pull(s, f->hand_over ? &none : &t, timeout_ns);
    if (r == DAVY_OK && f->hand_over) {
        memcpy((void *)(uintptr_t)t.data, (void *)(uintptr_t)none.data,
               f->op == DAVY_OP_VAE_ENCODE ? latent_bytes(1) : PIXELS);
        api->buffer_release(none.buffer);
    }
    const int64_t pts = f->hand_over ? none.pts : t.pts;
    if (r == DAVY_OK) {
        CHECKF(pts == 100 + 10 * source_of(f, i), "result %d has pts %lld", i, (long long)pts);
    }
    return r;
}

int flow_through(davy_sequence *s, const flow *f) {
    int pushed = 0, pulled = 0;
    for (;;) {
        const davy_tensor in = item_in(f, pushed);
        davy_result r = pushed < f->n_in ? api->sequence_push(s, &in, 0) : DAVY_FULL;
        if (pushed == f->n_in && !info_of(s).finished) {
            IS(api->sequence_finish(s), DAVY_OK);
        }
        if (r == DAVY_OK) {
            pushed++;
            continue;
        }
        CHECKF(r == DAVY_FULL, "push %d: %s", pushed, host_error(api));
        r = pulled < f->n_out ? pull_one(s, f, pulled, FOREVER) : DAVY_END;
        if (r != DAVY_OK) {
            CHECKF(r == DAVY_END, "pull %d: %s %s", pulled, api->result_name(r), host_error(api));
            return pulled;
        }
        pulled++;
    }
}

/* ---- the networks ---- */

static void with(synth_file file, int first_frames, void (*all)(synth_file)) {
    first = first_frames;
    IS(host_open_files(api, ctx, &file, 1, &model), DAVY_OK);
    facts = (davy_model_info){.struct_size = sizeof facts};
    IS(api->model_info(model, &facts), DAVY_OK);
    all(file);
    api->model_release(model);
    free(file.data);
}

int clip_host_run(void (*all)(synth_file file)) {
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .n_threads = 2};
    api = host_load();
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    with(synth_taehv(11), 4, all);
    with(synth_seedvr2(12), 1, all);
    api->context_release(ctx);
    return check_done();
}
