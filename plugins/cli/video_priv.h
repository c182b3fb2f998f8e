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

struct cli_video {
    const char *path;
    AVFormatContext *format;
    AVStream *stream;
    AVCodecContext *decoder;
    AVBufferRef *device; /* of a hardware decoder; NULL: none */
    enum AVPixelFormat device_format;
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
