/* part.c - a part of a video: the packets of an encoder, in a file that appears complete or not at all.
 *
 *   magic, codec id, size of extradata, extradata
 *   for each packet: pts, flags, size, data
 *   at the end: INT64_MIN in place of a pts, number of frames, pts and duration of the last frame */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/part.h"

static const char magic[8] = {'d', 'a', 'v', 'y', 'p', 'a', 'r', '1'};

static char *with_suffix(const char *a, const char *b) {
    const size_t n = strlen(a) + strlen(b) + 1;
    char *s = malloc(n);
    if (s != NULL) {
        snprintf(s, n, "%s%s", a, b);
    }
    return s;
}

char *video_parts_folder(const char *output) {
    return with_suffix(output, ".davy-parts");
}

char *video_part_path(const char *folder, int64_t number) {
    char name[32];
    snprintf(name, sizeof name, "/%08lld", (long long)number);
    return with_suffix(folder, name);
}

/* ---- writing ---- */

static void put(video_part *p, const void *data, size_t bytes) {
    if (bytes > 0) {                       /* else data may be NULL */
        fwrite(data, 1, bytes, p->file.f); /* the commit reports errors */
    }
}

static void put_number(video_part *p, int64_t v) {
    put(p, &v, sizeof v);
}

/* Writes all packets that the encoder has ready. */
static int take_packets(video_part *p) {
    char why[128];
    for (;;) {
        const int r = avcodec_receive_packet(p->encoder, p->packet);
        if (r == AVERROR(EAGAIN) || r == AVERROR_EOF) {
            return CLI_OK;
        }
        if (r < 0) {
            return cli_fail(p->path, "the encoder failed: %s", video_error(r, why));
        }
        put_number(p, p->packet->pts);
        put_number(p, p->packet->flags);
        put_number(p, p->packet->size);
        put(p, p->packet->data, (size_t)p->packet->size);
        av_packet_unref(p->packet);
        if (ferror(p->file.f)) {
            return cli_fail(p->path, "cannot be written: %s", strerror(errno));
        }
    }
}

int video_part_begin(const video_format *f, const char *folder, int64_t number, video_part *p) {
    char why[128];
    *p = (video_part){.path = video_part_path(folder, number), .packet = av_packet_alloc()};
    if (p->path == NULL || p->packet == NULL) {
        video_part_abandon(p);
        return cli_fail(folder, "out of memory");
    }
    const int e = video_encoder_open(f, &p->encoder);
    if (e < 0 || cli_outfile_open(&p->file, p->path) != CLI_OK) {
        const int r =
            e < 0 ? cli_fail(p->path, "the encoder %s failed: %s", f->encoder->name, video_error(e, why)) : CLI_FAILED;
        video_part_abandon(p);
        return r;
    }
    put(p, magic, sizeof magic);
    put_number(p, p->encoder->codec_id);
    put_number(p, p->encoder->extradata_size);
    put(p, p->encoder->extradata, (size_t)p->encoder->extradata_size);
    return CLI_OK;
}

int video_part_add(video_part *p, const AVFrame *frame) {
    char why[128];
    const int r = avcodec_send_frame(p->encoder, frame);
    if (r < 0) {
        return cli_fail(p->path, "the encoder failed: %s", video_error(r, why));
    }
    if (frame != NULL) {
        p->frames++;
        p->last_pts = frame->pts;
        p->last_duration = video_duration(frame);
    }
    return take_packets(p);
}

int video_part_commit(video_part *p) {
    int r = video_part_add(p, NULL);
    if (r == CLI_OK) {
        put_number(p, INT64_MIN);
        put_number(p, p->frames);
        put_number(p, p->last_pts);
        put_number(p, p->last_duration);
        r = cli_outfile_commit(&p->file, p->path);
        memset(&p->file, 0, sizeof p->file);
    }
    video_part_abandon(p);
    return r;
}

void video_part_abandon(video_part *p) {
    if (p->file.f != NULL) {
        cli_outfile_abandon(&p->file);
    }
    avcodec_free_context(&p->encoder);
    av_packet_free(&p->packet);
    free(p->path);
    memset(p, 0, sizeof *p);
}

/* ---- reading ---- */

static int get(FILE *f, void *data, size_t bytes) {
    return fread(data, 1, bytes, f) == bytes ? 0 : -1;
}

static int get_number(FILE *f, int64_t *v) {
    return get(f, v, sizeof *v);
}

int video_part_open(const char *path, video_part_reader *r) {
    char found[sizeof magic];
    int64_t n = 0;
    memset(r, 0, sizeof *r);
    r->f = cli_open_read(path);
    if (r->f == NULL) {
        return -1;
    }
    if (get(r->f, found, sizeof found) != 0 || memcmp(found, magic, sizeof magic) != 0 ||
        get_number(r->f, &r->codec) != 0 || get_number(r->f, &n) != 0 || n < 0 || n > 1 << 20 ||
        (r->extradata = calloc(1, (size_t)n + AV_INPUT_BUFFER_PADDING_SIZE)) == NULL ||
        get(r->f, r->extradata, (size_t)n) != 0) {
        video_part_close(r);
        return -1;
    }
    r->extradata_size = (int)n;
    return 0;
}

void video_part_close(video_part_reader *r) {
    if (r->f != NULL) {
        fclose(r->f);
    }
    free(r->extradata);
    memset(r, 0, sizeof *r);
}

int video_part_next(video_part_reader *r, int64_t *pts, AVPacket *packet) {
    int64_t flags = 0;
    int64_t size = 0;
    if (get_number(r->f, pts) != 0) {
        return -1;
    }
    if (*pts == INT64_MIN) {
        const int bad = get_number(r->f, &r->info.frames) != 0 || get_number(r->f, &r->info.last_pts) != 0 ||
                        get_number(r->f, &r->info.last_duration) != 0;
        return bad ? -1 : 0;
    }
    if (get_number(r->f, &flags) != 0 || get_number(r->f, &size) != 0 || size < 0 || size > INT32_MAX / 2) {
        return -1;
    }
    if (packet == NULL) {
        return fseeko(r->f, (off_t)size, SEEK_CUR) == 0 ? 1 : -1;
    }
    if (av_new_packet(packet, (int)size) < 0) {
        return -1;
    }
    packet->pts = *pts;
    packet->flags = (int)flags;
    if (get(r->f, packet->data, (size_t)size) != 0) {
        av_packet_unref(packet);
        return -1;
    }
    return 1;
}

int video_part_look(const char *path, video_part_info *out) {
    video_part_reader r;
    int64_t pts = 0;
    int more = video_part_open(path, &r) == 0 ? 1 : -1;
    while (more == 1) {
        more = video_part_next(&r, &pts, NULL);
    }
    *out = r.info;
    video_part_close(&r);
    return more;
}
