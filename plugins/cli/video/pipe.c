/* pipe.c - opens a video. FFmpeg reads files itself. davy reads pipes for it, because nothing could interrupt FFmpeg's wait for
 * a pipe. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/sys.h"
#include "plugins/cli/video/video_priv.h"

enum { IO_BYTES = 1 << 16 };

int video_is_piped(const cli_video *v) {
    return strcmp(v->path, "-") == 0 || cli_path_kind_of(v->path) != CLI_PATH_FILE;
}

static int read_bytes(void *user, uint8_t *data, int bytes) {
    const int *pipe = user;
    const int n = cli_pipe_read(*pipe, data, bytes);
    return n > 0 ? n : n == 0 ? AVERROR_EOF : errno == EINTR ? AVERROR_EXIT : AVERROR(errno);
}

static void close_pipe(AVIOContext *io) {
    if (io != NULL) {
        int *pipe = io->opaque;
        cli_pipe_close(*pipe);
        av_free(pipe);
        av_freep(&io->buffer);
        avio_context_free(&io);
    }
}

/* Returns 0, or FFmpeg's error. */
static int open_pipe(const char *path, AVIOContext **out) {
    int *pipe = av_malloc(sizeof *pipe);
    uint8_t *room = av_malloc(IO_BYTES);
    *out = pipe != NULL && room != NULL ? avio_alloc_context(room, IO_BYTES, 0, pipe, read_bytes, NULL, NULL) : NULL;
    if (*out == NULL) {
        av_free(room);
        av_free(pipe);
        return AVERROR(ENOMEM);
    }
    *pipe = cli_pipe_open(path);
    if (*pipe < 0) {
        const int e = AVERROR(errno);
        close_pipe(*out);
        return e;
    }
    (*out)->seekable = 0;
    return 0;
}

int video_open_path(const char *path, AVFormatContext **out) {
    const int file = strcmp(path, "-") != 0 && cli_path_kind_of(path) != CLI_PATH_OTHER;
    const size_t n = strlen(path) + 8;
    AVIOContext *io = NULL;
    char *url = malloc(n);
    int r = url != NULL ? 0 : AVERROR(ENOMEM);
    if (r == 0 && !file) {
        *out = avformat_alloc_context();
        r = *out != NULL ? open_pipe(path, &io) : AVERROR(ENOMEM);
    }
    if (r == 0) {
        snprintf(url, n, "file:%s", path); /* else a name with a colon would be a URL */
        if (io != NULL) {
            (*out)->pb = io;
        }
        r = avformat_open_input(out, url, NULL, NULL); /* on failure it frees *out, but not io */
        if (r < 0) {
            close_pipe(io);
        }
    } else {
        avformat_free_context(*out);
        *out = NULL;
    }
    free(url);
    return r;
}

void video_close_path(AVFormatContext **f) {
    AVIOContext *io = *f != NULL && ((*f)->flags & AVFMT_FLAG_CUSTOM_IO) != 0 ? (*f)->pb : NULL;
    avformat_close_input(f);
    close_pipe(io);
}
