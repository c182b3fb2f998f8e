/* video_in.c - see video.h: a file or a pipe, and the frames of its best video stream. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video_priv.h"

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

/* Times that rise, and durations. */
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

/* ---- going elsewhere ---- */

static int go_to(cli_video *v, int64_t pts) {
    if (av_seek_frame(v->format, v->stream->index, pts, AVSEEK_FLAG_BACKWARD) < 0) {
        return -1;
    }
    video_decoder_flush(v);
    av_frame_free(&v->ahead);
    v->last_pts = AV_NOPTS_VALUE;
    return 0;
}

/* Decodes until the frame behind `last_pts` is ahead. 1; 0: the first frame is behind it already; -1: told. */
static int decode_to(cli_video *v, int64_t last_pts, int64_t count) {
    AVFrame *f = av_frame_alloc();
    int r = f != NULL ? 1 : -1;
    for (int64_t seen = 0; r == 1; seen++) {
        r = video_decode(v, f);
        const int behind = r == 1 && (count > 0 ? seen >= count : f->pts > last_pts);
        if (behind && count == 0 && seen == 0) {
            r = 0;
        } else if (behind) {
            v->ahead = f;
            return 1;
        } else if (r == 0) {
            r = 1; /* nothing is behind it: the end has been reached */
            break;
        }
        av_frame_unref(f);
        if (cli_interrupted()) {
            r = -1;
        }
    }
    av_frame_free(&f);
    return r;
}

int video_skip(cli_video *v, int64_t last_pts, int64_t count) {
    int r = go_to(v, last_pts) == 0 ? decode_to(v, last_pts, 0) : 0;
    if (r == 0) { /* this file cannot be entered there: all of it is decoded, and frames are counted */
        if (go_to(v, v->first_pts) != 0) {
            cli_fail(v->path, "cannot be read from the beginning again");
            return -1;
        }
        r = decode_to(v, last_pts, count);
    }
    return r < 0 ? -1 : 0;
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
        return r == 0 ? cli_fail(v->path, "its video has no frame that can be decoded") : CLI_FAILED;
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
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    v->interlaced = (first->flags & AV_FRAME_FLAG_INTERLACED) != 0;
#else
    v->interlaced = first->interlaced_frame;
#endif
    return CLI_OK;
}

static int open_input(cli_video *v) {
    char why[128];
    const AVCodec *codec = NULL;
    const int piped = strcmp(v->path, "-") == 0;
    int r = avformat_open_input(&v->format, piped ? "pipe:0" : v->path, NULL, NULL);
    r = r < 0 ? r : avformat_find_stream_info(v->format, NULL);
    if (r < 0) {
        return cli_fail(v->path, "cannot be read as a video: %s", video_error(r, why));
    }
    r = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (r < 0 || codec == NULL) {
        return cli_fail(v->path,
                        r == AVERROR_DECODER_NOT_FOUND ? "FFmpeg has no decoder for its video" : "holds no video");
    }
    v->stream = v->format->streams[r];
    return video_decoder_open(v, codec);
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
        return r;
    }
    *out = v;
    return CLI_OK;
}

const cli_video_facts *cli_video_about(const cli_video *v) {
    return &v->facts;
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
    if (p->pixels == NULL) {
        p->width = v->facts.width;
        p->height = v->facts.height;
        p->channels = 3;
        p->bits = v->facts.bits;
    }
    int done = 1;
    if ((p->pixels == NULL && video_picture_alloc(p) != 0) || video_to_rgb(&v->to_rgb, v->frame, &v->colour, p) != 0) {
        cli_fail(v->path, "a frame cannot be converted to RGB");
        done = -1;
    }
    if (seconds != NULL) {
        *seconds = (double)(v->frame->pts - v->first_pts) * av_q2d(v->stream->time_base);
    }
    av_frame_unref(v->frame);
    return done;
}

void cli_video_close(cli_video *v) {
    if (v == NULL) {
        return;
    }
    video_scaler_free(&v->to_rgb);
    av_frame_free(&v->ahead);
    av_frame_free(&v->frame);
    av_frame_free(&v->decoded);
    av_packet_free(&v->packet);
    video_decoder_close(v);
    avformat_close_input(&v->format);
    free(v);
}
