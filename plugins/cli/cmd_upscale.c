/* cmd_upscale.c - davy upscale: enlarges a picture or the pictures of a folder with one model. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/commands.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/pictures/resample.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"
#include "plugins/cli/sys.h"

typedef struct upscaler {
    const cli_args *args;
    cli_session session;
} upscaler;

/* One picture and its result. */
typedef struct work {
    const char *in_path;
    const char *out_path;
    cli_picture in;
    cli_picture out;
    davy_plan_info plan;
    uint32_t width; /* final size */
    uint32_t height;
} work;

static uint32_t scaled(uint32_t side, double scale) {
    const double v = floor(side * scale + 0.5);
    return v < 1.0 ? 1 : v > 4294967295.0 ? UINT32_MAX : (uint32_t)v;
}

/* Checks before the work that the result can be stored. */
static int check_output(upscaler *u, work *w) {
    cli_picture *p = &w->in;
    const cli_format format = cli_format_of_name(w->out_path);
    int r = cli_picture_fits(w->out_path, w->width, w->height);
    if (r == CLI_OK) {
        r = cli_outfile_probe(w->out_path);
    }
    if (r == CLI_OK && u->args->raw != NULL) {
        r = cli_outfile_probe(u->args->raw);
    }
    if (r != CLI_OK) {
        return r;
    }
    if (format == CLI_FORMAT_JPEG && p->channels % 2 == 0) {
        if (!cli_picture_opaque(p)) {
            return cli_fail(w->out_path, "JPEG cannot hold the transparent parts of %s; write .png or .webp",
                            w->in_path);
        }
        if (cli_picture_drop_alpha(p) != 0) {
            return cli_fail(w->in_path, "out of memory");
        }
    }
    if (format != CLI_FORMAT_PNG && p->bits == 16) {
        cli_note(w->out_path, "16 bits are rounded to 8, as this format needs; .png keeps 16");
    }
    const uint32_t colours = format == CLI_FORMAT_WEBP ? 3 : p->channels <= 2 ? 1 : 3;
    if (p->colour.icc != NULL && !cli_icc_fits(&p->colour, colours)) {
        cli_note(w->out_path, "the ICC profile is left out: it is not for the channels of this picture");
    }
    return CLI_OK;
}

static int plan(upscaler *u, work *w, const davy_tensor *in) {
    const davy_run run = cli_session_run(u->args);
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_UPSCALE, .input = in, .run = &run};
    w->plan.struct_size = sizeof w->plan;
    davy_result r = u->session.api->plan_query(u->session.model, &query, &w->plan);
    if (r < 0) {
        return cli_session_fail(&u->session, w->in_path, r);
    }
    w->out.height = (uint32_t)w->plan.shape[0];
    w->out.width = (uint32_t)w->plan.shape[1];
    w->width = u->args->scale > 0.0 ? scaled(w->in.width, u->args->scale) : w->out.width;
    w->height = u->args->scale > 0.0 ? scaled(w->in.height, u->args->scale) : w->out.height;
    return CLI_OK;
}

/* --raw: the network's unclamped colours, in a second run. */
static int write_raw(upscaler *u, const work *w) {
    cli_picture rgb = {0};
    cli_array out = {.name = "output", .ndim = 4, .shape = {1, 3, w->plan.shape[0], w->plan.shape[1]}};
    int result = CLI_OK;
    if (cli_picture_to_rgb(&w->in, &rgb) != 0 || cli_array_alloc_f32(&out) != 0) {
        result = cli_fail(u->args->raw, "out of memory");
    } else {
        const davy_tensor in = cli_tensor_of_picture(&rgb);
        davy_tensor t = cli_tensor_of_array(&out, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGB);
        const davy_run run = cli_session_run(u->args);
        davy_result r = u->session.api->upscale(u->session.model, &in, &t, &run, NULL);
        result = r < 0 ? cli_session_fail(&u->session, w->in_path, r) : cli_safetensors_write(u->args->raw, &out, 1);
    }
    cli_picture_free(&rgb);
    cli_array_free(&out);
    return result;
}

static int run_network(upscaler *u, work *w) {
    const davy_tensor in = cli_tensor_of_picture(&w->in);
    const davy_run run = cli_session_run(u->args);
    w->out.channels = w->in.channels;
    w->out.bits = cli_format_of_name(w->out_path) == CLI_FORMAT_PNG ? w->in.bits : 8;
    if (cli_picture_alloc(&w->out) != 0) {
        return cli_fail(w->out_path, "out of memory for %ux%u pixels", w->out.width, w->out.height);
    }
    davy_tensor out = cli_tensor_of_picture(&w->out);
    davy_result r = u->session.api->upscale(u->session.model, &in, &out, &run, NULL);
    return r < 0 ? cli_session_fail(&u->session, w->in_path, r) : CLI_OK;
}

static int finish(upscaler *u, work *w) {
    free(w->in.pixels); /* frees memory for a large result */
    w->in.pixels = NULL;
    if (w->width != w->out.width || w->height != w->out.height) {
        cli_picture final = {0};
        const int r = cli_resample(&w->out, w->width, w->height, &final);
        if (r != 0) {
            return r > 0 ? cli_stopped(w->in_path) : cli_fail(w->out_path, "out of memory");
        }
        cli_picture_free(&w->out);
        w->out = final;
    }
    w->out.colour = w->in.colour;
    memset(&w->in.colour, 0, sizeof w->in.colour);
    return cli_picture_save(w->out_path, &w->out, &u->args->encoding);
}

static void report(const upscaler *u, const work *w, uint32_t in_width, uint32_t in_height, double seconds) {
    const cli_session *s = &u->session;
    if (!u->args->json) {
        if (!u->args->quiet) {
            printf("%s: %ux%u -> %ux%u, %s, %.2f s\n", w->out_path, in_width, in_height, w->width, w->height,
                   s->model_name, seconds);
        }
        return;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "file", w->in_path);
    cJSON_AddStringToObject(j, "output", w->out_path);
    cJSON_AddNumberToObject(j, "width", w->width);
    cJSON_AddNumberToObject(j, "height", w->height);
    cJSON_AddNumberToObject(j, "channels", w->out.channels);
    cJSON_AddNumberToObject(j, "bits", w->out.bits);
    cJSON_AddStringToObject(j, "model", s->model_name);
    cJSON_AddStringToObject(j, "arch", s->info.arch);
    cJSON_AddStringToObject(j, "precision", cli_precision_name(s->info.compute));
    cJSON_AddStringToObject(j, "device", s->device.selector);
    cJSON_AddStringToObject(j, "device_name", s->device.name);
    cJSON_AddNumberToObject(j, "tiles", (double)w->plan.tiles_x * w->plan.tiles_y);
    cJSON_AddNumberToObject(j, "seconds", seconds);
    cli_print_json(j);
    cJSON_Delete(j);
}

static int upscale_one(upscaler *u, const char *in_path, const char *out_path) {
    work w = {.in_path = in_path, .out_path = out_path};
    const char *slash = strrchr(in_path, '/');
    const double start = cli_seconds();
    int r = cli_picture_load(in_path, &w.in);
    if (r != CLI_OK) {
        return r;
    }
    const uint32_t in_width = w.in.width;
    const uint32_t in_height = w.in.height;
    davy_tensor in = cli_tensor_of_picture(&w.in);
    cli_progress_begin(slash != NULL ? slash + 1 : in_path);
    r = plan(u, &w, &in);
    if (r == CLI_OK) {
        r = check_output(u, &w);
    }
    if (r == CLI_OK) {
        r = run_network(u, &w);
    }
    if (r == CLI_OK && u->args->raw != NULL) {
        r = write_raw(u, &w);
    }
    if (r == CLI_OK) {
        r = finish(u, &w);
    }
    cli_progress_end();
    if (r == CLI_OK) {
        report(u, &w, in_width, in_height, cli_seconds() - start);
    }
    cli_picture_free(&w.in);
    cli_picture_free(&w.out);
    return r;
}

static char *join(const char *folder, const char *name) {
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL) {
        snprintf(path, n, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
    }
    return path;
}

/* Whether a path of a folder is a picture; prints a note if it is not. */
static int is_wanted(const char *path) {
    const cli_format named = cli_format_of_name(path);
    const cli_path_kind kind = cli_path_kind_of(path);
    const char *why = NULL;
    if (kind == CLI_PATH_FOLDER) {
        why = "is skipped: a folder in the folder";
    } else if (kind == CLI_PATH_OTHER) {
        why = "is skipped: a pipe or a device";
    } else if (named == CLI_FORMAT_VIDEO) {
        why = "is skipped: a video; run davy upscale for each video";
    } else if (named == CLI_FORMAT_UNKNOWN) {
        why = "is skipped: the name does not end in .png, .jpg or .webp";
    }
    if (why != NULL) {
        cli_note(path, "%s", why);
    }
    return why == NULL;
}

static int upscale_folder(upscaler *u, const char *in, const char *out) {
    if (cli_same_file(in, out)) {
        return cli_fail(out, "is also the input; name another folder");
    }
    if (cli_path_kind_of(out) == CLI_PATH_MISSING && cli_format_of_name(out) != CLI_FORMAT_UNKNOWN) {
        return cli_fail(out, "is the name of a file, but the input is a folder; name a folder, such as %s/", out);
    }
    const int e = cli_make_folder(out);
    if (e != 0) {
        return cli_fail(out, "cannot be created: %s", strerror(e));
    }
    size_t count = 0;
    char **names = cli_folder_names(in, &count);
    if (names == NULL) {
        return cli_fail(in, "cannot be read: %s", strerror(errno));
    }
    size_t tried = 0;
    size_t failed = 0;
    int r = CLI_OK;
    for (size_t i = 0; i < count && !cli_interrupted(); i++) {
        char *in_path = join(in, names[i]);
        char *out_path = join(out, names[i]);
        if (in_path == NULL || out_path == NULL) {
            failed++;
            r = cli_fail(names[i], "out of memory");
        } else if (is_wanted(in_path)) {
            tried++;
            r = upscale_one(u, in_path, out_path);
            failed += r != CLI_OK;
        }
        free(in_path);
        free(out_path);
    }
    cli_names_free(names, count);
    if (cli_interrupted()) {
        return r > CLI_USAGE ? r : cli_stopped(in);
    }
    if (failed > 0) {
        return cli_fail(in, "%zu of %zu pictures failed", failed, tried);
    }
    return tried > 0 ? CLI_OK : cli_fail(in, "holds no PNG, JPEG or WebP pictures");
}

int cli_upscale(const cli_args *a) {
    upscaler u = {.args = a};
    const char *in = a->inputs[0];
    const cli_path_kind kind = cli_path_kind_of(in);
    const int piped = strcmp(in, "-") == 0 || kind == CLI_PATH_OTHER;
    const int video = piped || cli_is_video(in);
    if (kind == CLI_PATH_MISSING && !piped) {
        return cli_fail(in, "cannot be read: %s", strerror(ENOENT));
    }
    if (kind == CLI_PATH_FOLDER && a->raw != NULL) {
        return cli_usage("--raw", "is for one picture only, and the input is a folder");
    }
    if (video && a->raw != NULL) {
        return cli_usage("--raw", "is for one picture only, and the input is a video");
    }
    if (!video && (a->codec != NULL || a->crf > 0 || a->decoder != 0)) {
        return cli_usage(a->codec != NULL ? "--codec"
                         : a->crf > 0     ? "--crf"
                                          : "--decoder",
                         "is for videos only, and %s is not a video", in);
    }
    int r = cli_session_load(&u.session);
    if (r == CLI_OK) {
        r = cli_session_context(&u.session, a);
    }
    if (r == CLI_OK) {
        const int two = a->scale > 0.0 && a->scale <= 2.0;
        r = cli_session_model(&u.session, a, two ? "davy-live-x2" : "davy-live-x4", DAVY_TASK_UPSCALE);
    }
    if (r == CLI_OK) {
        r = video                     ? cli_upscale_video(&u.session, a)
            : kind == CLI_PATH_FOLDER ? upscale_folder(&u, in, a->output)
                                      : upscale_one(&u, in, a->output);
    }
    cli_session_close(&u.session);
    return r;
}
