/* video_in.c - see video.h: a file or a pipe, its best video stream, decoded by hardware where that works. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video_priv.h"

const char *video_error(int code, char text[128]) {
    if (av_strerror(code, text, 128) < 0) {
        snprintf(text, 128, "error %d", code);
    }
    return text;
}

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

/* ---- decoders ---- */

static enum AVPixelFormat choose_format(AVCodecContext *c, const enum AVPixelFormat *offered) {
    const cli_video *v = c->opaque;
    for (const enum AVPixelFormat *p = offered; *p != AV_PIX_FMT_NONE; p++) {
        if (*p == v->device_format) {
            return *p;
        }
    }
    return avcodec_default_get_format(c, offered); /* this stream is none for the hardware */
}

/* The first device of any kind that the decoder knows and the machine has. */
static void find_device(cli_video *v, const AVCodec *codec) {
    const AVCodecHWConfig *hw = NULL;
    v->device_format = AV_PIX_FMT_NONE;
    for (int i = 0; (hw = avcodec_get_hw_config(codec, i)) != NULL; i++) {
        if ((hw->methods & AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX) != 0 &&
            av_hwdevice_ctx_create(&v->device, hw->device_type, NULL, NULL, 0) >= 0) {
            v->device_format = hw->pix_fmt;
            return;
        }
    }
}

static int open_decoder(cli_video *v, const AVCodec *codec, int hardware) {
    char why[128];
    v->decoder = avcodec_alloc_context3(codec);
    if (v->decoder == NULL || avcodec_parameters_to_context(v->decoder, v->stream->codecpar) < 0) {
        return cli_fail(v->path, "out of memory");
    }
    v->decoder->pkt_timebase = v->stream->time_base;
    v->decoder->thread_count = 0;
    v->decoder->opaque = v;
    if (hardware) {
        find_device(v, codec);
    }
    if (v->device != NULL) {
        v->decoder->hw_device_ctx = av_buffer_ref(v->device);
        v->decoder->get_format = choose_format;
        v->decoder->extra_hw_frames = 4; /* those that wait for their turn */
    }
    const int r = avcodec_open2(v->decoder, codec, NULL);
    return r < 0 ? cli_fail(v->path, "its video (%s) cannot be decoded: %s", codec->name, video_error(r, why)) : CLI_OK;
}

/* ---- frames ---- */

/* Feeds one packet of our stream, or the end. 0, or -1: told. */
static int feed(cli_video *v) {
    char why[128];
    for (;;) {
        int r = av_read_frame(v->format, v->packet);
        if (r == AVERROR_EOF) {
            v->drained = 1;
            avcodec_send_packet(v->decoder, NULL);
            return 0;
        }
        if (r < 0) {
            cli_fail(v->path, "cannot be read further: %s", video_error(r, why));
            return -1;
        }
        if (v->packet->stream_index == v->stream->index) {
            r = avcodec_send_packet(v->decoder, v->packet);
            av_packet_unref(v->packet);
            if (r < 0 && r != AVERROR(EAGAIN)) {
                if (!v->damaged++) {
                    cli_note(v->path, "damaged data is passed over (%s)", video_error(r, why));
                }
                continue;
            }
            return 0;
        }
        av_packet_unref(v->packet);
    }
}

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

/* Out of the device's memory. */
static int bring_home(cli_video *v, AVFrame *frame) {
    if (v->device == NULL || v->decoded->format != (int)v->device_format) {
        av_frame_move_ref(frame, v->decoded);
        return 0;
    }
    int r = av_hwframe_transfer_data(frame, v->decoded, 0);
    r = r < 0 ? r : av_frame_copy_props(frame, v->decoded);
    av_frame_unref(v->decoded);
    return r;
}

int video_decode(cli_video *v, AVFrame *frame) {
    char why[128];
    if (v->ahead != NULL) {
        av_frame_move_ref(frame, v->ahead);
        av_frame_free(&v->ahead);
        return 1;
    }
    for (;;) {
        int r = avcodec_receive_frame(v->decoder, v->decoded);
        if (r == AVERROR_EOF) {
            return 0;
        }
        if (r == AVERROR(EAGAIN) && !v->drained) {
            if (feed(v) != 0) {
                return -1;
            }
            continue;
        }
        r = r < 0 ? r : bring_home(v, frame);
        if (r < 0) {
            cli_fail(v->path, "its video cannot be decoded: %s", video_error(r, why));
            return -1;
        }
        set_times(v, frame);
        return 1;
    }
}

/* ---- going elsewhere ---- */

static int go_to(cli_video *v, int64_t pts) {
    if (av_seek_frame(v->format, v->stream->index, pts, AVSEEK_FLAG_BACKWARD) < 0) {
        return -1;
    }
    avcodec_flush_buffers(v->decoder);
    av_frame_free(&v->ahead);
    v->drained = 0;
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

static int open_input(cli_video *v, int hardware) {
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
    return open_decoder(v, codec, hardware);
}

int cli_video_open(const char *path, int hardware, cli_video **out) {
    av_log_set_level(AV_LOG_QUIET);
    cli_video *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return cli_fail(path, "out of memory");
    }
    v->path = path;
    v->device_format = AV_PIX_FMT_NONE;
    v->packet = av_packet_alloc();
    v->decoded = av_frame_alloc();
    int r = v->packet != NULL && v->decoded != NULL ? open_input(v, hardware) : cli_fail(path, "out of memory");
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
    avcodec_free_context(&v->decoder);
    av_buffer_unref(&v->device);
    avformat_close_input(&v->format);
    free(v);
}
