/* part.h - shared by part.c (file format of a part), format.c (encoders), streams.c, text.c and join.c. */
#ifndef DAVY_CLI_VIDEO_PART_H
#define DAVY_CLI_VIDEO_PART_H

#include <stdio.h>

#include "plugins/cli/video/out.h"

/* Returns 0, or FFmpeg's error. */
int video_encoder_open(const video_format *f, AVCodecContext **out);

typedef struct video_part_reader {
    FILE *f;
    int64_t codec;
    uint8_t *extradata; /* padded */
    int extradata_size;
    video_part_info info; /* valid after the last packet */
} video_part_reader;

/* open returns 0, or -1. close takes a reader in any state, also a zeroed one. */
int video_part_open(const char *path, video_part_reader *r);
void video_part_close(video_part_reader *r);
/* Reads the next packet, in decoding order. packet NULL: reads its time only. Returns 1; 0: the end; -1: the part is damaged. */
int video_part_next(video_part_reader *r, int64_t *pts, AVPacket *packet);

/* ---- streams.c: streams, chapters and tags of a file; results are 0, or FFmpeg's error ---- */

/* Adds the stream of the encoded video. v: the input, or NULL. */
int video_add_stream(AVFormatContext *out, const cli_video *v, const video_format *f);
/* Whether the container holds streams of this codec. */
int video_takes(const AVOutputFormat *container, enum AVCodecID codec);

/* text.c: converts text subtitles.
 * form: the subtitle codec of the container for a stream; AV_CODEC_ID_NONE: none, or the stream is not text.
 * open: fills parameters for the new codec; returns 0, or FFmpeg's error.
 * turn: converts a packet; returns 1; 0: the packet is empty; or FFmpeg's error. close takes NULL. */
typedef struct video_text video_text;
enum AVCodecID video_text_form(const AVOutputFormat *container, const AVStream *s);
int video_text_open(const AVStream *s, enum AVCodecID form, AVCodecParameters *parameters, video_text **out);
int video_text_turn(video_text *t, AVPacket *p);
void video_text_close(video_text *t);

typedef struct video_other { /* another stream of the input; zeroed: left out */
    int kept;                /* its packets are copied */
    int to;                  /* index of the stream in the output */
    video_text *text;        /* converter; NULL: copied unchanged */
    int64_t last;            /* decoding time of its last packet, in the output's time base; see join.c */
    int begun;
} video_other;

/* Adds all streams that `out` can hold, except stream number `video`. others: one zeroed element for each stream of `in`; the
 * caller closes their text. path: subject of the notes; NULL: no notes. */
int video_add_others(AVFormatContext *out, const AVFormatContext *in, int video, const char *path, video_other *others);
int video_add_chapters(AVFormatContext *out, const AVFormatContext *in); /* and tags */

#endif
