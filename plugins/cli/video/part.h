/* part.h - between part.c, which knows the format of a part, format.c, which opens encoders,
 * streams.c and join.c. */
#ifndef DAVY_CLI_VIDEO_PART_H
#define DAVY_CLI_VIDEO_PART_H

#include <stdio.h>

#include "plugins/cli/video/out.h"

/* 0, or FFmpeg's error. */
int video_encoder_open(const video_format *f, AVCodecContext **out);

typedef struct video_part_reader {
    FILE *f;
    int64_t codec;
    uint8_t *extradata; /* padded */
    int extradata_size;
    video_part_info info; /* once the end has been reached */
} video_part_reader;

/* 0, or -1. close takes one in any state, also a zeroed one. */
int video_part_open(const char *path, video_part_reader *r);
void video_part_close(video_part_reader *r);
/* The next packet, in the order of decoding; packet NULL: its time only. 1; 0: the end; -1: the part is damaged. */
int video_part_next(video_part_reader *r, int64_t *pts, AVPacket *packet);

/* ---- streams.c: what a file holds besides packets; 0, or FFmpeg's error ---- */

/* The upscaled video; v: whose it is, or NULL. */
int video_add_stream(AVFormatContext *out, const cli_video *v, const video_format *f);
/* Whether a file of this kind holds such a stream. */
int video_takes(const AVOutputFormat *container, enum AVCodecID codec);

/* text.c. form: which one of the container's a stream of text can become; AV_CODEC_ID_NONE: none, or it is no text.
 * open: parameters become the new form's; 0, or FFmpeg's error. turn: the packet in its new form; 0: nothing is left of it.
 * close takes NULL. */
typedef struct video_text video_text;
enum AVCodecID video_text_form(const AVOutputFormat *container, const AVStream *s);
int video_text_open(const AVStream *s, enum AVCodecID form, AVCodecParameters *parameters, video_text **out);
int video_text_turn(video_text *t, AVPacket *p);
void video_text_close(video_text *t);

typedef struct video_other { /* a stream of the input beside its video; zeroed: none */
    int kept;                /* there are packets for it */
    int to;                  /* which one of the output's it is */
    video_text *text;        /* NULL: as it is */
    int64_t last;            /* time of decoding of its last packet, in the output's time base; see join.c */
    int begun;
} video_other;

/* All that `out` can hold but stream number `video`; others: as many as `in` has streams, zeroed, video_text_close later.
 * path: what notes begin with; NULL: none. */
int video_add_others(AVFormatContext *out, const AVFormatContext *in, int video, const char *path, video_other *others);
int video_add_chapters(AVFormatContext *out, const AVFormatContext *in); /* and tags */

#endif
