/* hdr.c - HDR metadata: the mastering display and the light levels. They are written into the container and, if the encoder can,
 * into the packets. */
#include <stdio.h>
#include <string.h>

#include "plugins/cli/video/part.h"

static int number(AVRational v, int per_unit) {
    return v.den != 0 ? (int)av_rescale(v.num, per_unit, v.den) : 0;
}

/* Reads metadata of a frame, else of its stream: some files have it in the packets, others in the container. */
static int take(const AVFrame *f, enum AVFrameSideDataType of_frame, const AVStream *s,
                enum AVPacketSideDataType of_stream, void *out, size_t bytes) {
    size_t stored = 0;
    const AVFrameSideData *own = av_frame_get_side_data(f, of_frame);
    const void *data = own != NULL ? own->data : video_side_data(s, of_stream, &stored);
    stored = own != NULL ? own->size : stored;
    if (data == NULL || stored < bytes) {
        return 0;
    }
    memcpy(out, data, bytes);
    return 1;
}

void video_hdr_of(const AVStream *stream, const AVFrame *f, video_hdr *out) {
    AVDOVIDecoderConfigurationRecord dolby = {.dv_bl_signal_compatibility_id = 1};
    *out = (video_hdr){.dynamic = NULL};
    out->has_display = take(f, AV_FRAME_DATA_MASTERING_DISPLAY_METADATA, stream, AV_PKT_DATA_MASTERING_DISPLAY_METADATA,
                            &out->display, sizeof out->display);
    out->has_light = take(f, AV_FRAME_DATA_CONTENT_LIGHT_LEVEL, stream, AV_PKT_DATA_CONTENT_LIGHT_LEVEL, &out->light,
                          sizeof out->light);
    size_t bytes = 0;
    const uint8_t *d = video_side_data(stream, AV_PKT_DATA_DOVI_CONF, &bytes);
    if (d != NULL && bytes >= sizeof dolby) {
        memcpy(&dolby, d, sizeof dolby);
    }
    out->dynamic = d != NULL || av_frame_get_side_data(f, AV_FRAME_DATA_DOVI_METADATA) != NULL ? "Dolby Vision"
                   : av_frame_get_side_data(f, AV_FRAME_DATA_DYNAMIC_HDR_PLUS) != NULL         ? "HDR10+"
                                                                                               : NULL;
    out->alone = dolby.dv_bl_signal_compatibility_id == 0;
}

int video_hdr_to_stream(const video_hdr *h, AVStream *to) {
    size_t bytes = 0;
    int r = 0;
    if (h->has_display && video_side_data(to, AV_PKT_DATA_MASTERING_DISPLAY_METADATA, &bytes) == NULL) {
        r = video_set_side_data(to, AV_PKT_DATA_MASTERING_DISPLAY_METADATA, &h->display, sizeof h->display);
    }
    if (r >= 0 && h->has_light && video_side_data(to, AV_PKT_DATA_CONTENT_LIGHT_LEVEL, &bytes) == NULL) {
        r = video_set_side_data(to, AV_PKT_DATA_CONTENT_LIGHT_LEVEL, &h->light, sizeof h->light);
    }
    return r;
}

/* Units are those of the SEI messages (H.265, annex D): 1/50000 of a coordinate, 1/10000 cd/m2. */
void video_hdr_x265(const video_hdr *h, char text[256]) {
    const AVMasteringDisplayMetadata *d = &h->display;
    int n = 0;
    text[0] = 0;
    if (h->has_display && d->has_primaries && d->has_luminance) {
        int xy[4][2];
        for (int i = 0; i < 2; i++) {
            for (int c = 0; c < 3; c++) {
                xy[c][i] = number(d->display_primaries[c][i], 50000);
            }
            xy[3][i] = number(d->white_point[i], 50000);
        }
        n = snprintf(text, 256, ":master-display=G(%d,%d)B(%d,%d)R(%d,%d)WP(%d,%d)L(%d,%d)", xy[1][0], xy[1][1],
                     xy[2][0], xy[2][1], xy[0][0], xy[0][1], xy[3][0], xy[3][1], number(d->max_luminance, 10000),
                     number(d->min_luminance, 10000));
    }
    if (h->has_light) {
        snprintf(text + n, 256 - (size_t)n, ":max-cll=%u,%u", h->light.MaxCLL, h->light.MaxFALL);
    }
}
