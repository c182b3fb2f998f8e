/* load.c - the program's side of video.h: opens davy-video.so for the first video and calls it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/module.h"

typedef const cli_video_module *(*module_fn)(void);

static const cli_video_module *module; /* NULL: not loaded */
static char why[512];                  /* the reason why it cannot be loaded */

static void take(void *library, const char *path) {
    module_fn fn = NULL;
    void *symbol = dlsym(library, "davy_video_module");
    memcpy(&fn, &symbol, sizeof fn);
    if (fn == NULL || fn()->build != CLI_VIDEO_BUILD) {
        snprintf(why, sizeof why, "%.400s belongs to another version of davy; install both from one build", path);
    } else {
        module = fn();
    }
}

/* Looks for the module beside the program and in the library folder of an installation. */
static void load(void) {
    static const char *const places[] = {"davy-video.so", "../" DAVY_CLI_LIBDIR "/davy/davy-video.so"};
    char *folder = cli_program_folder();
    snprintf(why, sizeof why, "davy-video.so is missing beside the program; build davy with FFmpeg's libraries");
    for (size_t i = 0; module == NULL && folder != NULL && i < sizeof places / sizeof places[0]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, places[i]);
        if (cli_path_kind_of(path) != CLI_PATH_FILE) {
            continue;
        }
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            snprintf(why, sizeof why, "davy-video.so cannot be loaded: %.400s", dlerror());
        } else {
            take(library, path);
        }
    }
    free(folder);
}

int cli_video_known(void) {
    if (module == NULL && why[0] == 0) {
        load();
    }
    return module != NULL;
}

static int unknown(const char *path) {
    return cli_fail(path, "is a video; %s", why);
}

int cli_video_open(const char *path, const cli_video_decoding *how, cli_video **out) {
    return cli_video_known() ? module->open(path, how, out) : unknown(path);
}

const cli_video_facts *cli_video_about(const cli_video *v) {
    return module->about(v);
}

int cli_video_read(cli_video *v, cli_picture *p, double *seconds) {
    return module->read(v, p, seconds);
}

int cli_video_seek(cli_video *v, double seconds) {
    return module->seek(v, seconds);
}

void cli_video_close(cli_video *v) {
    if (module != NULL) {
        module->close(v);
    }
}

int cli_upscale_video(cli_session *s, const cli_args *a) {
    return cli_video_known() ? module->upscale(s, a) : unknown(a->inputs[0]);
}

int cli_video_writer_open(const char *path, const cli_video_wish *wish, cli_video_writer **out) {
    return cli_video_known() ? module->writer_open(path, wish, out) : unknown(path);
}

int cli_video_writer_put(cli_video_writer *w, const cli_picture *rgb) {
    return module->writer_put(w, rgb);
}

int cli_video_writer_close(cli_video_writer *w, int status) {
    return module->writer_close(w, status);
}
