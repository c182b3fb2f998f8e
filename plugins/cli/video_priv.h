/* video_priv.h - what the files video_*.c share that see FFmpeg's headers. Timestamps are in the source stream's time base
 * everywhere. */
#ifndef DAVY_CLI_VIDEO_PRIV_H
#define DAVY_CLI_VIDEO_PRIV_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

#include "plugins/cli/video.h"

/* What the numbers of a picture mean. Unspecified matrices are settled: BT.709 from 720 rows on, else BT.601. */
typedef struct video_colour {
    enum AVColorSpace matrix;
    enum AVColorPrimaries primaries;
    enum AVColorTransferCharacteristic transfer;
    enum AVColorRange range;
    enum AVChromaLocation siting;
} video_colour;

/* One conversion between a kind of AVFrame and packed RGB, made anew when the frame's kind changes. */
typedef struct video_scaler {
    struct SwsContext *sws;
    int w, h, format; /* of the frame */
} video_scaler;

/* Packets that a hardware decoder has had and software can go on from. */
typedef struct video_kept {
    AVPacket **packets; /* the first is a key frame's */
    size_t n, room;
    int64_t bytes;
    int64_t
        key; /* when the first key frame behind that one, packets[key_at], is shown; AV_NOPTS_VALUE: there is none */
    size_t key_at;
    int64_t frames; /* that have come of them */
    int64_t last;   /* when the last of these is shown */
    int lost;       /* there were too many: they are not kept any more */
} video_kept;

struct cli_video {
    const char *path;
    cli_video_decoding how;
    AVFormatContext *format;
    AVStream *stream;
    const AVCodec *codec, *software; /* in use; the one that needs no hardware */
    AVCodecContext *decoder;
    AVBufferRef *device; /* of a hardware decoder; NULL: software decodes */
    enum AVHWDeviceType device_type;
    enum AVPixelFormat device_format;
    int refused; /* the hardware takes no such stream */
    video_kept kept;
    AVPacket *packet;
    AVFrame *decoded;
    AVFrame *ahead; /* decoded already; NULL: none */
    AVFrame *frame; /* of cli_video_read */
    int drained, damaged;
    int64_t last_pts; /* of the frame decoded last; AV_NOPTS_VALUE: none */
    int64_t first_pts;
    int64_t step; /* ticks of a frame whose duration nobody tells */
    int interlaced;
    cli_video_facts facts;
    video_colour colour;
    video_scaler to_rgb;
};

/* video_decoder.c. open: on hardware if v->how says so and it can be. frame: the next one, in host memory, as FFmpeg gives it;
 * 1, 0: the end, -1: told. flush: behind it anything may come. */
int video_decoder_open(cli_video *v, const AVCodec *codec);
int video_decoder_frame(cli_video *v, AVFrame *frame);
void video_decoder_flush(cli_video *v);
void video_decoder_close(cli_video *v);
/* "h264", or "h264 on cuda". */
const char *video_decoder_name(const cli_video *v, char text[64]);

/* The next frame, in host memory, with pts (rising by at least 1) and duration set. 1, 0: the end, -1: told. */
int video_decode(cli_video *v, AVFrame *frame);
/* From the beginning of the file to behind the frame of this pts, number `count`: the next video_decode gives the frame
 * after it. 0, or -1: told. */
int video_skip(cli_video *v, int64_t last_pts, int64_t count);

/* video_colour.c. Both return 0, or -1: out of memory or not convertible. */
int video_to_rgb(video_scaler *s, const AVFrame *frame, const video_colour *colour, cli_picture *rgb);
/* frame: its buffers, format and size are there; rgb is scaled to it where sizes differ, what is odd is cut off. */
int video_from_rgb(video_scaler *s, const cli_picture *rgb, const video_colour *colour, AVFrame *frame);
void video_scaler_free(video_scaler *s);
/* As cli_picture_alloc, with room behind the last row, where swscale reads and writes in vectors. */
int video_picture_alloc(cli_picture *p);
video_colour video_colour_of(const AVFrame *frame);
int video_bits_of(int pixel_format); /* of a sample */

int64_t video_duration(const AVFrame *frame);
void video_set_duration(AVFrame *frame, int64_t ticks);
/* What happened to an FFmpeg call, as a word or two. Not for several threads at once. */
const char *video_error(int code, char text[128]);

#endif
