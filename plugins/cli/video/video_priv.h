/* video_priv.h - shared by the files of this folder that include FFmpeg's headers. Timestamps are in the source stream's time
 * base. */
#ifndef DAVY_CLI_VIDEO_PRIV_H
#define DAVY_CLI_VIDEO_PRIV_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/dovi_meta.h>
#include <libavutil/mastering_display_metadata.h>
#include <libswscale/swscale.h>

#include "plugins/cli/video/video.h"

/* The colour description of a video. An unspecified matrix is replaced: BT.709 from 720 rows on, else BT.601. */
typedef struct video_colour {
    enum AVColorSpace matrix;
    enum AVColorPrimaries primaries;
    enum AVColorTransferCharacteristic transfer;
    enum AVColorRange range;
    enum AVChromaLocation siting;
} video_colour;

/* Static HDR metadata. */
typedef struct video_hdr {
    int has_display, has_light;
    AVMasteringDisplayMetadata display;
    AVContentLightMetadata light;
    const char *dynamic; /* name of the dynamic metadata, which is left out; NULL: none */
    int alone;           /* the colours are wrong without `dynamic` */
} video_hdr;

/* A conversion between an AVFrame and RGB, created again if the size or format of the frame changes. */
typedef struct video_scaler {
    int threads; /* number of threads per frame; 0: one. Does not change the result */
    struct SwsContext *sws;
    int w, h, format; /* of the frame */
} video_scaler;

/* Makes the times of all packets of a file continuous, in the order of the file. Zeroed: at the beginning. */
enum { VIDEO_CLOCK_STREAMS = 64 }; /* later streams use the offset of the others */
typedef struct video_clock {
    int64_t offset; /* in AV_TIME_BASE, added to all times */
    int64_t next[VIDEO_CLOCK_STREAMS];
    char seen[VIDEO_CLOCK_STREAMS];
} video_clock;

/* Packets that the hardware decoder received, kept so that software can decode them again. */
typedef struct video_kept {
    AVPacket **packets; /* the first one is a key frame */
    size_t n, room;
    int64_t bytes;
    int64_t key; /* time of the next key frame, packets[key_at]; AV_NOPTS_VALUE: none */
    size_t key_at;
    int64_t frames; /* decoded from these packets; once packets are lost, from the beginning of the file */
    int64_t last;   /* time of the last decoded frame */
    int lost;       /* too many packets: they are no longer kept */
} video_kept;

struct cli_video {
    const char *path;
    cli_video_decoding how;
    AVFormatContext *format;
    AVStream *stream;
    const AVCodec *codec, *software; /* codec: in use; software: without hardware */
    AVCodecContext *decoder;
    AVBufferRef *device; /* of the hardware decoder; NULL: software decodes */
    enum AVHWDeviceType device_type;
    enum AVPixelFormat device_format;
    int refused;   /* the hardware does not support the stream */
    int64_t given; /* frames returned since the beginning of the file */
    video_kept kept;
    video_clock clock;
    AVPacket *packet;
    AVFrame *decoded;
    AVFrame *ahead;       /* decoded in advance; NULL: none */
    AVFrame *frame, *rgb; /* of cli_video_read */
    int drained, damaged;
    int64_t last_pts; /* of the last decoded frame; AV_NOPTS_VALUE: none */
    int64_t first_pts;
    int64_t step; /* duration in ticks of a frame without one */
    int interlaced, alpha;
    int orientation; /* rotation for display as an EXIF number; 1: none */
    video_hdr hdr;
    cli_video_facts facts;
    video_colour colour;
    video_scaler to_rgb;
};

/* decoder.c. open: opens hardware if v->how allows it and hardware exists. frame: reads the next frame into host memory;
 * returns 1, 0: the end, -1: failed, the error is printed. flush: call it after a seek. */
int video_decoder_open(cli_video *v, const AVCodec *codec);
int video_decoder_frame(cli_video *v, AVFrame *frame);
void video_decoder_flush(cli_video *v);
void video_decoder_close(cli_video *v);
/* "h264", or "h264 on cuda". */
const char *video_decoder_name(const cli_video *v, char text[64]);

/* Reads the next frame into host memory and sets pts (rising by at least 1) and duration. Returns 1, 0: the end, -1: failed, the
 * error is printed. */
int video_decode(cli_video *v, AVFrame *frame);
/* Skips the first `count` frames, the last of which has this pts. The next video_decode returns the frame after it. Returns 0,
 * or -1: failed, the error is printed. */
int video_skip(cli_video *v, int64_t last_pts, int64_t count);

/* clock.c: makes the times of a packet continuous if those of a recording jump. */
void video_clock_set(video_clock *c, const AVFormatContext *f, AVPacket *p);

/* colour.c. Both return 0, or FFmpeg's error: out of memory, or not convertible. The caller has allocated both frames. */
int video_to_rgb(video_scaler *s, const AVFrame *frame, const video_colour *colour, AVFrame *rgb);
/* Scales rgb to the frame if the sizes differ. An odd last row or column is cut off. */
int video_from_rgb(video_scaler *s, const AVFrame *rgb, const video_colour *colour, AVFrame *frame);
void video_scaler_free(video_scaler *s);
/* Allocates RGB of 8 or 16 bits with rows aligned for swscale. NULL: out of memory. */
AVFrame *video_rgb_alloc(uint32_t width, uint32_t height, uint32_t bits);
/* Copy between such a frame and an allocated picture of the same size. */
void video_rgb_to_picture(const AVFrame *rgb, cli_picture *p);
void video_rgb_of_picture(AVFrame *rgb, const cli_picture *p);
video_colour video_colour_of(const AVFrame *frame);
int video_bits_of(int pixel_format); /* bits per sample */
const char *video_pixels_name(int pixel_format);

/* hdr.c */
void video_hdr_of(const AVStream *stream, const AVFrame *frame, video_hdr *out);
/* Adds the metadata that the stream does not have yet. Returns 0, or FFmpeg's error. */
int video_hdr_to_stream(const video_hdr *h, AVStream *to);
/* Further parameters for libx265: empty, or ":name=value" once or twice. */
void video_hdr_x265(const video_hdr *h, char text[256]);

/* streams.c. video_side_data returns NULL if there is none; video_set_side_data returns 0, or FFmpeg's error. */
const uint8_t *video_side_data(const AVStream *s, enum AVPacketSideDataType type, size_t *bytes);
int video_set_side_data(AVStream *s, enum AVPacketSideDataType type, const void *data, size_t bytes);

/* pipe.c: whether the video can be read only once: standard input, a FIFO, the shell's <(...). */
int video_is_piped(const cli_video *v);
/* reader.c: opens the video again at its beginning; with software if the device was closed. Returns 0, or -1: failed, the error
 * is printed. */
int video_open_again(cli_video *v);

/* pipe.c: opens a file, a pipe, or standard input ("-"). A name is never read as a URL. Returns 0, or FFmpeg's error. close
 * takes a pointer to NULL, too. */
int video_open_path(const char *path, AVFormatContext **out);
void video_close_path(AVFormatContext **f);

int64_t video_duration(const AVFrame *frame);
void video_set_duration(AVFrame *frame, int64_t ticks);
/* The text of an FFmpeg error. */
const char *video_error(int code, char text[128]);

#endif
