/* file.c - see file.h. The length of the index is known at the end only. FFmpeg then moves the data behind the index, for which
 * it reads the file while it writes it. */
#include "plugins/cli/video/file.h"

#include <errno.h>
#include <stdio.h>

#include "plugins/cli/sys.h"

enum { IO_BYTES = 1 << 16 };

/* ---- writing ---- */

static int write_bytes(void *user, uint8_t *data, int bytes) {
    video_file *file = user;
    return fwrite(data, 1, (size_t)bytes, file->out.f) == (size_t)bytes ? bytes : AVERROR(EIO);
}

static int64_t seek_in(FILE *f, int64_t offset, int whence) {
    if (whence == AVSEEK_SIZE || fseeko(f, (off_t)offset, whence & ~AVSEEK_FORCE) != 0) {
        return AVERROR(ENOSYS);
    }
    return (int64_t)ftello(f);
}

static int64_t seek_written(void *user, int64_t offset, int whence) {
    video_file *file = user;
    return seek_in(file->out.f, offset, whence);
}

/* ---- reading what was written ---- */

typedef struct again {
    video_file *file;
    FILE *f;
} again;

/* FFmpeg takes a failure here for the end of the data, so the error is stored. */
static int read_bytes(void *user, uint8_t *data, int bytes) {
    again *a = user;
    const size_t n = fread(data, 1, (size_t)bytes, a->f);
    if (ferror(a->f) || cli_interrupted()) {
        a->file->unread = ferror(a->f) ? AVERROR(EIO) : AVERROR_EXIT;
        return a->file->unread;
    }
    return n > 0 ? (int)n : AVERROR_EOF;
}

static int64_t seek_again(void *user, int64_t offset, int whence) {
    again *a = user;
    return seek_in(a->f, offset, whence);
}

static int close_again(AVFormatContext *to, AVIOContext *io) {
    (void)to;
    if (io != NULL) {
        again *a = io->opaque;
        fclose(a->f);
        av_free(a);
        av_freep(&io->buffer);
        avio_context_free(&io);
    }
    return 0;
}

static int open_again(AVFormatContext *to, AVIOContext **io, const char *url, int flags, AVDictionary **options) {
    video_file *file = to->opaque;
    (void)url, (void)options;
    if ((flags & AVIO_FLAG_WRITE) != 0) {
        return AVERROR(ENOSYS); /* a second file */
    }
    again *a = av_mallocz(sizeof *a);
    uint8_t *room = av_malloc(IO_BYTES);
    FILE *f = fflush(file->out.f) == 0 ? cli_open_read(file->out.temporary) : NULL;
    *io = a != NULL && room != NULL && f != NULL
              ? avio_alloc_context(room, IO_BYTES, 0, a, read_bytes, NULL, seek_again)
              : NULL;
    if (*io == NULL) {
        const int e = f == NULL && errno != 0 ? AVERROR(errno) : AVERROR(ENOMEM);
        if (f != NULL) {
            fclose(f);
        }
        av_free(room);
        av_free(a);
        return e;
    }
    *a = (again){file, f};
    return 0;
}

/* ---- the file ---- */

int video_file_open(video_file *file, AVFormatContext *to) {
    uint8_t *room = av_malloc(IO_BYTES);
    to->pb = room != NULL ? avio_alloc_context(room, IO_BYTES, 1, file, NULL, write_bytes, seek_written) : NULL;
    if (to->pb == NULL) {
        av_free(room);
        return AVERROR(ENOMEM);
    }
    to->opaque = file;
    to->io_open = open_again;
    to->io_close2 = close_again;
    return 0;
}

int video_file_options(const video_file *file, AVDictionary **options) {
    return file->out.temporary != NULL ? av_dict_set(options, "movflags", "faststart", 0)
                                       : 0; /* a pipe or a device cannot be read again */
}

int video_file_flush(const video_file *file, AVFormatContext *to) {
    avio_flush(to->pb);
    return to->pb->error < 0 ? to->pb->error : file->unread;
}

void video_file_free(AVFormatContext *to) {
    if (to != NULL && to->pb != NULL) {
        av_freep(&to->pb->buffer);
        avio_context_free(&to->pb);
    }
    avformat_free_context(to);
}
