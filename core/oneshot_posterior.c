/* oneshot_posterior.c - the encoder's posterior: its moments go through a small f32 buffer, from which mean and
 * log-variance, or a sample, are written. On a GPU the sample is drawn there, so that nobody has to wait for the moments. */
#include "core/buffer.h"
#include "core/context.h"
#include "core/oneshot.h"
#include "kernels/normal.h"

enum { LOGVAR_MIN = -30, LOGVAR_MAX = 20 };

static uint64_t moments_bytes(const dv_call *call) {
    const davy_model_info *info = dv_model_facts(call->model);
    const int64_t f = info->spatial_factor > 0 ? info->spatial_factor : 1;
    return (uint64_t)(call->in.h / f) * (uint64_t)(call->in.w / f) * (uint64_t)info->latent_channels * 2 *
           sizeof(float);
}

uint64_t dv_call_workspace(const dv_call *call) {
    return call->posterior ? moments_bytes(call) : dv_call_bleed_bytes(call);
}

static float clamp_logvar(float v) {
    return v > (float)LOGVAR_MIN ? v < (float)LOGVAR_MAX ? v : (float)LOGVAR_MAX : (float)LOGVAR_MIN;
}

/* Numbers are drawn by their place in the picture, channel by channel, so that the layout in memory changes nothing. */
static void draw(const dv_call *c, int64_t picture, float *moments) {
    const int64_t z = c->out_channels / 2;
    const int64_t pixels = c->out.h * c->out.w;
    for (int64_t i = 0; i < pixels; i++) {
        float *at = moments + i * 2 * z;
        for (int64_t k = 0; k < z; k++) {
            const float normal = dvk_normal(c->run.seed, (uint64_t)picture, (uint64_t)(k * pixels + i));
            at[k] = dvk_draw(at[k], clamp_logvar(at[z + k]), normal) * c->map_out.mul + c->map_out.add;
        }
    }
}

/* The means, or the sample in their place, and where they are asked for the log-variances. */
static void write_posterior(const dv_call *c, int64_t picture, const float *moments) {
    const bool both = (c->run.flags & DAVY_RUN_MOMENTS) != 0;
    const dv_pixels *p = &c->out;
    const int64_t z = c->out_channels / 2;
    for (int64_t y = 0; y < p->h; y++) {
        for (int64_t x = 0; x < p->w; x++) {
            const float *at = moments + (y * p->w + x) * 2 * z;
            for (int64_t k = 0; k < z; k++) {
                dv_element_store(dv_pixels_at(p, picture, y, x, k), p->dtype, at[k]);
                if (both) {
                    dv_element_store(dv_pixels_at(p, picture, y, x, z + k), p->dtype, clamp_logvar(at[z + k]));
                }
            }
        }
    }
}

/* A run of the encoder that gives its packed moments. */
static dv_work moments_work(dv_call *c, int64_t picture, const dv_control *control, void *moments, bool on_device) {
    dv_work work = dv_call_work(c, picture, control);
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
    work.out_device = on_device;
    return work;
}

/* host: where they go from there, NULL: into the output, which lies on the device too. */
static davy_result run_on_device(dv_call *c, int64_t picture, const dv_control *control, float *host) {
    const bool sample = (c->run.flags & DAVY_RUN_SAMPLE) != 0;
    davy_context *ctx = dv_model_context(c->model);
    davy_buffer *moments = NULL;
    davy_result r = dv_buffer_create(ctx, dv_context_services(ctx)->gpus[0], moments_bytes(c), &moments);
    if (r < 0) {
        return r;
    }
    const dv_work work = moments_work(c, picture, control, dv_buffer_data(moments), true);
    r = dv_model_run(c->model, &work);
    r = r < 0 || !sample ? r : dv_call_draw(c, picture, moments, (float)LOGVAR_MIN, (float)LOGVAR_MAX);
    if (r == DAVY_OK) {
        r = host != NULL ? dv_call_fetch_moments(c, moments, host)
                         : dv_call_store_moments(c, picture, moments, (float)LOGVAR_MIN, (float)LOGVAR_MAX);
    }
    if (work.stream_ordered) {
        const davy_result kept = dv_buffer_busy(moments, c->run.stream);
        r = r < 0 ? r : kept;
    }
    dv_buffer_release(moments);
    return r;
}

static davy_result run_on_host(dv_call *c, int64_t picture, const dv_control *control, float *moments) {
    const dv_work work = moments_work(c, picture, control, moments, false);
    const davy_result r = dv_model_run(c->model, &work);
    if (r == DAVY_OK && (c->run.flags & DAVY_RUN_SAMPLE) != 0) {
        draw(c, picture, moments);
    }
    return r;
}

davy_result dv_call_posterior(dv_call *c, int64_t picture, const dv_control *control) {
    davy_context *ctx = dv_model_context(c->model);
    dv_heap *heap = dv_context_services(ctx)->heap;
    const uint64_t bytes = moments_bytes(c);
    void *moments = NULL;
    if (c->out.on_device) {
        return run_on_device(c, picture, control, NULL);
    }
    davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, bytes, "moments", &moments);
    if (r < 0) {
        return r;
    }
    const bool drawn_there = dv_context_on_gpu(ctx) && (c->run.flags & DAVY_RUN_SAMPLE) != 0;
    r = drawn_there ? run_on_device(c, picture, control, moments) : run_on_host(c, picture, control, moments);
    if (r == DAVY_OK) {
        write_posterior(c, picture, moments);
    }
    dv_heap_free(heap, DV_MEM_WORKSPACE, moments, bytes);
    return r;
}
