/* decoder.c - see video_priv.h: decodes packets to frames in host memory, on hardware if possible. If the hardware fails, software
 * decodes the packets since the last key frame again, and no frame is lost. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/video_priv.h"

/* Limit of the kept packets: minutes between two key frames. */
static const int64_t KEPT_BYTES = (int64_t)256 << 20;

enum { TOLD = INT_MIN }; /* in place of FFmpeg's errors: a failure that has been printed */

const char *video_error(int code, char text[128]) {
    if (av_strerror(code, text, 128) < 0) {
        snprintf(text, 128, "error %d", code);
    }
    return text;
}

/* ---- kept packets ---- */

static void forget(video_kept *k, size_t n) {
    for (size_t i = 0; i < k->n; i++) {
        if (i < n) {
            k->bytes -= k->packets[i]->size;
            av_packet_free(&k->packets[i]);
        } else {
            k->packets[i - n] = k->packets[i];
        }
    }
    k->n -= n;
}

static void forget_all(video_kept *k) {
    forget(k, k->n);
    free(k->packets);
    *k = (video_kept){.key = AV_NOPTS_VALUE, .last = AV_NOPTS_VALUE};
}

static int make_room(video_kept *k) {
    const size_t room = k->room > 0 ? 2 * k->room : 64;
    AVPacket **more = k->n < k->room ? k->packets : realloc(k->packets, room * sizeof *more);
    if (more == NULL) {
        return -1;
    }
    k->room = k->n < k->room ? k->room : room;
    k->packets = more;
    return 0;
}

static void keep(video_kept *k, const AVPacket *p) {
    AVPacket *copy = k->lost || make_room(k) != 0 ? NULL : av_packet_clone(p);
    if (copy == NULL || k->bytes + p->size > KEPT_BYTES) {
        const int64_t last = k->last;
        av_packet_free(&copy);
        forget_all(k);
        k->last = last;
        k->lost = 1;
        return;
    }
    if ((p->flags & AV_PKT_FLAG_KEY) != 0 && p->pts != AV_NOPTS_VALUE && k->key == AV_NOPTS_VALUE && k->n > 0) {
        k->key = p->pts;
        k->key_at = k->n;
    }
    k->packets[k->n++] = copy;
    k->bytes += p->size;
}

/* Counts a decoded frame. Once a key frame was returned, the packets before it are not needed. */
static void shown(video_kept *k, int64_t time) {
    k->frames++;
    k->last = time;
    if (k->key != AV_NOPTS_VALUE && time != AV_NOPTS_VALUE && time >= k->key) {
        forget(k, k->key_at);
        k->key = AV_NOPTS_VALUE;
        k->frames = 1;
    }
}

/* Whether the hardware already returned this frame of the software decoder: by its time, or by counting if there are no times. */
static int came_before(video_kept *k, int64_t time) {
    const int timed = time != AV_NOPTS_VALUE && k->last != AV_NOPTS_VALUE;
    if (k->frames > 0 && (timed ? time <= k->last : 1)) {
        k->frames -= !timed;
        return 1;
    }
    k->frames = 0;
    return 0;
}

/* ---- opening ---- */

static enum AVPixelFormat choose_format(AVCodecContext *c, const enum AVPixelFormat *offered) {
    cli_video *v = c->opaque;
    for (const enum AVPixelFormat *p = offered; *p != AV_PIX_FMT_NONE; p++) {
        if (*p == v->device_format) {
            return *p;
        }
    }
    v->refused = 1; /* FFmpeg calls again without the hardware format if the hardware does not support the stream */
    return avcodec_default_get_format(c, offered);
}

static int open_device(cli_video *v, const AVCodecHWConfig *hw) {
    const char *d = v->how.device;
    const int number = hw->device_type == AV_HWDEVICE_TYPE_CUDA && d != NULL && strncmp(d, "cuda:", 5) == 0 &&
                       d[5] >= '0' && d[5] <= '9'; /* FFmpeg ignores the text after the number */
    if ((hw->methods & AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX) == 0 ||
        av_hwdevice_ctx_create(&v->device, hw->device_type, number ? d + 5 : NULL, NULL, 0) < 0) {
        return 0;
    }
    v->device_type = hw->device_type;
    v->device_format = hw->pix_fmt;
    return 1;
}

/* Opens the computing GPU, else the first device that the decoder supports and the computer has. */
static int find_device(cli_video *v, const AVCodec *codec) {
    for (int other = 0; codec != NULL && other < 2; other++) {
        const AVCodecHWConfig *hw = NULL;
        for (int i = 0; (hw = avcodec_get_hw_config(codec, i)) != NULL; i++) {
            if ((hw->device_type != AV_HWDEVICE_TYPE_CUDA) == other && open_device(v, hw)) {
                v->codec = codec;
                return 1;
            }
        }
    }
    return 0;
}

static int open_codec(cli_video *v) {
    char why[128];
    v->decoder = avcodec_alloc_context3(v->codec);
    if (v->decoder == NULL || avcodec_parameters_to_context(v->decoder, v->stream->codecpar) < 0) {
        return cli_fail(v->path, "out of memory");
    }
    v->decoder->pkt_timebase = v->stream->time_base;
    v->decoder->opaque = v;
    v->decoder->flags |= AV_CODEC_FLAG_UNALIGNED; /* crops exactly to the pixel */
    if (v->device != NULL) {
        v->decoder->hw_device_ctx = av_buffer_ref(v->device);
        v->decoder->get_format = choose_format;
        v->decoder->thread_count = 1; /* each thread takes one of the decoder's 32 surfaces */
    } else {
        v->decoder->thread_count = 0;
    }
    const int r = avcodec_open2(v->decoder, v->codec, NULL);
    return r < 0 ? cli_fail(v->path, "the video stream (%s) cannot be decoded: %s", v->codec->name, video_error(r, why))
                 : CLI_OK;
}

int video_decoder_open(cli_video *v, const AVCodec *codec) {
    v->codec = v->software = codec;
    v->device_format = AV_PIX_FMT_NONE;
    v->kept = (video_kept){.key = AV_NOPTS_VALUE, .last = AV_NOPTS_VALUE};
    if (v->how.hardware != CLI_DECODER_SOFTWARE && !find_device(v, codec) &&
        !find_device(v, avcodec_find_decoder_by_name(
                            avcodec_get_name(codec->id))) && /* the hardware decoder of AV1 is a separate codec */
        v->how.hardware == CLI_DECODER_HARDWARE) {
        cli_note(v->path, "no hardware decoder for %s was found; software decodes the video",
                 avcodec_get_name(codec->id));
    }
    return open_codec(v);
}

void video_decoder_close(cli_video *v) {
    forget_all(&v->kept);
    avcodec_free_context(&v->decoder);
    av_buffer_unref(&v->device);
}

void video_decoder_flush(cli_video *v) {
    avcodec_flush_buffers(v->decoder);
    forget_all(&v->kept);
    v->drained = 0;
}

const char *video_decoder_name(const cli_video *v, char text[64]) {
    const char *on = v->device != NULL ? av_hwdevice_get_type_name(v->device_type) : NULL;
    snprintf(text, 64, on != NULL ? "%s on %s" : "%s", v->codec->name, on);
    return text;
}

/* ---- from hardware to software ---- */

static void tell_software(const cli_video *v, int error) {
    char why[128];
    const char *kind = av_hwdevice_get_type_name(v->device_type);
    if (v->refused) {
        cli_note(v->path, "the hardware decoder (%s) does not support %s with %s; software decodes the video", kind,
                 v->codec->name, video_pixels_name(v->decoder->sw_pix_fmt));
    } else {
        cli_note(v->path, "the hardware decoder (%s) failed: %s; software continues%s", kind, video_error(error, why),
                 v->kept.lost ? " after it has decoded the video again from the beginning" : "");
    }
}

/* Used if too many packets followed the last key frame to keep them: software decodes the file from its beginning, and the
 * frames that were already returned are dropped. Returns 0, or TOLD. */
static int begin_again(cli_video *v, int error) {
    char why[128];
    const video_kept came = {.key = AV_NOPTS_VALUE, .last = v->kept.last, .frames = v->given};
    if (video_is_piped(v)) {
        cli_fail(v->path, "the hardware decoder (%s) failed: %s; use --decoder software",
                 av_hwdevice_get_type_name(v->device_type), video_error(error, why));
        return TOLD;
    }
    tell_software(v, error);
    av_frame_unref(v->decoded);
    av_buffer_unref(&v->device);
    v->refused = 0;
    if (video_open_again(v) != 0) {
        return TOLD;
    }
    v->kept = came;
    v->given = came.frames;
    return 0;
}

/* Continues with the software decoder. error: of the hardware; unused if it refused the stream. Returns 0, or TOLD. */
static int leave_hardware(cli_video *v, int error) {
    if (v->kept.lost) {
        return begin_again(v, error);
    }
    tell_software(v, error);
    av_frame_unref(v->decoded);
    avcodec_free_context(&v->decoder);
    av_buffer_unref(&v->device);
    v->codec = v->software;
    v->device_format = AV_PIX_FMT_NONE;
    v->refused = 0;
    v->drained = 0;
    return open_codec(v) == CLI_OK ? 0 : TOLD;
}

/* ---- frames ---- */

/* Reads the next packet of the stream into v->packet: a kept one that software decodes again, or the next one of the file. */
static int next_packet(cli_video *v) {
    if (v->device == NULL && v->kept.n > 0) {
        const int r = av_packet_ref(v->packet, v->kept.packets[0]);
        forget(&v->kept, 1);
        return r;
    }
    for (;;) {
        const int r = av_read_frame(v->format, v->packet);
        if (r < 0) {
            return r;
        }
        video_clock_set(&v->clock, v->format, v->packet);
        if (v->packet->stream_index == v->stream->index) {
            return 0;
        }
        av_packet_unref(v->packet);
    }
}

/* Sends one packet, or the end, to the decoder. Returns 0, an error of the decoder, or TOLD. */
static int feed(cli_video *v) {
    char why[128];
    int r = next_packet(v);
    if (r == AVERROR_EOF) {
        v->drained = 1;
        avcodec_send_packet(v->decoder, NULL);
        return 0;
    }
    if (r < 0) {
        if (!cli_interrupted()) { /* the caller prints the interrupt */
            cli_fail(v->path, "cannot be read to the end: %s", video_error(r, why));
        }
        return TOLD;
    }
    if (v->device != NULL) {
        keep(&v->kept, v->packet);
    }
    r = avcodec_send_packet(v->decoder, v->packet);
    av_packet_unref(v->packet);
    return r;
}

/* Copies a frame from device memory. Of a frame in device memory FFmpeg crops right and bottom only; left and top follow here. */
static int bring_home(cli_video *v, AVFrame *frame) {
    if (v->device == NULL) {
        av_frame_move_ref(frame, v->decoded);
        return 0;
    }
    int r = av_hwframe_transfer_data(frame, v->decoded, 0);
    r = r < 0 ? r : av_frame_copy_props(frame, v->decoded);
    if (r >= 0) {
        frame->crop_left = v->decoded->crop_left;
        frame->crop_top = v->decoded->crop_top;
        r = av_frame_apply_cropping(frame, AV_FRAME_CROP_UNALIGNED);
    }
    av_frame_unref(v->decoded);
    if (r < 0) {
        av_frame_unref(frame);
    }
    return r;
}

/* Returns 1: a frame; 0: call again; AVERROR_EOF; an error; or TOLD. */
static int step(cli_video *v, AVFrame *frame) {
    int r = avcodec_receive_frame(v->decoder, v->decoded);
    if (r == AVERROR(EAGAIN) && !v->drained) {
        r = feed(v);
    } else if (r >= 0) {
        r = v->refused ? 0 : bring_home(v, frame);
        r = r < 0 || v->refused ? r : 1;
    }
    if (v->device != NULL && r != TOLD && (v->refused || (r < 0 && r != AVERROR_EOF))) {
        return leave_hardware(v, r);
    }
    return r;
}

static int told(const cli_video *v, int r) {
    if (r != TOLD) {
        cli_fail(v->path, "the video cannot be decoded: out of memory");
    }
    return -1;
}

int video_decoder_frame(cli_video *v, AVFrame *frame) {
    char why[128];
    for (;;) {
        const int r = step(v, frame);
        if (r == 1) {
            const int64_t time = frame->best_effort_timestamp;
            if (v->device != NULL) {
                shown(&v->kept, time);
            }
            if (v->device != NULL || !came_before(&v->kept, time)) {
                v->given++;
                return 1;
            }
            av_frame_unref(frame);
            if (cli_interrupted()) {
                return -1;
            }
        } else if (r == AVERROR_EOF) {
            return 0;
        } else if (r == TOLD || r == AVERROR(ENOMEM)) {
            return told(v, r);
        } else if (r < 0 && !v->damaged++) {
            cli_note(v->path, "damaged data is skipped (%s)", video_error(r, why));
        }
    }
}
