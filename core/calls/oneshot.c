/* oneshot.c - checks and runs one-shot calls. It checks every argument first, so a wrong argument fails before anything is
 * written. Then it sends picture after picture, or clip after clip, through the engine. */
#include "core/calls/oneshot.h"

#include <inttypes.h>
#include <string.h>

#include "core/calls/call.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/watch.h"

static const char *op_name(davy_op op) {
    return op == DAVY_OP_VAE_ENCODE ? "vae_encode" : op == DAVY_OP_VAE_DECODE ? "vae_decode" : "upscale";
}

/* ---- the run ---- */

static davy_result check_flags(const davy_run *run) {
    const uint32_t all = DAVY_RUN_SCALED_LATENT | DAVY_RUN_MOMENTS | DAVY_RUN_SAMPLE | DAVY_RUN_STREAM_ORDERED |
                         DAVY_RUN_FAST | DAVY_RUN_DROP_ALPHA;
    if ((run->flags & ~all) != 0) {
        return dv_fail(DAVY_E_INVALID, "run: flags has unknown bits: 0x%x", (unsigned)run->flags);
    }
    if (run->reserved0 != 0 || run->reserved1 != 0) {
        return dv_fail(DAVY_E_INVALID, "run: reserved0 and reserved1 must be 0");
    }
    return DAVY_OK;
}

static davy_result check_run(const dv_call *c, bool job) {
    static const char *const known[] = {NULL};
    const davy_run *run = &c->run;
    davy_result r = check_flags(run);
    r = r < 0 ? r : dv_call_check_stream(c, job);
    if (r < 0) {
        return r;
    }
    if (run->tile_width < -1 || run->tile_height < -1 || run->tile_frames < -1 || run->tile_overlap < 0) {
        return dv_fail(DAVY_E_INVALID,
                       "run: tile %d x %d x %d, overlap %d; expected sizes, 0 for automatic, -1 for no tiles",
                       (int)run->tile_width, (int)run->tile_height, (int)run->tile_frames, (int)run->tile_overlap);
    }
    return dv_options_check((dv_options){c->options, run->n_options}, known, "run");
}

/* True for a clip of a network whose results depend on earlier frames. */
static bool is_temporal(const dv_call *c, dv_clip_rule *rule) {
    return c->in.t > 1 && dv_engine_clip(dv_model_engine(c->model), c->stage, rule);
}

/* -1 along one axis only: one tile covers that axis. */
static dv_tiling tiling_of(const davy_run *run, const dv_pixels *in) {
    dv_tiling t = {.width = run->tile_width, .height = run->tile_height, .overlap = run->tile_overlap};
    if ((t.width == -1 && t.height <= 0) || (t.height == -1 && t.width == 0)) {
        return (dv_tiling){.width = -1};
    }
    t.width = t.width == -1 ? (int32_t)in->w : t.width;
    t.height = t.height == -1 ? (int32_t)in->h : t.height;
    return t;
}

static davy_result check_op(const dv_call *c) {
    const davy_model_info *info = dv_model_facts(c->model);
    const uint32_t encode_only = DAVY_RUN_MOMENTS | DAVY_RUN_SAMPLE;
    const uint32_t need = c->op == DAVY_OP_VAE_ENCODE   ? DAVY_MODEL_ENCODES
                          : c->op == DAVY_OP_VAE_DECODE ? DAVY_MODEL_DECODES
                                                        : DAVY_MODEL_UPSCALES;
    const char *name = dv_model_name(c->model);
    if ((info->features & need) == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: %s (%s) does not support %s", name, info->arch, info->variant,
                       op_name(c->op));
    }
    const uint32_t flags = c->run.flags;
    if ((c->op != DAVY_OP_VAE_ENCODE && (flags & encode_only) != 0) ||
        (c->op == DAVY_OP_UPSCALE && (flags & DAVY_RUN_SCALED_LATENT) != 0)) {
        return dv_fail(DAVY_E_INVALID, "run: flags 0x%x are not allowed in %s", (unsigned)flags, op_name(c->op));
    }
    if ((flags & encode_only) == encode_only ||
        ((flags & DAVY_RUN_MOMENTS) != 0 && (flags & DAVY_RUN_SCALED_LATENT) != 0)) {
        return dv_fail(DAVY_E_INVALID,
                       "run: MOMENTS returns the raw mean and log-variance; leave out SAMPLE and SCALED_LATENT");
    }
    if ((flags & encode_only) != 0 && (info->features & DAVY_MODEL_MOMENTS) == 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: %s has no posterior; leave out MOMENTS and SAMPLE", name, info->arch);
    }
    if ((flags & DAVY_RUN_SCALED_LATENT) != 0 && info->latent_scale == 0.0f) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: the scale of its latent is unknown; set the option scaling_factor",
                       name);
    }
    return DAVY_OK;
}

/* ---- clips of networks whose results depend on earlier frames ----
 * If the frames do not fill the last step, the last frame is repeated. Up to rule->spare frames are left out instead. */

/* Number of frames (or latents) that the network computes for a clip of `frames`: rule->first and whole steps. */
static int64_t whole_frames(const dv_clip_rule *rule, int64_t frames) {
    const int64_t more = frames - rule->first - rule->spare;
    return more <= 0 ? rule->first : rule->first + (more + rule->step - 1) / rule->step * rule->step;
}

void dv_clip_warn_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames) {
    const int64_t over = frames - whole_frames(rule, frames);
    const bool encodes = stage == DV_STAGE_ENCODE;
    if (over > 0) {
        dv_logf(dv_context_services(dv_model_context(model))->log, DAVY_LOG_WARN,
                "the last %" PRId64 " of %" PRId64 " %s are left out: too few for further %s", over, frames,
                encodes ? "frames" : "latents", encodes ? "latents" : "frames");
    }
}

static int64_t results_of(const dv_clip_rule *rule, int64_t frames) {
    return rule->first_out + (whole_frames(rule, frames) - rule->first) / rule->step * rule->step_out;
}

int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result) {
    const int64_t base = begun ? 0 : rule->first_out;
    const int64_t later = (result - base) / rule->step_out * rule->step + (begun ? 0 : rule->first);
    return result < base ? 0 : later;
}

davy_result dv_call_check_clip(const dv_call *c) {
    const davy_run *run = &c->run;
    if ((run->flags & DAVY_RUN_STREAM_ORDERED) != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "run: STREAM_ORDERED is for pictures, this is a clip of %" PRId64 " frames",
                       c->in.t);
    }
    if (whole_frames(&c->rule, c->in.t) > INT32_MAX / dv_max(c->rule.step_out, 1)) {
        return dv_fail(DAVY_E_SHAPE, "input: a clip of %" PRId64 " frames is too long; split it", c->in.t);
    }
    return DAVY_OK;
}

/* Frames of the last step if it must be padded; they move to separate memory. 0: no padding. */
static int64_t padded_frames(const dv_call *c) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t whole = whole_frames(rule, c->in.t);
    return whole <= c->in.t ? 0 : whole > rule->first ? rule->step : rule->first;
}

static dv_clip_tiles_desc clip_of(const dv_call *c) {
    const int64_t whole = whole_frames(&c->rule, c->in.t);
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

static davy_result plan_clip(const dv_call *c, davy_plan_info *out) {
    const dv_clip_rule *rule = &c->rule;
    const int64_t whole = whole_frames(rule, c->in.t);
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

davy_result dv_call_slice(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    if (c->posterior) {
        return dv_call_posterior(c, stretch, control);
    }
    const dv_work work = dv_call_work(c, stretch, control);
    return dv_call_compute(c, stretch, &work);
}

/* Copies a frame into packed f32, without mapping its range. */
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

/* Fills `block` with `frames` frames from `first` on; after `last` it repeats the last one. */
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

/* Runs a clip whose padded last step lies in separate memory. */
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
    padded.n_in = whole_frames(&c->rule, c->in.t) - frames;
    padded.tail = &tail;
    r = repeat_last(c, stretch->in + padded.n_in, last, frames, dv_buffer_data(block));
    r = r < 0 ? r : dv_call_slice(c, &padded, control);
    dv_buffer_release(block);
    return r;
}

static davy_result run_clip(dv_call *c, dv_clip_tiles *clip, int64_t number) {
    const dv_control control = dv_call_control(c, number, 1, c->in.n);
    const dv_stretch stretch = {.in = number * c->in.t,
                                .n_in = dv_min(c->in.t, whole_frames(&c->rule, c->in.t)),
                                .out = number * c->out.t,
                                .n_out = results_of(&c->rule, c->in.t),
                                .drawn = number * c->out.t,
                                .clip = clip};
    return padded_frames(c) > 0 ? run_padded(c, &stretch, &control) : dv_call_slice(c, &stretch, &control);
}

static davy_result run_clips(dv_call *c) {
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

/* ---- the input ---- */

/* Matches the picture's channels to the network's; *result_channels: those of the result. */
static davy_result match_picture(dv_call *c, int64_t *result_channels) {
    const davy_model_info *info = dv_model_facts(c->model);
    const int32_t nets = info->in_channels;
    const bool has_alpha = c->colours_in.alpha >= 0;
    const bool fits = nets == 3 || (nets == 1 && c->colours_in.count == 1) || (nets == 4 && c->in.c == 4);
    const bool drop = (c->run.flags & DAVY_RUN_DROP_ALPHA) != 0;
    if (!fits || (c->op == DAVY_OP_UPSCALE && info->out_channels != nets)) {
        return dv_fail(fits ? DAVY_E_UNSUPPORTED : DAVY_E_SHAPE,
                       "%s: the network takes %d channels and gives %d, the picture has %" PRId64,
                       dv_model_name(c->model), (int)nets, (int)info->out_channels, c->in.c);
    }
    c->in_channels = nets;
    if (c->op == DAVY_OP_VAE_ENCODE) {
        *result_channels = (int64_t)info->latent_channels * ((c->run.flags & DAVY_RUN_MOMENTS) != 0 ? 2 : 1);
        return DAVY_OK;
    }
    if (nets == 4 && drop) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: the network needs the alpha channel; leave out DROP_ALPHA",
                       dv_model_name(c->model));
    }
    c->alpha = has_alpha && !drop && nets != 4;
    c->grey = nets == 3 && c->colours_in.count == 1;
    c->out_channels = nets == 4 ? 4 : c->colours_in.count;
    *result_channels = c->out_channels + (c->alpha ? 1 : 0);
    return DAVY_OK;
}

static davy_result match_sizes(const dv_call *c) {
    const davy_model_info *info = dv_model_facts(c->model);
    const int64_t m = info->size_multiple > 1 ? info->size_multiple : 1;
    if (c->op == DAVY_OP_VAE_DECODE) {
        if (c->in.c != info->latent_channels) {
            return dv_fail(DAVY_E_SHAPE, "%s: its latents have %d channels, found %" PRId64, dv_model_name(c->model),
                           (int)info->latent_channels, c->in.c);
        }
        return DAVY_OK;
    }
    if (c->in.h % m != 0 || c->in.w % m != 0) {
        return dv_fail(DAVY_E_SHAPE,
                       "%s: sides must be multiples of %" PRId64 ", found %" PRId64 " x %" PRId64 " (width x height)",
                       dv_model_name(c->model), m, c->in.w, c->in.h);
    }
    if (c->in.h < info->size_min || c->in.w < info->size_min) {
        return dv_fail(DAVY_E_SHAPE, "%s: sides must be at least %d, found %" PRId64 " x %" PRId64 " (width x height)",
                       dv_model_name(c->model), (int)info->size_min, c->in.w, c->in.h);
    }
    return DAVY_OK;
}

/* Checks the input and computes the sizes of the result. */
static davy_result match_input(dv_call *c, const davy_tensor *in, dv_access access, dv_pixels *result) {
    const davy_model_info *info = dv_model_facts(c->model);
    const bool decodes = c->op == DAVY_OP_VAE_DECODE;
    davy_result r = dv_pixels_check(in, decodes ? DV_LATENT : DV_PICTURE, access, "input", &c->in);
    r = r < 0 ? r : dv_call_check_reach(c, &c->in, "input");
    r = r < 0 ? r : match_sizes(c);
    if (r < 0) {
        return r;
    }
    int64_t channels = info->out_channels;
    c->colours_in = dv_colours_of(c->in.channels);
    c->tiling = tiling_of(&c->run, &c->in);
    c->posterior = (c->run.flags & (DAVY_RUN_MOMENTS | DAVY_RUN_SAMPLE)) != 0;
    if (decodes) {
        c->in_channels = (int32_t)c->in.c;
        c->out_channels = info->out_channels;
    } else {
        r = match_picture(c, &channels);
    }
    const int64_t f = info->spatial_factor > 0 ? info->spatial_factor : 1;
    const int64_t num = decodes ? f : c->op == DAVY_OP_UPSCALE ? info->scale_num : 1;
    const int64_t den = decodes ? 1 : c->op == DAVY_OP_UPSCALE ? info->scale_den : f;
    c->temporal = is_temporal(c, &c->rule);
    r = r < 0 || !c->temporal ? r : dv_call_check_clip(c);
    const int64_t t = c->temporal ? results_of(&c->rule, c->in.t) : c->in.t;
    *result = (dv_pixels){.n = c->in.n, .t = t, .h = c->in.h * num / den, .w = c->in.w * num / den, .c = channels};
    return r;
}

/* ---- the output ---- */

static bool needs_buffer(const davy_tensor *out) {
    return out->data == 0 && out->buffer == NULL;
}

/* Allocates the output; *out is the tensor for the caller. */
static davy_result make_output(dv_call *c, const dv_pixels *size, dv_content content, davy_tensor *out) {
    davy_tensor t;
    uint64_t bytes = 0;
    dv_gpu *gpu = NULL;
    davy_result r = dv_call_output_gpu(c, out, &gpu);
    r = r < 0 ? r
              : dv_pixels_describe(
                    &(dv_tensor_request){.output = out, .size = size, .input_layout = c->in.layout, .content = content},
                    &t, &bytes);
    r = r < 0 ? r : dv_buffer_create(dv_model_context(c->model), gpu, bytes, &c->out_buffer);
    if (r < 0) {
        return r;
    }
    dv_buffer_describe(c->out_buffer, &t);
    *out = *dv_buffer_tensor(c->out_buffer);
    return DAVY_OK;
}

static davy_result match_output(dv_call *c, const dv_pixels *size, davy_tensor *out) {
    const dv_content content = c->op == DAVY_OP_VAE_ENCODE ? DV_LATENT : DV_PICTURE;
    davy_result r = DAVY_OK;
    if (needs_buffer(out)) {
        r = make_output(c, size, content, out);
    } else if (out->buffer != NULL && out->memory != DAVY_MEMORY_HOST) {
        c->out_buffer = dv_buffer_ref(out->buffer);
    }
    r = r < 0 ? r : dv_pixels_check(out, content, DV_WRITES, "output", &c->out);
    r = r < 0 ? r : dv_call_check_reach(c, &c->out, "output");
    if (r < 0) {
        return r;
    }
    const dv_pixels *o = &c->out;
    if (o->n != size->n || o->t != size->t || o->h != size->h || o->w != size->w || o->c != size->c) {
        return dv_fail(DAVY_E_SHAPE,
                       "output: expected n %" PRId64 ", t %" PRId64 ", h %" PRId64 ", w %" PRId64 ", c %" PRId64
                       ", found %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
                       size->n, size->t, size->h, size->w, size->c, o->n, o->t, o->h, o->w, o->c);
    }
    if (dv_pixels_overlap(&c->in, o)) {
        return dv_fail(DAVY_E_INVALID, "output: shares memory with the input; use separate memory");
    }
    c->colours_out = dv_colours_of(o->channels);
    return DAVY_OK;
}

/* Value ranges: input to network, network to output. */
static void match_ranges(dv_call *c) {
    const davy_model_info *info = dv_model_facts(c->model);
    const davy_range net = dv_engine_arch(dv_model_engine(c->model))->range;
    const bool scaled = (c->run.flags & DAVY_RUN_SCALED_LATENT) != 0;
    c->map_in = dv_mapping_in(&c->in, net);
    c->map_out = dv_mapping_out(&c->out, net);
    if (c->op == DAVY_OP_VAE_ENCODE) {
        c->out_channels = info->latent_channels * (c->posterior ? 2 : 1);
    }
    if (scaled && c->op == DAVY_OP_VAE_ENCODE) {
        c->map_out = (dv_mapping){.mul = info->latent_scale, .add = -info->latent_shift * info->latent_scale};
    } else if (scaled) {
        c->map_in = (dv_mapping){.mul = 1.0f / info->latent_scale, .add = info->latent_shift};
    }
}

/* ---- the work ---- */

static int64_t pictures_of(const dv_call *call) {
    return call->in.n * call->in.t;
}

/* Runs of the network for one picture. */
static int64_t passes_of(const dv_call *call) {
    return call->alpha ? 2 : 1;
}

static davy_result run_picture(dv_call *c, int64_t picture, const dv_control *control) {
    const dv_stretch stretch = dv_stretch_picture(picture);
    if (c->posterior) {
        return dv_call_posterior(c, &stretch, control);
    }
    dv_work work = dv_call_work(c, &stretch, control);
    return c->alpha ? dv_call_colours(c, picture, &work) : dv_model_run(c->model, &work);
}

/* True if one engine run can take all pictures: one pass each, evenly spaced. The engine overlaps them and shares them
 * among several GPUs. */
static bool runs_together(const dv_call *c) {
    return passes_of(c) == 1 && !c->posterior && (c->in.n == 1 || c->in.t == 1);
}

static davy_result run_together(dv_call *c) {
    const dv_control control = dv_call_control(c, 0, 1, 1);
    const dv_stretch first = dv_stretch_picture(0);
    dv_work work = dv_call_work(c, &first, &control);
    work.in.n = work.out.n = pictures_of(c);
    work.in.sn = c->in.t == 1 ? c->in.sn : c->in.st;
    work.out.sn = c->in.t == 1 ? c->out.sn : c->out.st;
    return dv_model_run(c->model, &work);
}

static davy_result run_one_by_one(dv_call *c) {
    const int64_t passes = passes_of(c);
    const int64_t pictures = pictures_of(c);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < pictures; i++) {
        dv_control control = dv_call_control(c, i * passes, 1, pictures * passes);
        r = run_picture(c, i, &control);
        if (r == DAVY_OK && c->alpha) {
            control = dv_call_control(c, i * passes + 1, 1, pictures * passes);
            r = dv_call_alpha(c, i, &control);
        }
    }
    return r;
}

static davy_result run_call(dv_call *c) {
    davy_result r = dv_call_await_stream(c);
    if (r < 0) {
        return r;
    }
    if (c->op == 0) {
        const dv_control control = dv_call_control(c, 0, 1, 1);
        return dv_model_load(c->model, &control);
    }
    r = c->temporal ? run_clips(c) : runs_together(c) ? run_together(c) : run_one_by_one(c);
    if ((c->run.flags & DAVY_RUN_STREAM_ORDERED) != 0) { /* also after an error: work may be enqueued */
        davy_error_info saved;
        dv_error_get(&saved);
        const davy_result kept = dv_call_keep_buffers(c);
        if (r < 0) {
            dv_error_set(&saved);
        }
        r = r < 0 ? r : kept;
    }
    return r;
}

/* ---- calls ---- */

static void release_call(void *arg) {
    dv_call_clear(arg);
    dv_free(arg);
}

static dv_call begin_call(davy_model *model, davy_op op, const davy_run *run) {
    dv_call c = {.model = dv_model_ref(model), .op = op, .run = *run};
    c.stage = op == DAVY_OP_VAE_ENCODE   ? DV_STAGE_ENCODE
              : op == DAVY_OP_VAE_DECODE ? DV_STAGE_DECODE
                                         : DV_STAGE_UPSCALE;
    c.deadline_ns = dv_control_deadline(run->timeout_ns);
    c.options = run->options;
    c.run.options = NULL; /* the caller's array; only the checks read it */
    return c;
}

static davy_result run_job(void *arg, davy_job *job) {
    dv_call *c = arg;
    c->job = job;
    return run_call(c);
}

/* Runs the call now, or queues a copy as a job. Owns the call's references in every case, also on an error. */
static davy_result launch(dv_call *c, davy_job **job) {
    if (job == NULL) {
        const davy_result r = run_call(c);
        dv_call_clear(c);
        return r;
    }
    dv_call *copy = dv_calloc(1, sizeof *copy);
    davy_result r = copy != NULL ? dv_call_mark_stream(c) : dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a job");
    if (r < 0) {
        dv_call_clear(c);
        dv_free(copy);
        return r;
    }
    *copy = *c;
    const dv_job_desc desc = {.priority = c->run.priority,
                              .deadline_ns = c->deadline_ns,
                              .run = run_job,
                              .release = release_call,
                              .arg = copy};
    r = dv_job_submit(dv_context_jobs(dv_model_context(c->model)), &desc, job);
    if (r < 0) {
        release_call(copy);
    }
    return r;
}

davy_result dv_oneshot(const dv_oneshot_args *a) {
    dv_call c = begin_call(a->model, a->op, a->run);
    dv_pixels size = {0};
    davy_tensor filled = *a->out;
    davy_result r = check_run(&c, a->job != NULL);
    r = r < 0 ? r : check_op(&c);
    r = r < 0 ? r : match_input(&c, a->in, DV_READS, &size);
    r = r < 0 ? r : match_output(&c, &size, &filled);
    r = r < 0 ? r : dv_call_check_ordered(&c);
    if (r < 0) {
        dv_call_clear(&c);
        return r;
    }
    match_ranges(&c);
    if (a->in->buffer != NULL) {
        c.in_buffer = dv_buffer_ref(a->in->buffer);
    }
    davy_buffer *handle = needs_buffer(a->out) ? dv_buffer_ref(c.out_buffer) : NULL; /* the caller's */
    r = launch(&c, a->job);
    if (r < 0) {
        dv_buffer_release(handle);
        return r;
    }
    filled.pts = a->in->pts;
    *a->out = filled;
    return DAVY_OK;
}

davy_result dv_oneshot_size(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run, dv_pixels *out) {
    dv_call c = begin_call(model, op, run);
    davy_result r = check_run(&c, false);
    r = r < 0 ? r : check_op(&c);
    r = r < 0 ? r : match_input(&c, in, DV_SHAPE_ONLY, out);
    dv_call_clear(&c);
    return r;
}

davy_result dv_call_describe(const dv_oneshot_args *a, dv_call *call) {
    const dv_content content = a->op == DAVY_OP_VAE_ENCODE ? DV_LATENT : DV_PICTURE;
    dv_call c = begin_call(a->model, a->op, a->run);
    dv_pixels size = {0};
    davy_result r = check_run(&c, false);
    r = r < 0 ? r : check_op(&c);
    r = r < 0 ? r : match_input(&c, a->in, DV_SHAPE_ONLY, &size);
    r = r < 0 ? r : dv_pixels_check(a->out, content, DV_SHAPE_ONLY, "output", &c.out);
    if (r < 0) {
        dv_call_clear(&c);
        return r;
    }
    c.colours_out = dv_colours_of(c.out.channels);
    match_ranges(&c);
    *call = c;
    return DAVY_OK;
}

davy_result dv_oneshot_load(davy_model *model, const davy_run *run, davy_job **job) {
    dv_call c = begin_call(model, 0, run);
    const davy_result r = check_run(&c, job != NULL);
    if (r < 0) {
        dv_call_clear(&c);
        return r;
    }
    return launch(&c, job);
}

/* Bytes beyond the engine's own workspace. */
static uint64_t workspace_of(const dv_call *call) {
    return call->posterior ? dv_call_moments_bytes(call) : dv_call_bleed_bytes(call);
}

static davy_result plan_call(dv_call *c, davy_plan_info *plan) {
    const int64_t pictures = runs_together(c) ? pictures_of(c) : 1;
    return c->temporal
               ? plan_clip(c, plan)
               : dv_engine_plan(dv_model_engine(c->model),
                                &(dv_batch_desc){
                                    .stage = c->stage, .n = pictures, .h = c->in.h, .w = c->in.w, .tiling = &c->tiling},
                                plan);
}

/* Like the call itself, the plan may free idle memory of other models. */
davy_result dv_oneshot_plan(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run,
                            davy_plan_info *out) {
    if (op < DAVY_OP_VAE_ENCODE || op > DAVY_OP_UPSCALE) {
        return dv_fail(DAVY_E_INVALID, "query: op is %d, expected DAVY_OP_*", (int)op);
    }
    dv_call c = begin_call(model, op, run);
    dv_pixels size = {0};
    davy_plan_info plan = {.struct_size = sizeof plan};
    davy_result r = check_run(&c, false);
    r = r < 0 ? r : check_op(&c);
    r = r < 0 ? r : match_input(&c, in, DV_SHAPE_ONLY, &size);
    if (r == DAVY_OK) {
        r = plan_call(&c, &plan);
        if (dv_is_short(r) && dv_model_make_room(model)) {
            r = plan_call(&c, &plan);
        }
    }
    if (r == DAVY_OK) {
        davy_layout layout = c.in.layout;
        dv_pixels_shape(&size, &layout, &plan.ndim, plan.shape);
        plan.workspace_bytes += workspace_of(&c);
        plan.flops *= c.temporal ? (uint64_t)c.in.n : (uint64_t)(pictures_of(&c) * passes_of(&c));
        *out = plan;
    }
    dv_call_clear(&c);
    return r;
}
