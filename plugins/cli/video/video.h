/* video.h - videos through FFmpeg's libraries, which a module uses (module.h). Without the module or the libraries, opening a
 * video fails with an error message. */
#ifndef DAVY_CLI_VIDEO_H
#define DAVY_CLI_VIDEO_H

#include <stdint.h>

#include "plugins/cli/pictures/picture.h"

/* ---- reading frames ---- */

typedef struct cli_video cli_video;

typedef struct cli_video_facts {
    uint32_t width, height; /* of the first frame as stored: not rotated, pixel shape not applied */
    uint32_t bits;          /* bits per sample of cli_video_read: 8, or 16 if the file has more than 8 */
    double fps;             /* average; 0: unknown */
    double seconds;         /* 0: unknown */
    int64_t frames;         /* from the file, or an estimate; 0: unknown */
} cli_video_facts;

/* Whether this program can read videos. */
int cli_video_known(void);

enum { CLI_DECODER_AUTO, CLI_DECODER_SOFTWARE, CLI_DECODER_HARDWARE };

typedef struct cli_video_decoding {
    int hardware; /* CLI_DECODER_*; AUTO: FFmpeg's hardware decoders may be used; HARDWARE: the same, with a note if there are none */
    const char *device; /* as --device; the GPU with the first number decodes; may be NULL */
} cli_video_decoding;

/* Opens a file, or standard input for "-". If the hardware does not support the video, software decodes it, with a note. Prints
 * its failure. */
int cli_video_open(const char *path, const cli_video_decoding *how, cli_video **out);
const cli_video_facts *cli_video_about(const cli_video *v);
/* Reads the next frame into p as RGB of facts.bits, rotated for display. p owns the pixels and reuses them for each frame.
 * *seconds: time of the frame from the beginning; may be NULL. Returns 1: a frame; 0: the end; -1: failed, the error is
 * printed. */
int cli_video_read(cli_video *v, cli_picture *p, double *seconds);
/* Seeks to the last key frame at or before `seconds`; the next cli_video_read returns it or a frame shortly after it. Returns 0,
 * or -1: the video cannot seek and stays where it is. */
int cli_video_seek(cli_video *v, double seconds);
void cli_video_close(cli_video *v);

/* ---- writing pictures ---- */

typedef struct cli_video_writer cli_video_writer;

typedef struct cli_video_wish {
    uint32_t width, height;
    double fps;        /* 0: the rate of the video `sound`, else 25 */
    const char *codec; /* see video_codec_wish */
    int quality, on_gpu;
    const char *sound; /* video whose sound, subtitles, chapters and tags are copied; NULL: none */
} cli_video_wish;

/* Writes 8-bit RGB pictures of the wished size to a video file, NAME.y4m, or as y4m to standard output ("-"). close with CLI_OK
 * completes the file; with another status it removes it. close returns the status. All print their failures. */
int cli_video_writer_open(const char *path, const cli_video_wish *wish, cli_video_writer **out);
int cli_video_writer_put(cli_video_writer *w, const cli_picture *rgb);
int cli_video_writer_close(cli_video_writer *w, int status);

#endif
