/* clip.c - clips through VAEs of videos: as many latents and frames as is said, lengths that do not fit, several clips,
 * layouts, samples, slices; sequences, which give the one-shot call's numbers to the last bit; cancelling, deadlines,
 * budgets, wrong use. Once with a network whose first latent is four frames (TAEHV), once with one where it is one. */
#include <pthread.h>

#include "tests/hosts/host.h"

enum { WIDTH = 24, HEIGHT = 16, Z = 4, LONGEST = 21, PIXELS = WIDTH * HEIGHT * 3 };

#define FOREVER UINT64_MAX

static const davy_api *api;
static davy_context *ctx;
static davy_model *model;
static davy_model_info facts;
static int first; /* frames of the first latent */

static int latents_of(int frames) {
    return frames <= first ? 1 : 1 + (frames - first + 3) / 4;
}

static int lh(void) {
    return HEIGHT / facts.spatial_factor;
}

static int lw(void) {
    return WIDTH / facts.spatial_factor;
}

static size_t latent_bytes(int n) {
    return (size_t)(n * lh() * lw() * Z) * sizeof(float);
}

/* Frame `number` of clip `clip` at p: not alike, and no noise, so that networks do not saturate. */
static void fill_frame(uint8_t *p, int clip, int number) {
    for (int i = 0; i < PIXELS; i++) {
        p[i] = (uint8_t)((i * 5 + i / 72 * 11 + number * 37 + clip * 90) & 255);
    }
}

static uint8_t *frames_of(int clips, int frames) {
    uint8_t *p = malloc((size_t)(clips * frames) * PIXELS);
    for (int i = 0; i < clips * frames; i++) {
        fill_frame(p + (size_t)i * PIXELS, i / frames, i % frames);
    }
    return p;
}

static davy_tensor clip_tensor(void *data, davy_dtype dtype, int n, int t, int h, int w, int c) {
    const davy_tensor d = {.struct_size = sizeof d,
                           .dtype = dtype,
                           .layout = DAVY_LAYOUT_NTHWC,
                           .ndim = 5,
                           .data = (uint64_t)(uintptr_t)data,
                           .shape = {n, t, h, w, c}};
    return d;
}

static davy_tensor pixels_tensor(uint8_t *data, int clips, int frames) {
    return clip_tensor(data, DAVY_DTYPE_U8, clips, frames, HEIGHT, WIDTH, 3);
}

static davy_tensor latent_tensor(float *data, int clips, int latents) {
    return clip_tensor(data, DAVY_DTYPE_F32, clips, latents, lh(), lw(), Z);
}

static davy_result encode(uint8_t *pixels, int clips, int frames, float *latent, const davy_run *run) {
    const davy_tensor in = pixels_tensor(pixels, clips, frames);
    davy_tensor out = latent_tensor(latent, clips, latents_of(frames));
    return api->vae_encode(model, &in, &out, run, NULL);
}

static davy_result decode(float *latent, int latents, uint8_t *pixels, const davy_run *run) {
    const davy_tensor in = latent_tensor(latent, 1, latents);
    davy_tensor out = pixels_tensor(pixels, 1, 4 * latents - 3);
    return api->vae_decode(model, &in, &out, run, NULL);
}

/* ---- one-shot ---- */

static void tells_facts(void) {
    CHECK(facts.temporal_factor == 4 && facts.window_frames == 4 && facts.latency_frames == 3);
    CHECK(facts.latent_channels == Z && (facts.features & DAVY_MODEL_ENCODES) && (facts.features & DAVY_MODEL_DECODES));
}

/* A clip that is no whole number of latents is one whose last frame is repeated. */
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

/* Each clip of several is as it is alone; slices of any length change nothing. */
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

/* Channels ahead of frames, as ComfyUI has latents, and numbers of other types. */
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

/* The library allocates; jobs. */
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

/* What is drawn depends on the seed and the latent's number, not on slices; the mean is what is drawn around. */
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

static davy_tensor one_latent(float *p) {
    const davy_tensor t = {.struct_size = sizeof t,
                           .dtype = DAVY_DTYPE_F32,
                           .layout = DAVY_LAYOUT_HWC,
                           .ndim = 3,
                           .data = (uint64_t)(uintptr_t)p,
                           .shape = {lh(), lw(), Z}};
    return t;
}

static davy_sequence *open_sequence(davy_op op, int32_t most, const davy_run *run) {
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

static davy_sequence_info info_of(davy_sequence *s) {
    davy_sequence_info info = {.struct_size = sizeof info};
    IS(api->sequence_info(s, &info), DAVY_OK);
    return info;
}

typedef struct flow { /* all items of one side, packed */
    davy_op op;
    char *in, *out;
    int n_in, n_out;
    int hand_over;
} flow;

static davy_tensor item_in(const flow *f, int i) {
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

static davy_result pull_one(davy_sequence *s, const flow *f, int i, uint64_t timeout_ns) {
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

/* Pushes what goes in, pulls what comes, in one thread. Returns the number of results. */
static int flow_through(davy_sequence *s, const flow *f) {
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

static void same_as_one_shot(int frames, int32_t most, int hand_over, const davy_run *run) {
    const int latents = latents_of(frames), out = 4 * latents - 3;
    uint8_t *pixels = frames_of(1, frames), *once = malloc((size_t)out * PIXELS), *back = calloc((size_t)out, PIXELS);
    float *want = malloc(latent_bytes(latents)), *got = calloc(1, latent_bytes(latents));
    davy_tensor none = {.struct_size = sizeof none};
    flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, frames, latents, hand_over};
    IS(encode(pixels, 1, frames, want, run), DAVY_OK);
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, most, run);
    CHECK(info_of(s).latency_frames == 3 && info_of(s).memory_bytes == 0);
    CHECK(flow_through(s, &f) == latents);
    CHECKF(memcmp(got, want, latent_bytes(latents)) == 0, "%d frames, %d in flight: other latents than at once", frames,
           (int)most);
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_END);
    CHECK(info_of(s).in_flight == 0 && info_of(s).frames_in == (uint64_t)frames);
    IS(api->sequence_reset(s), DAVY_OK);
    memset(got, 0, latent_bytes(latents));
    CHECK(flow_through(s, &f) == latents && memcmp(got, want, latent_bytes(latents)) == 0);
    api->sequence_release(s);
    f = (flow){DAVY_OP_VAE_DECODE, (char *)want, (char *)back, latents, out, hand_over};
    davy_run plain = {.struct_size = sizeof plain};
    IS(decode(want, latents, once, &plain), DAVY_OK);
    s = open_sequence(DAVY_OP_VAE_DECODE, most, NULL);
    CHECK(info_of(s).latency_frames == 0);
    CHECK(flow_through(s, &f) == out);
    CHECKF(memcmp(back, once, (size_t)out * PIXELS) == 0, "%d latents: other frames than at once", latents);
    api->sequence_release(s);
    free(pixels), free(once), free(back), free(want), free(got);
}

typedef struct pusher {
    davy_sequence *s;
    const flow *f;
} pusher;

static void *push_all(void *arg) {
    const pusher *p = arg;
    for (int i = 0; i < p->f->n_in; i++) {
        const davy_tensor in = item_in(p->f, i);
        IS(api->sequence_push(p->s, &in, FOREVER), DAVY_OK);
    }
    IS(api->sequence_finish(p->s), DAVY_OK);
    return NULL;
}

static void two_threads(void) {
    const int latents = latents_of(LONGEST);
    uint8_t *pixels = frames_of(1, LONGEST);
    float *want = malloc(latent_bytes(latents)), *got = calloc(1, latent_bytes(latents));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, LONGEST, latents, 0};
    pthread_t thread;
    IS(encode(pixels, 1, LONGEST, want, NULL), DAVY_OK);
    pusher p = {open_sequence(DAVY_OP_VAE_ENCODE, 5, NULL), &f};
    pthread_create(&thread, NULL, push_all, &p);
    for (int i = 0; i < latents;) {
        const davy_result r = pull_one(p.s, &f, i, FOREVER);
        if (r == DAVY_NEED_INPUT) {
            host_sleep_ms(1);
        } else if (CHECKF(r == DAVY_OK, "pull %d: %s %s", i, api->result_name(r), host_error(api))) {
            i++;
        } else {
            break;
        }
    }
    pthread_join(thread, NULL);
    CHECK(memcmp(got, want, latent_bytes(latents)) == 0);
    api->sequence_release(p.s);
    free(pixels), free(want), free(got);
}

/* Too few frames for a latent: nothing is on its way; they become one when the clip ends. */
static void waits(void) {
    uint8_t *pixels = frames_of(1, 8);
    float got[2 * 64 * Z], want[2 * 64 * Z];
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, first + 1, 2, 0};
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
    for (int i = 0; i < first + 1; i++) {
        const davy_tensor in = item_in(&f, i);
        if (i < first) {
            IS(pull_one(s, &f, 0, FOREVER), DAVY_NEED_INPUT);
        }
        IS(api->sequence_push(s, &in, FOREVER), DAVY_OK);
    }
    IS(pull_one(s, &f, 0, FOREVER), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_NEED_INPUT);
    CHECK(info_of(s).in_flight == 1 && info_of(s).ready == 0 && info_of(s).frames_out == 1);
    IS(api->sequence_finish(s), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_END);
    const davy_tensor in = item_in(&f, 0);
    IS(api->sequence_push(s, &in, FOREVER), DAVY_E_STATE);
    IS(encode(pixels, 1, first + 1, want, NULL), DAVY_OK);
    CHECK(memcmp(got, want, latent_bytes(2)) == 0);
    IS(api->sequence_reset(s), DAVY_OK);
    IS(api->sequence_finish(s), DAVY_OK);
    IS(pull_one(s, &f, 0, FOREVER), DAVY_END);
    IS(api->sequence_reset(s), DAVY_OK);
    IS(api->sequence_push(s, &in, FOREVER), DAVY_OK); /* released with a frame on its way */
    api->sequence_release(s);
    free(pixels);
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

/* Nothing fits: said with numbers, and all goes on afterwards. */
static void budgets(void) {
    uint8_t *pixels = frames_of(1, 9);
    float *latent = malloc(latent_bytes(3));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)latent, 9, latents_of(9), 0};
    const davy_tensor in = item_in(&f, 0);
    IS(api->context_budget(ctx, 0, 1 << 12), DAVY_OK);
    IS(encode(pixels, 1, 9, latent, NULL), DAVY_E_BUDGET);
    CHECKF(strpbrk(host_error(api), "0123456789") != NULL, "no numbers: %s", host_error(api));
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && i < 4; i++) {
        r = api->sequence_push(s, &in, 0);
    }
    CHECKF(r == DAVY_E_BUDGET ||
               api->sequence_pull(s, &(davy_tensor){.struct_size = sizeof in}, FOREVER) == DAVY_E_BUDGET,
           "no memory: %s", host_error(api));
    IS(api->context_budget(ctx, 0, 0), DAVY_OK);
    IS(api->sequence_reset(s), DAVY_OK);
    CHECK(flow_through(s, &f) == latents_of(9));
    api->sequence_release(s);
    IS(encode(pixels, 1, 9, latent, NULL), DAVY_OK);
    free(pixels), free(latent);
}

/* Memory of the host's runs out at every place it can: said so, nothing is kept, and the next call works. */
static void runs_out(synth_file file) {
    host_state state;
    host_state_init(&state);
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .host = &host, .n_threads = 2};
    davy_context *kept_ctx = ctx;
    davy_model *kept = model;
    uint8_t *pixels = frames_of(1, 6);
    float *latent = malloc(latent_bytes(3)), *want = malloc(latent_bytes(3));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)latent, 6, latents_of(6), 0};
    IS(encode(pixels, 1, 6, want, NULL), DAVY_OK);
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_files(api, ctx, &file, 1, &model), DAVY_OK);
    int failures = 0;
    for (davy_result r = DAVY_PENDING; r != DAVY_OK && failures < 1000; failures++) {
        api->context_trim(ctx, 0, 0);
        atomic_store(&state.fail_from, atomic_load(&state.allocations) + failures);
        r = encode(pixels, 1, 6, latent, NULL);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "allocation %d: %s", failures, host_error(api));
        atomic_store(&state.fail_from, -1);
        api->context_trim(ctx, 0, 0);
        CHECKF(atomic_load(&state.bytes) == 0, "allocation %d: %lld bytes are kept", failures,
               (long long)atomic_load(&state.bytes));
    }
    CHECKF(failures > 3 && memcmp(latent, want, latent_bytes(latents_of(6))) == 0, "%d failures", failures);
    for (int n = 0; n < failures; n++) {
        davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
        davy_tensor none = {.struct_size = sizeof none};
        davy_result r = DAVY_OK;
        atomic_store(&state.fail_from, atomic_load(&state.allocations) + n);
        for (int i = 0; r == DAVY_OK && i < 5; i++) {
            const davy_tensor in = item_in(&f, i);
            r = api->sequence_push(s, &in, FOREVER);
        }
        r = r == DAVY_OK ? api->sequence_pull(s, &none, FOREVER) : r;
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "sequence, allocation %d: %s", n, host_error(api));
        atomic_store(&state.fail_from, -1);
        api->buffer_release(none.buffer);
        IS(api->sequence_reset(s), DAVY_OK);
        CHECK(flow_through(s, &f) == latents_of(6) && memcmp(latent, want, latent_bytes(latents_of(6))) == 0);
        api->sequence_release(s);
        api->context_trim(ctx, 0, 0);
        CHECKF(atomic_load(&state.bytes) == 0, "sequence, allocation %d: bytes are kept", n);
    }
    api->model_release(model);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0);
    model = kept;
    ctx = kept_ctx;
    free(pixels), free(latent), free(want);
}

static void misuse(void) {
    uint8_t *pixels = frames_of(1, 5);
    float *latent = malloc(latent_bytes(4));
    const davy_tensor in = pixels_tensor(pixels, 1, 5);
    davy_tensor out = latent_tensor(latent, 1, latents_of(5) + 1);
    davy_run run = {.struct_size = sizeof run, .tile_width = 16, .tile_height = 16};
    IS(api->vae_encode(model, &in, &out, NULL, NULL), DAVY_E_SHAPE);
    out.shape[1]--;
    IS(api->vae_encode(model, &in, &out, &run, NULL), DAVY_E_UNSUPPORTED);
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

static void all_of(synth_file file, int first_frames) {
    first = first_frames;
    IS(host_open_files(api, ctx, &file, 1, &model), DAVY_OK);
    facts = (davy_model_info){.struct_size = sizeof facts};
    IS(api->model_info(model, &facts), DAVY_OK);
    tells_facts();
    misuse();
    plans();
    pads();
    several();
    layouts();
    hands_out();
    samples();
    const davy_run drawn = {.struct_size = sizeof drawn, .flags = DAVY_RUN_SAMPLE, .seed = 3};
    same_as_one_shot(2, 0, 0, NULL);
    same_as_one_shot(9, 1, 0, NULL);
    same_as_one_shot(14, 0, 1, (facts.features & DAVY_MODEL_MOMENTS) != 0 ? &drawn : NULL);
    same_as_one_shot(LONGEST, 7, 0, NULL);
    two_threads();
    waits();
    stops();
    budgets();
    runs_out(file);
    api->model_release(model);
    free(file.data);
}

int main(void) {
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .n_threads = 2};
    api = host_load();
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    all_of(synth_taehv(11), 4);
    all_of(synth_seedvr2(12), 1);
    api->context_release(ctx);
    return check_done();
}
