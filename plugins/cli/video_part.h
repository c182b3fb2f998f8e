/* video_part.h - between video_part.c, which knows the format of a part, video_format.c, which opens encoders,
 * video_streams.c and video_join.c. */
#ifndef DAVY_CLI_VIDEO_PART_H
#define DAVY_CLI_VIDEO_PART_H

#include <stdio.h>

#include "plugins/cli/video_out.h"

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

/* ---- video_streams.c: what a file holds besides packets; 0, or FFmpeg's error ---- */

/* The upscaled video; v: whose it is, or NULL. */
int video_add_stream(AVFormatContext *out, const cli_video *v, const video_format *f);
/* All that `out` can hold but stream number `video`; to: out's number of each, -1: no packets of it. path: for notes. */
int video_add_others(AVFormatContext *out, const AVFormatContext *in, int video, const char *path, int *to);
int video_add_chapters(AVFormatContext *out, const AVFormatContext *in); /* and tags */

#endif
