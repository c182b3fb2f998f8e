/* out.h - from frames to a video file: encoders, the parts of a video on disk, and joining the parts.
 *
 * A video is encoded in parts of VIDEO_PART frames. Each part has its own encoder and does not depend on earlier parts, so an
 * interrupted run makes the same parts as an uninterrupted one. The parts lie in the folder NAME.davy-parts beside the output.
 * When all are complete, their packets and the input's other streams are joined into the output. */
#ifndef DAVY_CLI_VIDEO_OUT_H
#define DAVY_CLI_VIDEO_OUT_H

#include "plugins/cli/outfile.h"
#include "plugins/cli/video/video_priv.h"

enum { VIDEO_PART = 96 };

typedef struct video_format { /* the encoder's settings, the same for all parts */
    const AVOutputFormat *container;
    const AVCodec *encoder;
    enum AVPixelFormat pixels;
    int w, h, quality;
    AVRational time_base, rate, sample_aspect;
    int upright; /* the frames are already rotated for display */
    video_colour colour;
    video_hdr hdr;
} video_format;

typedef struct video_codec_wish {
    const char *codec; /* NULL: the container's default */
    int quality;       /* 0: 16 */
    int on_gpu;        /* GPU encoders may be used */
} video_codec_wish;

/* Chooses container, encoder and pixel format for frames of w x h from v and a file of this name. Prints its failure. */
int video_format_choose(const cli_video *v, const char *path, int w, int h, const video_codec_wish *wish,
                        video_format *out);

/* The same for a format whose size, rate, quality and colour are set. bits: bits per sample of the source. */
int video_format_settle(const char *path, int bits, const video_codec_wish *wish, video_format *f);

/* ---- parts ---- */

typedef struct video_part { /* a part being written */
    AVCodecContext *encoder;
    AVPacket *packet;
    cli_outfile file;
    char *path;
    int64_t frames, last_pts, last_duration;
} video_part;

char *video_parts_folder(const char *output);              /* free with free() */
char *video_part_path(const char *folder, int64_t number); /* free with free() */
int video_part_begin(const video_format *f, const char *folder, int64_t number, video_part *p);
int video_part_add(video_part *p, const AVFrame *frame);
int video_part_commit(video_part *p);
void video_part_abandon(video_part *p); /* also takes a zeroed part */

typedef struct video_part_info { /* of a complete part */
    int64_t frames, last_pts, last_duration;
} video_part_info;

/* Returns 0 if the part is complete, else -1. Prints nothing. */
int video_part_look(const char *path, video_part_info *out);

/* ---- the whole ---- */

/* Checks before the work that the container can hold all streams. Notes each stream that is left out or converted. Prints its
 * failure. */
int video_join_check(const cli_video *v, const video_format *f, const char *path);

/* Writes `path` from the first `parts` parts and the other streams of v, unless v is a pipe or NULL. Prints its failure. */
int video_join(const cli_video *v, const video_format *f, const char *folder, int64_t parts, const char *path);

#endif
