/* colour.c - converts between the file's Y'CbCr and the R'G'B' of the networks, with the stream's matrix and range in both
 * directions and no change of transfer. swscale uses its exact paths and the position of the chroma samples. */
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>

#include "plugins/cli/video/video_priv.h"

enum { ALIGN = 64 }; /* bytes */
enum { EXACT = SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP | SWS_ACCURATE_RND | SWS_BITEXACT };

int video_bits_of(int pixel_format) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)pixel_format);
    return d != NULL ? d->comp[0].depth : 8;
}

const char *video_pixels_name(int pixel_format) {
    const char *name = av_get_pix_fmt_name((enum AVPixelFormat)pixel_format);
    return name != NULL ? name : "unknown pixels";
}

/* Replaces the deprecated full-range formats. */
static enum AVPixelFormat plain(int format, int *full) {
    static const enum AVPixelFormat old[][2] = {{AV_PIX_FMT_YUVJ420P, AV_PIX_FMT_YUV420P},
                                                {AV_PIX_FMT_YUVJ422P, AV_PIX_FMT_YUV422P},
                                                {AV_PIX_FMT_YUVJ444P, AV_PIX_FMT_YUV444P},
                                                {AV_PIX_FMT_YUVJ440P, AV_PIX_FMT_YUV440P}};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        if (format == (int)old[i][0]) {
            *full = 1;
            return old[i][1];
        }
    }
    return (enum AVPixelFormat)format;
}

video_colour video_colour_of(const AVFrame *f) {
    video_colour c = {.matrix = f->colorspace,
                      .primaries = f->color_primaries,
                      .transfer = f->color_trc,
                      .range = f->color_range,
                      .siting = f->chroma_location};
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    const int rgb = d != NULL && (d->flags & AV_PIX_FMT_FLAG_RGB) != 0;
    int full = c.range == AVCOL_RANGE_JPEG;
    plain(f->format, &full);
    c.range = full && !rgb ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    const int known = c.matrix == AVCOL_SPC_BT709 || c.matrix == AVCOL_SPC_BT470BG || c.matrix == AVCOL_SPC_SMPTE170M ||
                      c.matrix == AVCOL_SPC_BT2020_NCL || c.matrix == AVCOL_SPC_SMPTE240M || c.matrix == AVCOL_SPC_FCC;
    if (rgb || !known) {
        c.matrix = f->height >= 720 || rgb ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    }
    return c;
}

static int coefficients(enum AVColorSpace matrix) {
    return matrix == AVCOL_SPC_BT709        ? SWS_CS_ITU709
           : matrix == AVCOL_SPC_BT2020_NCL ? SWS_CS_BT2020
           : matrix == AVCOL_SPC_SMPTE240M  ? SWS_CS_SMPTE240M
           : matrix == AVCOL_SPC_FCC        ? SWS_CS_FCC
                                            : SWS_CS_ITU601;
}

/* Sets the position of 4:2:0 chroma, in 1/256 of a luma sample. Unspecified means that of MPEG-2: left, between the rows. */
static void set_siting(struct SwsContext *sws, const char *side, enum AVChromaLocation at, enum AVPixelFormat format) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(format);
    if (d == NULL || d->log2_chroma_w != 1 || d->log2_chroma_h != 1) {
        return;
    }
    const int h = at == AVCHROMA_LOC_CENTER || at == AVCHROMA_LOC_TOP || at == AVCHROMA_LOC_BOTTOM ? 128 : 0;
    const int v = at == AVCHROMA_LOC_TOPLEFT || at == AVCHROMA_LOC_TOP         ? 0
                  : at == AVCHROMA_LOC_BOTTOMLEFT || at == AVCHROMA_LOC_BOTTOM ? 256
                                                                               : 128;
    av_opt_set_int(sws, side[0] == 's' ? "src_h_chr_pos" : "dst_h_chr_pos", h, 0);
    av_opt_set_int(sws, side[0] == 's' ? "src_v_chr_pos" : "dst_v_chr_pos", v, 0);
}

typedef struct scaling {
    int from_w, from_h, to_w, to_h;
    enum AVPixelFormat from, to;
} scaling;

static int prepare(video_scaler *s, const scaling *z, const video_colour *colour, int full, int yuv_is_source) {
    const int w = yuv_is_source ? z->from_w : z->to_w;
    const int h = yuv_is_source ? z->from_h : z->to_h;
    const int format = (int)(yuv_is_source ? z->from : z->to);
    const int from_full = yuv_is_source && full; /* RGB is always full range, and swscale's flag for it is 0 */
    const int to_full = !yuv_is_source && full;
    const int *table = sws_getCoefficients(coefficients(colour->matrix));
    if (s->sws != NULL && s->w == w && s->h == h && s->format == format) {
        return 0;
    }
    video_scaler_free(s);
    s->sws = sws_alloc_context();
    if (s->sws == NULL) {
        return AVERROR(ENOMEM);
    }
    av_opt_set_int(s->sws, "srcw", z->from_w, 0);
    av_opt_set_int(s->sws, "srch", z->from_h, 0);
    av_opt_set_int(s->sws, "dstw", z->to_w, 0);
    av_opt_set_int(s->sws, "dsth", z->to_h, 0);
    av_opt_set_int(s->sws, "src_format", (int)z->from, 0);
    av_opt_set_int(s->sws, "dst_format", (int)z->to, 0);
    av_opt_set_int(s->sws, "sws_flags",
                   (z->from_w == z->to_w && z->from_h == z->to_h ? SWS_BICUBIC : SWS_LANCZOS) | EXACT, 0);
    if (z->from != AV_PIX_FMT_XYZ12LE && z->from != AV_PIX_FMT_XYZ12BE) { /* slices change the result for XYZ */
        av_opt_set_int(s->sws, "threads", s->threads > 1 ? s->threads : 1, 0);
    }
    set_siting(s->sws, yuv_is_source ? "src" : "dst", colour->siting, yuv_is_source ? z->from : z->to);
    sws_setColorspaceDetails(s->sws, table, from_full, table, to_full, 0, 1 << 16, 1 << 16);
    const int r = sws_init_context(s->sws, NULL, NULL);
    if (r < 0) {
        video_scaler_free(s);
        return r;
    }
    /* again: sws_init_context may have reset the details */
    sws_setColorspaceDetails(s->sws, table, from_full, table, to_full, 0, 1 << 16, 1 << 16);
    s->w = w;
    s->h = h;
    s->format = format;
    return 0;
}

/* Scales by frames, not by rows: only then swscale's threads share a frame. */
static int scale(const video_scaler *s, const AVFrame *from, const scaling *z, AVFrame *to) {
    AVFrame *part = av_frame_clone(from);
    if (part == NULL) {
        return AVERROR(ENOMEM);
    }
    part->width = z->from_w;
    part->height = z->from_h;
    const int r = sws_scale_frame(s->sws, to, part);
    av_frame_free(&part);
    return r < 0 ? r : 0;
}

int video_to_rgb(video_scaler *s, const AVFrame *frame, const video_colour *colour, AVFrame *rgb) {
    int full = colour->range == AVCOL_RANGE_JPEG;
    const scaling z = {frame->width, frame->height, rgb->width, rgb->height, plain(frame->format, &full), rgb->format};
    const int r = prepare(s, &z, colour, full, 1);
    return r < 0 ? r : scale(s, frame, &z, rgb);
}

int video_from_rgb(video_scaler *s, const AVFrame *rgb, const video_colour *colour, AVFrame *frame) {
    int full = colour->range == AVCOL_RANGE_JPEG;
    scaling z = {rgb->width, rgb->height, frame->width, frame->height, rgb->format, plain(frame->format, &full)};
    if (z.from_w - z.to_w == 1) { /* 4:2:0 has no odd last column */
        z.from_w = z.to_w;
    }
    if (z.from_h - z.to_h == 1) {
        z.from_h = z.to_h;
    }
    const int r = prepare(s, &z, colour, full, 0);
    return r < 0 ? r : scale(s, rgb, &z, frame);
}

void video_scaler_free(video_scaler *s) {
    sws_freeContext(s->sws);
    s->sws = NULL;
}

/* ---- RGB ---- */

AVFrame *video_rgb_alloc(uint32_t width, uint32_t height, uint32_t bits) {
    AVFrame *f = av_frame_alloc();
    if (f != NULL) {
        f->format = bits == 16 ? AV_PIX_FMT_RGB48 : AV_PIX_FMT_RGB24;
        f->width = (int)width;
        f->height = (int)height;
        if (av_frame_get_buffer(f, ALIGN) < 0) {
            av_frame_free(&f);
        }
    }
    return f;
}

void video_rgb_to_picture(const AVFrame *rgb, cli_picture *p) {
    const int bytes = (int)cli_picture_stride(p);
    av_image_copy_plane(p->pixels, bytes, rgb->data[0], rgb->linesize[0], bytes, rgb->height);
}

void video_rgb_of_picture(AVFrame *rgb, const cli_picture *p) {
    const int bytes = (int)cli_picture_stride(p);
    av_image_copy_plane(rgb->data[0], rgb->linesize[0], p->pixels, bytes, bytes, rgb->height);
}
