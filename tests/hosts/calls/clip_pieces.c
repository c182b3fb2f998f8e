/* clip_pieces.c - a VAE that cuts clips into pieces (taeh3: 17 frames, five latents; two latents in the last piece). Tests the
 * numbers of latents and frames, lengths that do not fit, slices and sequences with the bits of the one-shot call, and the
 * warning about frames that are left out. */
#include "tests/hosts/host.h"
#include "tests/hosts/synth.h"

enum { WIDTH = 32, HEIGHT = 16, Z = 24, PIXELS = WIDTH * HEIGHT * 3, LATENT = WIDTH / 16 * HEIGHT / 16 * Z, MOST = 60 };

static const davy_api *api;
static davy_model *model;
static uint8_t pixels[MOST * PIXELS], shown[MOST * PIXELS], shown_again[MOST * PIXELS];
static float latents[MOST * LATENT], again[MOST * LATENT];
static char told[256]; /* the last warning */

static davy_tensor clip_of(int of_pixels, int t, int one) {
    davy_tensor d = {.struct_size = sizeof d,
                     .dtype = of_pixels ? DAVY_DTYPE_U8 : DAVY_DTYPE_F32,
                     .layout = one ? DAVY_LAYOUT_HWC : DAVY_LAYOUT_NTHWC,
                     .ndim = one ? 3 : 5};
    const int64_t h = of_pixels ? HEIGHT : HEIGHT / 16, w = of_pixels ? WIDTH : WIDTH / 16, c = of_pixels ? 3 : Z;
    const int64_t all[5] = {1, t, h, w, c};
    memcpy(d.shape, one ? all + 2 : all, (one ? 3 : 5) * sizeof all[0]);
    return d;
}

/* Runs one call and returns the number of results that it reports. */
static int at_once(int encodes, const void *from, int n, void *to, int32_t slice) {
    const davy_run run = {.struct_size = sizeof run, .tile_frames = slice};
    davy_tensor in = clip_of(encodes, n, 0);
    const davy_query q = {
        .struct_size = sizeof q, .op = encodes ? DAVY_OP_VAE_ENCODE : DAVY_OP_VAE_DECODE, .input = &in, .run = &run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    IS(api->plan_query(model, &q, &plan), DAVY_OK);
    const int made = (int)plan.shape[1];
    CHECKF(made > 0 && made <= MOST, "%d results", made);
    davy_tensor out = clip_of(!encodes, made, 0);
    in.data = (uint64_t)(uintptr_t)from;
    out.data = (uint64_t)(uintptr_t)to;
    IS(encodes ? api->vae_encode(model, &in, &out, &run, NULL) : api->vae_decode(model, &in, &out, &run, NULL),
       DAVY_OK);
    return made;
}

static int in_sequence(int encodes, const char *from, int n, char *to) {
    const size_t taken = encodes ? PIXELS : LATENT * sizeof(float), given = encodes ? LATENT * sizeof(float) : PIXELS;
    davy_tensor in = clip_of(encodes, 1, 1), out = clip_of(!encodes, 1, 1);
    const davy_sequence_desc desc = {.struct_size = sizeof desc,
                                     .op = encodes ? DAVY_OP_VAE_ENCODE : DAVY_OP_VAE_DECODE,
                                     .input = &in,
                                     .output = &out,
                                     .max_in_flight = 1};
    davy_sequence *s = NULL;
    int pushed = 0, pulled = 0;
    IS(api->sequence_open(model, &desc, &s), DAVY_OK);
    for (davy_result r = DAVY_OK; r >= 0 && r != DAVY_END && pulled < MOST;) {
        in.data = (uint64_t)(uintptr_t)(from + (size_t)pushed * taken);
        if (pushed < n && (r = api->sequence_push(s, &in, 0)) == DAVY_OK) {
            if (++pushed == n) {
                IS(api->sequence_finish(s), DAVY_OK);
            }
            continue;
        }
        CHECKF(r >= 0, "push %d: %s", pushed, host_error(api));
        out.data = (uint64_t)(uintptr_t)(to + (size_t)pulled * given);
        r = api->sequence_pull(s, &out, UINT64_MAX);
        CHECKF(r >= 0, "pull %d: %s", pulled, host_error(api));
        pulled += r == DAVY_OK;
    }
    api->sequence_release(s);
    return pulled;
}

/* `frames` is cut or padded so that the last piece of 17 has 5 frames. */
static void both_ways(int frames) {
    const int pieces = (frames + 16) / 17;
    const int z = 5 * pieces - 3, back = 17 * pieces - 12;
    for (int slices = 0; slices < 3; slices++) {
        const int32_t how[] = {-1, 5, 34};
        memset(again, 0, sizeof again);
        const int made = at_once(1, pixels, frames, slices == 0 ? latents : again, how[slices]);
        CHECKF(made == z, "%d frames are %d latents", frames, made);
        CHECKF(slices == 0 || memcmp(again, latents, (size_t)z * LATENT * sizeof(float)) == 0,
               "%d frames in slices of %d: other latents", frames, (int)how[slices]);
        memset(shown_again, 0, sizeof shown_again);
        const int seen = at_once(0, latents, z, slices == 0 ? shown : shown_again, slices == 1 ? 2 : how[slices]);
        CHECKF(seen == back, "%d latents are %d frames", z, seen);
        CHECKF(slices == 0 || memcmp(shown_again, shown, (size_t)back * PIXELS) == 0,
               "%d latents in slices: other frames", z);
    }
    memset(again, 0, sizeof again);
    memset(shown_again, 0, sizeof shown_again);
    CHECK(in_sequence(1, (const char *)pixels, frames, (char *)again) == z);
    CHECKF(memcmp(again, latents, (size_t)z * LATENT * sizeof(float)) == 0, "%d frames in a sequence", frames);
    CHECK(in_sequence(0, (const char *)latents, z, (char *)shown_again) == back);
    CHECKF(memcmp(shown_again, shown, (size_t)back * PIXELS) == 0, "%d latents in a sequence", z);
}

/* Latents do not depend on earlier pieces; frames do. */
static void pieces_are_apart(void) {
    at_once(1, pixels, 39, latents, 0);
    at_once(1, pixels + (size_t)17 * PIXELS, 22, again, 0);
    CHECK(memcmp(latents + (size_t)5 * LATENT, again, (size_t)7 * LATENT * sizeof(float)) == 0);
    at_once(0, latents, 12, shown, 0);
    at_once(0, latents + (size_t)5 * LATENT, 7, shown_again, 0);
    CHECK(memcmp(shown + (size_t)17 * PIXELS, shown_again, (size_t)22 * PIXELS) != 0);
}

/* A single picture equals the first frame, and the first latent, of any clip. */
static void pictures(void) {
    at_once(1, pixels, 22, latents, 0);
    CHECK(at_once(1, pixels, 1, again, 0) == 1);
    for (int i = 0; i < LATENT; i++) {
        const float d = again[i] - latents[i];
        CHECKF(d < 1e-5f && d > -1e-5f, "latent %d: %g and %g", i, (double)again[i], (double)latents[i]);
    }
    CHECK(at_once(0, latents, 1, shown, 0) == 1);
}

/* Frames after the last piece's fifth frame, or second latent, change nothing and cause a warning. If there are fewer, the last
 * one is repeated. */
static void cut_or_completed(void) {
    CHECK(at_once(1, pixels, 22, latents, 0) == 7);
    *told = 0;
    CHECK(at_once(1, pixels, 25, again, 0) == 7 && memcmp(again, latents, (size_t)7 * LATENT * sizeof(float)) == 0);
    CHECKF(strstr(told, "the last 3 of 25 frames are left out") != NULL, "'%s'", told);
    *told = 0;
    CHECK(in_sequence(1, (const char *)pixels, 34, (char *)again) == 7);
    CHECKF(strstr(told, "the last 12 of 34 frames are left out") != NULL, "'%s'", told);
    CHECK(at_once(0, latents, 2, shown, 0) == 5);
    *told = 0;
    CHECK(at_once(0, latents, 5, shown_again, 0) == 5 && memcmp(shown, shown_again, (size_t)5 * PIXELS) == 0);
    CHECKF(strstr(told, "the last 3 of 5 latents are left out") != NULL, "'%s'", told);
    CHECK(in_sequence(0, (const char *)latents, 4, (char *)shown_again) == 5);
    CHECK(memcmp(shown, shown_again, (size_t)5 * PIXELS) == 0);
    *told = 0;
    memcpy(latents + (size_t)6 * LATENT, latents + (size_t)5 * LATENT, (size_t)LATENT * sizeof(float));
    CHECK(at_once(0, latents, 7, shown, 0) == 22);
    CHECK(at_once(0, latents, 6, shown_again, 0) == 22);
    CHECK(memcmp(shown, shown_again, (size_t)22 * PIXELS) == 0);
    CHECKF(*told == 0, "'%s'", told);
}

/* Each of several clips leaves out its own last frames. */
static void two_at_once(void) {
    davy_tensor in = clip_of(1, 24, 0), out = clip_of(0, 7, 0);
    in.shape[0] = out.shape[0] = 2;
    in.data = (uint64_t)(uintptr_t)pixels;
    out.data = (uint64_t)(uintptr_t)again;
    IS(api->vae_encode(model, &in, &out, NULL, NULL), DAVY_OK);
    for (size_t i = 0; i < 2; i++) {
        at_once(1, pixels + i * 24 * PIXELS, 24, latents, 0);
        CHECKF(memcmp(again + i * 7 * LATENT, latents, (size_t)7 * LATENT * sizeof(float)) == 0, "clip %d of two",
               (int)i);
    }
}

static void DAVY_CALL listen(void *user, davy_log_level level, const char *utf8) {
    (void)user;
    if (level == DAVY_LOG_WARN) {
        snprintf(told, sizeof told, "%s", utf8);
    }
}

int main(void) {
    const davy_host host = {.struct_size = sizeof host, .log_level = DAVY_LOG_WARN, .log = listen};
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .n_threads = 2, .host = &host};
    const int lengths[] = {2, 5, 6, 17, 20, 24, 39};
    davy_model_info facts = {.struct_size = sizeof facts};
    davy_context *ctx = NULL;
    synth_file file = synth_taeh3(17);
    api = host_load();
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_files(api, ctx, &file, 1, &model), DAVY_OK);
    IS(api->model_info(model, &facts), DAVY_OK);
    CHECK(facts.temporal_factor == 4 && facts.window_frames == 17 && facts.spatial_factor == 16);
    for (int i = 0; i < MOST * PIXELS; i++) {
        pixels[i] = (uint8_t)((i * 5 + i / 72 * 11 + i / PIXELS * 37) & 255);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        both_ways(lengths[i]);
    }
    pieces_are_apart();
    pictures();
    cut_or_completed();
    two_at_once();
    api->model_release(model);
    api->context_release(ctx);
    free(file.data);
    return check_done();
}
