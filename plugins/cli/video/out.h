/* out.h - from frames to a video file: encoders, parts of a video on disk, and the file that is made of them.
 *
 * A video is encoded in parts of VIDEO_PART frames, each with an encoder of its own, so that a part does not depend on what
 * was before it: a run that was interrupted makes the same parts as one that was not. Parts lie in the folder
 * NAME.davy-parts beside the output; when all are there, their packets and the input's other streams become the output. */
#ifndef DAVY_CLI_VIDEO_OUT_H
#define DAVY_CLI_VIDEO_OUT_H

#include "plugins/cli/outfile.h"
#include "plugins/cli/video/video_priv.h"

enum { VIDEO_PART = 96 };

typedef struct video_format { /* of the encoder, the same for all parts */
    const AVOutputFormat *container;
    const AVCodec *encoder;
    enum AVPixelFormat pixels;
    int w, h, quality;
    AVRational time_base, rate, sample_aspect;
    int upright; /* frames are as they are to be shown, whatever those of the input are */
    video_colour colour;
    video_hdr hdr;
} video_format;

typedef struct video_codec_wish {
    const char *codec; /* NULL: what suits the container */
    int quality;       /* 0: 16 */
    int on_gpu;        /* encoders of GPUs may be used */
} video_codec_wish;

/* Settles container, encoder and pixels for frames of w x h from v, for a file of this name. Prints its failure. */
int video_format_choose(const cli_video *v, const char *path, int w, int h, const video_codec_wish *wish,
                        video_format *out);

/* The same for a format whose size, rate, quality and colour are settled: container, encoder and pixels for samples of so
 * many bits. */
int video_format_settle(const char *path, int bits, const video_codec_wish *wish, video_format *f);

/* ---- parts ---- */

typedef struct video_part { /* being written */
    AVCodecContext *encoder;
    AVPacket *packet;
    cli_outfile file;
    char *path;
    int64_t frames, last_pts, last_duration;
} video_part;

char *video_parts_folder(const char *output);              /* free() */
char *video_part_path(const char *folder, int64_t number); /* free() */
int video_part_begin(const video_format *f, const char *folder, int64_t number, video_part *p);
int video_part_add(video_part *p, const AVFrame *frame);
int video_part_commit(video_part *p);
void video_part_abandon(video_part *p); /* also of one that was never begun, zeroed */

typedef struct video_part_info { /* of a complete one */
    int64_t frames, last_pts, last_duration;
} video_part_info;

/* 0: the part is there and whole; -1: it is not, nothing is told. */
int video_part_look(const char *path, video_part_info *out);

/* ---- the whole ---- */

/* Before the work: whether a file of this kind can begin with all its streams. Notes what is left out or changed, prints its
 * failure. */
int video_join_check(const cli_video *v, const video_format *f, const char *path);

/* Writes `path` from `parts` parts; other streams come from the input again, unless it is a pipe, or NULL. Prints its
 * failure. */
int video_join(const cli_video *v, const video_format *f, const char *folder, int64_t parts, const char *path);

#endif
