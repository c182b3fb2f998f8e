/* file.h - a video file that FFmpeg writes: whole or not there, and with its index in front where it has one (mp4,
 * mov), so that who loads it from afar can show it before all of it is there. */
#ifndef DAVY_CLI_VIDEO_FILE_H
#define DAVY_CLI_VIDEO_FILE_H

#include <libavformat/avformat.h>

#include "plugins/cli/outfile.h"

typedef struct video_file {
    cli_outfile out;
    int unread; /* what was written could not be read again, FFmpeg's error */
} video_file;

/* file->out is open. These return 0, or FFmpeg's error. options: for avformat_write_header. */
int video_file_open(video_file *file, AVFormatContext *to);
int video_file_options(const video_file *file, AVDictionary **options);
/* Behind the trailer: whether all of it is right. */
int video_file_flush(const video_file *file, AVFormatContext *to);
void video_file_free(AVFormatContext *to); /* NULL: nothing to do */

#endif
