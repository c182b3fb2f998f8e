/* oneshot_clip.c - clips of networks that know what was before a frame: slice after slice through a stream, which carries
 * that. Where a clip is no whole number of slices its last frame is repeated. */
#include <inttypes.h>

#include "core/buffer.h"
#include "core/context.h"
#include "core/error.h"
#include "core/oneshot.h"

/* ---- frames and results ---- */

int64_t dv_clip_whole(const dv_clip_rule *rule, int64_t frames) {
    const int64_t more = frames - rule->first;
    return more <= 0 ? rule->first : rule->first + (more + rule->step - 1) / rule->step * rule->step;
}

int64_t dv_clip_results(const dv_clip_rule *rule, int64_t frames) {
    return rule->first_out + (dv_clip_whole(rule, frames) - rule->first) / rule->step * rule->step_out;
}

int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result) {
    const int64_t base = begun ? 0 : rule->first_out;
    const int64_t later = (result - base) / rule->step_out * rule->step + (begun ? 0 : rule->first);
    return result < base ? 0 : later;
}

static int64_t results_of(const dv_clip_rule *rule, bool begun, int64_t frames) {
    return begun ? frames / rule->step * rule->step_out : dv_clip_results(rule, frames);
}

/* ---- before the work ---- */

davy_result dv_call_check_clip(const dv_call *c) {
    const davy_run *run = &c->run;
    if ((run->flags & DAVY_RUN_STREAM_ORDERED) != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: STREAM_ORDERED is for pictures, this is a clip of %" PRId64 " frames",
                       c->in.t);
    }
    if (run->tile_width > 0 || run->tile_height > 0) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "run: tile %d x %d: frames of a clip are computed whole; tile_frames makes its slices shorter",
                       (int)run->tile_width, (int)run->tile_height);
    }
    if (dv_clip_whole(&c->rule, c->in.t) > INT32_MAX / dv_max(c->rule.step_out, 1)) {
        return dv_fail(DAVY_E_SHAPE, "input: a clip of %" PRId64 " frames", c->in.t);
    }
    return DAVY_OK;
}

static int64_t wished_slice(const dv_call *c) {
    return c->run.tile_frames < 0 ? dv_clip_whole(&c->rule, c->in.t) : c->run.tile_frames;
}

/* Frames that one run of the stream is given; 0: there are two, the second with what is repeated. */
static int64_t at_once(const dv_call *c) {
    return dv_clip_whole(&c->rule, c->in.t) == c->in.t ? c->in.t : 0;
}

static uint64_t frame_bytes(const dv_call *c) {
    return (uint64_t)c->in.h * (uint64_t)c->in.w * (uint64_t)c->in_channels * sizeof(float);
}

davy_result dv_call_plan_clip(const dv_call *c, davy_plan_info *out) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t whole = dv_clip_whole(rule, c->in.t);
    dv_clip_stream_info info;
    dv_clip_stream *stream = NULL;
    const davy_result r = dv_clip_stream_open(dv_model_engine(c->model), c->stage, c->in.h, c->in.w, at_once(c),
                                              wished_slice(c), &stream);
    if (r < 0) {
        return r;
    }
    dv_clip_stream_info_get(stream, &info);
    dv_clip_stream_release(stream);
    out->workspace_bytes = info.arena_bytes + info.state_bytes;
    if (whole > c->in.t) {
        out->workspace_bytes += frame_bytes(c) * (uint64_t)dv_max(rule->first, rule->step);
    }
    const int64_t slice = dv_min(info.slice, whole);
    const int64_t begin = rule->first + dv_max(slice - rule->first, 0) / rule->step * rule->step;
    const int64_t later = dv_max(slice / rule->step, 1) * rule->step;
    out->flops = info.flops_first + (uint64_t)((whole - rule->first) / rule->step) * info.flops_step;
    out->tiles_x = out->tiles_y = 1;
    out->tile_width = (int32_t)c->in.w;
    out->tile_height = (int32_t)c->in.h;
    out->tile_frames = (int32_t)slice;
    out->tiles_t = (int32_t)(1 + (whole - begin + later - 1) / later);
    return DAVY_OK;
}

/* ---- a slice ---- */

davy_result dv_call_slice(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    if (c->posterior) {
        return dv_call_posterior(c, stretch, control);
    }
    const dv_work work = dv_call_work(c, stretch, control);
    return dv_call_compute(c, stretch, &work);
}

/* A frame as packed f32, numbers as they are stored. */
static davy_result gather(const dv_call *c, int64_t picture, float *to) {
    const dv_pixels *p = &c->in;
    const int32_t *map = c->op == DAVY_OP_VAE_DECODE ? NULL : c->colours_in.map;
    if (p->on_device) {
        return dv_call_gather(c, picture, to);
    }
    for (int64_t y = 0; y < p->h; y++) {
        for (int64_t x = 0; x < p->w; x++) {
            for (int32_t k = 0; k < c->in_channels; k++) {
                *to++ = dv_element_load(dv_pixels_at(p, picture, y, x, map != NULL ? map[k] : k), p->dtype);
            }
        }
    }
    return DAVY_OK;
}

/* The frames of a slice that goes beyond the clip, the last one repeated, in `block`. */
static davy_result repeat_last(const dv_call *c, const dv_stretch *stretch, int64_t left, float *block) {
    const uint64_t frame = frame_bytes(c) / sizeof(float);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < stretch->n_in; i++) {
        r = gather(c, stretch->in + dv_min(i, left - 1), block + (uint64_t)i * frame);
    }
    return r;
}

static dvk_image image_of(const dv_call *c, int64_t frames, void *block) {
    const int64_t channels = c->in_channels;
    dvk_image image = {.data = block, .dtype = DVK_F32, .channels = (int32_t)channels, .n = frames, .identity_map = 1};
    image.h = c->in.h;
    image.w = c->in.w;
    image.sc = (int64_t)sizeof(float);
    image.sw = image.sc * channels;
    image.sh = image.sw * image.w;
    image.sn = image.sh * image.h;
    for (int32_t k = 0; k < 4 && k < image.channels; k++) {
        image.map[k] = k;
    }
    return image;
}

/* The last slice of a clip that ends in the middle of it, `left` frames behind its beginning. */
static davy_result run_padded(dv_call *c, const dv_stretch *stretch, int64_t left, const dv_control *control) {
    davy_context *ctx = dv_model_context(c->model);
    davy_buffer *block = NULL;
    davy_result r = dv_buffer_create(ctx, c->in.on_device ? dv_context_services(ctx)->gpus[0] : NULL,
                                     frame_bytes(c) * (uint64_t)stretch->n_in, &block);
    if (r < 0) {
        return r;
    }
    const dvk_image frames = image_of(c, stretch->n_in, dv_buffer_data(block));
    dv_stretch padded = *stretch;
    padded.frames = &frames;
    r = repeat_last(c, stretch, left, dv_buffer_data(block));
    r = r < 0 ? r : dv_call_slice(c, &padded, control);
    dv_buffer_release(block);
    return r;
}

/* ---- the call ---- */

/* All of it, or all but the step that goes beyond it and then that. */
static davy_result run_clip(dv_call *c, dv_clip_stream *stream, int64_t clip) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t t = c->in.t;
    const int64_t whole = dv_clip_whole(rule, t);
    const int64_t last = whole == t ? 0 : whole > rule->first ? rule->step : rule->first;
    int64_t made = clip * c->out.t;
    davy_result r = DAVY_OK;
    for (int64_t at = 0, n = 0; r == DAVY_OK && at < whole; at += n) {
        n = at + last < whole ? whole - last - at : last;
        const dv_stretch stretch = {.in = clip * t + at,
                                    .n_in = n,
                                    .out = made,
                                    .n_out = results_of(rule, at > 0, n),
                                    .drawn = made,
                                    .stream = stream};
        const dv_control control = dv_call_control(c, clip * whole + at, n, c->in.n * whole);
        r = at + n > t ? run_padded(c, &stretch, t - at, &control) : dv_call_slice(c, &stretch, &control);
        made += stretch.n_out;
    }
    return r;
}

davy_result dv_call_clips(dv_call *c) {
    dv_clip_stream *stream = NULL;
    davy_result r = dv_model_stream_open(c->model, c->stage, c->in.h, c->in.w, at_once(c), wished_slice(c), &stream);
    for (int64_t clip = 0; r == DAVY_OK && clip < c->in.n; clip++) {
        dv_clip_stream_reset(stream);
        r = run_clip(c, stream, clip);
    }
    dv_model_stream_close(c->model, stream);
    return r;
}
