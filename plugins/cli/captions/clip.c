/* clip.c - see clip.h. */
#include "plugins/cli/captions/clip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/video.h"

#define MOST_BYTES ((size_t)2 << 30)

static size_t frame_bytes(const cli_clip *c) {
    return (size_t)c->width * c->height * 3 * (c->bits / 8);
}

void cli_clip_free(cli_clip *c) {
    free(c->frames);
    memset(c, 0, sizeof *c);
}

davy_tensor cli_clip_tensor(const cli_clip *c) {
    const davy_tensor t = {.struct_size = sizeof t,
                           .memory = DAVY_MEMORY_HOST,
                           .dtype = c->bits == 16 ? DAVY_DTYPE_U16 : DAVY_DTYPE_U8,
                           .layout = DAVY_LAYOUT_NTHWC,
                           .channels = DAVY_CHANNELS_RGB,
                           .ndim = 5,
                           .data = (uint64_t)(uintptr_t)c->frames,
                           .shape = {1, (int64_t)c->n, c->height, c->width, 3}};
    return t;
}

/* Appends an RGB picture. */
static int add_frame(cli_clip *c, const char *path, const cli_picture *p) {
    if (c->n == 0) {
        c->width = p->width;
        c->height = p->height;
        c->bits = p->bits;
    }
    if (p->width != c->width || p->height != c->height || p->bits != c->bits) {
        return cli_fail(path, "is %ux%u with %u bits, but the frames before are %ux%u with %u", (unsigned)p->width,
                        (unsigned)p->height, (unsigned)p->bits, (unsigned)c->width, (unsigned)c->height,
                        (unsigned)c->bits);
    }
    const size_t bytes = frame_bytes(c);
    if ((c->n + 1) * bytes > MOST_BYTES) {
        return cli_fail(path, "the frames need more than 2 GiB; use a lower --video-fps or fewer frames");
    }
    if (c->n == c->room) {
        const size_t room = c->room > 0 ? 2 * c->room : 16;
        unsigned char *grown = realloc(c->frames, room * bytes);
        if (grown == NULL) {
            return cli_fail(path, "out of memory");
        }
        c->frames = grown;
        c->room = room;
    }
    memcpy(c->frames + c->n * bytes, p->pixels, bytes);
    c->n++;
    return CLI_OK;
}

static int add_file(cli_clip *c, const char *path) {
    cli_picture p = {0};
    cli_picture rgb = {0};
    int r = cli_picture_load(path, &p);
    if (r == CLI_OK && cli_picture_to_rgb(&p, &rgb) != 0) {
        r = cli_fail(path, "out of memory");
    }
    r = r == CLI_OK ? add_frame(c, path, &rgb) : r;
    cli_picture_free(&rgb);
    cli_picture_free(&p);
    return r;
}

static int load_folder(const char *folder, cli_clip *c) {
    size_t count = 0;
    char **names = cli_folder_names(folder, &count);
    int r = names != NULL ? CLI_OK : cli_fail(folder, "cannot be read: %s", strerror(errno));
    for (size_t i = 0; r == CLI_OK && i < count && !cli_interrupted(); i++) {
        const size_t n = strlen(folder) + strlen(names[i]) + 2;
        char *path = malloc(n);
        if (path == NULL) {
            r = cli_fail(names[i], "out of memory");
            break;
        }
        snprintf(path, n, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", names[i]);
        const cli_format f = cli_format_of_name(path);
        const int picture = f == CLI_FORMAT_PNG || f == CLI_FORMAT_JPEG || f == CLI_FORMAT_WEBP;
        if (picture && cli_path_kind_of(path) == CLI_PATH_FILE) {
            r = add_file(c, path);
        }
        free(path);
    }
    cli_names_free(names, count);
    return r;
}

/* Takes the first frame at or after each multiple of 1 / fps seconds. */
static int load_file(const char *path, double fps, cli_clip *c) {
    cli_video *v = NULL;
    cli_picture p = {0};
    const cli_video_decoding how = {.hardware = CLI_DECODER_SOFTWARE}; /* the videos are short */
    int r = cli_video_open(path, &how, &v);
    for (int more = r == CLI_OK; more && !cli_interrupted();) {
        double seconds = 0;
        const int got = cli_video_read(v, &p, &seconds);
        more = got > 0;
        r = got < 0 ? CLI_FAILED : r;
        if (more && seconds * fps >= (double)c->n - 1e-3) {
            r = add_frame(c, path, &p);
            more = r == CLI_OK;
        }
    }
    cli_picture_free(&p);
    cli_video_close(v);
    return r;
}

int cli_clip_load(const char *path, double fps, cli_clip *out) {
    const cli_clip none = {0};
    *out = none;
    int r = cli_path_kind_of(path) == CLI_PATH_FOLDER ? load_folder(path, out) : load_file(path, fps, out);
    if (r == CLI_OK && cli_interrupted()) {
        r = cli_stopped(path);
    } else if (r == CLI_OK && out->n < 2) {
        r = cli_fail(path, "%s; a video needs at least two", out->n == 0 ? "holds no frames" : "holds one frame");
    }
    if (r != CLI_OK) {
        cli_clip_free(out);
    }
    return r;
}
