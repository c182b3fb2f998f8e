/* reader.c - see video.h: opens a file or a pipe and reads the frames of its best video stream. */
#include <libavutil/pixdesc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/video_priv.h"

int64_t video_duration(const AVFrame *f) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 30, 100)
    return f->duration;
#else
    return f->pkt_duration;
#endif
}

void video_set_duration(AVFrame *f, int64_t ticks) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 30, 100)
    f->duration = ticks;
#else
    f->pkt_duration = ticks;
#endif
}

/* ---- frames ---- */

/* Sets rising times, and durations. */
static void set_times(cli_video *v, AVFrame *f) {
    int64_t pts = f->best_effort_timestamp != AV_NOPTS_VALUE ? f->best_effort_timestamp : f->pts;
    if (pts == AV_NOPTS_VALUE) {
        pts = v->last_pts != AV_NOPTS_VALUE ? v->last_pts + v->step : 0;
    }
    if (v->last_pts != AV_NOPTS_VALUE && pts <= v->last_pts) {
        pts = v->last_pts + 1;
    }
    f->pts = v->last_pts = pts;
    if (video_duration(f) <= 0) {
        video_set_duration(f, v->step);
    }
}

int video_decode(cli_video *v, AVFrame *frame) {
    if (v->ahead != NULL) {
        av_frame_move_ref(frame, v->ahead);
        av_frame_free(&v->ahead);
        return 1;
    }
    const int r = video_decoder_frame(v, frame);
    if (r == 1) {
        set_times(v, frame);
    }
    return r;
}

/* ---- seeking ---- */

static int go_to(cli_video *v, int64_t pts) {
    if (av_seek_frame(v->format, v->stream->index, pts, AVSEEK_FLAG_BACKWARD) < 0) {
        return -1;
    }
    video_decoder_flush(v);
    memset(&v->clock, 0, sizeof v->clock);
    av_frame_free(&v->ahead);
    v->last_pts = AV_NOPTS_VALUE;
    return 0;
}

static int is_key(const AVFrame *f) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return (f->flags & AV_FRAME_FLAG_KEY) != 0;
#else
    return f->key_frame;
#endif
}

/* Skips `count` frames. Returns 1; 0: the video has fewer; -1: failed, the error is printed. */
static int pass(cli_video *v, int64_t count) {
    AVFrame *f = av_frame_alloc();
    int more = f != NULL ? 1 : -1;
    for (int64_t i = 0; more == 1 && i < count; i++) {
        more = video_decode(v, f);
        av_frame_unref(f);
        more = cli_interrupted() ? -1 : more;
        cli_progress_update("skipping", (uint64_t)i, (uint64_t)count);
    }
    av_frame_free(&f);
    return more;
}

/* Skips all frames up to the one with this pts. Returns 1; 0: the frame is missing, or the first frame is not a key frame, so
 * that the decoder may invent the following ones; -1: failed, the error is printed. */
static int pass_until(cli_video *v, int64_t pts) {
    AVFrame *f = av_frame_alloc();
    int more = f != NULL ? 1 : -1;
    int there = 0;
    for (int first = 1; more == 1 && !there; first = 0) {
        more = video_decode(v, f);
        if (more == 1 && ((first && !is_key(f)) || f->pts > pts)) {
            more = 0;
        }
        there = more == 1 && f->pts == pts;
        av_frame_unref(f);
        more = cli_interrupted() ? -1 : more;
    }
    av_frame_free(&f);
    return more;
}

/* Whether the format has an index of key frames. Other formats seek to a place nearby, which may lie between two key frames. */
static int knows_keys(const cli_video *v) {
    const char *kind = v->format->iformat->name;
    return !video_is_piped(v) && (strncmp(kind, "mov,", 4) == 0 || strncmp(kind, "matroska,", 9) == 0);
}

int video_skip(cli_video *v, int64_t last_pts, int64_t count) {
    int r = 0;
    if (knows_keys(v)) {
        r = go_to(v, last_pts) == 0 ? pass_until(v, last_pts) : 0;
        if (r == 0) {
            v->last_pts = AV_NOPTS_VALUE;
            r = video_open_again(v);
        }
    }
    if (r == 0) { /* the video is at its beginning */
        r = pass(v, count);
        if (r == 0) {
            cli_fail(v->path, "ends before the %lld frames of an interrupted run; remove the .davy-parts folder",
                     (long long)count);
        }
    }
    return r == 1 ? 0 : -1;
}

int cli_video_seek(cli_video *v, double seconds) {
    const int64_t ticks = (int64_t)(seconds / av_q2d(v->stream->time_base));
    return go_to(v, v->first_pts + ticks);
}

/* ---- opening ---- */

static double rate_of(const cli_video *v) {
    const AVRational average = v->stream->avg_frame_rate;
    const AVRational base = v->stream->r_frame_rate;
    return average.num > 0 && average.den > 0 ? av_q2d(average) : base.num > 0 && base.den > 0 ? av_q2d(base) : 0.0;
}

/* The EXIF orientation (1 to 8) nearest to a display matrix, whose rows are the images of a step to the right and a step down. */
static int orientation_of(const int32_t *matrix) {
    static const int straight[4] = {1, 2, 4, 3}, across[4] = {5, 8, 6, 7};
    const double right[2] = {matrix[0], matrix[1]}, down[2] = {matrix[3], matrix[4]};
    return fabs(right[0]) + fabs(down[1]) >= fabs(right[1]) + fabs(down[0])
               ? straight[(right[0] < 0.0) + 2 * (down[1] < 0.0)]
               : across[(right[1] < 0.0) + 2 * (down[0] < 0.0)];
}

/* Reads the properties that need a note or are kept beside the pixels. */
static void look_at_kind(cli_video *v, const AVFrame *first) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(first->format);
    const AVDictionaryEntry *coded = av_dict_get(v->stream->metadata, "alpha_mode", NULL, 0); /* of VP8 and VP9 */
    size_t bytes = 0;
    const int32_t *matrix =
        (const int32_t *)(const void *)video_side_data(v->stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
    v->alpha =
        (d != NULL && (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0) || (coded != NULL && strcmp(coded->value, "1") == 0);
    v->orientation = matrix != NULL && bytes >= 9 * sizeof *matrix ? orientation_of(matrix) : 1;
    video_hdr_of(v->stream, first, &v->hdr);
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    v->interlaced = (first->flags & AV_FRAME_FLAG_INTERLACED) != 0;
#else
    v->interlaced = first->interlaced_frame;
#endif
}

static int look_at_first(cli_video *v) {
    cli_video_facts *f = &v->facts;
    f->fps = rate_of(v);
    v->step = f->fps > 0.0 ? llrint(1.0 / (f->fps * av_q2d(v->stream->time_base))) : 1;
    v->step = v->step < 1 ? 1 : v->step;
    v->last_pts = AV_NOPTS_VALUE;
    AVFrame *first = av_frame_alloc();
    const int r = first != NULL ? video_decode(v, first) : -1;
    if (r != 1) {
        av_frame_free(&first);
        return r == 0 && !cli_interrupted() ? cli_fail(v->path, "no frame of the video can be decoded") : CLI_FAILED;
    }
    v->ahead = first;
    v->first_pts = first->pts;
    v->colour = video_colour_of(first);
    f->width = (uint32_t)first->width;
    f->height = (uint32_t)first->height;
    f->bits = video_bits_of(first->format) > 8 ? 16 : 8;
    if (v->stream->duration > 0) {
        f->seconds = (double)v->stream->duration * av_q2d(v->stream->time_base);
    } else if (v->format->duration > 0) {
        f->seconds = (double)v->format->duration / AV_TIME_BASE;
    }
    f->frames = v->stream->nb_frames > 0 ? v->stream->nb_frames : (int64_t)(f->seconds * f->fps + 0.5);
    look_at_kind(v, first);
    return CLI_OK;
}

static int open_input(cli_video *v) {
    char why[128];
    const AVCodec *codec = NULL;
    memset(&v->clock, 0, sizeof v->clock);
    int r = video_open_path(v->path, &v->format);
    r = r < 0 ? r : avformat_find_stream_info(v->format, NULL);
    if (cli_interrupted()) {
        return CLI_FAILED; /* the caller prints the interrupt */
    }
    if (r < 0) {
        return cli_fail(v->path, "cannot be read as a video: %s", video_error(r, why));
    }
    r = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (r < 0 || codec == NULL) {
        return cli_fail(v->path, r == AVERROR_DECODER_NOT_FOUND ? "FFmpeg has no decoder for the video stream"
                                                                : "holds no video");
    }
    v->stream = v->format->streams[r];
    return video_decoder_open(v, codec);
}

int video_open_again(cli_video *v) {
    if (v->device == NULL) {
        v->how.hardware = CLI_DECODER_SOFTWARE; /* the note was already printed */
    }
    video_decoder_close(v);
    video_close_path(&v->format);
    av_frame_free(&v->ahead);
    v->drained = 0;
    v->given = 0;
    return open_input(v) == CLI_OK ? 0 : -1;
}

int cli_video_open(const char *path, const cli_video_decoding *how, cli_video **out) {
    av_log_set_level(AV_LOG_QUIET);
    cli_video *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return cli_fail(path, "out of memory");
    }
    v->path = path;
    v->how = *how;
    v->packet = av_packet_alloc();
    v->decoded = av_frame_alloc();
    int r = v->packet != NULL && v->decoded != NULL ? open_input(v) : cli_fail(path, "out of memory");
    r = r == CLI_OK ? look_at_first(v) : r;
    if (r != CLI_OK) {
        cli_video_close(v);
        return cli_interrupted() ? cli_stopped(path) : r;
    }
    *out = v;
    return CLI_OK;
}

const cli_video_facts *cli_video_about(const cli_video *v) {
    return &v->facts;
}

static int to_picture(cli_video *v, cli_picture *p) {
    char why[128];
    const cli_video_facts *f = &v->facts;
    if (v->rgb == NULL && (v->rgb = video_rgb_alloc(f->width, f->height, f->bits)) == NULL) {
        return cli_fail(v->path, "out of memory");
    }
    if (p->pixels == NULL || v->orientation != 1) { /* rotating replaced the memory and its shape */
        free(p->pixels);
        p->width = f->width;
        p->height = f->height;
        p->channels = 3;
        p->bits = f->bits;
        if (cli_picture_alloc(p) != 0) {
            return cli_fail(v->path, "out of memory");
        }
    }
    const int r = video_to_rgb(&v->to_rgb, v->frame, &v->colour, v->rgb);
    if (r < 0) {
        return cli_fail(v->path, "a frame (%s) cannot be converted to RGB: %s", video_pixels_name(v->frame->format),
                        video_error(r, why));
    }
    video_rgb_to_picture(v->rgb, p);
    return cli_picture_orient(p, v->orientation) == 0 ? CLI_OK : cli_fail(v->path, "out of memory");
}

int cli_video_read(cli_video *v, cli_picture *p, double *seconds) {
    if (v->frame == NULL && (v->frame = av_frame_alloc()) == NULL) {
        cli_fail(v->path, "out of memory");
        return -1;
    }
    const int r = video_decode(v, v->frame);
    if (r != 1) {
        return r;
    }
    const int status = to_picture(v, p);
    if (seconds != NULL) {
        *seconds = (double)(v->frame->pts - v->first_pts) * av_q2d(v->stream->time_base);
    }
    av_frame_unref(v->frame);
    return status == CLI_OK ? 1 : -1;
}

void cli_video_close(cli_video *v) {
    if (v == NULL) {
        return;
    }
    video_scaler_free(&v->to_rgb);
    av_frame_free(&v->ahead);
    av_frame_free(&v->frame);
    av_frame_free(&v->rgb);
    av_frame_free(&v->decoded);
    av_packet_free(&v->packet);
    video_decoder_close(v);
    video_close_path(&v->format);
    free(v);
}
