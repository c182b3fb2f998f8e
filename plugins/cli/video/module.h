/* module.h - davy-video.so, a module beside the program with all code that needs FFmpeg's libraries, so that the program starts
 * without them. The module calls functions of the program (say.h, session.h ...). */
#ifndef DAVY_CLI_VIDEO_MODULE_H
#define DAVY_CLI_VIDEO_MODULE_H

#include "plugins/cli/commands.h"
#include "plugins/cli/video/video.h"

/* Differs between builds whose shared structs differ. */
#define CLI_VIDEO_BUILD ((uint64_t)sizeof(cli_args) << 32 | (uint64_t)sizeof(cli_session) << 8 | DAVY_VERSION_MINOR)

typedef struct cli_video_module {
    uint64_t build;
    int (*open)(const char *path, const cli_video_decoding *how, cli_video **out);
    const cli_video_facts *(*about)(const cli_video *v);
    int (*read)(cli_video *v, cli_picture *p, double *seconds);
    int (*seek)(cli_video *v, double seconds);
    void (*close)(cli_video *v);
    int (*upscale)(cli_session *s, const cli_args *a);
    int (*writer_open)(const char *path, const cli_video_wish *wish, cli_video_writer **out);
    int (*writer_put)(cli_video_writer *w, const cli_picture *rgb);
    int (*writer_close)(cli_video_writer *w, int status);
} cli_video_module;

/* The module's only export. */
const cli_video_module *davy_video_module(void);

#endif
