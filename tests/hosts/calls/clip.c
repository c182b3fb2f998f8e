/* clip.c - clips through video VAEs: numbers of latents and frames, lengths that do not fit, several clips, layouts, samples,
 * slices, cancelling, deadlines, wrong use. */
#include "tests/hosts/calls/clip_host.h"

static void tells_facts(void) {
    CHECK(facts.temporal_factor == 4 && facts.window_frames == 4 && facts.latency_frames == 3);
    CHECK(facts.latent_channels == Z && (facts.features & DAVY_MODEL_ENCODES) && (facts.features & DAVY_MODEL_DECODES));
}

/* If the frames do not fill the last latent, the last frame is repeated. */
static void pads(void) {
    for (int frames = 1; frames <= 10; frames++) {
        const int whole = first + 4 * (latents_of(frames) - 1);
        uint8_t *given = frames_of(1, frames), *full = frames_of(1, whole);
        float *a = malloc(latent_bytes(4)), *b = malloc(latent_bytes(4));
        for (int i = frames; i < whole; i++) {
            fill_frame(full + (size_t)i * PIXELS, 0, frames - 1);
        }
        IS(encode(given, 1, frames, a, NULL), DAVY_OK);
        IS(encode(full, 1, whole, b, NULL), DAVY_OK);
        if (frames > 1) {
            CHECKF(memcmp(a, b, latent_bytes(latents_of(frames))) == 0, "%d frames are not as %d", frames, whole);
        }
        free(given), free(full), free(a), free(b);
    }
}

static void plans(void) {
    const davy_tensor in = pixels_tensor(NULL, 2, 14), one = latent_tensor(NULL, 1, 5);
    const davy_run run = {.struct_size = sizeof run, .tile_frames = 4};
    davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_VAE_ENCODE, .input = &in};
    davy_plan_info plan = {.struct_size = sizeof plan}, slices = {.struct_size = sizeof slices};
    IS(api->plan_query(model, &q, &plan), DAVY_OK);
    CHECK(plan.ndim == 5 && plan.shape[0] == 2 && plan.shape[1] == latents_of(14) && plan.shape[4] == Z);
    CHECK(plan.workspace_bytes > 0 && plan.flops > 0 && plan.tiles_x == 1 && plan.tiles_y == 1);
    q.run = &run;
    IS(api->plan_query(model, &q, &slices), DAVY_OK);
    CHECKF(slices.tiles_t == (first == 4 ? 4 : 5) && slices.tile_frames == 4, "%d slices of %d", (int)slices.tiles_t,
           (int)slices.tile_frames);
    q = (davy_query){.struct_size = sizeof q, .op = DAVY_OP_VAE_DECODE, .input = &one};
    IS(api->plan_query(model, &q, &plan), DAVY_OK);
    CHECK(plan.shape[1] == 17 && plan.shape[2] == HEIGHT && plan.shape[4] == 3);
}

/* Each of several clips gives the same result as alone, with slices of any length. */
static void several(void) {
    enum { CLIPS = 2, FRAMES = 9 };
    const int latents = latents_of(FRAMES);
    uint8_t *pixels = frames_of(CLIPS, FRAMES);
    float *all = malloc(latent_bytes(CLIPS * latents)), *one = malloc(latent_bytes(latents));
    IS(encode(pixels, CLIPS, FRAMES, all, NULL), DAVY_OK);
    for (int k = 0; k < CLIPS; k++) {
        const davy_run run = {.struct_size = sizeof run, .tile_frames = k == 0 ? 4 : -1};
        IS(encode(pixels + (size_t)(k * FRAMES) * PIXELS, 1, FRAMES, one, &run), DAVY_OK);
        CHECKF(memcmp(one, (char *)all + latent_bytes(k * latents), latent_bytes(latents)) == 0,
               "clip %d alone differs", k);
    }
    CHECK(memcmp(all, (char *)all + latent_bytes(latents), latent_bytes(latents)) != 0);
    free(pixels), free(all), free(one);
}

/* Channels before frames, as in ComfyUI's latents, and other dtypes. */
static void layouts(void) {
    enum { FRAMES = 13 };
    const int latents = latents_of(FRAMES), area = lh() * lw();
    uint8_t *pixels = frames_of(1, FRAMES), *bytes = malloc((size_t)LONGEST * PIXELS);
    float *plain = malloc(latent_bytes(latents)), *planes = malloc(latent_bytes(latents));
    float *decoded = malloc((size_t)LONGEST * PIXELS * sizeof(float));
    const davy_tensor in = pixels_tensor(pixels, 1, FRAMES);
    davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_F32, .layout = DAVY_LAYOUT_NCTHW, .ndim = 5};
    const int64_t shape[5] = {1, Z, latents, lh(), lw()};
    memcpy(out.shape, shape, sizeof shape);
    out.data = (uint64_t)(uintptr_t)planes;
    IS(encode(pixels, 1, FRAMES, plain, NULL), DAVY_OK);
    IS(api->vae_encode(model, &in, &out, NULL, NULL), DAVY_OK);
    int wrong = 0;
    for (int i = 0; i < latents * area * Z; i++) {
        const int t = i / (area * Z), at = i / Z % area, c = i % Z;
        wrong += plain[i] != planes[(c * latents + t) * area + at];
    }
    CHECKF(wrong == 0, "%d of %d numbers differ between layouts", wrong, latents * area * Z);
    davy_tensor floats = clip_tensor(decoded, DAVY_DTYPE_F32, 1, 4 * latents - 3, HEIGHT, WIDTH, 3);
    IS(api->vae_decode(model, &out, &floats, NULL, NULL), DAVY_OK);
    IS(decode(plain, latents, bytes, NULL), DAVY_OK);
    wrong = 0;
    for (int i = 0; i < (4 * latents - 3) * PIXELS; i++) {
        const float step = decoded[i] * 255.0f - (float)bytes[i];
        wrong += step > 0.501f || step < -0.501f;
    }
    CHECKF(wrong == 0, "%d numbers of the decoded frames differ between types", wrong);
    free(pixels), free(bytes), free(plain), free(planes), free(decoded);
}

/* Output memory from the library, and jobs. */
static void hands_out(void) {
    uint8_t *pixels = frames_of(1, 9);
    const davy_tensor in = pixels_tensor(pixels, 1, 9);
    davy_tensor latent = {.struct_size = sizeof latent, .layout = DAVY_LAYOUT_NCTHW},
                frames = {.struct_size = sizeof frames};
    davy_job *job = NULL;
    IS(api->vae_encode(model, &in, &latent, NULL, &job), DAVY_OK);
    CHECK(latent.ndim == 5 && latent.shape[1] == Z && latent.shape[2] == latents_of(9));
    IS(api->job_wait(job, FOREVER), DAVY_OK);
    api->job_release(job);
    IS(api->vae_decode(model, &latent, &frames, NULL, NULL), DAVY_OK);
    CHECK(frames.layout == DAVY_LAYOUT_NCTHW && frames.shape[2] == 4 * latents_of(9) - 3);
    api->buffer_release(latent.buffer);
    api->buffer_release(frames.buffer);
    free(pixels);
}

/* Samples depend on the seed and the latent's number, not on slices. They scatter around the mean. */
static void samples(void) {
    enum { FRAMES = 12 };
    const int latents = latents_of(FRAMES);
    uint8_t *pixels = frames_of(1, FRAMES);
    float *a = malloc(latent_bytes(latents)), *b = malloc(latent_bytes(latents)), *mean = malloc(latent_bytes(latents));
    davy_run run = {.struct_size = sizeof run, .flags = DAVY_RUN_SAMPLE, .seed = 7};
    if ((facts.features & DAVY_MODEL_MOMENTS) == 0) {
        IS(encode(pixels, 1, FRAMES, a, &run), DAVY_E_UNSUPPORTED);
    } else {
        IS(encode(pixels, 1, FRAMES, a, &run), DAVY_OK);
        run.tile_frames = 4;
        IS(encode(pixels, 1, FRAMES, b, &run), DAVY_OK);
        IS(encode(pixels, 1, FRAMES, mean, NULL), DAVY_OK);
        CHECK(memcmp(a, b, latent_bytes(latents)) == 0 && memcmp(a, mean, latent_bytes(latents)) != 0);
        run.seed = 8;
        IS(encode(pixels, 1, FRAMES, b, &run), DAVY_OK);
        CHECK(memcmp(a, b, latent_bytes(latents)) != 0);
        float *moments = malloc(2 * latent_bytes(latents));
        const davy_run both = {.struct_size = sizeof both, .flags = DAVY_RUN_MOMENTS};
        const davy_tensor in = pixels_tensor(pixels, 1, FRAMES);
        davy_tensor out = clip_tensor(moments, DAVY_DTYPE_F32, 1, latents, lh(), lw(), 2 * Z);
        IS(api->vae_encode(model, &in, &out, &both, NULL), DAVY_OK);
        int wrong = 0;
        for (int i = 0; i < latents * lh() * lw() * Z; i++) {
            wrong += moments[i / Z * 2 * Z + i % Z] != mean[i];
        }
        CHECKF(wrong == 0, "%d means are not the latent's", wrong);
        free(moments);
    }
    free(pixels), free(a), free(b), free(mean);
}

/* ---- stopping ---- */

static int32_t DAVY_CALL count_calls(void *user, const char *stage, uint64_t done, uint64_t total) {
    uint64_t *seen = user;
    CHECKF(done >= seen[1] && done <= total && strcmp(stage, "encode") == 0, "%s: %llu behind %llu of %llu", stage,
           (unsigned long long)done, (unsigned long long)seen[1], (unsigned long long)total);
    seen[0]++;
    seen[1] = done;
    seen[2] = total;
    return seen[3] != 0;
}

static void stops(void) {
    const int latents = latents_of(LONGEST - 1);
    uint8_t *pixels = frames_of(1, LONGEST);
    float *latent = malloc(latent_bytes(latents + 1));
    uint64_t seen[4] = {0};
    davy_run run = {.struct_size = sizeof run, .progress = count_calls, .progress_user = seen};
    IS(encode(pixels, 1, LONGEST - 1, latent, &run), DAVY_OK);
    CHECK(seen[0] > 0 && seen[1] == seen[2]);
    memset(seen, 0, sizeof seen);
    seen[3] = 1;
    IS(encode(pixels, 1, LONGEST - 1, latent, &run), DAVY_E_CANCELLED);
    CHECK(seen[0] == 1);
    const davy_run timed = {.struct_size = sizeof timed, .timeout_ns = 1};
    IS(encode(pixels, 1, LONGEST, latent, &timed), DAVY_E_TIMEOUT);
    free(pixels), free(latent);
}

static void misuse(void) {
    uint8_t *pixels = frames_of(1, 5);
    float *latent = malloc(latent_bytes(4));
    const davy_tensor in = pixels_tensor(pixels, 1, 5);
    davy_tensor out = latent_tensor(latent, 1, latents_of(5) + 1);
    davy_run run = {.struct_size = sizeof run, .tile_width = 16, .tile_height = 16};
    IS(api->vae_encode(model, &in, &out, NULL, NULL), DAVY_E_SHAPE);
    out.shape[1]--;
    run.tile_overlap = 16;
    IS(api->vae_encode(model, &in, &out, &run, NULL), DAVY_E_INVALID); /* the overlap is as large as the tile */
    run = (davy_run){.struct_size = sizeof run, .tile_frames = -2};
    IS(api->vae_encode(model, &in, &out, &run, NULL), DAVY_E_INVALID);
    const davy_tensor clip = pixels_tensor(NULL, 1, 5);
    const davy_sequence_desc desc = {.struct_size = sizeof desc, .op = DAVY_OP_VAE_ENCODE, .input = &clip};
    davy_sequence *s = NULL;
    IS(api->sequence_open(model, &desc, &s), DAVY_E_SHAPE); /* a frame is one picture */
    s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
    const davy_tensor wrong = one_latent(latent);
    CHECK(api->sequence_push(s, &wrong, 0) < 0);
    api->sequence_release(s);
    free(pixels), free(latent);
}

static void all_of(synth_file file) {
    (void)file;
    tells_facts();
    misuse();
    plans();
    pads();
    several();
    layouts();
    hands_out();
    samples();
    stops();
}

int main(void) {
    return clip_host_run(all_of);
}
