/* format.c - chooses the encoder and its pixel format: the first one in FFmpeg that opens. */
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/video/part.h"

/* Encoders of each codec in order of preference. hardware: only if davy computes on a GPU, too. */
static const struct {
    const char *codec;
    const char *encoder;
    int hardware;
} encoders[] = {
    {"h264", "h264_nvenc", 1}, {"h264", "libx264", 0},  {"h264", "libopenh264", 0}, {"hevc", "hevc_nvenc", 1},
    {"hevc", "libx265", 0},    {"av1", "av1_nvenc", 1}, {"av1", "libsvtav1", 0},    {"av1", "libaom-av1", 0},
    {"vp9", "libvpx-vp9", 0},  {"ffv1", "ffv1", 0},
};

enum {
    USUAL_CRF = 16,
    CRF_MAX = 51,      /* of encoders that report no limit */
    VP8_BITS = 1 << 30 /* per second */
};

static int has_pixels(const AVCodec *c, enum AVPixelFormat want) {
    for (const enum AVPixelFormat *p = c->pix_fmts; p != NULL && *p != AV_PIX_FMT_NONE; p++) {
        if (*p == want) {
            return 1;
        }
    }
    return c->pix_fmts == NULL;
}

/* 4:2:0, with 10 bits if the source has more than 8 and the encoder supports them. */
static enum AVPixelFormat pixels_for(const AVCodec *c, uint32_t bits) {
    static const enum AVPixelFormat deep[] = {AV_PIX_FMT_YUV420P10, AV_PIX_FMT_P010};
    for (size_t i = 0; bits > 8 && i < 2; i++) {
        if (has_pixels(c, deep[i])) {
            return deep[i];
        }
    }
    return has_pixels(c, AV_PIX_FMT_YUV420P) ? AV_PIX_FMT_YUV420P : AV_PIX_FMT_NONE;
}

/* Constant quality on the encoder's own scale. */
static void set_quality(AVCodecContext *c, const video_format *f) {
    const char *name = c->codec->name;
    char text[16];
    snprintf(text, sizeof text, "%d", f->quality);
    if (strstr(name, "_nvenc") != NULL) {
        av_opt_set(c->priv_data, "rc", "vbr", 0);
        av_opt_set(c->priv_data, "cq", text, 0);
        av_opt_set(c->priv_data, "preset", "p5", 0);
    } else {
        av_opt_set(c->priv_data, "crf", text, 0);
    }
    if (strcmp(name, "libvpx") == 0) {
        c->bit_rate = VP8_BITS; /* an upper bound; libvpx's default is too low */
    } else if (strcmp(name, "libvpx-vp9") == 0 || strcmp(name, "libaom-av1") == 0) {
        c->bit_rate = 0;
        av_opt_set(c->priv_data, "row-mt", "1", 0);
        av_opt_set(c->priv_data, "cpu-used", "4", 0);
    } else if (strcmp(name, "libx265") == 0) {
        char hdr[256];
        char all[288];
        video_hdr_x265(&f->hdr, hdr);
        snprintf(all, sizeof all, "log-level=none%s", hdr);
        av_opt_set(c->priv_data, "x265-params", all, 0);
    }
}

int video_encoder_open(const video_format *f, AVCodecContext **out) {
    AVCodecContext *c = avcodec_alloc_context3(f->encoder);
    if (c == NULL) {
        return AVERROR(ENOMEM);
    }
    c->width = f->w;
    c->height = f->h;
    c->pix_fmt = f->pixels;
    c->time_base = f->time_base;
    c->framerate = f->rate;
    c->sample_aspect_ratio = f->sample_aspect;
    c->colorspace = f->colour.matrix;
    c->color_primaries = f->colour.primaries;
    c->color_trc = f->colour.transfer;
    c->color_range = f->colour.range;
    c->chroma_sample_location = f->colour.siting;
    c->flags |= (int)(AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_CLOSED_GOP);
    c->thread_count = 0;
    set_quality(c, f);
    const int r = avcodec_open2(c, f->encoder, NULL);
    if (r < 0) {
        avcodec_free_context(&c);
        return r;
    }
    *out = c;
    return 0;
}

/* Whether the container accepts the stream. Many muxers report that only when they write the header. */
static int begins(const AVOutputFormat *container, const AVCodecContext *c) {
    AVFormatContext *out = NULL;
    uint8_t *written = NULL;
    int ok = avformat_alloc_output_context2(&out, container, NULL, NULL) >= 0 && avio_open_dyn_buf(&out->pb) >= 0;
    if (ok) {
        AVStream *s = avformat_new_stream(out, NULL);
        ok = s != NULL && avcodec_parameters_from_context(s->codecpar, c) >= 0;
        if (ok) {
            s->time_base = c->time_base;
            s->avg_frame_rate = c->framerate;
            ok = avformat_write_header(out, NULL) >= 0;
        }
        avio_close_dyn_buf(out->pb, &written);
        av_free(written);
    }
    avformat_free_context(out);
    return ok;
}

/* Whether the encoder opens for these frames. */
static int works(const AVCodec *codec, uint32_t bits, video_format *f) {
    AVCodecContext *c = NULL;
    if (codec == NULL || codec->type != AVMEDIA_TYPE_VIDEO) {
        return 0;
    }
    f->encoder = codec;
    f->pixels = pixels_for(codec, bits);
    video_format usual = *f; /* check_quality reports an unsupported quality */
    usual.quality = USUAL_CRF;
    const int ok = f->pixels != AV_PIX_FMT_NONE &&
                   avformat_query_codec(f->container, codec->id, FF_COMPLIANCE_NORMAL) != 0 &&
                   video_encoder_open(&usual, &c) == 0 && begins(f->container, c);
    avcodec_free_context(&c);
    return ok;
}

static int choose_encoder(const char *path, const char *codec, uint32_t bits, const video_codec_wish *wish,
                          video_format *f) {
    const int hdr = bits > 8;
    const char *shut = NULL; /* a GPU encoder that does not work */
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++) {
        const AVCodec *e = avcodec_find_encoder_by_name(encoders[i].encoder);
        if (strcmp(encoders[i].codec, codec) != 0 || e == NULL || (encoders[i].hardware && !wish->on_gpu)) {
            continue;
        }
        if (works(e, bits, f) && (!encoders[i].hardware || !hdr || f->pixels != AV_PIX_FMT_YUV420P)) {
            if (shut != NULL) {
                cli_note(path, "%s cannot encode this video here; %s encodes it", shut, e->name);
            }
            return CLI_OK;
        }
        shut = encoders[i].hardware ? e->name : shut;
    }
    if (works(avcodec_find_encoder_by_name(codec), bits, f)) { /* the name of an encoder */
        return CLI_OK;
    }
    return cli_fail(path,
                    "FFmpeg has no encoder \"%s\" for 4:2:0 video of %dx%d in this file format; use another --codec",
                    codec, f->w, f->h);
}

/* An encoder would silently replace a quality that it does not support. */
static int check_quality(const char *path, const video_codec_wish *wish, const video_format *f) {
    const char *name = f->encoder->name;
    const char *option = strstr(name, "_nvenc") != NULL ? "cq" : "crf";
    const AVClass *options = f->encoder->priv_class;
    const AVOption *o = options != NULL ? av_opt_find(&options, option, NULL, 0, AV_OPT_SEARCH_FAKE_OBJ) : NULL;
    const int most = o != NULL && o->max < 100.0 ? (int)o->max : CRF_MAX;
    if (o != NULL && f->quality > most) {
        return cli_fail(path, "%s supports --crf up to %d, not %d", name, most, f->quality);
    }
    if (o == NULL && wish->quality > 0) {
        cli_note(path, "%s has no --crf; it uses its own quality", name);
    }
    return CLI_OK;
}

int video_format_choose(const cli_video *v, const char *path, int w, int h, const video_codec_wish *wish,
                        video_format *out) {
    *out = (video_format){.w = w & ~1, .h = h & ~1, .quality = wish->quality > 0 ? wish->quality : USUAL_CRF};
    out->time_base = v->stream->time_base;
    out->rate = v->stream->avg_frame_rate.num > 0 ? v->stream->avg_frame_rate : v->stream->r_frame_rate;
    if (out->rate.num <= 0 || out->rate.den <= 0) {
        out->rate = (AVRational){25, 1};
    }
    out->sample_aspect = v->ahead != NULL && v->ahead->sample_aspect_ratio.num > 0 ? v->ahead->sample_aspect_ratio
                                                                                   : v->stream->sample_aspect_ratio;
    out->colour = v->colour;
    out->hdr = v->hdr;
    return video_format_settle(path, v->facts.bits > 8 ? 10 : 8, wish, out);
}

int video_format_settle(const char *path, int bits, const video_codec_wish *wish, video_format *out) {
    out->container = av_guess_format(NULL, path, NULL);
    if (out->container == NULL || out->container->video_codec == AV_CODEC_ID_NONE ||
        (out->container->flags & AVFMT_NOFILE) != 0) {
        return cli_fail(
            path, "the ending is not that of a video format; use .mp4, .mkv, .mov or .webm, or NAME/ for a folder of "
                  "pictures");
    }
    if (out->w < 2 || out->h < 2) {
        return cli_fail(path, "%dx%d pixels are too few; a video needs at least 2x2", out->w, out->h);
    }
    const int webm = strcmp(out->container->name, "webm") == 0;
    const char *usual = webm ? "vp9" : bits > 8 || out->w > 4096 || out->h > 4096 ? "hevc" : "h264";
    int r = CLI_FAILED;
    if (wish->codec != NULL || avformat_query_codec(out->container, AV_CODEC_ID_H264, FF_COMPLIANCE_NORMAL) != 0 ||
        webm) {
        r = choose_encoder(path, wish->codec != NULL ? wish->codec : usual, (uint32_t)bits, wish, out);
    } else { /* an old container: its own codec */
        const AVCodec *own = avcodec_find_encoder(out->container->video_codec);
        r = works(own, (uint32_t)bits, out)
                ? CLI_OK
                : cli_fail(path, "FFmpeg has no encoder for this file format; use .mp4 or .mkv");
    }
    if (r == CLI_OK && bits > 8 && video_bits_of((int)out->pixels) == 8) {
        cli_note(path, "%s encodes 8 bits; the video's %d are rounded", out->encoder->name, bits);
    }
    return r == CLI_OK ? check_quality(path, wish, out) : r;
}
