/* decode_clip.c - see clip.h: pushes latents into a sequence, pulls frames and writes them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/latents/clip.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/video.h"

#define LOOK_NS 20000000ull

enum { USUAL_FPS = 24 };

typedef struct decoding {
    cli_session *session;
    const cli_args *args;
    const cli_array *latent; /* [1, z, n, h, w] */
    davy_sequence *sequence;
    cli_picture frame;
    cli_video_writer *writer; /* NULL: numbered pictures in a folder */
    int64_t pushed, frames, wanted;
    double begin;
} decoding;

static int is_folder(const char *path) {
    const size_t n = strlen(path);
    return cli_path_kind_of(path) == CLI_PATH_FOLDER || (n > 0 && path[n - 1] == '/');
}

/* A latent of the clip. */
static davy_tensor latent_of(const decoding *d, int64_t number) {
    const cli_array *l = d->latent;
    const int64_t element = l->dtype == DAVY_DTYPE_F32 ? 4 : 2;
    const int64_t plane = l->shape[3] * l->shape[4] * element;
    const davy_tensor t = {.struct_size = sizeof t,
                           .dtype = l->dtype,
                           .layout = DAVY_LAYOUT_CHW,
                           .channels = DAVY_CHANNELS_LATENT,
                           .range = DAVY_RANGE_RAW,
                           .ndim = 3,
                           .data = (uint64_t)(uintptr_t)l->data,
                           .byte_offset = (uint64_t)(number * plane),
                           .shape = {l->shape[1], l->shape[3], l->shape[4]},
                           .stride_bytes = {l->shape[2] * plane, l->shape[4] * element, element}};
    return t;
}

static davy_tensor whole_latent(const decoding *d) {
    const cli_array *l = d->latent;
    davy_tensor t = latent_of(d, 0);
    t.layout = DAVY_LAYOUT_NCTHW;
    t.ndim = 5;
    memcpy(t.shape, l->shape, 5 * sizeof t.shape[0]);
    memset(t.stride_bytes, 0, sizeof t.stride_bytes);
    return t;
}

/* ---- before the work ---- */

static int open_sequence(decoding *d) {
    davy_run run = cli_session_run(d->args);
    run.progress = NULL; /* the bar counts frames */
    run.flags = d->args->scaled ? DAVY_RUN_SCALED_LATENT : 0;
    const davy_tensor in = latent_of(d, 0);
    const davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_U8, .layout = DAVY_LAYOUT_HWC};
    const davy_sequence_desc desc = {.struct_size = sizeof desc,
                                     .op = DAVY_OP_VAE_DECODE,
                                     .input = &in,
                                     .output = &out,
                                     .run = &run,
                                     .max_in_flight = 4};
    const davy_result r = d->session->api->sequence_open(d->session->model, &desc, &d->sequence);
    return r < 0 ? cli_session_fail(d->session, d->args->inputs[0], r) : CLI_OK;
}

/* Sets the number of frames: that of the clip before its last frame was repeated, if the file contains it; at most the number
 * that the latents can give. */
static void settle_frames(decoding *d) {
    const int64_t all = 1 + (d->latent->shape[2] - 1) * d->session->info.temporal_factor;
    char text[32];
    int64_t wanted = d->args->frames;
    if (wanted == 0 && cli_safetensors_about(d->args->inputs[0], "frames", text, sizeof text) == 0) {
        wanted = strtoll(text, NULL, 10);
    }
    d->wanted = wanted > 0 && wanted < all ? wanted : all;
}

static double settle_fps(const decoding *d) {
    char text[32];
    double fps = d->args->fps;
    if (fps <= 0.0 && cli_safetensors_about(d->args->inputs[0], "fps", text, sizeof text) == 0) {
        char *end = NULL;
        fps = strtod(text, &end);
        fps = *end == 0 ? fps : 0.0;
    }
    return fps >= CLI_FPS_MIN && fps <= CLI_FPS_MAX ? fps : 0.0;
}

static int open_output(decoding *d) {
    const cli_args *a = d->args;
    const int64_t factor = d->session->info.spatial_factor;
    d->frame = (cli_picture){.width = (uint32_t)(d->latent->shape[4] * factor),
                             .height = (uint32_t)(d->latent->shape[3] * factor),
                             .channels = 3,
                             .bits = 8};
    if (cli_picture_alloc(&d->frame) != 0) {
        return cli_fail(a->output, "out of memory for %ux%u pixels", d->frame.width, d->frame.height);
    }
    if (is_folder(a->output)) {
        const int e = cli_make_folder(a->output);
        return e == 0 ? CLI_OK : cli_fail(a->output, "cannot be created: %s", strerror(e));
    }
    cli_video_wish wish = {.width = d->frame.width,
                           .height = d->frame.height,
                           .fps = settle_fps(d),
                           .codec = a->codec,
                           .quality = a->crf,
                           .on_gpu = d->session->on_gpu,
                           .sound = a->audio};
    if (wish.fps <= 0.0 && wish.sound == NULL) {
        cli_note(a->output, "the latent file has no frame rate: the video has %d frames per second; use --fps",
                 USUAL_FPS);
        wish.fps = USUAL_FPS;
    }
    return cli_video_writer_open(a->output, &wish, &d->writer);
}

/* ---- the work ---- */

static int put_frame(decoding *d) {
    const cli_encoding usual = {.quality = 95};
    if (d->writer != NULL) {
        return cli_video_writer_put(d->writer, &d->frame);
    }
    const size_t n = strlen(d->args->output) + 32;
    char *path = malloc(n);
    if (path == NULL) {
        return cli_fail(d->args->output, "out of memory");
    }
    snprintf(path, n, "%s/%06lld.png", d->args->output, (long long)d->frames + 1);
    const int r = cli_picture_save(path, &d->frame, &usual);
    free(path);
    return r;
}

/* Pushes latents until the sequence is full. */
static davy_result push_some(decoding *d) {
    const davy_api *api = d->session->api;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && d->pushed < d->latent->shape[2]) {
        const davy_tensor in = latent_of(d, d->pushed);
        r = api->sequence_push(d->sequence, &in, 0);
        d->pushed += r == DAVY_OK;
        if (r == DAVY_OK && d->pushed == d->latent->shape[2]) {
            api->sequence_finish(d->sequence);
        }
    }
    return r < 0 ? r : DAVY_OK;
}

/* A sequence keeps a state between slices, for each tile if frames are cut into tiles. If memory is too short for that, this
 * function decodes the whole clip tile by tile, and all frames come at the end. */
static int run_at_once(decoding *d) {
    const davy_api *api = d->session->api;
    davy_run how = cli_session_run(d->args);
    davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_U8, .layout = DAVY_LAYOUT_NTHWC};
    const davy_tensor in = whole_latent(d);
    how.flags = d->args->scaled ? DAVY_RUN_SCALED_LATENT : 0;
    api->sequence_release(d->sequence);
    d->sequence = NULL;
    const davy_result result = api->vae_decode(d->session->model, &in, &out, &how, NULL);
    if (result < 0) {
        return cli_interrupted() ? cli_stopped(d->args->inputs[0])
                                 : cli_session_fail(d->session, d->args->inputs[0], result);
    }
    const size_t row = (size_t)d->frame.width * 3;
    int r = CLI_OK;
    d->wanted = d->wanted < out.shape[1] ? d->wanted : out.shape[1];
    for (; r == CLI_OK && d->frames < d->wanted; d->frames += r == CLI_OK) {
        const uint8_t *from = (const uint8_t *)(uintptr_t)out.data + out.byte_offset + d->frames * out.stride_bytes[1];
        for (uint32_t y = 0; y < d->frame.height; y++) {
            memcpy((uint8_t *)d->frame.pixels + y * cli_picture_stride(&d->frame), from + y * out.stride_bytes[2], row);
        }
        r = put_frame(d);
    }
    api->buffer_release(out.buffer);
    return r;
}

static int run(decoding *d) {
    const davy_api *api = d->session->api;
    while (d->frames < d->wanted) {
        davy_tensor out = cli_tensor_of_picture(&d->frame);
        davy_result r = push_some(d);
        r = r < 0 ? r : api->sequence_pull(d->sequence, &out, LOOK_NS);
        if (cli_interrupted()) {
            return cli_stopped(d->args->inputs[0]);
        }
        if ((r == DAVY_E_BUDGET || r == DAVY_E_NOMEM_DEVICE) && d->frames == 0) {
            return run_at_once(d);
        }
        if (r < 0) {
            return cli_session_fail(d->session, d->args->inputs[0], r);
        }
        if (r == DAVY_END) {
            break;
        }
        if (r == DAVY_OK) {
            const int put = put_frame(d);
            if (put != CLI_OK) {
                return put;
            }
            d->frames++;
            cli_progress_frames(d->frames, d->wanted, (double)d->frames / (cli_seconds() - d->begin));
        }
    }
    return CLI_OK;
}

int cli_decode_clip(cli_session *s, const cli_args *a, const cli_array *latent, cli_clip_report *out) {
    decoding d = {.session = s, .args = a, .latent = latent, .begin = cli_seconds()};
    if (s->info.temporal_factor <= 1) {
        return cli_fail(s->model_name, "is a VAE of pictures, but %s is the latent of a video; use a VAE of videos",
                        a->inputs[0]);
    }
    if (a->raw != NULL) {
        return cli_usage("--raw", "is for one picture only, and the input is a video");
    }
    if (latent->shape[0] != 1) {
        return cli_fail(a->inputs[0], "holds %lld clips; save one clip per file", (long long)latent->shape[0]);
    }
    settle_frames(&d);
    int r = open_sequence(&d);
    r = r == CLI_OK ? open_output(&d) : r;
    r = r == CLI_OK ? run(&d) : r;
    if (d.writer != NULL) {
        r = cli_video_writer_close(d.writer, r);
    }
    *out = (cli_clip_report){d.frames, latent->shape[2], d.frame.width, d.frame.height};
    s->api->sequence_release(d.sequence);
    cli_picture_free(&d.frame);
    return r;
}
