/* sink.c - the sinks: y4m, numbered pictures, parts of a video file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/run.h"

/* ---- y4m ---- */

void video_y4m_format(const cli_video *v, int w, int h, video_format *out) {
    const AVRational rate = v->stream->avg_frame_rate.num > 0 ? v->stream->avg_frame_rate : v->stream->r_frame_rate;
    *out = (video_format){.w = w & ~1, .h = h & ~1, .time_base = v->stream->time_base};
    out->pixels = v->facts.bits > 8 ? AV_PIX_FMT_YUV420P10 : AV_PIX_FMT_YUV420P;
    out->rate = rate.num > 0 && rate.den > 0 ? rate : (AVRational){25, 1};
    out->sample_aspect = v->stream->sample_aspect_ratio;
    out->colour = v->colour;
}

int video_y4m_begin(video_y4m *y) {
    const video_format *f = y->format;
    const char *kind = f->pixels == AV_PIX_FMT_YUV420P10         ? "420p10"
                       : f->colour.siting == AVCHROMA_LOC_CENTER ? "420jpeg"
                                                                 : "420mpeg2";
    fprintf(y->f, "YUV4MPEG2 W%d H%d F%d:%d Ip A%d:%d C%s XCOLORRANGE=%s\n", f->w, f->h, f->rate.num, f->rate.den,
            f->sample_aspect.num, f->sample_aspect.den > 0 ? f->sample_aspect.den : 0, kind,
            f->colour.range == AVCOL_RANGE_JPEG ? "FULL" : "LIMITED");
    return ferror(y->f) ? cli_fail(y->path, "cannot be written: %s", strerror(errno)) : CLI_OK;
}

/* Prints a note if frame times differ from the constant rate of y4m. */
static void tell_times(video_y4m *y, int64_t pts, int64_t number) {
    const video_format *f = y->format;
    const int64_t frame = av_rescale_q(1, av_inv_q(f->rate), f->time_base);
    y->first = number == 0 ? pts : y->first;
    const int64_t late = pts - y->first - av_rescale_q(number, av_inv_q(f->rate), f->time_base);
    if (!y->told && (late > 2 * frame + 1 || late < -2 * frame - 1)) {
        y->told = 1;
        cli_note(y->path, "the frame rate varies, but y4m has a constant rate: separate sound will be out of sync");
    }
}

int video_y4m_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number) {
    video_y4m *y = user;
    const size_t bytes = frame->format == AV_PIX_FMT_YUV420P10 ? 2 : 1;
    (void)rgb;
    tell_times(y, frame->pts, number);
    fputs("FRAME\n", y->f);
    for (int plane = 0; plane < 3; plane++) {
        const int w = plane == 0 ? frame->width : frame->width / 2;
        const int h = plane == 0 ? frame->height : frame->height / 2;
        for (int row = 0; row < h; row++) {
            fwrite(frame->data[plane] + (ptrdiff_t)row * frame->linesize[plane], bytes, (size_t)w, y->f);
        }
    }
    /* the reader of a pipe gets the whole frame now, not with the next one */
    return fflush(y->f) != 0 || ferror(y->f) ? cli_fail(y->path, "cannot be written: %s", strerror(errno)) : CLI_OK;
}

/* ---- pictures ---- */

int video_folder_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number) {
    const char *folder = user;
    const cli_encoding usual = {.quality = 95};
    const size_t n = strlen(folder) + 32;
    char *path = malloc(n);
    (void)frame;
    if (path == NULL) {
        return cli_fail(folder, "out of memory");
    }
    snprintf(path, n, "%s/%06lld.png", folder, (long long)number + 1);
    const int r = cli_picture_save(path, rgb, &usual);
    free(path);
    return r;
}

/* ---- parts ---- */

static char *in_folder(const video_parts *p, const char *name) {
    const size_t n = strlen(p->folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL) {
        snprintf(path, n, "%s/%s", p->folder, name);
    }
    return path;
}

/* Whether davy made the file: a part (eight digits), complete or temporary, or run.json. */
static int is_ours(const char *name) {
    return (strspn(name, "0123456789") == 8 && (name[8] == 0 || strncmp(name + 8, ".tmp-", 5) == 0)) ||
           strncmp(name, "run.json", 8) == 0;
}

static void remove_files(const video_parts *p, int parts_too) {
    size_t count = 0;
    char **names = cli_folder_names(p->folder, &count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        char *path = in_folder(p, names[i]);
        if (path != NULL && is_ours(names[i]) && (parts_too || strstr(names[i], ".tmp-") != NULL)) {
            cli_unlink(path);
        }
        free(path);
    }
    cli_names_free(names, count);
}

static int same_run(const char *path, const char *identity) {
    char found[4096] = "";
    FILE *f = cli_open_read(path);
    if (f == NULL) {
        return 0;
    }
    const size_t n = fread(found, 1, sizeof found - 1, f);
    fclose(f);
    return n == strlen(identity) && memcmp(found, identity, n) == 0;
}

/* Counts the complete parts from the first on. The last part of a video is shorter than VIDEO_PART. */
static void count_parts(video_parts *p) {
    int more = 1;
    while (more) {
        video_part_info info;
        char *path = video_part_path(p->folder, p->done);
        more = path != NULL && video_part_look(path, &info) == 0;
        free(path);
        if (more) {
            p->done++;
            p->frames += info.frames;
            p->last_pts = info.last_pts;
            more = info.frames == VIDEO_PART;
        }
    }
}

static int write_identity(const char *path, const char *identity) {
    cli_outfile o;
    if (cli_outfile_open(&o, path) != CLI_OK) {
        return CLI_FAILED;
    }
    fputs(identity, o.f);
    return cli_outfile_commit(&o, path);
}

int video_parts_open(video_parts *p, const video_format *f, const char *output, const char *identity) {
    *p = (video_parts){.format = f, .output = output, .folder = video_parts_folder(output), .taken = CLI_LOCKLESS};
    char *run = p->folder != NULL ? in_folder(p, "run.json") : NULL;
    if (run == NULL) {
        return cli_fail(output, "out of memory");
    }
    const int e = cli_make_folder(p->folder);
    int r = e == 0 ? CLI_OK : cli_fail(p->folder, "cannot be created: %s", strerror(e));
    p->taken = r == CLI_OK ? cli_take(p->folder) : CLI_LOCKLESS;
    if (p->taken == CLI_TAKEN) {
        r = cli_fail(output, "another davy process writes this file; wait for it or name another file");
        free(p->folder); /* the other process owns it */
        p->folder = NULL;
    } else if (r == CLI_OK && same_run(run, identity)) {
        remove_files(p, 0);
        count_parts(p);
    } else if (r == CLI_OK) {
        remove_files(p, 1);
        r = write_identity(run, identity);
    }
    free(run);
    return r;
}

int video_parts_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number) {
    video_parts *p = user;
    (void)rgb;
    int r = p->part.path != NULL ? CLI_OK : video_part_begin(p->format, p->folder, number / VIDEO_PART, &p->part);
    r = r == CLI_OK ? video_part_add(&p->part, frame) : r;
    return r == CLI_OK && (number + 1) % VIDEO_PART == 0 ? video_parts_finish(p) : r;
}

int video_parts_finish(video_parts *p) {
    if (p->part.path == NULL) {
        return CLI_OK;
    }
    const int64_t frames = p->part.frames;
    const int r = video_part_commit(&p->part);
    p->done += r == CLI_OK;
    p->frames += r == CLI_OK ? frames : 0;
    return r;
}

void video_parts_close(video_parts *p, int keep) {
    video_part_abandon(&p->part);
    if (p->folder != NULL && !(keep && p->done > 0)) {
        remove_files(p, 1);
        cli_remove_folder(p->folder);
    }
    cli_let_go(p->taken);
    p->taken = CLI_LOCKLESS;
    free(p->folder);
    p->folder = NULL;
}
