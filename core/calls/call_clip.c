/* call_clip.c - clips of networks that know what was before a frame. Where a clip is no whole number of slices its last
 * frame is repeated, or, as the network's rule has it, the last frames are left out. */
#include "core/calls/call.h"

#include <inttypes.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/host/buffer.h"
#include "core/host/context.h"

/* ---- frames and results ---- */

/* Frames (or latents) that make whole slices, of a clip of `frames`: what is missing repeats the last one, what is over
 * is left out. */
static int64_t dv_clip_whole(const dv_clip_rule *rule, int64_t frames) {
    const int64_t more = frames - rule->first - rule->spare;
    return more <= 0 ? rule->first : rule->first + (more + rule->step - 1) / rule->step * rule->step;
}

void dv_clip_warn_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames) {
    const int64_t over = frames - dv_clip_whole(rule, frames);
    const bool encodes = stage == DV_STAGE_ENCODE;
    if (over > 0) {
        dv_logf(dv_context_services(dv_model_context(model))->log, DAVY_LOG_WARN,
                "the last %" PRId64 " of %" PRId64 " %s make no %s and are left out", over, frames,
                encodes ? "frames" : "latents", encodes ? "latents" : "frames");
    }
}

int64_t dv_clip_results(const dv_clip_rule *rule, int64_t frames) {
    return rule->first_out + (dv_clip_whole(rule, frames) - rule->first) / rule->step * rule->step_out;
}

int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result) {
    const int64_t base = begun ? 0 : rule->first_out;
    const int64_t later = (result - base) / rule->step_out * rule->step + (begun ? 0 : rule->first);
    return result < base ? 0 : later;
}

/* ---- before the work ---- */

davy_result dv_call_check_clip(const dv_call *c) {
    const davy_run *run = &c->run;
    if ((run->flags & DAVY_RUN_STREAM_ORDERED) != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: STREAM_ORDERED is for pictures, this is a clip of %" PRId64 " frames",
                       c->in.t);
    }
    if (dv_clip_whole(&c->rule, c->in.t) > INT32_MAX / dv_max(c->rule.step_out, 1)) {
        return dv_fail(DAVY_E_SHAPE, "input: a clip of %" PRId64 " frames", c->in.t);
    }
    return DAVY_OK;
}

/* Frames that go beyond whole slices take the last step with them. */
static int64_t padded_frames(const dv_call *c) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t whole = dv_clip_whole(rule, c->in.t);
    return whole <= c->in.t ? 0 : whole > rule->first ? rule->step : rule->first;
}

static dv_clip_tiles_desc clip_of(const dv_call *c) {
    const int64_t whole = dv_clip_whole(&c->rule, c->in.t);
    return (dv_clip_tiles_desc){.stage = c->stage,
                                .h = c->in.h,
                                .w = c->in.w,
                                .frames = whole,
                                .parts = padded_frames(c) > 0,
                                .slice = c->run.tile_frames < 0 ? whole : c->run.tile_frames,
                                .tiling = c->tiling};
}

static uint64_t frame_bytes(const dv_call *c) {
    return (uint64_t)c->in.h * (uint64_t)c->in.w * (uint64_t)c->in_channels * sizeof(float);
}

davy_result dv_call_plan_clip(const dv_call *c, davy_plan_info *out) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t whole = dv_clip_whole(rule, c->in.t);
    const dv_clip_tiles_desc desc = clip_of(c);
    dv_clip_tiles_info info;
    dv_clip_tiles *clip = NULL;
    const davy_result r = dv_clip_tiles_open(dv_model_engine(c->model), &desc, &clip);
    if (r < 0) {
        return r;
    }
    dv_clip_tiles_info_get(clip, &info);
    dv_clip_tiles_release(clip);
    out->workspace_bytes = info.memory_bytes + frame_bytes(c) * (uint64_t)padded_frames(c);
    const int64_t slice = dv_min(info.slice, whole);
    const int64_t begin = rule->first + dv_max(slice - rule->first, 0) / rule->step * rule->step;
    const int64_t later = dv_max(slice / rule->step, 1) * rule->step;
    out->flops = info.flops_first + (uint64_t)((whole - rule->first) / rule->step) * info.flops_step;
    out->tiles_x = (int32_t)info.tiles_x;
    out->tiles_y = (int32_t)info.tiles_y;
    out->tile_width = (int32_t)info.tile_w;
    out->tile_height = (int32_t)info.tile_h;
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

/* Frames from `first` on, the clip's last one repeated, in `block`. */
static davy_result repeat_last(const dv_call *c, int64_t first, int64_t last, int64_t frames, float *block) {
    const uint64_t frame = frame_bytes(c) / sizeof(float);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < frames; i++) {
        r = gather(c, dv_min(first + i, last), block + (uint64_t)i * frame);
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

/* ---- the call ---- */

/* With its last frames, repeated, in memory of their own. */
static davy_result run_padded(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    davy_context *ctx = dv_model_context(c->model);
    const int64_t frames = padded_frames(c);
    const int64_t last = stretch->in + c->in.t - 1;
    davy_buffer *block = NULL;
    davy_result r = dv_buffer_create(ctx, c->in.on_device ? dv_context_services(ctx)->gpus[0] : NULL,
                                     frame_bytes(c) * (uint64_t)frames, &block);
    if (r < 0) {
        return r;
    }
    const dvk_image tail = image_of(c, frames, dv_buffer_data(block));
    dv_stretch padded = *stretch;
    padded.n_in = dv_clip_whole(&c->rule, c->in.t) - frames;
    padded.tail = &tail;
    r = repeat_last(c, stretch->in + padded.n_in, last, frames, dv_buffer_data(block));
    r = r < 0 ? r : dv_call_slice(c, &padded, control);
    dv_buffer_release(block);
    return r;
}

static davy_result run_clip(dv_call *c, dv_clip_tiles *clip, int64_t number) {
    const dv_control control = dv_call_control(c, number, 1, c->in.n);
    const dv_stretch stretch = {.in = number * c->in.t,
                                .n_in = dv_min(c->in.t, dv_clip_whole(&c->rule, c->in.t)),
                                .out = number * c->out.t,
                                .n_out = dv_clip_results(&c->rule, c->in.t),
                                .drawn = number * c->out.t,
                                .clip = clip};
    return padded_frames(c) > 0 ? run_padded(c, &stretch, &control) : dv_call_slice(c, &stretch, &control);
}

davy_result dv_call_clips(dv_call *c) {
    const dv_clip_tiles_desc desc = clip_of(c);
    dv_clip_tiles *clip = NULL;
    davy_result r = dv_model_clip_open(c->model, &desc, &clip);
    dv_clip_warn_spare(c->model, c->stage, &c->rule, c->in.t);
    for (int64_t number = 0; r == DAVY_OK && number < c->in.n; number++) {
        dv_clip_tiles_reset(clip);
        r = run_clip(c, clip, number);
    }
    dv_model_clip_close(c->model, clip);
    return r;
}
