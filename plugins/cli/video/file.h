/* file.h - a video file that FFmpeg writes. It appears complete or not at all. The index of mp4 and mov is moved to the front, so
 * that a player can start before the download ends. */
#ifndef DAVY_CLI_VIDEO_FILE_H
#define DAVY_CLI_VIDEO_FILE_H

#include <libavformat/avformat.h>

#include "plugins/cli/outfile.h"

typedef struct video_file {
    cli_outfile out;
    int unread; /* FFmpeg's error of reading the written data again, or 0 */
} video_file;

/* The caller has opened file->out. These return 0, or FFmpeg's error. options: for avformat_write_header. */
int video_file_open(video_file *file, AVFormatContext *to);
int video_file_options(const video_file *file, AVDictionary **options);
/* After the trailer: flushes and reports any error of reading or writing. */
int video_file_flush(const video_file *file, AVFormatContext *to);
void video_file_free(AVFormatContext *to); /* NULL is allowed */

#endif
