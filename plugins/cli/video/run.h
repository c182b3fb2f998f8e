/* run.h - the upscaling of a video: threads that decode, push, pull and encode at the same time, and the sinks of the frames. */
#ifndef DAVY_CLI_VIDEO_RUN_H
#define DAVY_CLI_VIDEO_RUN_H

#include "plugins/cli/session.h"
#include "plugins/cli/video/out.h"

/* The destination of the frames. put prints its failure and returns an exit status. */
typedef struct video_sink {
    enum AVPixelFormat pixels; /* AV_PIX_FMT_NONE: takes RGB pictures */
    int w, h;                  /* size of its frames */
    void *user;
    /* Either frame or rgb is NULL. number counts from the beginning of the video. */
    int (*put)(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
} video_sink;

/* Seconds that each stage took for all frames. A stage that is near the whole time limits the speed; if none is, the network
 * does. */
typedef struct video_busy {
    double decode, to_rgb, from_rgb, write;
} video_busy;

typedef struct video_task {
    cli_session *session;
    const cli_args *args;
    cli_video *video;
    const video_sink *sink;
    int64_t first;   /* number of the next frame of the video */
    int64_t frames;  /* out: number of finished frames of this run */
    video_busy busy; /* out */
} video_task;

/* Runs all remaining frames of the video. Prints its failure and returns the exit status. */
int video_run(video_task *t);

/* ---- sinks ---- */

/* Writes y4m to a stream. */
typedef struct video_y4m {
    FILE *f;
    const char *path;
    const video_format *format;
    int64_t first; /* time of the first frame */
    int told;
} video_y4m;
int video_y4m_begin(video_y4m *y);
int video_y4m_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
/* The format for y4m frames of w x h from v. */
void video_y4m_format(const cli_video *v, int w, int h, video_format *out);

/* Writes numbered PNGs. user: name of the folder. */
int video_folder_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);

/* ---- parts of a run that can be resumed ---- */

typedef struct video_parts {
    const video_format *format;
    const char *output;
    char *folder;
    int taken;    /* lock of the folder, see cli_take */
    int64_t done; /* number of complete parts */
    int64_t frames, last_pts;
    video_part part; /* the part being written */
} video_parts;

/* identity: the properties of this run. Finds the parts of an earlier run with the same identity; removes other parts. */
int video_parts_open(video_parts *p, const video_format *f, const char *output, const char *identity);
int video_parts_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
int video_parts_finish(video_parts *p); /* completes the last part */
/* keep: complete parts stay for the next run; else the folder is removed. */
void video_parts_close(video_parts *p, int keep);

#endif
