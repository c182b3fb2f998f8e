/* clip.h - a short video to caption: frames of one size in memory, read from a folder of pictures or a video file. */
#ifndef DAVY_CLI_CAPTION_CLIP_H
#define DAVY_CLI_CAPTION_CLIP_H

#include "plugins/cli/session.h"

typedef struct cli_clip {
    unsigned char *frames; /* RGB frames, packed */
    uint32_t width, height, bits;
    size_t n, room; /* in frames */
} cli_clip;

/* Loads a video and prints its failure. fps: frames per second to take from a file. Of a folder, all pictures are taken, in the
 * order of their names. */
int cli_clip_load(const char *path, double fps, cli_clip *out);
void cli_clip_free(cli_clip *c);
davy_tensor cli_clip_tensor(const cli_clip *c);

#endif
