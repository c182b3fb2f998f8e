/* module.c - see module.h. */
#include "plugins/cli/video/module.h"

#include "plugins/cli/video/run.h"

static const cli_video_module module = {.build = CLI_VIDEO_BUILD,
                                        .open = cli_video_open,
                                        .about = cli_video_about,
                                        .read = cli_video_read,
                                        .seek = cli_video_seek,
                                        .close = cli_video_close,
                                        .upscale = cli_upscale_video,
                                        .writer_open = cli_video_writer_open,
                                        .writer_put = cli_video_writer_put,
                                        .writer_close = cli_video_writer_close};

__attribute__((visibility("default"))) const cli_video_module *davy_video_module(void) {
    return &module;
}
