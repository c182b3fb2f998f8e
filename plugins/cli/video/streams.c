/* streams.c - the streams of a video file with their side data, chapters and tags. */
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/video/part.h"

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

/* Copies the side data: rotation (unless the frames are upright), mastering display, light levels, stereo, sphere. */
static int copy_side_data(const AVStream *from, int upright, AVStream *to) {
    static const enum AVPacketSideDataType kept[] = {AV_PKT_DATA_DISPLAYMATRIX, AV_PKT_DATA_MASTERING_DISPLAY_METADATA,
                                                     AV_PKT_DATA_CONTENT_LIGHT_LEVEL, AV_PKT_DATA_STEREO3D,
                                                     AV_PKT_DATA_SPHERICAL};
    int r = 0;
    for (size_t i = upright ? 1 : 0; r >= 0 && i < sizeof kept / sizeof kept[0]; i++) { /* the first is the rotation */
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
        r = copy_side_data(v->stream, f->upright, to);
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

/* The muxers of MPEG's own formats do not report their codecs; these are the codecs that players support. */
static int mpeg_takes(const AVOutputFormat *container, enum AVCodecID codec) {
    static const enum AVCodecID both[] = {AV_CODEC_ID_MP2, AV_CODEC_ID_MP3, AV_CODEC_ID_AC3, AV_CODEC_ID_DTS};
    static const enum AVCodecID stream[] = {AV_CODEC_ID_AAC,  AV_CODEC_ID_AAC_LATM,     AV_CODEC_ID_EAC3,
                                            AV_CODEC_ID_OPUS, AV_CODEC_ID_DVB_SUBTITLE, AV_CODEC_ID_DVB_TELETEXT};
    int found = 0;
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        found |= codec == both[i];
    }
    for (size_t i = 0; strcmp(container->name, "mpegts") == 0 && i < sizeof stream / sizeof stream[0]; i++) {
        found |= codec == stream[i];
    }
    return found;
}

int video_takes(const AVOutputFormat *container, enum AVCodecID codec) {
    const int r = avformat_query_codec(container, codec, FF_COMPLIANCE_NORMAL);
    return r == AVERROR_PATCHWELCOME ? mpeg_takes(container, codec) : r == 1;
}

/* Whether a data stream repeats the file's chapters or its timecode tag, so that leaving it out loses nothing. */
static int is_said_elsewhere(const AVFormatContext *in, const AVStream *s) {
    return s->codecpar->codec_type == AVMEDIA_TYPE_DATA && ((s->discard == AVDISCARD_ALL && in->nb_chapters > 0) ||
                                                            av_dict_get(s->metadata, "timecode", NULL, 0) != NULL);
}

/* Whether the first packets of a sound stream come so late in the file that FFmpeg's probing did not reach them. */
static int is_unknown(const AVStream *s) {
    return s->codecpar->codec_type == AVMEDIA_TYPE_AUDIO && s->codecpar->sample_rate <= 0;
}

static void tell_left_out(const AVStream *s, int mkv, const char *path) {
    const enum AVMediaType type = s->codecpar->codec_type;
    const enum AVCodecID codec = s->codecpar->codec_id;
    char tag[AV_FOURCC_MAX_STRING_SIZE];
    const int named = codec != AV_CODEC_ID_NONE && codec != AV_CODEC_ID_BIN_DATA;
    const char *name = named                         ? avcodec_get_name(codec)
                       : s->codecpar->codec_tag != 0 ? av_fourcc_make_string(tag, s->codecpar->codec_tag)
                                                     : "unknown codec";
    if (path == NULL) {
        return;
    }
    if (type == AVMEDIA_TYPE_VIDEO && !is_cover(s)) {
        cli_note(path, "stream %d (%s) is left out: it is another video", s->index, name);
    } else if (type == AVMEDIA_TYPE_DATA || type == AVMEDIA_TYPE_UNKNOWN) {
        cli_note(path, "stream %d (%s) is left out: it is a data stream", s->index, name);
    } else if (is_unknown(s)) {
        cli_note(path, "stream %d (%s) is left out: it begins too late in the file", s->index, name);
    } else {
        cli_note(path, "stream %d (%s) is left out: this file format cannot hold it%s", s->index, name,
                 mkv ? "" : "; use .mkv, which holds nearly everything");
    }
}

/* The codec of a stream in the output; AV_CODEC_ID_NONE: the stream is left out. */
static enum AVCodecID form_of(const AVOutputFormat *container, const AVStream *s, int mkv) {
    const enum AVMediaType type = s->codecpar->codec_type;
    const enum AVCodecID codec = s->codecpar->codec_id;
    if (type == AVMEDIA_TYPE_ATTACHMENT) {
        return mkv ? codec : AV_CODEC_ID_NONE;
    }
    if (is_cover(s) && mkv) {
        return cover_kind(s) != NULL ? codec : AV_CODEC_ID_NONE;
    }
    if ((type != AVMEDIA_TYPE_AUDIO && type != AVMEDIA_TYPE_SUBTITLE && !is_cover(s)) || is_unknown(s)) {
        return AV_CODEC_ID_NONE;
    }
    return video_takes(container, codec) ? codec : video_text_form(container, s);
}

/* Matroska stores a cover as an attached file. */
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

static int add_other(AVFormatContext *out, const AVStream *s, enum AVCodecID form, int mkv, video_other *o) {
    AVStream *copy = avformat_new_stream(out, NULL);
    if (copy == NULL || avcodec_parameters_copy(copy->codecpar, s->codecpar) < 0) {
        return AVERROR(ENOMEM);
    }
    int r = 0;
    if (form != s->codecpar->codec_id) {
        r = video_text_open(s, form, copy->codecpar, &o->text);
    }
    copy->codecpar->codec_tag = 0;
    copy->time_base = s->time_base;
    copy->disposition = s->disposition;
    av_dict_copy(&copy->metadata, s->metadata, 0);
    r = r < 0 ? r : copy_side_data(s, 0, copy);
    if (r >= 0 && mkv && is_cover(s)) {
        return attach(s, copy);
    }
    o->kept = 1;
    o->to = copy->index;
    return r;
}

int video_add_others(AVFormatContext *out, const AVFormatContext *in, int video, const char *path,
                     video_other *others) {
    const int mkv = strcmp(out->oformat->name, "matroska") == 0;
    int r = 0;
    for (int i = 0; r >= 0 && i < (int)in->nb_streams; i++) {
        const AVStream *s = in->streams[i];
        const enum AVCodecID form = form_of(out->oformat, s, mkv);
        const int attached = s->codecpar->codec_type == AVMEDIA_TYPE_ATTACHMENT && mkv; /* of any codec */
        if (i == video || is_said_elsewhere(in, s)) {
            continue;
        }
        if (form == AV_CODEC_ID_NONE && !attached) {
            tell_left_out(s, mkv, path);
            continue;
        }
        if (form != s->codecpar->codec_id && path != NULL) {
            cli_note(path, "stream %d (%s) is converted to %s, the subtitle codec of this file format", i,
                     avcodec_get_name(s->codecpar->codec_id), avcodec_get_name(form));
        }
        r = add_other(out, s, form, mkv, &others[i]);
    }
    return r;
}

int video_add_chapters(AVFormatContext *out, const AVFormatContext *in) {
    static const char *const of_file[] = {"encoder", "major_brand", "minor_version", "compatible_brands"};
    const int64_t begin = in->start_time != AV_NOPTS_VALUE ? in->start_time : 0; /* the output starts at 0 */
    for (unsigned i = 0; i < in->nb_chapters; i++) {
        const int64_t start = av_rescale_q(begin, AV_TIME_BASE_Q, in->chapters[i]->time_base);
        if (in->chapters[i]->end <= start) {
            continue;
        }
        AVChapter *c = av_mallocz(sizeof *c);
        if (c == NULL) {
            return AVERROR(ENOMEM);
        }
        *c = *in->chapters[i];
        c->start = c->start > start ? c->start - start : 0;
        c->end -= start;
        c->metadata = NULL;
        av_dict_copy(&c->metadata, in->chapters[i]->metadata, 0);
        if (av_dynarray_add_nofree(&out->chapters, (int *)&out->nb_chapters, c) < 0) {
            av_dict_free(&c->metadata);
            av_free(c);
            return AVERROR(ENOMEM);
        }
    }
    av_dict_copy(&out->metadata, in->metadata, 0);
    for (size_t i = 0; i < sizeof of_file / sizeof of_file[0]; i++) {
        drop_tag(&out->metadata, of_file[i]);
    }
    return 0;
}
