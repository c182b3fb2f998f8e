/* encode_clip.c - see clip.h: pushes frames into a sequence and pulls latents out of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/latents/clip.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/video.h"

#define LOOK_NS 20000000ull

/* The source of the frames: a video, or names of pictures. */
typedef struct source {
    const char *path;
    cli_video *video;
    char **names;
    size_t count, next;
    double fps; /* 0: unknown */
    int64_t total;
} source;

typedef struct encoding {
    cli_session *session;
    const cli_args *args;
    source from;
    cli_picture frame;
    uint32_t width, height; /* of the encoded part */
    uint32_t bits;
    davy_sequence *sequence;
    cli_array latent; /* the latents so far, [n, z, h, w] */
    int64_t n, room;
    int64_t frames;
    double begin;
} encoding;

int cli_is_clip(const char *path) {
    const cli_path_kind kind = cli_path_kind_of(path);
    return strcmp(path, "-") == 0 || kind == CLI_PATH_OTHER || kind == CLI_PATH_FOLDER || cli_is_video(path);
}

/* ---- frames ---- */

static int open_source(source *s, const cli_args *a) {
    s->path = a->inputs[0];
    if (cli_path_kind_of(s->path) == CLI_PATH_FOLDER) {
        s->names = cli_folder_names(s->path, &s->count);
        s->total = (int64_t)s->count;
        return s->names != NULL ? CLI_OK : cli_fail(s->path, "cannot be read: %s", strerror(errno));
    }
    const cli_video_decoding how = {.hardware = a->decoder, .device = a->device};
    const int r = cli_video_open(s->path, &how, &s->video);
    if (r == CLI_OK) {
        s->fps = cli_video_about(s->video)->fps;
        s->total = cli_video_about(s->video)->frames;
    }
    return r;
}

static int is_picture(const char *name) {
    const cli_format f = cli_format_of_name(name);
    return f == CLI_FORMAT_PNG || f == CLI_FORMAT_JPEG || f == CLI_FORMAT_WEBP;
}

static int load_picture(const char *path, cli_picture *frame) {
    cli_picture p = {0};
    int r = cli_picture_load(path, &p);
    cli_picture_free(frame);
    if (r == CLI_OK && cli_picture_to_rgb(&p, frame) != 0) {
        r = cli_fail(path, "out of memory");
    }
    cli_picture_free(&p);
    return r;
}

/* Returns 1: a frame; 0: the end; -1: failed, the error is printed. */
static int next_frame(source *s, cli_picture *frame) {
    if (s->video != NULL) {
        return cli_video_read(s->video, frame, NULL);
    }
    while (s->next < s->count && !is_picture(s->names[s->next])) {
        s->next++;
    }
    if (s->next == s->count) {
        return 0;
    }
    const char *name = s->names[s->next++];
    const size_t n = strlen(s->path) + strlen(name) + 2;
    char *path = malloc(n);
    if (path == NULL) {
        cli_fail(s->path, "out of memory");
        return -1;
    }
    snprintf(path, n, "%s/%s", s->path, name);
    const int r = load_picture(path, frame);
    free(path);
    return r == CLI_OK ? 1 : -1;
}

static void close_source(source *s) {
    cli_video_close(s->video);
    if (s->names != NULL) {
        cli_names_free(s->names, s->count);
    }
}

/* ---- the sequence ---- */

/* The middle part of a frame, with sides that fit the network. */
static davy_tensor middle_of(const encoding *e) {
    const cli_picture *p = &e->frame;
    davy_tensor t = cli_tensor_of_picture(p);
    const size_t pixel = (size_t)p->channels * (p->bits / 8);
    t.byte_offset =
        (p->height - e->height) / 2 * (uint64_t)cli_picture_stride(p) + (p->width - e->width) / 2 * (uint64_t)pixel;
    t.shape[0] = e->height;
    t.shape[1] = e->width;
    t.stride_bytes[0] = (int64_t)cli_picture_stride(p);
    t.stride_bytes[1] = (int64_t)pixel;
    t.stride_bytes[2] = (int64_t)(p->bits / 8);
    return t;
}

static uint32_t fitting(const encoding *e, uint32_t side) {
    const uint32_t m = e->session->info.size_multiple > 1 ? (uint32_t)e->session->info.size_multiple : 1;
    return side / m * m;
}

static int fit_sides(encoding *e) {
    const uint32_t m = (uint32_t)e->session->info.size_multiple;
    const cli_picture *p = &e->frame;
    e->width = fitting(e, p->width);
    e->height = fitting(e, p->height);
    e->bits = p->bits;
    if (e->width == 0 || e->height == 0) {
        return cli_fail(e->from.path, "%ux%u is too small; each side needs at least %u pixels", p->width, p->height, m);
    }
    if (!e->args->crop && (e->width != p->width || e->height != p->height)) {
        return cli_fail(e->from.path, "%ux%u does not fit: the sides must be multiples of %u; --crop cuts to %ux%u",
                        p->width, p->height, m, e->width, e->height);
    }
    return CLI_OK;
}

/* Opens the sequence for the size of the first frame. */
static int open_sequence(encoding *e) {
    const cli_args *a = e->args;
    int r = fit_sides(e);
    if (r != CLI_OK) {
        return r;
    }
    davy_run run = cli_session_run(a);
    run.progress = NULL; /* the bar counts frames */
    run.flags = (a->sample ? DAVY_RUN_SAMPLE : 0u) | (a->scaled ? DAVY_RUN_SCALED_LATENT : 0u);
    const davy_tensor in = middle_of(e);
    const davy_tensor out = {.struct_size = sizeof out, .dtype = DAVY_DTYPE_F32, .layout = DAVY_LAYOUT_CHW};
    const davy_sequence_desc desc = {.struct_size = sizeof desc,
                                     .op = DAVY_OP_VAE_ENCODE,
                                     .input = &in,
                                     .output = &out,
                                     .run = &run,
                                     .max_in_flight = 16};
    const davy_result d = e->session->api->sequence_open(e->session->model, &desc, &e->sequence);
    return d < 0 ? cli_session_fail(e->session, e->from.path, d) : CLI_OK;
}

static int keep(encoding *e, const davy_tensor *t) {
    cli_array *l = &e->latent;
    const size_t bytes = (size_t)(t->shape[0] * t->shape[1] * t->shape[2]) * sizeof(float);
    if (e->n == e->room) {
        const int64_t room = e->room > 0 ? 2 * e->room : 16;
        void *more = realloc(l->data, (size_t)room * bytes);
        if (more == NULL) {
            return cli_fail(e->args->output, "out of memory");
        }
        l->data = more;
        e->room = room;
    }
    for (int i = 0; i < 3; i++) {
        l->shape[i + 1] = t->shape[i];
    }
    memcpy((char *)l->data + (size_t)e->n * bytes, (const void *)(uintptr_t)t->data, bytes);
    e->n++;
    return CLI_OK;
}

/* Pulls one latent; an interrupt ends the wait. *more: 0 if the sequence has none. */
static int pull_one(encoding *e, int *more) {
    const davy_api *api = e->session->api;
    davy_tensor t = {.struct_size = sizeof t};
    davy_result d = DAVY_PENDING;
    while (d == DAVY_PENDING && !cli_interrupted()) {
        d = api->sequence_pull(e->sequence, &t, LOOK_NS);
    }
    *more = d == DAVY_OK;
    if (cli_interrupted()) {
        return cli_stopped(e->from.path);
    }
    if (d != DAVY_OK) {
        return d < 0 ? cli_session_fail(e->session, e->from.path, d) : CLI_OK;
    }
    const int r = keep(e, &t);
    api->buffer_release(t.buffer);
    return r;
}

static int push_frame(encoding *e) {
    const cli_picture *p = &e->frame;
    const uint32_t w = e->args->crop ? fitting(e, p->width) : p->width;
    const uint32_t h = e->args->crop ? fitting(e, p->height) : p->height;
    if (w != e->width || h != e->height || p->bits != e->bits) { /* pictures of a folder may differ */
        return cli_fail(e->from.path, "frame %lld is %ux%u with %u bits, but the first frame is %ux%u with %u",
                        (long long)e->frames + 1, p->width, p->height, p->bits, e->width, e->height, e->bits);
    }
    const davy_tensor in = middle_of(e);
    davy_result d = DAVY_FULL;
    int r = CLI_OK;
    while (r == CLI_OK && d == DAVY_FULL) {
        int more = 0;
        d = e->session->api->sequence_push(e->sequence, &in, 0);
        r = d == DAVY_FULL ? pull_one(e, &more) : CLI_OK;
    }
    if (r != CLI_OK || d < 0) {
        return r != CLI_OK ? r : cli_session_fail(e->session, e->from.path, d);
    }
    e->frames++;
    cli_progress_frames(e->frames, e->from.total, (double)e->frames / (cli_seconds() - e->begin));
    return cli_interrupted() ? cli_stopped(e->from.path) : CLI_OK;
}

static int run(encoding *e) {
    int more = 1;
    int r = CLI_OK;
    while (r == CLI_OK && (more = next_frame(&e->from, &e->frame)) == 1) {
        r = e->sequence == NULL ? open_sequence(e) : CLI_OK;
        r = r == CLI_OK ? push_frame(e) : r;
    }
    if (r != CLI_OK || more < 0) {
        return r != CLI_OK ? r : cli_interrupted() ? cli_stopped(e->from.path) : CLI_FAILED;
    }
    if (e->sequence == NULL) {
        return cli_fail(e->from.path, "holds no frames");
    }
    e->session->api->sequence_finish(e->sequence);
    for (more = 1; r == CLI_OK && more;) {
        r = pull_one(e, &more);
    }
    return r;
}

/* ---- the file ---- */

/* Writes the latents [n, z, h, w] as [1, z, n, h, w], the layout of other programs. */
static int write_latents(encoding *e) {
    const cli_array *l = &e->latent;
    const int64_t z = l->shape[1];
    const size_t plane = (size_t)(l->shape[2] * l->shape[3]) * sizeof(float);
    const void **planes = malloc((size_t)(z * e->n) * sizeof *planes);
    char frames[32];
    char fps[32];
    if (planes == NULL) {
        return cli_fail(e->args->output, "out of memory");
    }
    for (int64_t i = 0; i < z * e->n; i++) {
        planes[i] = (const char *)l->data + (size_t)(i % e->n * z + i / e->n) * plane;
    }
    const cli_array out = {.name = "latent",
                           .ndim = 5,
                           .shape = {1, z, e->n, l->shape[2], l->shape[3]},
                           .bytes = (size_t)(z * e->n) * plane,
                           .pieces = planes,
                           .piece_bytes = plane};
    snprintf(frames, sizeof frames, "%lld", (long long)e->frames);
    snprintf(fps, sizeof fps, "%.6g", e->from.fps);
    const cli_text about[] = {{"frames", frames}, {"fps", fps}};
    const int r = cli_safetensors_write_about(e->args->output, &out, 1, about, e->from.fps > 0.0 ? 2 : 1);
    free(planes);
    return r;
}

int cli_encode_clip(cli_session *s, const cli_args *a, cli_clip_report *out) {
    encoding e = {.session = s, .args = a, .begin = cli_seconds()};
    if (s->info.temporal_factor <= 1) {
        return cli_fail(s->model_name, "is a VAE of pictures; %s needs a VAE of videos", a->inputs[0]);
    }
    if (a->raw != NULL) {
        return cli_usage("--raw", "is for one picture only, and the input is a video");
    }
    int r = cli_outfile_probe(a->output);
    r = r == CLI_OK ? open_source(&e.from, a) : r;
    r = r == CLI_OK ? run(&e) : r;
    r = r == CLI_OK ? write_latents(&e) : r;
    *out = (cli_clip_report){e.frames, e.n, e.width, e.height};
    s->api->sequence_release(e.sequence);
    close_source(&e.from);
    cli_picture_free(&e.frame);
    cli_array_free(&e.latent);
    return r;
}
