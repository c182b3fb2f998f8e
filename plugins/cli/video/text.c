/* text.c - converts text subtitles that the output holds in another codec only, mostly SubRip to MP4's and back. */
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/video/part.h"

enum { TEXT_BYTES = 1 << 16 };

struct video_text {
    AVCodecContext *from, *to;
    uint8_t bytes[TEXT_BYTES];
};

enum AVCodecID video_text_form(const AVOutputFormat *container, const AVStream *s) {
    static const enum AVCodecID forms[] = {AV_CODEC_ID_SUBRIP, AV_CODEC_ID_MOV_TEXT, AV_CODEC_ID_WEBVTT,
                                           AV_CODEC_ID_ASS};
    const AVCodecDescriptor *d = avcodec_descriptor_get(s->codecpar->codec_id);
    if (d == NULL || (d->props & AV_CODEC_PROP_TEXT_SUB) == 0 || avcodec_find_decoder(s->codecpar->codec_id) == NULL) {
        return AV_CODEC_ID_NONE;
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (video_takes(container, forms[i]) && avcodec_find_encoder(forms[i]) != NULL) {
            return forms[i];
        }
    }
    return AV_CODEC_ID_NONE;
}

static int open_decoder(video_text *t, const AVStream *s) {
    const AVCodec *c = avcodec_find_decoder(s->codecpar->codec_id);
    t->from = avcodec_alloc_context3(c);
    int r = t->from != NULL ? avcodec_parameters_to_context(t->from, s->codecpar) : AVERROR(ENOMEM);
    if (r >= 0) {
        t->from->pkt_timebase = s->time_base;
        r = avcodec_open2(t->from, c, NULL);
    }
    return r;
}

static int open_encoder(video_text *t, enum AVCodecID form) {
    const AVCodec *c = avcodec_find_encoder(form);
    const int bytes = t->from->subtitle_header_size;
    t->to = avcodec_alloc_context3(c);
    if (t->to == NULL) {
        return AVERROR(ENOMEM);
    }
    t->to->time_base = AV_TIME_BASE_Q;
    if (t->from->subtitle_header != NULL) { /* the styles, which every decoder writes in the form of ASS */
        t->to->subtitle_header = av_mallocz((size_t)bytes + 1);
        if (t->to->subtitle_header == NULL) {
            return AVERROR(ENOMEM);
        }
        memcpy(t->to->subtitle_header, t->from->subtitle_header, (size_t)bytes);
        t->to->subtitle_header_size = bytes;
    }
    return avcodec_open2(t->to, c, NULL);
}

int video_text_open(const AVStream *s, enum AVCodecID form, AVCodecParameters *parameters, video_text **out) {
    video_text *t = calloc(1, sizeof *t);
    int r = t != NULL ? open_decoder(t, s) : AVERROR(ENOMEM);
    r = r < 0 ? r : open_encoder(t, form);
    r = r < 0 ? r : avcodec_parameters_from_context(parameters, t->to);
    if (r < 0) {
        video_text_close(t);
        return r;
    }
    *out = t;
    return 0;
}

void video_text_close(video_text *t) {
    if (t != NULL) {
        avcodec_free_context(&t->from);
        avcodec_free_context(&t->to);
        free(t);
    }
}

int video_text_turn(video_text *t, AVPacket *p) {
    AVSubtitle text = {0};
    AVPacket *next = NULL;
    int got = 0;
    int r = avcodec_decode_subtitle2(t->from, &text, &got, p);
    if (r < 0 || !got || text.num_rects == 0) { /* a gap, or a packet that cannot be decoded */
        avsubtitle_free(&text);
        return 0;
    }
    const int bytes = avcodec_encode_subtitle(t->to, t->bytes, TEXT_BYTES, &text);
    avsubtitle_free(&text);
    if (bytes <= 0) {
        return 0;
    }
    next = av_packet_alloc();
    r = next != NULL ? av_new_packet(next, bytes) : AVERROR(ENOMEM);
    if (r >= 0) {
        memcpy(next->data, t->bytes, (size_t)bytes);
        next->pts = p->pts;
        next->dts = p->dts;
        next->duration = p->duration;
        next->stream_index = p->stream_index;
        next->flags = p->flags;
        av_packet_unref(p);
        av_packet_move_ref(p, next);
    }
    av_packet_free(&next);
    return r < 0 ? r : 1;
}
