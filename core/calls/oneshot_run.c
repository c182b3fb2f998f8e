/* oneshot_run.c - the work of a call: picture after picture through the engine; alpha as a grey picture of its own. */
#include <string.h>

#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/calls/oneshot.h"
#include "core/base/os.h"

#define PROGRESS_NS 50000000ull /* 20 calls a second over all pictures; the engine counts for one only */

enum { PASS_PARTS = 1000 };

int64_t dv_call_pictures(const dv_call *call) {
    return call->in.n * call->in.t;
}

int64_t dv_call_passes(const dv_call *call) {
    return call->alpha ? 2 : 1;
}

/* ---- progress and cancellation ---- */

static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    dv_call *c = user;
    const uint64_t now = dv_now_ns();
    if (c->job != NULL) {
        dv_job_report(c->job, stage, done, total);
    }
    if (c->run.progress == NULL || (c->progress_ns != 0 && done < total && now - c->progress_ns < PROGRESS_NS)) {
        return 0;
    }
    c->progress_ns = now;
    return c->run.progress(c->run.progress_user, stage, done, total);
}

static int32_t is_cancelled(void *user) {
    const dv_call *c = user;
    return dv_job_cancelled(c->job) ? 1 : 0;
}

dv_control dv_call_control(dv_call *c, int64_t index, int64_t share, int64_t count) {
    dv_control control = {.deadline_ns = c->deadline_ns};
    if (c->run.progress != NULL || c->job != NULL) {
        control.progress = on_progress;
        control.progress_user = c;
    }
    if (c->job != NULL) {
        control.cancelled = is_cancelled;
        control.cancelled_user = c;
    }
    if (count > 1) {
        control.base = (uint64_t)index * PASS_PARTS;
        control.share = (uint64_t)share * PASS_PARTS;
        control.total = (uint64_t)count * PASS_PARTS;
    }
    return control;
}

/* For pass `index` of `count`. */
static dv_control control_of(dv_call *c, int64_t index, int64_t count) {
    return dv_call_control(c, index, 1, count);
}

/* ---- one pass ---- */

/* So many pictures of a clip, from one on. */
static dvk_image image_of(const dv_pixels *p, int64_t first, int64_t n, int32_t channels, const int32_t *map) {
    dvk_image image = dv_pixels_image(p, first, channels, map);
    if (n != 1) {
        image.n = n;
        image.sn = p->st;
    }
    return image;
}

dv_work dv_call_work(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    const int32_t *map_in = c->op == DAVY_OP_VAE_DECODE ? NULL : c->colours_in.map;
    const int32_t *map_out = c->op == DAVY_OP_VAE_ENCODE ? NULL : c->colours_out.map;
    return (dv_work){.stage = c->stage,
                     .in = image_of(&c->in, stretch->in, stretch->n_in, c->in_channels, map_in),
                     .out = image_of(&c->out, stretch->out, stretch->n_out, c->out_channels, map_out),
                     .in_mul = c->map_in.mul,
                     .in_add = c->map_in.add,
                     .out_mul = c->map_out.mul,
                     .out_add = c->map_out.add,
                     .out_lo = c->map_out.lo,
                     .out_hi = c->map_out.hi,
                     .out_clamp = c->map_out.clamp,
                     .grey = c->grey,
                     .in_device = c->in.on_device,
                     .out_device = c->out.on_device,
                     .stream = c->run.stream,
                     .stream_ordered = (c->run.flags & DAVY_RUN_STREAM_ORDERED) != 0,
                     .tiling = c->tiling,
                     .control = *control};
}

davy_result dv_call_compute(dv_call *c, const dv_stretch *stretch, const dv_work *work) {
    return stretch->clip != NULL ? dv_model_clip_run(c->model, stretch->clip, work, stretch->tail)
                                 : dv_model_run(c->model, work);
}

/* Alpha that is the same everywhere, most often opaque, stays what it is: no network would keep it exactly. */
static davy_result constant_alpha(const dv_call *c, int64_t picture, bool *constant, float *value) {
    const dv_pixels *p = &c->in;
    const int32_t a = c->colours_in.alpha;
    *constant = false;
    if (p->on_device) {
        const dvk_image image = dv_pixels_image(p, picture, 1, &a);
        return dv_call_constant(c, &image, constant, value);
    }
    const float first = dv_element_load(dv_pixels_at(p, picture, 0, 0, a), p->dtype);
    for (int64_t y = 0; y < p->h; y++) {
        const char *at = dv_pixels_at(p, picture, y, 0, a);
        for (int64_t x = 0; x < p->w; x++) {
            if (!(dv_element_load(at + x * p->sw, p->dtype) == first)) {
                return DAVY_OK;
            }
        }
    }
    *constant = true;
    *value = first;
    return DAVY_OK;
}

static davy_result fill_alpha(const dv_call *c, int64_t picture, float value) {
    const dv_pixels *p = &c->out;
    const dv_mapping *out = &c->map_out;
    const float net = value * c->map_in.mul + c->map_in.add;
    float v = net * out->mul + out->add;
    if (out->clamp) {
        v = v > out->lo ? v < out->hi ? v : out->hi : out->lo;
    }
    if (p->on_device) {
        const dvk_image image = dv_pixels_image(p, picture, 1, &c->colours_out.alpha);
        return dv_call_fill(c, &image, v);
    }
    for (int64_t y = 0; y < p->h; y++) {
        char *at = dv_pixels_at(p, picture, y, 0, c->colours_out.alpha);
        for (int64_t x = 0; x < p->w; x++) {
            dv_element_store(at + x * p->sw, p->dtype, v);
        }
    }
    return DAVY_OK;
}

/* Alpha as a grey picture. */
static dv_work alpha_work(dv_call *c, int64_t picture, const dv_control *control) {
    const int32_t a = c->colours_in.alpha;
    const int32_t from[4] = {a, a, a, a};
    const int32_t to[4] = {c->colours_out.alpha, 0, 0, 0};
    const dv_stretch stretch = dv_stretch_picture(picture);
    dv_work work = dv_call_work(c, &stretch, control);
    work.in = dv_pixels_image(&c->in, picture, c->in_channels, from);
    work.out = dv_pixels_image(&c->out, picture, 1, to);
    work.grey = c->in_channels == 3;
    return work;
}

static davy_result run_alpha(dv_call *c, int64_t picture, const dv_control *control) {
    float value = 0.0f;
    bool constant = false;
    const dv_work work = alpha_work(c, picture, control);
    if (work.stream_ordered) {
        return dv_call_alpha_ordered(c, &work);
    }
    davy_result r = constant_alpha(c, picture, &constant, &value);
    if (r < 0 || !constant) {
        return r < 0 ? r : dv_model_run(c->model, &work);
    }
    r = fill_alpha(c, picture, value);
    const bool last = control->base + control->share == control->total;
    if (r == DAVY_OK && last && control->progress != NULL) {
        control->progress(control->progress_user, "upscale", control->total, control->total);
    }
    return r;
}

/* ---- the call ---- */

static davy_result run_picture(dv_call *c, int64_t picture, const dv_control *control) {
    const dv_stretch stretch = dv_stretch_picture(picture);
    if (c->posterior) {
        return dv_call_posterior(c, &stretch, control);
    }
    dv_work work = dv_call_work(c, &stretch, control);
    return c->alpha ? dv_call_colours(c, picture, &work) : dv_model_run(c->model, &work);
}

/* Pictures that need nothing but the network, evenly spaced, go to the engine together: it overlaps them, and several GPUs
 * share them. */
bool dv_call_together(const dv_call *c) {
    return dv_call_passes(c) == 1 && !c->posterior && (c->in.n == 1 || c->in.t == 1);
}

static davy_result run_together(dv_call *c) {
    const dv_control control = control_of(c, 0, 1);
    const dv_stretch first = dv_stretch_picture(0);
    dv_work work = dv_call_work(c, &first, &control);
    work.in.n = work.out.n = dv_call_pictures(c);
    work.in.sn = c->in.t == 1 ? c->in.sn : c->in.st;
    work.out.sn = c->in.t == 1 ? c->out.sn : c->out.st;
    return dv_model_run(c->model, &work);
}

static davy_result run_one_by_one(dv_call *c) {
    const int64_t passes = dv_call_passes(c);
    const int64_t pictures = dv_call_pictures(c);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < pictures; i++) {
        dv_control control = control_of(c, i * passes, pictures * passes);
        r = run_picture(c, i, &control);
        if (r == DAVY_OK && c->alpha) {
            control = control_of(c, i * passes + 1, pictures * passes);
            r = run_alpha(c, i, &control);
        }
    }
    return r;
}

davy_result dv_call_run(dv_call *c) {
    davy_result r = dv_call_await_stream(c);
    if (r < 0) {
        return r;
    }
    if (c->op == 0) {
        const dv_control control = control_of(c, 0, 1);
        return dv_model_load(c->model, &control);
    }
    r = c->moving ? dv_call_clips(c) : dv_call_together(c) ? run_together(c) : run_one_by_one(c);
    if ((c->run.flags & DAVY_RUN_STREAM_ORDERED) != 0) { /* also after an error: some of it may be on its way */
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
