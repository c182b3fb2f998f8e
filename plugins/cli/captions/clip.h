/* clip.h - a short video to caption: frames of one size in memory, from a folder of pictures or from a file. */
#ifndef DAVY_CLI_CAPTION_CLIP_H
#define DAVY_CLI_CAPTION_CLIP_H

#include "plugins/cli/session.h"

typedef struct cli_clip {
    unsigned char *frames; /* RGB, one behind the other */
    uint32_t width, height, bits;
    size_t n, room; /* frames */
} cli_clip;

/* fps: how many frames a second are taken of a file; a folder's are all taken, in the order of their names. Both print their
 * failure. */
int cli_clip_load(const char *path, double fps, cli_clip *out);
void cli_clip_free(cli_clip *c);
davy_tensor cli_clip_tensor(const cli_clip *c);

#endif
