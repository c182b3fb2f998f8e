/* run.h - a video on its way: threads that decode, hand to the network, fetch and encode at once; and where the
 * frames go in the end. */
#ifndef DAVY_CLI_VIDEO_RUN_H
#define DAVY_CLI_VIDEO_RUN_H

#include "plugins/cli/session.h"
#include "plugins/cli/video/out.h"

/* Where frames go, one after the other. Its functions print their failures and return an exit status. */
typedef struct video_sink {
    enum AVPixelFormat pixels; /* AV_PIX_FMT_NONE: RGB pictures */
    int w, h;                  /* of what it takes */
    void *user;
    /* One of frame and rgb is NULL. number counts from the beginning of the video. */
    int (*put)(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
} video_sink;

/* Seconds that each of these took of all frames: what is near the whole time is what the speed hangs on, unless the network
 * is. */
typedef struct video_busy {
    double decode, to_rgb, from_rgb, write;
} video_busy;

typedef struct video_task {
    cli_session *session;
    const cli_args *args;
    cli_video *video;
    const video_sink *sink;
    int64_t first;   /* number of the frame that the video stands at */
    int64_t frames;  /* out: that have gone through, `first` not counted */
    video_busy busy; /* out */
} video_task;

/* All frames from where the video stands. CLI_OK: to the end; else told, or interrupted. */
int video_run(video_task *t);

/* ---- sinks ---- */

/* y4m into a stream. */
typedef struct video_y4m {
    FILE *f;
    const char *path;
    const video_format *format;
    int64_t first; /* when the first frame is shown */
    int told;
} video_y4m;
int video_y4m_begin(video_y4m *y);
int video_y4m_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
/* What y4m can hold, for frames of w x h of v. */
void video_y4m_format(const cli_video *v, int w, int h, video_format *out);

/* Numbered PNGs into a folder; user: its name. */
int video_folder_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);

/* ---- parts of a run that can be gone on with ---- */

typedef struct video_parts {
    const video_format *format;
    const char *output;
    char *folder;
    int taken;    /* the folder, by this process */
    int64_t done; /* parts that are whole */
    int64_t frames, last_pts;
    video_part part; /* the one that is being written */
} video_parts;

/* identity: what makes this run the same as an earlier one. Finds what that one left; other leftovers go. */
int video_parts_open(video_parts *p, const video_format *f, const char *output, const char *identity);
int video_parts_put(void *user, const AVFrame *frame, const cli_picture *rgb, int64_t number);
int video_parts_finish(video_parts *p); /* the last part */
/* keep: what is whole stays for the next run, if there is anything. */
void video_parts_close(video_parts *p, int keep);

#endif
