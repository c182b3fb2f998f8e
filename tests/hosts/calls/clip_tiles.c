/* clip_tiles.c - clips in tiles: requested tiles, tiles reported in plans, equal bits through a sequence, tiles chosen because
 * memory is short. Frames stay close to those without tiles. */
#include <math.h>

#include "tests/hosts/calls/clip_host.h"

enum { W = 192, H = 160, FRAMES = 6, PIXEL = 3 }; /* six frames do not fill the last latent */

static int z_width(void) {
    return W / facts.spatial_factor;
}

static int z_height(void) {
    return H / facts.spatial_factor;
}

static size_t latent_numbers(void) {
    return (size_t)(latents_of(FRAMES) * z_width() * z_height() * Z);
}

static size_t frame_numbers(void) {
    return (size_t)(4 * latents_of(FRAMES) - 3) * W * H * PIXEL;
}

static uint8_t *waves(void) {
    uint8_t *p = malloc((size_t)FRAMES * W * H * PIXEL);
    for (int i = 0; i < FRAMES * W * H * PIXEL; i++) {
        const double x = i / PIXEL % W, y = i / PIXEL / W % H, t = i / PIXEL / W / H;
        p[i] = (uint8_t)(127.5 + 80.0 * sin(0.05 * x + 0.03 * y + 0.4 * t + i % PIXEL) + 40.0 * cos(0.002 * x * y - t));
    }
    return p;
}

static davy_run tiles_of(int encodes, uint32_t flags) {
    const int unit = encodes ? 1 : facts.spatial_factor;
    const davy_run run = {.struct_size = sizeof run,
                          .flags = flags,
                          .seed = 5,
                          .tile_width = 128 / unit,
                          .tile_height = 96 / unit,
                          .tile_overlap = 32 / unit};
    return run;
}

static davy_result encode_all(uint8_t *pixels, float *latent, const davy_run *run) {
    const davy_tensor in = clip_tensor(pixels, DAVY_DTYPE_U8, 1, FRAMES, H, W, PIXEL);
    davy_tensor out = clip_tensor(latent, DAVY_DTYPE_F32, 1, latents_of(FRAMES), z_height(), z_width(), Z);
    return api->vae_encode(model, &in, &out, run, NULL);
}

static davy_result decode_all(float *latent, float *frames, const davy_run *run) {
    const int latents = latents_of(FRAMES);
    const davy_tensor in = clip_tensor(latent, DAVY_DTYPE_F32, 1, latents, z_height(), z_width(), Z);
    davy_tensor out = clip_tensor(frames, DAVY_DTYPE_F32, 1, 4 * latents - 3, H, W, PIXEL);
    return api->vae_decode(model, &in, &out, run, NULL);
}

static double distance(const float *a, const float *b, size_t n) {
    double sum = 0.0, all = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / all);
}

/* TAEHV has no norms, so tiles with enough overlap give the same frames as without tiles. */
static double bound(void) {
    return first == 4 ? 0.1 : 0.5;
}

static davy_plan_info plan_of(davy_op op, const davy_run *run) {
    const int encodes = op == DAVY_OP_VAE_ENCODE;
    const davy_tensor in = encodes ? clip_tensor(NULL, DAVY_DTYPE_U8, 1, FRAMES, H, W, PIXEL)
                                   : clip_tensor(NULL, DAVY_DTYPE_F32, 1, latents_of(FRAMES), z_height(), z_width(), Z);
    const davy_query q = {.struct_size = sizeof q, .op = op, .input = &in, .run = run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    IS(api->plan_query(model, &q, &plan), DAVY_OK);
    return plan;
}

/* ---- requested tiles ---- */

static davy_sequence *open_tiles(davy_op op, const davy_run *run) {
    const davy_tensor frame = {.struct_size = sizeof frame,
                               .dtype = op == DAVY_OP_VAE_ENCODE ? DAVY_DTYPE_U8 : DAVY_DTYPE_F32,
                               .layout = DAVY_LAYOUT_HWC,
                               .ndim = 3,
                               .shape = {H, W, PIXEL}};
    davy_tensor latent = frame;
    latent.dtype = DAVY_DTYPE_F32;
    latent.shape[0] = z_height();
    latent.shape[1] = z_width();
    latent.shape[2] = Z;
    const int encodes = op == DAVY_OP_VAE_ENCODE;
    const davy_sequence_desc desc = {.struct_size = sizeof desc,
                                     .op = op,
                                     .input = encodes ? &frame : &latent,
                                     .output = encodes ? &latent : &frame,
                                     .run = run,
                                     .max_in_flight = 4};
    davy_sequence *s = NULL;
    IS(api->sequence_open(model, &desc, &s), DAVY_OK);
    return s;
}

/* Pushes all items and collects all results, adjacent in memory. */
static void flow_all(davy_op op, const davy_run *run, char *in, int n_in, char *out, int n_out) {
    davy_sequence *s = open_tiles(op, run);
    const int encodes = op == DAVY_OP_VAE_ENCODE;
    const size_t frame = (size_t)W * H * PIXEL * (encodes ? 1 : sizeof(float));
    const size_t latent = (size_t)(z_width() * z_height() * Z) * sizeof(float);
    int pushed = 0, pulled = 0;
    while (pulled < n_out) {
        davy_tensor i = encodes
                            ? clip_tensor(in + (size_t)pushed * frame, DAVY_DTYPE_U8, H, W, PIXEL, 0, 0)
                            : clip_tensor(in + (size_t)pushed * latent, DAVY_DTYPE_F32, z_height(), z_width(), Z, 0, 0);
        davy_tensor o = encodes
                            ? clip_tensor(out + (size_t)pulled * latent, DAVY_DTYPE_F32, z_height(), z_width(), Z, 0, 0)
                            : clip_tensor(out + (size_t)pulled * frame, DAVY_DTYPE_F32, H, W, PIXEL, 0, 0);
        i.layout = o.layout = DAVY_LAYOUT_HWC;
        i.ndim = o.ndim = 3;
        if (pushed < n_in && api->sequence_push(s, &i, 0) == DAVY_OK) {
            pushed++;
            if (pushed == n_in) {
                IS(api->sequence_finish(s), DAVY_OK);
            }
            continue;
        }
        const davy_result r = api->sequence_pull(s, &o, FOREVER);
        if (!CHECKF(r == DAVY_OK, "result %d: %s %s", pulled, api->result_name(r), host_error(api))) {
            break;
        }
        pulled++;
    }
    api->sequence_release(s);
}

static void asked_for(void) {
    const int latents = latents_of(FRAMES);
    uint8_t *pixels = waves();
    float *whole = malloc(latent_numbers() * sizeof(float)), *tiles = calloc(latent_numbers(), sizeof(float));
    float *frames = malloc(frame_numbers() * sizeof(float)), *parts = calloc(frame_numbers(), sizeof(float));
    float *same = calloc(frame_numbers(), sizeof(float));
    const uint32_t flags = (facts.features & DAVY_MODEL_MOMENTS) != 0 ? DAVY_RUN_SAMPLE : 0;
    davy_run run = tiles_of(1, 0);
    const davy_plan_info plan = plan_of(DAVY_OP_VAE_ENCODE, &run);
    CHECK(plan.tiles_x == 2 && plan.tiles_y == 2 && plan.tile_width == 128 && plan.tile_height == 96);
    CHECK(plan.workspace_bytes > 0 && plan.flops > plan_of(DAVY_OP_VAE_ENCODE, NULL).flops);
    IS(encode_all(pixels, whole, NULL), DAVY_OK);
    IS(encode_all(pixels, tiles, &run), DAVY_OK);
    CHECKF(distance(tiles, whole, latent_numbers()) < bound(), "latents %g away",
           distance(tiles, whole, latent_numbers()));
    run = tiles_of(1, flags);
    IS(encode_all(pixels, tiles, &run), DAVY_OK);
    flow_all(DAVY_OP_VAE_ENCODE, &run, (char *)pixels, FRAMES, (char *)same, latents);
    CHECK(memcmp(same, tiles, latent_numbers() * sizeof(float)) == 0);
    run = tiles_of(0, 0);
    CHECK(plan_of(DAVY_OP_VAE_DECODE, &run).tiles_x == 2);
    IS(decode_all(whole, frames, NULL), DAVY_OK);
    IS(decode_all(whole, parts, &run), DAVY_OK);
    CHECKF(distance(parts, frames, frame_numbers()) < bound(), "frames %g away",
           distance(parts, frames, frame_numbers()));
    flow_all(DAVY_OP_VAE_DECODE, &run, (char *)whole, latents, (char *)same, 4 * latents - 3);
    CHECK(memcmp(same, parts, frame_numbers() * sizeof(float)) == 0);
    free(pixels), free(whole), free(tiles), free(frames), free(parts), free(same);
}

/* ---- tiles chosen by the library ---- */

/* Budgets from the need of whole frames downwards: first tiles, in the end an error with a message. TAEHV needs an overlap as
 * wide as its reach, and these frames are not larger than that. */
static void chosen(void) {
    float *latent = calloc(latent_numbers(), sizeof(float));
    float *whole = malloc(frame_numbers() * sizeof(float)), *frames = malloc(frame_numbers() * sizeof(float));
    const davy_run never = {.struct_size = sizeof never, .tile_width = -1};
    uint8_t *pixels = waves();
    IS(encode_all(pixels, latent, NULL), DAVY_OK);
    IS(decode_all(latent, whole, NULL), DAVY_OK);
    uint64_t budget = facts.weight_bytes + plan_of(DAVY_OP_VAE_DECODE, NULL).workspace_bytes;
    int tiled = 0;
    for (davy_result r = DAVY_OK; r == DAVY_OK; budget -= budget / 3) {
        IS(api->context_budget(ctx, 0, budget), DAVY_OK);
        r = decode_all(latent, frames, NULL);
        if (r != DAVY_OK) {
            IS(r, DAVY_E_BUDGET);
            CHECKF(strstr(host_error(api), "in the smallest tiles") != NULL, "%s", host_error(api));
            break;
        }
        const davy_plan_info plan = plan_of(DAVY_OP_VAE_DECODE, NULL);
        const int tiles = plan.tiles_x * plan.tiles_y;
        CHECKF(distance(frames, whole, frame_numbers()) < (tiles > 1 ? bound() : 1e-6), "%d tiles: %g away", tiles,
               distance(frames, whole, frame_numbers()));
        if (tiles > 1 && tiled++ == 0) {
            IS(decode_all(latent, frames, &never), DAVY_E_BUDGET);
        }
    }
    CHECKF(tiled > 0 || first == 4, "no tiles down to a budget of %llu", (unsigned long long)budget);
    IS(api->context_budget(ctx, 0, 0), DAVY_OK);
    IS(decode_all(latent, frames, NULL), DAVY_OK);
    CHECK(distance(frames, whole, frame_numbers()) < 1e-6);
    free(latent), free(whole), free(frames), free(pixels);
}

static void all_of(synth_file file) {
    (void)file;
    asked_for();
    chosen();
}

int main(void) {
    return clip_host_run(all_of);
}
