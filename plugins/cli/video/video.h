/* video.h - videos, through FFmpeg's libraries. They are in a module (module.h); where it, or they, are not, opening a
 * video fails with a sentence. */
#ifndef DAVY_CLI_VIDEO_H
#define DAVY_CLI_VIDEO_H

#include <stdint.h>

#include "plugins/cli/pictures/picture.h"

/* ---- reading frames ---- */

typedef struct cli_video cli_video;

typedef struct cli_video_facts {
    uint32_t width, height; /* of the first frame; as stored, not turned, pixels as they are */
    uint32_t bits;          /* of a sample that cli_video_read gives: 8, or 16 where the file has more than 8 */
    double fps;             /* on average; 0: unknown */
    double seconds;         /* 0: unknown */
    int64_t frames;         /* as the file says, or about; 0: unknown */
} cli_video_facts;

/* Whether this program can read videos at all. */
int cli_video_known(void);

enum { CLI_DECODER_AUTO, CLI_DECODER_SOFTWARE, CLI_DECODER_HARDWARE };

typedef struct cli_video_decoding {
    int hardware; /* CLI_DECODER_: FFmpeg's hardware decoders may be used; SOFTWARE: not; HARDWARE: told if there are none */
    const char *device; /* as --device says: of several GPUs the one whose number it begins with decodes; may be NULL */
} cli_video_decoding;

/* path: a file, or "-" for standard input. A video that the hardware does not take, software decodes, with a note. Prints its
 * failure. */
int cli_video_open(const char *path, const cli_video_decoding *how, cli_video **out);
const cli_video_facts *cli_video_about(const cli_video *v);
/* The next frame as RGB of facts.bits, turned as it is to be shown, in memory of p's own that is kept from frame to frame;
 * *seconds (may be NULL): when it is shown, from the beginning. 1: a frame; 0: the end; -1: failure, told. */
int cli_video_read(cli_video *v, cli_picture *p, double *seconds);
/* Goes to the last frame that can be read at once at or before `seconds`: the next cli_video_read gives it or one shortly
 * behind. 0, or -1: not possible here, all is as before. */
int cli_video_seek(cli_video *v, double seconds);
void cli_video_close(cli_video *v);

/* ---- writing pictures ---- */

typedef struct cli_video_writer cli_video_writer;

typedef struct cli_video_wish {
    uint32_t width, height;
    double fps;        /* 0: as the sound's pictures, else 25 */
    const char *codec; /* as video_codec_wish */
    int quality, on_gpu;
    const char *sound; /* a video whose sound, subtitles, chapters and tags are copied; NULL: none */
} cli_video_wish;

/* path: a video file, NAME.y4m, or "-" for y4m to standard output. put: 8-bit RGB of the size wished. close with CLI_OK makes
 * the file, with another status it leaves nothing; returns the status. Print their failures. */
int cli_video_writer_open(const char *path, const cli_video_wish *wish, cli_video_writer **out);
int cli_video_writer_put(cli_video_writer *w, const cli_picture *rgb);
int cli_video_writer_close(cli_video_writer *w, int status);

#endif
