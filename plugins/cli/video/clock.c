/* clock.c - makes times continuous in recordings whose times restart in the middle or whose counter wraps. */
#include "plugins/cli/video/video_priv.h"

/* A smaller step back is left to the code that sorts frames; a smaller gap may be a still picture. */
enum { BACK = AV_TIME_BASE / 2, GAP = 3600 };

void video_clock_set(video_clock *c, const AVFormatContext *f, AVPacket *p) {
    const AVStream *s = f->streams[p->stream_index];
    const enum AVMediaType type = s->codecpar->codec_type;
    const int i = p->stream_index;
    if ((f->iformat->flags & AVFMT_TS_DISCONT) == 0) {
        return;
    }
    if ((type == AVMEDIA_TYPE_VIDEO || type == AVMEDIA_TYPE_AUDIO) && p->dts != AV_NOPTS_VALUE &&
        i < VIDEO_CLOCK_STREAMS) {
        const int64_t given = av_rescale_q(p->dts, s->time_base, AV_TIME_BASE_Q) + c->offset;
        const int64_t ahead = given - c->next[i];
        if (c->seen[i] && (ahead < -BACK || ahead > (int64_t)GAP * AV_TIME_BASE)) {
            c->offset -= ahead;
        }
        c->seen[i] = 1;
        c->next[i] = av_rescale_q(p->dts + p->duration, s->time_base, AV_TIME_BASE_Q) + c->offset;
    }
    const int64_t ticks = av_rescale_q(c->offset, AV_TIME_BASE_Q, s->time_base);
    p->pts += p->pts != AV_NOPTS_VALUE ? ticks : 0;
    p->dts += p->dts != AV_NOPTS_VALUE ? ticks : 0;
}
