/* picture_video.c - which frames of a video a model looks at, and when they were. */
#include <math.h>

#include "core/base/error.h"
#include "core/vlm/picture.h"

/* Idefics3: evenly over the clip, without its first and last second where that leaves enough; doubles drop out. */
static int64_t frames_tiles(const dv_vlm_picture *p, int64_t total, double fps, int64_t *index) {
    const double seconds = (double)total / fps;
    const int64_t want = dv_max(dv_min((int64_t)rint(p->video_fps * seconds), p->video_max_frames), 1);
    int64_t first = 0;
    int64_t last = total - 1;
    if (seconds - 2.0 > (double)p->video_max_frames * p->video_fps) {
        first = (int64_t)fps;
        last = dv_min((int64_t)((double)total - fps), total - 1);
    }
    if (first >= last) {
        first = 0;
        last = total - 1;
    }
    const double step = want > 1 ? (double)(last - first) / (double)(want - 1) : 0;
    int64_t n = 0;
    for (int64_t i = 0; i < want; i++) {
        const int64_t at = i > 0 && i == want - 1 ? last : (int64_t)((double)i * step + (double)first);
        if (n == 0 || at != index[n - 1]) {
            index[n++] = at;
        }
    }
    return n;
}

/* Qwen2-VL, Qwen2.5-VL: an even number, from the start on; in single precision, as torch's arange counts. */
static int64_t frames_qwen2(const dv_vlm_picture *p, int64_t temporal, int64_t total, double fps, int64_t *index) {
    const int64_t most = dv_min(p->video_max_frames, total) / temporal * temporal;
    double want = (double)total / fps * p->video_fps;
    want = fmin(fmin(fmax(want, (double)p->video_min_frames), (double)most), (double)total);
    const int64_t n = (int64_t)floor(want / (double)temporal) * temporal;
    if (n == 0) { /* fewer frames than a temporal patch has: all there are */
        for (int64_t i = 0; i < total; i++) {
            index[i] = i;
        }
        return total;
    }
    const double step = (double)total / (double)n;
    for (int64_t i = 0; i < n; i++) {
        index[i] = dv_min((int64_t)(float)((double)i * step), total - 1);
    }
    return n;
}

/* Qwen3-VL: from the first to the last frame, rounded. */
static int64_t frames_qwen3(const dv_vlm_picture *p, int64_t total, double fps, int64_t *index) {
    int64_t n = (int64_t)((double)total / fps * p->video_fps);
    n = dv_min(dv_min(dv_max(n, p->video_min_frames), p->video_max_frames), total);
    const double step = n > 1 ? (double)(total - 1) / (double)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        index[i] = i > 0 && i == n - 1 ? total - 1 : (int64_t)rint((double)i * step);
    }
    return n;
}

davy_result dv_video_frames(const dv_vlm_config *c, int64_t total, double fps, int64_t *index, int64_t *n) {
    const dv_vlm_picture *p = &c->picture;
    if (p->video_fps == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: %s models take no videos", dv_vlm_family_name(c->family));
    }
    if (total < 1 || total > INT32_MAX || !(fps > 1e-3 && fps < 1e5)) {
        return dv_fail(DAVY_E_INVALID, "captioning: a video of %lld frames at %g frames per second", (long long)total,
                       fps);
    }
    *n = c->family == DV_VLM_IDEFICS3 ? frames_tiles(p, total, fps, index)
         : c->family == DV_VLM_QWEN3  ? frames_qwen3(p, total, fps, index)
                                      : frames_qwen2(p, c->vision.temporal, total, fps, index);
    return DAVY_OK;
}

double dv_video_seconds(const dv_vlm_config *c, const int64_t *index, int64_t n, double fps, int64_t i) {
    const int64_t first = dv_min(i * c->vision.temporal, n - 1);
    const int64_t last = dv_min(first + c->vision.temporal - 1, n - 1);
    return ((double)index[first] / fps + (double)index[last] / fps) / 2;
}
