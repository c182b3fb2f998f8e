/* oneshot_run.c - the work of a call: picture after picture through the engine; alpha as a grey picture of its own; the
 * encoder's moments through a small f32 buffer, from which mean and log-variance, or a sample, are written. */
#include <math.h>
#include <string.h>

#include "core/buffer.h"
#include "core/context.h"
#include "core/error.h"
#include "core/oneshot.h"
#include "core/os.h"
#include "core/random.h"

#define PROGRESS_NS 50000000ull /* 20 calls a second over all pictures; the engine counts for one only */

enum { PASS_PARTS = 1000, LOGVAR_MIN = -30, LOGVAR_MAX = 20 };

int64_t dv_call_pictures(const dv_call *call) {
    return call->in.n * call->in.t;
}

int64_t dv_call_passes(const dv_call *call) {
    return call->alpha ? 2 : 1;
}

static uint64_t moments_bytes(const dv_call *call) {
    const davy_model_info *info = dv_model_facts(call->model);
    const int64_t f = info->spatial_factor > 0 ? info->spatial_factor : 1;
    return (uint64_t)(call->in.h / f) * (uint64_t)(call->in.w / f) * (uint64_t)info->latent_channels * 2 *
           sizeof(float);
}

uint64_t dv_call_workspace(const dv_call *call) {
    return call->posterior ? moments_bytes(call) : 0;
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

/* For pass `index` of `count`. */
static dv_control control_of(dv_call *c, int64_t index, int64_t count) {
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
        control.share = PASS_PARTS;
        control.total = (uint64_t)count * PASS_PARTS;
    }
    return control;
}

/* ---- one pass ---- */

static dv_work work_of(dv_call *c, int64_t picture, const dv_control *control) {
    const bool latent_in = c->op == DAVY_OP_VAE_DECODE;
    const bool latent_out = c->op == DAVY_OP_VAE_ENCODE;
    return (dv_work){.stage = c->stage,
                     .in = dv_pixels_image(&c->in, picture, c->in_channels, latent_in ? NULL : c->colours_in.map),
                     .out = dv_pixels_image(&c->out, picture, c->out_channels, latent_out ? NULL : c->colours_out.map),
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
    dv_work work = work_of(c, picture, control);
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

/* ---- the encoder's posterior ---- */

static float clamp_logvar(float v) {
    return v > (float)LOGVAR_MIN ? v < (float)LOGVAR_MAX ? v : (float)LOGVAR_MAX : (float)LOGVAR_MIN;
}

/* Picture `to` of p becomes the posterior of the call's picture. Numbers are drawn by their place in the picture, channel
 * by channel, so that the layout in memory changes nothing. */
static void write_posterior(const dv_call *c, int64_t picture, const float *moments, const dv_pixels *p, int64_t to) {
    const bool both = (c->run.flags & DAVY_RUN_MOMENTS) != 0;
    const int64_t z = c->out_channels / 2;
    for (int64_t y = 0; y < p->h; y++) {
        for (int64_t x = 0; x < p->w; x++) {
            const float *at = moments + (y * p->w + x) * 2 * z;
            for (int64_t k = 0; k < z; k++) {
                const float logvar = clamp_logvar(at[z + k]);
                float v = at[k];
                if (both) {
                    dv_element_store(dv_pixels_at(p, to, y, x, z + k), p->dtype, logvar);
                } else {
                    const uint64_t place = (uint64_t)((k * p->h + y) * p->w + x);
                    v += expf(0.5f * logvar) * dv_random_normal(c->run.seed, (uint64_t)picture, place);
                    v = v * c->map_out.mul + c->map_out.add;
                }
                dv_element_store(dv_pixels_at(p, to, y, x, k), p->dtype, v);
            }
        }
    }
}

/* A sample in CUDA memory: by way of a packed one in the host's. */
static davy_result put_sample(const dv_call *c, int64_t picture, const float *moments) {
    const int32_t channels = (int32_t)c->out.c;
    const int64_t pixel = (int64_t)sizeof(float) * channels;
    dv_pixels packed = {.dtype = DAVY_DTYPE_F32, .n = 1, .t = 1, .h = c->out.h, .w = c->out.w, .c = channels};
    packed.sc = (int64_t)sizeof(float);
    packed.sw = pixel;
    packed.sh = pixel * packed.w;
    void *block = NULL;
    dv_heap *heap = dv_context_services(dv_model_context(c->model))->heap;
    const uint64_t bytes = (uint64_t)(packed.sh * packed.h);
    davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, bytes, "sample", &block);
    if (r < 0) {
        return r;
    }
    packed.data = block;
    write_posterior(c, picture, moments, &packed, 0);
    const dvk_image image = dv_pixels_image(&c->out, picture, channels, NULL);
    r = dv_call_put(c, &image, block);
    dv_heap_free(heap, DV_MEM_WORKSPACE, block, bytes);
    return r;
}

/* A run of the encoder that gives its packed moments. */
static dv_work moments_work(dv_call *c, int64_t picture, const dv_control *control, void *moments) {
    dv_work work = work_of(c, picture, control);
    const int64_t pixel = (int64_t)sizeof(float) * c->out_channels;
    work.out = (dvk_image){.data = moments,
                           .dtype = DVK_F32,
                           .channels = c->out_channels,
                           .n = 1,
                           .h = c->out.h,
                           .w = c->out.w,
                           .sn = pixel * c->out.w * c->out.h,
                           .sh = pixel * c->out.w,
                           .sw = pixel,
                           .sc = (int64_t)sizeof(float),
                           .identity_map = 1};
    work.out_mul = 1.0f;
    work.out_add = 0.0f;
    return work;
}

/* Moments into CUDA memory never leave the device. */
static davy_result run_device_moments(dv_call *c, int64_t picture, const dv_control *control) {
    davy_context *ctx = dv_model_context(c->model);
    davy_buffer *moments = NULL;
    davy_result r = dv_buffer_create(ctx, dv_context_services(ctx)->gpus[0], moments_bytes(c), &moments);
    if (r < 0) {
        return r;
    }
    const dv_work work = moments_work(c, picture, control, dv_buffer_data(moments));
    r = dv_model_run(c->model, &work);
    r = r < 0 ? r : dv_call_store_moments(c, picture, moments, (float)LOGVAR_MIN, (float)LOGVAR_MAX);
    if (work.stream_ordered) {
        const davy_result kept = dv_buffer_busy(moments, c->run.stream);
        r = r < 0 ? r : kept;
    }
    dv_buffer_release(moments);
    return r;
}

static davy_result run_posterior(dv_call *c, int64_t picture, const dv_control *control) {
    dv_heap *heap = dv_context_services(dv_model_context(c->model))->heap;
    const uint64_t bytes = moments_bytes(c);
    void *moments = NULL;
    if (c->out.on_device && (c->run.flags & DAVY_RUN_MOMENTS) != 0) {
        return run_device_moments(c, picture, control);
    }
    davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, bytes, "moments", &moments);
    if (r < 0) {
        return r;
    }
    dv_work work = moments_work(c, picture, control, moments);
    work.out_device = false;
    r = dv_model_run(c->model, &work);
    if (r == DAVY_OK && c->out.on_device) {
        r = put_sample(c, picture, moments);
    } else if (r == DAVY_OK) {
        write_posterior(c, picture, moments, &c->out, picture);
    }
    dv_heap_free(heap, DV_MEM_WORKSPACE, moments, bytes);
    return r;
}

/* ---- the call ---- */

static davy_result run_picture(dv_call *c, int64_t picture, const dv_control *control) {
    if (c->posterior) {
        return run_posterior(c, picture, control);
    }
    const dv_work work = work_of(c, picture, control);
    return dv_model_run(c->model, &work);
}

/* Pictures that need nothing but the network, evenly spaced, go to the engine together: it overlaps them, and several GPUs
 * share them. */
static bool go_together(const dv_call *c) {
    return dv_call_passes(c) == 1 && !c->posterior && (c->in.n == 1 || c->in.t == 1);
}

static davy_result run_together(dv_call *c) {
    const dv_control control = control_of(c, 0, 1);
    dv_work work = work_of(c, 0, &control);
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
    r = go_together(c) ? run_together(c) : run_one_by_one(c);
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
