/* clip.h - davy encode and davy decode of videos: frames to the latents of a clip and back. */
#ifndef DAVY_CLI_CLIP_H
#define DAVY_CLI_CLIP_H

#include "plugins/cli/session.h"

/* Whether the input is a video, a pipe or a folder of pictures. */
int cli_is_clip(const char *path);

typedef struct cli_clip_report {
    int64_t frames, latents;
    uint32_t width, height;
} cli_clip_report;

/* The session has a model. Both print their failures. latent: [1, z, t, h, w]. */
int cli_encode_clip(cli_session *s, const cli_args *a, cli_clip_report *out);
int cli_decode_clip(cli_session *s, const cli_args *a, const cli_array *latent, cli_clip_report *out);

#endif
