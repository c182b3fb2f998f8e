/* video_priv.h - what the files of this folder share that see FFmpeg's headers. Timestamps are in the source stream's time base
 * everywhere. */
#ifndef DAVY_CLI_VIDEO_PRIV_H
#define DAVY_CLI_VIDEO_PRIV_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/dovi_meta.h>
#include <libavutil/mastering_display_metadata.h>
#include <libswscale/swscale.h>

#include "plugins/cli/video/video.h"

/* What the numbers of a picture mean. Unspecified matrices are settled: BT.709 from 720 rows on, else BT.601. */
typedef struct video_colour {
    enum AVColorSpace matrix;
    enum AVColorPrimaries primaries;
    enum AVColorTransferCharacteristic transfer;
    enum AVColorRange range;
    enum AVChromaLocation siting;
} video_colour;

/* Of HDR, static. */
typedef struct video_hdr {
    int has_display, has_light;
    AVMasteringDisplayMetadata display;
    AVContentLightMetadata light;
    const char *dynamic; /* what there is of it and is not kept; NULL: nothing */
    int alone;           /* colours mean nothing without `dynamic` */
} video_hdr;

/* One conversion between a kind of AVFrame and RGB, made anew when the frame's kind changes. */
typedef struct video_scaler {
    int threads; /* that share a frame; 0: one. The result is the same */
    struct SwsContext *sws;
    int w, h, format; /* of the frame */
} video_scaler;

/* Of a file's packets, all of them, in the order of the file. Zeroed: at its beginning. */
enum { VIDEO_CLOCK_STREAMS = 64 }; /* streams beyond follow the others */
typedef struct video_clock {
    int64_t offset; /* in AV_TIME_BASE, what has been added so far */
    int64_t next[VIDEO_CLOCK_STREAMS];
    char seen[VIDEO_CLOCK_STREAMS];
} video_clock;

/* Packets that a hardware decoder has had and software can go on from. */
typedef struct video_kept {
    AVPacket **packets; /* the first is a key frame's */
    size_t n, room;
    int64_t bytes;
    int64_t
        key; /* when the first key frame behind that one, packets[key_at], is shown; AV_NOPTS_VALUE: there is none */
    size_t key_at;
    int64_t frames; /* that have come of them; of all since the beginning once packets are lost */
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
    int refused;   /* the hardware takes no such stream */
    int64_t given; /* frames since the file's beginning */
    video_kept kept;
    video_clock clock;
    AVPacket *packet;
    AVFrame *decoded;
    AVFrame *ahead;       /* decoded already; NULL: none */
    AVFrame *frame, *rgb; /* of cli_video_read */
    int drained, damaged;
    int64_t last_pts; /* of the frame decoded last; AV_NOPTS_VALUE: none */
    int64_t first_pts;
    int64_t step; /* ticks of a frame whose duration nobody tells */
    int interlaced, alpha;
    int orientation; /* how it is turned when it is shown, a number of EXIF's; 1: not at all */
    video_hdr hdr;
    cli_video_facts facts;
    video_colour colour;
    video_scaler to_rgb;
};

/* decoder.c. open: on hardware if v->how says so and it can be. frame: the next one, in host memory, as FFmpeg gives it;
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

/* clock.c: the packet's times, so that they go on where a recording's jump. */
void video_clock_set(video_clock *c, const AVFormatContext *f, AVPacket *p);

/* colour.c. Both return 0, or FFmpeg's error: out of memory or not convertible. Buffers, formats and sizes are there. */
int video_to_rgb(video_scaler *s, const AVFrame *frame, const video_colour *colour, AVFrame *rgb);
/* rgb is scaled to the frame where sizes differ, what is odd is cut off. */
int video_from_rgb(video_scaler *s, const AVFrame *rgb, const video_colour *colour, AVFrame *frame);
void video_scaler_free(video_scaler *s);
/* RGB of 8 or 16 bits, its rows as far apart as swscale likes them. NULL: out of memory. */
AVFrame *video_rgb_alloc(uint32_t width, uint32_t height, uint32_t bits);
/* Between such a frame and a picture of its size that is there. */
void video_rgb_to_picture(const AVFrame *rgb, cli_picture *p);
void video_rgb_of_picture(AVFrame *rgb, const cli_picture *p);
video_colour video_colour_of(const AVFrame *frame);
int video_bits_of(int pixel_format); /* of a sample */
const char *video_pixels_name(int pixel_format);

/* hdr.c */
void video_hdr_of(const AVStream *stream, const AVFrame *frame, video_hdr *out);
/* What the stream does not have already. 0, or FFmpeg's error. */
int video_hdr_to_stream(const video_hdr *h, AVStream *to);
/* As further parameters of libx265: empty, or ":name=value" once or twice. */
void video_hdr_x265(const video_hdr *h, char text[256]);

/* streams.c: NULL: there is none. 0, or FFmpeg's error. */
const uint8_t *video_side_data(const AVStream *s, enum AVPacketSideDataType type, size_t *bytes);
int video_set_side_data(AVStream *s, enum AVPacketSideDataType type, const void *data, size_t bytes);

/* in.c: whether it can be read only once: standard input, a FIFO, what a shell makes of <(...). */
int video_is_piped(const cli_video *v);
/* From its beginning, as it was when it was opened; by software if there is no device any more. 0, or -1: told. */
int video_open_again(cli_video *v);

/* pipe.c: a file, whatever its name looks like, "-", or a pipe of this name. 0, or FFmpeg's error. close: of NULL, too. */
int video_open_path(const char *path, AVFormatContext **out);
void video_close_path(AVFormatContext **f);

int64_t video_duration(const AVFrame *frame);
void video_set_duration(AVFrame *frame, int64_t ticks);
/* What happened to an FFmpeg call, as a word or two. Not for several threads at once. */
const char *video_error(int code, char text[128]);

#endif
