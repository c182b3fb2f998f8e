/* cmd_latent.c - davy encode and davy decode: pictures to latents of a VAE and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/latents/clip.h"
#include "plugins/cli/commands.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"
#include "plugins/cli/sys.h"

/* Opens everything and begins the progress bar. */
static int begin(cli_session *s, const cli_args *a, uint32_t feature, const char *what) {
    const char *slash = strrchr(a->inputs[0], '/');
    int r = cli_session_load(s);
    if (r == CLI_OK) {
        r = cli_session_context(s, a);
    }
    if (r == CLI_OK) {
        r = cli_session_model(s, a, NULL, DAVY_TASK_VAE);
    }
    if (r == CLI_OK && (s->info.features & feature) == 0) {
        r = cli_fail(s->model_name, "holds no %s; name the file that has it with a second --model", what);
    }
    cli_progress_begin(slash != NULL ? slash + 1 : a->inputs[0]);
    return r;
}

static void report(const cli_session *s, const cli_args *a, const char *sizes, double seconds) {
    if (a->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "file", a->inputs[0]);
        cJSON_AddStringToObject(j, "output", a->output);
        cJSON_AddStringToObject(j, "sizes", sizes);
        cJSON_AddStringToObject(j, "model", s->model_name);
        cJSON_AddStringToObject(j, "arch", s->info.arch);
        cJSON_AddStringToObject(j, "precision", cli_precision_name(s->info.compute));
        cJSON_AddStringToObject(j, "device", s->device.selector);
        cJSON_AddStringToObject(j, "device_name", s->device.name);
        cJSON_AddNumberToObject(j, "seconds", seconds);
        cli_print_json(j);
        cJSON_Delete(j);
    } else if (!a->quiet) {
        printf("%s: %s, %s, %.2f s\n", a->output, sizes, s->info.arch, seconds);
    }
}

/* Checks that the sides are multiples of the VAE's factor; with --crop, cuts them evenly on both ends. */
static int fit_sides(const cli_args *a, const cli_session *s, cli_picture *p) {
    const uint32_t m = s->info.size_multiple > 1 ? (uint32_t)s->info.size_multiple : 1;
    const uint32_t w = p->width / m * m;
    const uint32_t h = p->height / m * m;
    if (w == p->width && h == p->height) {
        return CLI_OK;
    }
    if (w == 0 || h == 0) {
        return cli_fail(a->inputs[0], "%ux%u is too small; each side needs at least %u pixels", p->width, p->height, m);
    }
    if (!a->crop) {
        return cli_fail(a->inputs[0], "%ux%u does not fit: the sides must be multiples of %u; --crop cuts to %ux%u",
                        p->width, p->height, m, w, h);
    }
    const size_t pixel = (size_t)p->channels * (p->bits / 8);
    const size_t from = cli_picture_stride(p);
    const size_t to = (size_t)w * pixel;
    uint8_t *pixels = p->pixels;
    const uint8_t *first = pixels + (p->height - h) / 2 * from + (p->width - w) / 2 * pixel;
    for (uint32_t y = 0; y < h; y++) {
        memmove(pixels + y * to, first + y * from, to);
    }
    p->width = w;
    p->height = h;
    return CLI_OK;
}

/* Runs the encoder into an array [1, channels, h, w]. */
static int encode_into(cli_session *s, const cli_args *a, const cli_picture *rgb, uint32_t flags, cli_array *out) {
    const davy_tensor in = cli_tensor_of_picture(rgb);
    davy_run run = cli_session_run(a);
    run.flags = flags;
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_VAE_ENCODE, .input = &in, .run = &run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    davy_result r = s->api->plan_query(s->model, &query, &plan);
    if (r < 0) {
        return cli_session_fail(s, a->inputs[0], r);
    }
    out->ndim = 4;
    out->shape[0] = 1;
    out->shape[1] = plan.shape[2];
    out->shape[2] = plan.shape[0];
    out->shape[3] = plan.shape[1];
    if (cli_array_alloc_f32(out) != 0) {
        return cli_fail(a->output, "out of memory");
    }
    davy_tensor latent = cli_tensor_of_array(out, DAVY_LAYOUT_HWC, DAVY_CHANNELS_LATENT);
    r = s->api->vae_encode(s->model, &in, &latent, &run, NULL);
    return r < 0 ? cli_session_fail(s, a->inputs[0], r) : CLI_OK;
}

/* --raw of encode: the mean and, if the model has one, the log-variance. */
static int write_moments(cli_session *s, const cli_args *a, const cli_picture *rgb) {
    const int moments = (s->info.features & DAVY_MODEL_MOMENTS) != 0;
    cli_array both = {.name = "mean"};
    int r = encode_into(s, a, rgb, moments ? DAVY_RUN_MOMENTS : 0, &both);
    if (r == CLI_OK && !moments) {
        r = cli_safetensors_write(a->raw, &both, 1);
    } else if (r == CLI_OK) {
        cli_array halves[2] = {both, both};
        for (int i = 0; i < 2; i++) {
            halves[i].shape[1] /= 2;
            halves[i].bytes /= 2;
        }
        halves[1].name = "logvar";
        halves[1].data = (uint8_t *)both.data + halves[0].bytes;
        r = cli_safetensors_write(a->raw, halves, 2);
    }
    cli_array_free(&both);
    return r;
}

static int encode_clip(const cli_args *a) {
    cli_session s;
    cli_clip_report done;
    const double start = cli_seconds();
    int r = begin(&s, a, DAVY_MODEL_ENCODES, "encoder");
    r = r == CLI_OK ? cli_encode_clip(&s, a, &done) : r;
    cli_progress_end();
    if (r == CLI_OK) {
        char sizes[96];
        snprintf(sizes, sizeof sizes, "%lld frames of %ux%u -> %lld latents", (long long)done.frames, done.width,
                 done.height, (long long)done.latents);
        report(&s, a, sizes, cli_seconds() - start);
    }
    cli_session_close(&s);
    return r;
}

int cli_encode(const cli_args *a) {
    if (cli_is_clip(a->inputs[0])) {
        return encode_clip(a);
    }
    if (a->decoder != 0) {
        return cli_usage("--decoder", "is for videos only, and %s is not a video", a->inputs[0]);
    }
    cli_session s;
    cli_picture in = {0};
    cli_picture rgb = {0};
    cli_array latent = {.name = "latent"};
    const double start = cli_seconds();
    const uint32_t flags = (a->sample ? DAVY_RUN_SAMPLE : 0u) | (a->scaled ? DAVY_RUN_SCALED_LATENT : 0u);
    int r = begin(&s, a, DAVY_MODEL_ENCODES, "encoder");
    if (r == CLI_OK) {
        r = cli_picture_load(a->inputs[0], &in);
    }
    if (r == CLI_OK) {
        r = fit_sides(a, &s, &in);
    }
    if (r == CLI_OK) {
        r = cli_outfile_probe(a->output);
    }
    if (r == CLI_OK && !cli_picture_opaque(&in)) {
        cli_note(a->inputs[0], "alpha is ignored: a VAE encodes three channels");
    }
    if (r == CLI_OK && cli_picture_to_rgb(&in, &rgb) != 0) {
        r = cli_fail(a->inputs[0], "out of memory");
    }
    if (r == CLI_OK) {
        r = encode_into(&s, a, &rgb, flags, &latent);
    }
    if (r == CLI_OK && a->raw != NULL) {
        r = write_moments(&s, a, &rgb);
    }
    if (r == CLI_OK && s.info.temporal_factor > 1) { /* as a clip of one frame, which other programs expect */
        const int64_t shape[5] = {1, latent.shape[1], 1, latent.shape[2], latent.shape[3]};
        memcpy(latent.shape, shape, sizeof shape);
        latent.ndim = 5;
    }
    if (r == CLI_OK) {
        r = cli_safetensors_write(a->output, &latent, 1);
    }
    cli_progress_end();
    if (r == CLI_OK) {
        char sizes[96];
        snprintf(sizes, sizeof sizes, "%ux%u -> [1, %d, %s%d, %d]", rgb.width, rgb.height, (int)latent.shape[1],
                 latent.ndim == 5 ? "1, " : "", (int)latent.shape[latent.ndim - 2], (int)latent.shape[latent.ndim - 1]);
        report(&s, a, sizes, cli_seconds() - start);
    }
    cli_array_free(&latent);
    cli_picture_free(&rgb);
    cli_picture_free(&in);
    cli_session_close(&s);
    return r;
}

/* Checks the shape of a picture's latent: [1, z, h, w] or [z, h, w]. */
static int check_latent(const cli_args *a, const cli_array *latent) {
    if (latent->ndim != 3 && latent->ndim != 4) {
        return cli_fail(a->inputs[0], "has %d axes; a latent of a picture has four: 1, z, height, width", latent->ndim);
    }
    if (latent->ndim == 4 && latent->shape[0] != 1) {
        return cli_fail(a->inputs[0], "holds %lld latents; save one latent per file", (long long)latent->shape[0]);
    }
    return CLI_OK;
}

static int decode_raw(cli_session *s, const cli_args *a, const davy_tensor *latent, const cli_picture *p) {
    cli_array out = {.name = "output", .ndim = 4, .shape = {1, 3, p->height, p->width}};
    davy_run run = cli_session_run(a);
    run.flags = a->scaled ? DAVY_RUN_SCALED_LATENT : 0;
    if (cli_array_alloc_f32(&out) != 0) {
        return cli_fail(a->raw, "out of memory");
    }
    davy_tensor t = cli_tensor_of_array(&out, DAVY_LAYOUT_CHW, DAVY_CHANNELS_RGB);
    davy_result r = s->api->vae_decode(s->model, latent, &t, &run, NULL);
    int result = r < 0 ? cli_session_fail(s, a->inputs[0], r) : cli_safetensors_write(a->raw, &out, 1);
    cli_array_free(&out);
    return result;
}

static int decode_into(cli_session *s, const cli_args *a, const davy_tensor *latent, cli_picture *p) {
    davy_run run = cli_session_run(a);
    run.flags = a->scaled ? DAVY_RUN_SCALED_LATENT : 0;
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_VAE_DECODE, .input = latent, .run = &run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    davy_result r = s->api->plan_query(s->model, &query, &plan);
    if (r < 0) {
        return cli_session_fail(s, a->inputs[0], r);
    }
    p->channels = 3;
    p->bits = 8;
    p->height = (uint32_t)plan.shape[1];
    p->width = (uint32_t)plan.shape[2];
    int result = cli_picture_fits(a->output, p->width, p->height);
    if (result == CLI_OK) {
        result = cli_outfile_probe(a->output);
    }
    if (result != CLI_OK) {
        return result;
    }
    if (cli_picture_alloc(p) != 0) {
        return cli_fail(a->output, "out of memory for %ux%u pixels", p->width, p->height);
    }
    /* The call expects planes, the latent's layout; the strides describe the picture's interleaved samples. */
    davy_tensor out = cli_tensor_of_picture(p);
    const davy_tensor hwc = out;
    out.layout = DAVY_LAYOUT_CHW;
    for (int i = 0; i < 3; i++) {
        out.shape[i] = hwc.shape[(i + 2) % 3];
    }
    out.stride_bytes[0] = 1;
    out.stride_bytes[1] = (int64_t)cli_picture_stride(p);
    out.stride_bytes[2] = 3;
    r = s->api->vae_decode(s->model, latent, &out, &run, NULL);
    return r < 0 ? cli_session_fail(s, a->inputs[0], r) : CLI_OK;
}

static int is_picture_name(const char *path) {
    const cli_format f = cli_format_of_name(path);
    return f == CLI_FORMAT_PNG || f == CLI_FORMAT_JPEG || f == CLI_FORMAT_WEBP;
}

static int decode_clip(cli_session *s, const cli_args *a, const cli_array *latent, double start) {
    cli_clip_report done;
    const int r = cli_decode_clip(s, a, latent, &done);
    cli_progress_end();
    if (r == CLI_OK && strcmp(a->output, "-") != 0) {
        char sizes[96];
        snprintf(sizes, sizeof sizes, "%lld latents -> %lld frames of %ux%u", (long long)done.latents,
                 (long long)done.frames, done.width, done.height);
        report(s, a, sizes, cli_seconds() - start);
    }
    return r;
}

int cli_decode(const cli_args *a) {
    cli_session s;
    cli_picture p = {0};
    cli_array latent = {0};
    const double start = cli_seconds();
    int r = begin(&s, a, DAVY_MODEL_DECODES, "decoder");
    if (r == CLI_OK) {
        r = cli_safetensors_read(a->inputs[0], "latent", &latent);
    }
    if (r == CLI_OK && latent.ndim == 5 && latent.shape[2] == 1 &&
        is_picture_name(a->output)) { /* a clip of one frame */
        const int64_t shape[4] = {latent.shape[0], latent.shape[1], latent.shape[3], latent.shape[4]};
        memcpy(latent.shape, shape, sizeof shape);
        latent.ndim = 4;
    }
    if (r == CLI_OK && latent.ndim == 5) {
        r = decode_clip(&s, a, &latent, start);
        cli_array_free(&latent);
        cli_session_close(&s);
        return r;
    }
    if (r == CLI_OK && (a->codec != NULL || a->crf > 0 || a->fps > 0.0 || a->frames > 0 || a->audio != NULL)) {
        r = cli_fail(a->inputs[0], "is the latent of a picture; --codec, --crf, --fps, --frames and --audio are for "
                                   "latents of videos");
    }
    if (r == CLI_OK) {
        r = cli_picture_fits(a->output, 1, 1);
    }
    if (r == CLI_OK) {
        r = check_latent(a, &latent);
    }
    if (r == CLI_OK) {
        const davy_tensor in = cli_tensor_of_array(&latent, DAVY_LAYOUT_CHW, DAVY_CHANNELS_LATENT);
        r = decode_into(&s, a, &in, &p);
        if (r == CLI_OK && a->raw != NULL) {
            r = decode_raw(&s, a, &in, &p);
        }
    }
    if (r == CLI_OK) {
        r = cli_picture_save(a->output, &p, &a->encoding);
    }
    cli_progress_end();
    if (r == CLI_OK) {
        char sizes[96];
        const int at = latent.ndim - 3;
        snprintf(sizes, sizeof sizes, "[1, %d, %d, %d] -> %ux%u", (int)latent.shape[at], (int)latent.shape[at + 1],
                 (int)latent.shape[at + 2], p.width, p.height);
        report(&s, a, sizes, cli_seconds() - start);
    }
    cli_array_free(&latent);
    cli_picture_free(&p);
    cli_session_close(&s);
    return r;
}
