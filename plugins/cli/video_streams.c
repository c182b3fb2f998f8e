/* video_streams.c - what a video file holds besides packets: its streams, how they are to be shown, chapters and tags. */
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/video_part.h"

const uint8_t *video_side_data(const AVStream *s, enum AVPacketSideDataType type, size_t *bytes) {
#if LIBAVCODEC_VERSION_MAJOR >= 61
    const AVPacketSideData *d =
        av_packet_side_data_get(s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data, type);
    *bytes = d != NULL ? d->size : 0;
    return d != NULL ? d->data : NULL;
#else
    *bytes = 0;
    return av_stream_get_side_data(s, type, bytes);
#endif
}

int video_set_side_data(AVStream *s, enum AVPacketSideDataType type, const void *data, size_t bytes) {
#if LIBAVCODEC_VERSION_MAJOR >= 61
    AVPacketSideData *d =
        av_packet_side_data_new(&s->codecpar->coded_side_data, &s->codecpar->nb_coded_side_data, type, bytes, 0);
    uint8_t *copy = d != NULL ? d->data : NULL;
#else
    uint8_t *copy = av_stream_new_side_data(s, type, bytes);
#endif
    if (copy == NULL) {
        return AVERROR(ENOMEM);
    }
    memcpy(copy, data, bytes);
    return 0;
}

/* How the picture is turned, how bright its display was: kept as it is. */
static int copy_side_data(const AVStream *from, AVStream *to) {
    static const enum AVPacketSideDataType kept[] = {AV_PKT_DATA_DISPLAYMATRIX, AV_PKT_DATA_MASTERING_DISPLAY_METADATA,
                                                     AV_PKT_DATA_CONTENT_LIGHT_LEVEL, AV_PKT_DATA_STEREO3D,
                                                     AV_PKT_DATA_SPHERICAL};
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof kept / sizeof kept[0]; i++) {
        size_t bytes = 0;
        const uint8_t *d = video_side_data(from, kept[i], &bytes);
        r = d != NULL ? video_set_side_data(to, kept[i], d, bytes) : 0;
    }
    return r;
}

static void drop_tag(AVDictionary **d, const char *key) {
    av_dict_set(d, key, NULL, 0);
}

int video_add_stream(AVFormatContext *out, const cli_video *v, const video_format *f) {
    AVCodecContext *c = NULL;
    AVStream *to = avformat_new_stream(out, NULL);
    int r = to != NULL ? video_encoder_open(f, &c) : AVERROR(ENOMEM);
    r = r < 0 ? r : avcodec_parameters_from_context(to->codecpar, c);
    avcodec_free_context(&c);
    if (r < 0) {
        return r;
    }
    const int apple = strcmp(out->oformat->name, "mp4") == 0 || strcmp(out->oformat->name, "mov") == 0;
    if (to->codecpar->codec_id == AV_CODEC_ID_HEVC && apple) {
        to->codecpar->codec_tag = MKTAG('h', 'v', 'c', '1');
    }
    to->time_base = f->time_base;
    to->avg_frame_rate = f->rate;
    to->sample_aspect_ratio = f->sample_aspect;
    if (v != NULL) {
        to->disposition = v->stream->disposition;
        av_dict_copy(&to->metadata, v->stream->metadata, 0);
        drop_tag(&to->metadata, "encoder");
        r = copy_side_data(v->stream, to);
    }
    return r < 0 ? r : video_hdr_to_stream(&f->hdr, to);
}

/* ---- the input's other streams ---- */

static int is_cover(const AVStream *s) {
    return s->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && (s->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
}

static const char *cover_kind(const AVStream *s) {
    return s->codecpar->codec_id == AV_CODEC_ID_PNG     ? "png"
           : s->codecpar->codec_id == AV_CODEC_ID_MJPEG ? "jpeg"
                                                        : NULL;
}

static int wanted(const AVFormatContext *out, const AVStream *s, int mkv, const char *path) {
    const enum AVMediaType type = s->codecpar->codec_type;
    if (type == AVMEDIA_TYPE_VIDEO && !is_cover(s)) {
        cli_note(path, "stream %d (%s), another video, is left out", s->index, avcodec_get_name(s->codecpar->codec_id));
        return 0;
    }
    if (type != AVMEDIA_TYPE_AUDIO && type != AVMEDIA_TYPE_SUBTITLE && !is_cover(s) &&
        !(type == AVMEDIA_TYPE_ATTACHMENT && mkv)) {
        return 0;
    }
    if (type == AVMEDIA_TYPE_ATTACHMENT ||
        (is_cover(s) && mkv ? cover_kind(s) != NULL
                            : avformat_query_codec(out->oformat, s->codecpar->codec_id, FF_COMPLIANCE_NORMAL) == 1)) {
        return 1;
    }
    cli_note(path, "stream %d (%s) does not go into this kind of file and is left out; .mkv holds nearly everything",
             s->index, avcodec_get_name(s->codecpar->codec_id));
    return 0;
}

/* Matroska's covers are files in the file. */
static int attach(const AVStream *cover, AVStream *to) {
    const AVPacket *p = &cover->attached_pic;
    char name[32];
    char type[32];
    snprintf(name, sizeof name, "cover.%s", cover_kind(cover));
    snprintf(type, sizeof type, "image/%s", cover_kind(cover));
    to->codecpar->codec_type = AVMEDIA_TYPE_ATTACHMENT;
    to->disposition = 0;
    av_freep(&to->codecpar->extradata);
    to->codecpar->extradata_size = 0;
    to->codecpar->extradata = av_mallocz((size_t)p->size + AV_INPUT_BUFFER_PADDING_SIZE);
    if (to->codecpar->extradata == NULL) {
        return AVERROR(ENOMEM);
    }
    memcpy(to->codecpar->extradata, p->data, (size_t)p->size);
    to->codecpar->extradata_size = p->size;
    av_dict_set(&to->metadata, "filename", name, AV_DICT_DONT_OVERWRITE);
    av_dict_set(&to->metadata, "mimetype", type, AV_DICT_DONT_OVERWRITE);
    return 0;
}

int video_add_others(AVFormatContext *out, const AVFormatContext *in, int video, const char *path, int *to) {
    const int mkv = strcmp(out->oformat->name, "matroska") == 0;
    int r = 0;
    for (int i = 0; r >= 0 && i < (int)in->nb_streams; i++) {
        const AVStream *s = in->streams[i];
        to[i] = -1;
        if (i == video || !wanted(out, s, mkv, path)) {
            continue;
        }
        AVStream *copy = avformat_new_stream(out, NULL);
        if (copy == NULL || avcodec_parameters_copy(copy->codecpar, s->codecpar) < 0) {
            return AVERROR(ENOMEM);
        }
        copy->codecpar->codec_tag = 0;
        copy->time_base = s->time_base;
        copy->disposition = s->disposition;
        av_dict_copy(&copy->metadata, s->metadata, 0);
        r = copy_side_data(s, copy);
        if (r >= 0 && mkv && is_cover(s)) {
            r = attach(s, copy);
        } else {
            to[i] = copy->index;
        }
    }
    return r;
}

int video_add_chapters(AVFormatContext *out, const AVFormatContext *in) {
    for (unsigned i = 0; i < in->nb_chapters; i++) {
        AVChapter *c = av_mallocz(sizeof *c);
        if (c == NULL) {
            return AVERROR(ENOMEM);
        }
        *c = *in->chapters[i];
        c->metadata = NULL;
        av_dict_copy(&c->metadata, in->chapters[i]->metadata, 0);
        if (av_dynarray_add_nofree(&out->chapters, (int *)&out->nb_chapters, c) < 0) {
            av_dict_free(&c->metadata);
            av_free(c);
            return AVERROR(ENOMEM);
        }
    }
    av_dict_copy(&out->metadata, in->metadata, 0);
    drop_tag(&out->metadata, "encoder");
    return 0;
}
