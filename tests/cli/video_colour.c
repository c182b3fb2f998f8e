/* video_colour.c - conversions by several threads of swscale equal those by one thread, bit for bit, for all pixel formats and both
 * directions. */
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/video/video_priv.h"
#include "tests/lib/check.h"

static const enum AVPixelFormat formats[] = {
    AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUVJ420P, AV_PIX_FMT_YUV420P10, AV_PIX_FMT_NV12,       AV_PIX_FMT_P010,
    AV_PIX_FMT_YUV422P, AV_PIX_FMT_UYVY422,  AV_PIX_FMT_YUV444P,   AV_PIX_FMT_YUV444P12,  AV_PIX_FMT_YUV410P,
    AV_PIX_FMT_YUV411P, AV_PIX_FMT_YUV440P,  AV_PIX_FMT_YUVA420P,  AV_PIX_FMT_YUVA444P10, AV_PIX_FMT_GRAY8,
    AV_PIX_FMT_GRAY10,  AV_PIX_FMT_GBRP,     AV_PIX_FMT_GBRP10,    AV_PIX_FMT_BGRA,       AV_PIX_FMT_RGB24,
    AV_PIX_FMT_PAL8,    AV_PIX_FMT_RGB565,   AV_PIX_FMT_MONOWHITE, AV_PIX_FMT_XYZ12,
};

static const int sizes[][2] = {{16, 16}, {33, 21}, {98, 62}, {321, 180}};
static const int threads[] = {2, 3, 5, 8, 16};

enum { FORMATS = sizeof formats / sizeof formats[0], SIZES = sizeof sizes / sizeof sizes[0], ALIGN = 64 };
enum { COUNTS = sizeof threads / sizeof threads[0] };

static uint32_t random_next(void) {
    static uint32_t x = 1;
    x = x * 1664525u + 1013904223u;
    return x >> 16;
}

static AVFrame *new_frame(enum AVPixelFormat format, int w, int h) {
    AVFrame *f = av_frame_alloc();
    if (f == NULL) {
        abort();
    }
    f->format = (int)format;
    f->width = w;
    f->height = h;
    if (av_frame_get_buffer(f, ALIGN) < 0) {
        abort();
    }
    for (int i = 0; f->buf[i] != NULL; i++) {
        memset(f->buf[i]->data, 0, (size_t)f->buf[i]->size);
    }
    return f;
}

/* Fills all bytes of the buffers with random numbers of the format's depth. */
static void fill(AVFrame *f) {
    const AVComponentDescriptor *c = &av_pix_fmt_desc_get((enum AVPixelFormat)f->format)->comp[0];
    for (int i = 0; f->buf[i] != NULL; i++) {
        uint8_t *p = f->buf[i]->data;
        for (size_t k = 0; k + 1 < (size_t)f->buf[i]->size; k += 2) {
            const uint32_t v = c->depth > 8 ? (random_next() & ((1u << c->depth) - 1u)) << c->shift : random_next();
            p[k] = (uint8_t)v;
            p[k + 1] = (uint8_t)(v >> 8);
        }
    }
}

static int same(const AVFrame *a, const AVFrame *b) {
    const int bytes = av_image_get_buffer_size((enum AVPixelFormat)a->format, a->width, a->height, 1);
    uint8_t *p = malloc(2 * (size_t)bytes);
    if (p == NULL) {
        abort();
    }
    const AVFrame *const f[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        av_image_copy_to_buffer(p + (ptrdiff_t)i * bytes, bytes, (const uint8_t *const *)f[i]->data, f[i]->linesize,
                                (enum AVPixelFormat)f[i]->format, f[i]->width, f[i]->height, 1);
    }
    const int equal = memcmp(p, p + bytes, (size_t)bytes) == 0;
    free(p);
    return equal;
}

/* Converts a frame with n threads. like: format and size of the result. */
static AVFrame *converted(int n, int to_rgb, const AVFrame *from, const AVFrame *like, const video_colour *colour) {
    video_scaler s = {.threads = n};
    AVFrame *to = new_frame((enum AVPixelFormat)like->format, like->width, like->height);
    for (int i = 0; i < 2; i++) { /* the second time uses the context of the first */
        const int r = to_rgb ? video_to_rgb(&s, from, colour, to) : video_from_rgb(&s, from, colour, to);
        CHECKF(r == 0, "%s: %d threads: error %d", av_get_pix_fmt_name((enum AVPixelFormat)from->format), n, r);
    }
    video_scaler_free(&s);
    return to;
}

static void compare(int to_rgb, const AVFrame *from, const AVFrame *like, const video_colour *colour) {
    AVFrame *one = converted(1, to_rgb, from, like, colour);
    for (int i = 0; i < COUNTS; i++) {
        AVFrame *many = converted(threads[i], to_rgb, from, like, colour);
        CHECKF(same(one, many), "%s %dx%d to %s %dx%d, range %d: %d threads give other pixels",
               av_get_pix_fmt_name((enum AVPixelFormat)from->format), from->width, from->height,
               av_get_pix_fmt_name((enum AVPixelFormat)like->format), like->width, like->height, colour->range,
               threads[i]);
        av_frame_free(&many);
    }
    av_frame_free(&one);
}

static void both_ways(enum AVPixelFormat format, const int size[2], enum AVColorRange range) {
    const uint32_t bits = video_bits_of((int)format) > 8 ? 16 : 8;
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(format);
    AVFrame *frame = new_frame(format, size[0], size[1]);
    AVFrame *rgb = video_rgb_alloc((uint32_t)size[0], (uint32_t)size[1], bits);
    if (rgb == NULL) {
        abort();
    }
    const video_colour c = {.matrix = AVCOL_SPC_BT709, .range = range, .siting = AVCHROMA_LOC_LEFT};
    fill(frame);
    fill(rgb);
    compare(1, frame, rgb, &c);
    if (d->log2_chroma_w == 1 && d->log2_chroma_h == 1 && d->nb_components == 3) { /* the formats that sinks use */
        const int w = size[0] & ~1;
        const int h = size[1] & ~1;
        const int to[][2] = {{w, h}, {w / 4 * 2, h / 4 * 2}, {w * 3 / 2 & ~1, h * 3 / 2 & ~1}};
        for (int i = 0; i < 3; i++) { /* odd sides cut off; scaled */
            AVFrame *like = new_frame(format, to[i][0], to[i][1]);
            compare(0, rgb, like, &c);
            av_frame_free(&like);
        }
    }
    av_frame_free(&frame);
    av_frame_free(&rgb);
}

int main(void) {
    av_log_set_level(AV_LOG_QUIET);
    for (int f = 0; f < FORMATS; f++) {
        for (int s = 0; s < SIZES; s++) {
            both_ways(formats[f], sizes[s], AVCOL_RANGE_MPEG);
            both_ways(formats[f], sizes[s], AVCOL_RANGE_JPEG);
        }
    }
    return check_done();
}
