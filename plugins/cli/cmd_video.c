/* cmd_video.c - davy upscale of a video: the kinds of output, the notes, and resuming an interrupted run. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/commands.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/run.h"

typedef struct job {
    cli_session *session;
    const cli_args *args;
    cli_video *video;
    int net_w, net_h; /* size of the network's result */
    int w, h;         /* size requested */
    video_format format;
    video_sink sink;
    video_task task;
    double start;
} job;

static int is_pipe(const char *path) {
    return strcmp(path, "-") == 0;
}

static int ends_with(const char *path, const char *end) {
    const size_t n = strlen(path);
    const size_t k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

/* ---- before the work ---- */

static int plan(job *j) {
    const cli_video_facts *f = cli_video_about(j->video);
    const cli_picture like = {.width = f->width, .height = f->height, .channels = 3, .bits = f->bits};
    const davy_tensor in = cli_tensor_of_picture(&like);
    davy_run run = cli_session_run(j->args);
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_UPSCALE, .input = &in, .run = &run};
    davy_plan_info info = {.struct_size = sizeof info};
    const davy_result r = j->session->api->plan_query(j->session->model, &query, &info);
    if (r < 0) {
        return cli_session_fail(j->session, j->video->path, r);
    }
    j->net_h = (int)info.shape[0];
    j->net_w = (int)info.shape[1];
    const double s = j->args->scale;
    j->w = s > 0.0 ? (int)floor(f->width * s + 0.5) : j->net_w;
    j->h = s > 0.0 ? (int)floor(f->height * s + 0.5) : j->net_h;
    return CLI_OK;
}

/* Whether the container stores the rotation. FFmpeg's Matroska muxer does since FFmpeg 7. */
static int tells_turn(const AVOutputFormat *container) {
    const char *name = container != NULL ? container->name : "";
    return strcmp(name, "mp4") == 0 || strcmp(name, "mov") == 0 || strcmp(name, "ipod") == 0 ||
           strcmp(name, "3gp") == 0 || strcmp(name, "3g2") == 0 ||
           (strcmp(name, "matroska") == 0 && avformat_version() >= AV_VERSION_INT(61, 0, 100));
}

static void tell_hdr(const cli_video *v) {
    const char *path = v->path;
    if (v->colour.transfer == AVCOL_TRC_SMPTE2084 || v->colour.transfer == AVCOL_TRC_ARIB_STD_B67) {
        cli_note(path, "is HDR (%s): the result is HDR too, but models were trained on SDR",
                 v->colour.transfer == AVCOL_TRC_SMPTE2084 ? "PQ" : "HLG");
    }
    if (v->hdr.alone) {
        cli_note(path, "colours will be wrong: they need the %s metadata, which is left out", v->hdr.dynamic);
    } else if (v->hdr.dynamic != NULL) {
        cli_note(path, "%s metadata is left out", v->hdr.dynamic);
    }
}

/* Prints a note for each property of the video that the result does not keep. */
static void tell_oddities(const job *j) {
    const cli_video *v = j->video;
    const char *path = v->path;
    if (v->interlaced) {
        cli_note(path, "is interlaced: both fields are enlarged as one frame, and moving edges show comb lines; "
                       "deinterlace it first (ffmpeg -vf bwdif)");
    }
    if (v->alpha) {
        cli_note(path, "alpha is left out: the result has no transparent parts");
    }
    if (v->orientation != 1 && !tells_turn(j->format.container)) {
        const int mirrored = v->orientation == 2 || v->orientation == 4 || v->orientation == 5 || v->orientation == 7;
        cli_note(path, "is rotated%s for display, and this output cannot store that; use .mp4 or .mov",
                 mirrored ? " or mirrored" : "");
    }
    tell_hdr(v);
    if (video_is_piped(v) && v->format->nb_streams > 1 && j->format.encoder != NULL) {
        cli_note(path, "sound and other streams are left out: they need a second pass, and a pipe has one");
    }
    if (((j->w | j->h) & 1) != 0 && j->sink.pixels != AV_PIX_FMT_NONE) {
        cli_note(path, "%dx%d is odd; the last %s is cut off, because 4:2:0 needs even sizes", j->w, j->h,
                 (j->w & 1) == 0   ? "row"
                 : (j->h & 1) == 0 ? "column"
                                   : "row and column");
    }
}

static void set_sink(job *j, enum AVPixelFormat pixels, void *user,
                     int (*put)(void *, const AVFrame *, const cli_picture *, int64_t)) {
    const int folder = pixels == AV_PIX_FMT_NONE;
    j->sink = (video_sink){.pixels = pixels,
                           .w = folder ? j->net_w : j->format.w,
                           .h = folder ? j->net_h : j->format.h,
                           .user = user,
                           .put = put};
    j->task = (video_task){.session = j->session, .args = j->args, .video = j->video, .sink = &j->sink};
    tell_oddities(j);
}

/* ---- kinds of output ---- */

static int to_y4m(job *j, const char *path) {
    video_y4m y = {.path = path, .format = &j->format};
    cli_outfile o = {0};
    int r = CLI_OK;
    video_y4m_format(j->video, j->w, j->h, &j->format);
    if (is_pipe(path)) {
        y.f = stdout;
    } else {
        r = cli_outfile_open(&o, path);
        y.f = o.f;
    }
    if (r != CLI_OK) {
        return r;
    }
    set_sink(j, j->format.pixels, &y, video_y4m_put);
    r = video_y4m_begin(&y);
    r = r == CLI_OK ? video_run(&j->task) : r;
    if (is_pipe(path)) {
        return r;
    }
    if (r != CLI_OK) {
        cli_outfile_abandon(&o);
        return r;
    }
    return cli_outfile_commit(&o, path);
}

static int to_folder(job *j, const char *path) {
    if (j->w != j->net_w || j->h != j->net_h) {
        return cli_fail(path,
                        "a folder of frames has the network's size (%dx%d); leave out --scale or name a video file",
                        j->net_w, j->net_h);
    }
    const int e = cli_make_folder(path);
    if (e != 0) {
        return cli_fail(path, "cannot be created: %s", strerror(e));
    }
    set_sink(j, AV_PIX_FMT_NONE, (void *)(uintptr_t)path, video_folder_put);
    return video_run(&j->task);
}

/* The properties that must be equal to resume with the parts of another run, as text. Free with free(). */
static char *identity_of(const job *j) {
    const cli_args *a = j->args;
    cJSON *o = cJSON_CreateObject();
    const char *files[1 + CLI_MODELS_MAX] = {j->video->path};
    for (int i = 0; i < a->n_models; i++) {
        files[1 + i] = a->models[i];
    }
    for (int i = 0; i <= a->n_models; i++) {
        uint64_t stamp[2] = {0, 0};
        cli_file_stamp(files[i], &stamp[0], &stamp[1]);
        char text[64];
        snprintf(text, sizeof text, "%llu bytes, %llu ns", (unsigned long long)stamp[0], (unsigned long long)stamp[1]);
        cJSON_AddStringToObject(o, files[i], text);
    }
    if (video_is_piped(j->video)) { /* the pipe may deliver another video */
        cJSON_AddNumberToObject(o, "process", (double)cli_process_id());
        cJSON_AddNumberToObject(o, "second", cli_seconds());
    }
    cJSON_AddStringToObject(o, "davy", j->session->api->version());
    cJSON_AddStringToObject(o, "model", j->session->model_name);
    cJSON_AddStringToObject(o, "precision", cli_precision_name(a->precision));
    cJSON_AddNumberToObject(o, "compute", j->session->info.compute);
    cJSON_AddBoolToObject(o, "gpu", j->session->on_gpu);
    cJSON_AddNumberToObject(o, "width", j->format.w);
    cJSON_AddNumberToObject(o, "height", j->format.h);
    cJSON_AddNumberToObject(o, "tile", a->tile);
    cJSON_AddNumberToObject(o, "overlap", a->overlap);
    cJSON_AddStringToObject(o, "split", a->split != NULL ? a->split : "");
    cJSON_AddNumberToObject(o, "memory", (double)a->memory);
    cJSON_AddStringToObject(o, "encoder", j->format.encoder->name);
    cJSON_AddNumberToObject(o, "quality", j->format.quality);
    cJSON_AddNumberToObject(o, "ffmpeg", avcodec_version());
    cJSON_AddNumberToObject(o, "frames a part", VIDEO_PART);
    char *text = cJSON_Print(o);
    cJSON_Delete(o);
    return text;
}

/* Continues after the existing parts. If the last one is shorter than VIDEO_PART, all parts exist. */
static int run_parts(job *j, video_parts *p) {
    const int complete = p->frames % VIDEO_PART != 0;
    int r = CLI_OK;
    if (p->done > 0) {
        cli_note(j->args->output, "continues after the %lld frames of an interrupted run", (long long)p->frames);
    }
    if (p->done > 0 && !complete) {
        r = video_skip(j->video, p->last_pts, p->frames) == 0 ? CLI_OK
            : cli_interrupted()                               ? cli_stopped(j->video->path)
                                                              : CLI_FAILED;
    }
    j->task.first = p->frames;
    if (r == CLI_OK && !complete) {
        r = video_run(&j->task);
        r = r == CLI_OK ? video_parts_finish(p) : r;
    }
    return r == CLI_OK ? video_join(j->video, &j->format, p->folder, p->done, j->args->output) : r;
}

static int to_file(job *j, const char *path) {
    const cli_args *a = j->args;
    const video_codec_wish wish = {.codec = a->codec, .quality = a->crf, .on_gpu = j->session->on_gpu};
    video_parts p = {0};
    cli_clear_memory();
    int r = video_format_choose(j->video, path, j->w, j->h, &wish, &j->format);
    r = r == CLI_OK ? cli_outfile_probe(path) : r;
    r = r == CLI_OK ? video_join_check(j->video, &j->format, path) : r;
    if (r != CLI_OK) {
        return r;
    }
    char *identity = identity_of(j);
    set_sink(j, j->format.pixels, &p, video_parts_put);
    r = identity != NULL ? video_parts_open(&p, &j->format, path, identity) : cli_fail(path, "out of memory");
    r = r == CLI_OK ? run_parts(j, &p) : r;
    const int keep = r != CLI_OK && !video_is_piped(j->video);
    if (keep && p.done > 0) {
        cli_note(path, "%lld frames are kept in %s; the same command continues after them", (long long)p.frames,
                 p.folder);
    }
    video_parts_close(&p, keep);
    cJSON_free(identity);
    return r;
}

/* ---- the command ---- */

static void report(const job *j) {
    const cli_args *a = j->args;
    const cli_session *s = j->session;
    const cli_video_facts *f = cli_video_about(j->video);
    const double seconds = cli_seconds() - j->start;
    const int64_t frames = j->task.first + j->task.frames;
    const char *encoder = j->format.encoder != NULL           ? j->format.encoder->name
                          : j->sink.pixels == AV_PIX_FMT_NONE ? "png"
                                                              : "y4m";
    char name[64];
    const char *decoder = video_decoder_name(j->video, name);
    if (is_pipe(a->output) || (a->quiet && !a->json)) {
        return;
    }
    if (!a->json) {
        printf("%s: %lld frames, %ux%u -> %dx%d, %s, %s -> %s, %.1f s, %.2f fps\n", a->output, (long long)frames,
               f->width, f->height, j->sink.w, j->sink.h, s->model_name, decoder, encoder, seconds,
               (double)j->task.frames / seconds);
        return;
    }
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "file", j->video->path);
    cJSON_AddStringToObject(o, "output", a->output);
    cJSON_AddNumberToObject(o, "width", j->sink.w);
    cJSON_AddNumberToObject(o, "height", j->sink.h);
    cJSON_AddNumberToObject(o, "frames", (double)frames);
    cJSON_AddNumberToObject(o, "frames_now", (double)j->task.frames);
    cJSON_AddStringToObject(o, "model", s->model_name);
    cJSON_AddStringToObject(o, "arch", s->info.arch);
    cJSON_AddStringToObject(o, "precision", cli_precision_name(s->info.compute));
    cJSON_AddStringToObject(o, "device", s->device.selector);
    cJSON_AddStringToObject(o, "device_name", s->device.name);
    cJSON_AddStringToObject(o, "decoder", decoder);
    cJSON_AddStringToObject(o, "encoder", encoder);
    cJSON_AddNumberToObject(o, "seconds", seconds);
    cJSON_AddNumberToObject(o, "fps", (double)j->task.frames / seconds);
    cJSON *busy = cJSON_AddObjectToObject(o, "busy_seconds");
    cJSON_AddNumberToObject(busy, "decode", j->task.busy.decode);
    cJSON_AddNumberToObject(busy, "to_rgb", j->task.busy.to_rgb);
    cJSON_AddNumberToObject(busy, "from_rgb", j->task.busy.from_rgb);
    cJSON_AddNumberToObject(busy, "write", j->task.busy.write);
    cJSON_AddNumberToObject(o, "peak_memory", (double)cli_peak_memory());
    cli_print_json(o);
    cJSON_Delete(o);
}

int cli_upscale_video(cli_session *s, const cli_args *a) {
    const char *in = a->inputs[0];
    const char *slash = strrchr(in, '/');
    const char *out = a->output;
    job j = {.session = s, .args = a, .start = cli_seconds()};
    const int folder = cli_path_kind_of(out) == CLI_PATH_FOLDER || ends_with(out, "/");
    const int decoder = a->decoder != CLI_DECODER_AUTO || s->on_gpu ? a->decoder : CLI_DECODER_SOFTWARE;
    const cli_video_decoding how = {.hardware = decoder, .device = a->device};
    int r = !is_pipe(in) && cli_path_kind_of(in) == CLI_PATH_FILE && cli_same_file(in, out)
                ? cli_fail(out, "is also the input; name another file")
                : cli_video_open(in, &how, &j.video);
    r = r == CLI_OK ? plan(&j) : r;
    if (r == CLI_OK) {
        cli_progress_begin(slash != NULL ? slash + 1 : in);
        r = folder ? to_folder(&j, out) : is_pipe(out) || ends_with(out, ".y4m") ? to_y4m(&j, out) : to_file(&j, out);
        cli_progress_end();
    }
    if (r == CLI_OK) {
        report(&j);
    }
    cli_video_close(j.video);
    return r;
}
