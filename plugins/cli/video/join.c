/* join.c - joins the parts of a video and the input's sound, subtitles, covers, chapters and tags into one file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/file.h"
#include "plugins/cli/video/part.h"

typedef struct join {
    const cli_video *v; /* NULL: the parts only */
    const video_format *f;
    const char *folder, *path;
    int64_t parts;
    /* times of all packets in decoding order; the same, sorted */
    int64_t *pts, *shown;
    int64_t n, room, delay; /* delay: largest number of packets by which decoding is ahead of display */
    video_part_info last;
    video_part_reader part;
    int64_t part_number, at;
    AVFormatContext *in, *out;
    video_clock clock;
    video_other *others; /* one for each stream of the input */
    int n_others, late;  /* late: a stream appeared in the middle */
    video_file file;
    AVPacket *packet[2]; /* [0] of the parts, [1] of the input */
} join;

static int fail(const join *j, int code) {
    char why[128];
    return cli_fail(j->path, "cannot be written: %s",
                    code == AVERROR(EIO) && errno != 0 ? strerror(errno) : video_error(code, why));
}

/* ---- times ---- */

static int by_time(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int add_time(join *j, int64_t pts) {
    if (j->n == j->room) {
        const int64_t room = j->room > 0 ? 2 * j->room : 4096;
        int64_t *more = realloc(j->pts, (size_t)room * sizeof *more);
        if (more == NULL) {
            return -1;
        }
        j->pts = more;
        j->room = room;
    }
    j->pts[j->n++] = pts;
    return 0;
}

static int open_part(join *j, int64_t number) {
    video_part_close(&j->part);
    char *path = video_part_path(j->folder, number);
    const int r = path != NULL ? video_part_open(path, &j->part) : -1;
    free(path);
    return r == 0 ? CLI_OK
                  : cli_fail(j->folder, "part %lld cannot be read; remove this folder and run the command again",
                             (long long)number);
}

/* Each encoder counts decoding times in its own way and restarts them with each part. So the decoding times are computed from
 * the presentation times. */
static int read_times(join *j) {
    for (int64_t k = 0; k < j->parts; k++) {
        int64_t pts = 0;
        int more = open_part(j, k) == CLI_OK ? 1 : -2;
        while (more == 1) {
            more = video_part_next(&j->part, &pts, NULL);
            if (more == 1 && add_time(j, pts) != 0) {
                return cli_fail(j->path, "out of memory");
            }
        }
        if (more != 0) {
            return more == -2
                       ? CLI_FAILED
                       : cli_fail(j->folder, "part %lld is damaged; remove this folder and run the command again",
                                  (long long)k);
        }
        j->last = j->part.info;
    }
    j->shown = j->n > 0 ? malloc((size_t)j->n * sizeof *j->shown) : NULL;
    if (j->shown == NULL) {
        return cli_fail(j->path, j->n > 0 ? "out of memory" : "the video has no frames");
    }
    memcpy(j->shown, j->pts, (size_t)j->n * sizeof *j->shown);
    qsort(j->shown, (size_t)j->n, sizeof *j->shown, by_time);
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t *place = bsearch(&j->pts[i], j->shown, (size_t)j->n, sizeof *j->shown, by_time);
        const int64_t ahead = i - (place - j->shown);
        j->delay = ahead > j->delay ? ahead : j->delay;
    }
    return CLI_OK;
}

static int64_t decoded_at(const join *j, int64_t i) {
    const int64_t step = j->n > 1 ? j->shown[1] - j->shown[0] : 1;
    return i >= j->delay ? j->shown[i - j->delay] : j->shown[0] - (j->delay - i) * step;
}

static int64_t shown_for(const join *j, int64_t pts) {
    const int64_t *place = bsearch(&pts, j->shown, (size_t)j->n, sizeof *j->shown, by_time);
    const int64_t k = place - j->shown;
    return k + 1 < j->n ? j->shown[k + 1] - pts : j->last.last_duration;
}

/* ---- the file ---- */

static int open_output(join *j) {
    int r = avformat_alloc_output_context2(&j->out, j->f->container, NULL, j->path);
    r = r >= 0 ? video_file_open(&j->file, j->out) : r;
    if (r < 0) {
        return fail(j, r);
    }
    j->out->flags |= AVFMT_FLAG_BITEXACT; /* else Matroska's ids are random in each run */
    return CLI_OK;
}

static int open_input(join *j) {
    char why[128];
    if (j->v == NULL || video_is_piped(j->v)) {
        return CLI_OK;
    }
    int r = video_open_path(j->v->path, &j->in);
    r = r < 0 ? r : avformat_find_stream_info(j->in, NULL);
    j->n_others = r >= 0 ? (int)j->in->nb_streams : 0;
    j->others = r >= 0 ? calloc((size_t)j->n_others + 1, sizeof *j->others) : NULL;
    return r < 0               ? cli_fail(j->v->path, "cannot be read again: %s", video_error(r, why))
           : j->others != NULL ? CLI_OK
                               : cli_fail(j->path, "out of memory");
}

/* ---- packets ---- */

/* Reads the next packet of the video into packet[0]. Returns 1; 0: the end; -1: failed, the error is printed. */
static int next_video(join *j) {
    int64_t pts = 0;
    AVPacket *p = j->packet[0];
    int more = video_part_next(&j->part, &pts, p);
    while (more == 0 && ++j->part_number < j->parts) {
        if (open_part(j, j->part_number) != CLI_OK) {
            return -1;
        }
        more = video_part_next(&j->part, &pts, p);
    }
    if (more < 0) {
        cli_fail(j->folder, "part %lld is damaged; remove this folder and run the command again",
                 (long long)j->part_number);
        return -1;
    }
    if (more == 1) {
        p->dts = decoded_at(j, j->at++);
        p->duration = shown_for(j, pts);
        p->stream_index = 0; /* the video is the first stream */
    }
    return more;
}

/* Reads the next packet of the other streams into packet[1]. Some formats add streams in the middle of the file. */
static int next_other(join *j) {
    AVPacket *p = j->packet[1];
    while (j->in != NULL && av_read_frame(j->in, p) >= 0) {
        const video_other *o = p->stream_index < j->n_others ? &j->others[p->stream_index] : NULL;
        video_clock_set(&j->clock, j->in, p);
        if (o == NULL && !j->late) {
            j->late = 1;
            cli_note(j->path, "a stream that begins in the middle of the input is left out");
        }
        const int r = o == NULL || !o->kept ? 0 : o->text != NULL ? video_text_turn(o->text, p) : 1;
        if (r != 0) {
            return r > 0 ? 1 : (fail(j, r), -1);
        }
        av_packet_unref(p);
    }
    return 0;
}

static AVRational base_of(const join *j, int other) {
    return other ? j->in->streams[j->packet[1]->stream_index]->time_base : j->f->time_base;
}

static int64_t time_of(const AVPacket *p) {
    return p->dts != AV_NOPTS_VALUE ? p->dts : p->pts != AV_NOPTS_VALUE ? p->pts : 0;
}

/* FFmpeg rejects decoding times that do not rise, but recordings contain them. */
static void let_rise(video_other *o, int sound, AVPacket *p) {
    if (p->dts == AV_NOPTS_VALUE) {
        return;
    }
    if (o->begun && p->dts < o->last + sound) {
        p->dts = o->last + sound;
    }
    p->pts = p->pts != AV_NOPTS_VALUE && p->pts < p->dts ? p->dts : p->pts;
    o->begun = 1;
    o->last = p->dts;
}

/* Writes a packet. Converts its times to the output's time base; the output begins at 0. */
static int put(join *j, int other) {
    AVPacket *p = j->packet[other];
    const AVRational base = base_of(j, other);
    const int64_t begin = j->v != NULL ? j->v->format->start_time : AV_NOPTS_VALUE;
    const int64_t start = begin != AV_NOPTS_VALUE ? av_rescale_q(begin, AV_TIME_BASE_Q, base) : 0;
    video_other *o = other ? &j->others[p->stream_index] : NULL;
    if (o != NULL) {
        p->stream_index = o->to;
    }
    p->pts -= p->pts != AV_NOPTS_VALUE ? start : 0;
    p->dts -= p->dts != AV_NOPTS_VALUE ? start : 0;
    p->pos = -1;
    const AVStream *to = j->out->streams[p->stream_index];
    av_packet_rescale_ts(p, base, to->time_base);
    if (o != NULL) {
        let_rise(o, to->codecpar->codec_type == AVMEDIA_TYPE_AUDIO, p);
    }
    const int r = av_interleaved_write_frame(j->out, p); /* takes ownership of the data */
    return r < 0 ? fail(j, r) : CLI_OK;
}

static int write_packets(join *j) {
    int have[2] = {0, 0};
    int r = open_part(j, 0);
    have[0] = r == CLI_OK ? next_video(j) : -1;
    have[1] = next_other(j);
    while (r == CLI_OK && have[0] >= 0 && have[1] >= 0 && (have[0] || have[1])) {
        const int other = !have[0] || (have[1] && av_compare_ts(time_of(j->packet[1]), base_of(j, 1),
                                                                time_of(j->packet[0]), base_of(j, 0)) < 0);
        if (cli_interrupted()) {
            return cli_stopped(j->path);
        }
        r = put(j, other);
        have[other] = r != CLI_OK ? 0 : other ? next_other(j) : next_video(j);
        cli_progress_update("writing", (uint64_t)j->at, (uint64_t)j->n);
    }
    return have[0] < 0 || have[1] < 0 ? CLI_FAILED : r;
}

/* Adds all streams and writes the header. Uses v, f, out, others of j, and in, the source of the other streams, or NULL.
 * path: subject of the notes, or NULL. options: for the muxer, or NULL. Returns 0, or FFmpeg's error. */
static int begin_file(const join *j, const char *path, AVDictionary **options) {
    int e = video_add_stream(j->out, j->v, j->f);
    e = e < 0 || j->in == NULL ? e : video_add_others(j->out, j->in, j->v->stream->index, path, j->others);
    e = e < 0 || j->v == NULL ? e : video_add_chapters(j->out, j->v->format);
    return e < 0 ? e : avformat_write_header(j->out, options);
}

static void free_others(video_other *others, int n) {
    for (int i = 0; i < n; i++) {
        video_text_close(others[i].text);
    }
    free(others);
}

int video_join_check(const cli_video *v, const video_format *f, const char *path) {
    char why[128];
    AVFormatContext *out = NULL;
    uint8_t *written = NULL;
    AVFormatContext *in = video_is_piped(v) ? NULL : v->format;
    const int n = in != NULL ? (int)in->nb_streams : 0;
    video_other *others = calloc((size_t)n + 1, sizeof *others);
    int e = others != NULL ? avformat_alloc_output_context2(&out, f->container, NULL, path) : AVERROR(ENOMEM);
    e = e < 0 ? e : avio_open_dyn_buf(&out->pb);
    if (e >= 0) {
        const join j = {.v = v, .f = f, .in = in, .out = out, .others = others};
        e = begin_file(&j, path, NULL);
        avio_close_dyn_buf(out->pb, &written);
        av_free(written);
    }
    avformat_free_context(out);
    free_others(others, n);
    return e >= 0 ? CLI_OK
                  : cli_fail(path, "this file format cannot hold the video with its sound and subtitles: %s%s",
                             video_error(e, why), strcmp(f->container->name, "matroska") == 0 ? "" : "; use .mkv");
}

static int write_file(join *j) {
    int r = open_input(j);
    r = r == CLI_OK ? open_output(j) : r;
    if (r != CLI_OK) {
        return r;
    }
    AVDictionary *options = NULL;
    int e = video_file_options(&j->file, &options);
    e = e < 0 ? e : begin_file(j, NULL, &options);
    av_dict_free(&options); /* includes options that the muxer does not have */
    if (e < 0) {
        return fail(j, e);
    }
    r = write_packets(j);
    e = r == CLI_OK ? av_write_trailer(j->out) : 0;
    if (r == CLI_OK && cli_interrupted()) {
        return cli_stopped(j->path);
    }
    if (r == CLI_OK && e >= 0) {
        e = video_file_flush(&j->file, j->out);
    }
    return e < 0 ? fail(j, e) : r;
}

static void clear(join *j) {
    video_file_free(j->out);
    video_close_path(&j->in);
    video_part_close(&j->part);
    av_packet_free(&j->packet[0]);
    av_packet_free(&j->packet[1]);
    free_others(j->others, j->n_others);
    free(j->pts);
    free(j->shown);
}

int video_join(const cli_video *v, const video_format *f, const char *folder, int64_t parts, const char *path) {
    join j = {.v = v, .f = f, .folder = folder, .path = path, .parts = parts};
    j.packet[0] = av_packet_alloc();
    j.packet[1] = av_packet_alloc();
    int r = j.packet[0] != NULL && j.packet[1] != NULL ? read_times(&j) : cli_fail(path, "out of memory");
    if (r == CLI_OK) {
        cli_outfile_sweep(path);
        r = cli_outfile_open(&j.file.out, path);
    }
    if (r == CLI_OK) {
        r = write_file(&j);
        if (r == CLI_OK) {
            r = cli_outfile_commit(&j.file.out, path);
        } else {
            cli_outfile_abandon(&j.file.out);
        }
    }
    clear(&j);
    return r;
}
