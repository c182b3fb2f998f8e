/* posterior.c - the encoder's posterior. The encoder writes its moments into a small f32 buffer. The output gets mean and
 * log-variance, or a sample. On a GPU the sample is drawn on the device, so the host does not wait for the moments. */
#include "core/calls/call.h"

#include "core/host/buffer.h"
#include "core/host/context.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/pixels/posterior.h"
#include "kernels/normal.h"

enum { LOGVAR_MIN = -30, LOGVAR_MAX = 20 };

/* ---- in host memory ---- */

uint64_t dv_call_moments_bytes(const dv_call *call) {
    const davy_model_info *info = dv_model_facts(call->model);
    const int64_t f = info->spatial_factor > 0 ? info->spatial_factor : 1;
    return (uint64_t)(call->in.h / f) * (uint64_t)(call->in.w / f) * (uint64_t)info->latent_channels * 2 *
           sizeof(float);
}

static float clamp_logvar(float v) {
    return v > (float)LOGVAR_MIN ? v < (float)LOGVAR_MAX ? v : (float)LOGVAR_MAX : (float)LOGVAR_MIN;
}

/* Each random number depends on channel and position only, so the layout in memory does not change the sample. */
static void draw(const dv_call *c, int64_t drawn, float *moments) {
    const int64_t z = c->out_channels / 2;
    const int64_t pixels = c->out.h * c->out.w;
    for (int64_t i = 0; i < pixels; i++) {
        float *at = moments + i * 2 * z;
        for (int64_t k = 0; k < z; k++) {
            const float normal = dvk_normal(c->run.seed, (uint64_t)drawn, (uint64_t)(k * pixels + i));
            at[k] = dvk_draw(at[k], clamp_logvar(at[z + k]), normal) * c->map_out.mul + c->map_out.add;
        }
    }
}

/* Writes the first z channels of `moments` (means or sample), and with MOMENTS the log-variances. */
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

/* ---- in CUDA memory ---- */

/* Arguments that store channels [first, first + n) of the packed moments in the same channels of the result. */
static dvk_convert_args channels_of(const dv_call *c, int64_t picture, float *moments, int32_t first, int32_t n) {
    const int64_t h = c->out.h;
    const int64_t w = c->out.w;
    const int64_t all = c->out_channels;
    dvk_convert_args args = {.image = dv_pixels_image(&c->out, picture, n, NULL), .mul = 1.0f};
    args.image.data = (char *)args.image.data + first * args.image.sc;
    args.view = (dvk_view){.data = moments + first,
                           .dtype = DVK_F32,
                           .n = 1,
                           .h = h,
                           .w = w,
                           .c = n,
                           .sn = all * w * h,
                           .sh = all * w,
                           .sw = all};
    return args;
}

/* Replaces a latent's means by its sample, with the latent scale applied. */
static davy_result draw_on_device(const dv_call *c, int64_t drawn, float *moments) {
    const dvk_posterior_params p = {.moments = moments,
                                    .pixels = c->out.h * c->out.w,
                                    .seed = c->run.seed,
                                    .stream = (uint64_t)drawn,
                                    .z = c->out_channels / 2,
                                    .lo = (float)LOGVAR_MIN,
                                    .hi = (float)LOGVAR_MAX,
                                    .mul = c->map_out.mul,
                                    .add = c->map_out.add};
    dv_gpu_queue *q = NULL;
    const davy_result r = dv_gpu_queue_take(dv_call_gpu(c), c->run.stream, &q);
    return r < 0 ? r : dv_call_finish(c, q, dv_gpu_check(q->gpu, dvk_cuda_posterior_draw(&p, &q->base), "sample"));
}

/* Waits. */
static davy_result fetch(const dv_call *c, davy_buffer *moments, float *host) {
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(dv_buffer_gpu(moments), c->run.stream, &q);
    if (r == DAVY_OK) {
        r = dv_gpu_download(q, host, dv_buffer_data(moments), dv_buffer_bytes(moments));
        dv_gpu_queue_give(q);
    }
    return r;
}

/* Stores the moments as picture `picture` of the output. Waits unless stream-ordered. */
static davy_result store_on_device(const dv_call *c, int64_t picture, float *moments) {
    const bool both = (c->run.flags & DAVY_RUN_MOMENTS) != 0;
    const int32_t z = c->out_channels / 2;
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(dv_call_gpu(c), c->run.stream, &q);
    if (r < 0) {
        return r;
    }
    dvk_convert_args args = channels_of(c, picture, moments, 0, z);
    r = dv_call_convert(q, "store", &args);
    if (both && r == DAVY_OK) {
        args = channels_of(c, picture, moments, z, z);
        args.lo = (float)LOGVAR_MIN;
        args.hi = (float)LOGVAR_MAX;
        args.clamp = 1;
        r = dv_call_convert(q, "store", &args);
    }
    return dv_call_finish(c, q, r);
}

/* ---- the run ---- */

/* An encoder run that writes packed moments. */
static dv_work moments_work(dv_call *c, const dv_stretch *stretch, const dv_control *control, void *moments,
                            bool on_device) {
    dv_work work = dv_call_work(c, stretch, control);
    const int64_t pixel = (int64_t)sizeof(float) * c->out_channels;
    work.out = (dvk_image){.data = moments,
                           .dtype = DVK_F32,
                           .channels = c->out_channels,
                           .n = stretch->n_out,
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

/* Draws the samples if requested. store: the output is on the device too and gets the result. */
static davy_result finish_on_device(const dv_call *c, const dv_stretch *stretch, float *moments, bool store) {
    const uint64_t one = dv_call_moments_bytes(c) / sizeof(float);
    const bool sample = (c->run.flags & DAVY_RUN_SAMPLE) != 0;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < stretch->n_out; i++) {
        float *at = moments + (uint64_t)i * one;
        r = sample ? draw_on_device(c, stretch->drawn + i, at) : DAVY_OK;
        if (r == DAVY_OK && store) {
            r = store_on_device(c, stretch->out + i, at);
        }
    }
    return r;
}

/* host: receives the moments; NULL: the output is on the device and receives them there. */
static davy_result run_on_device(dv_call *c, const dv_stretch *stretch, const dv_control *control, float *host) {
    davy_context *ctx = dv_model_context(c->model);
    davy_buffer *moments = NULL;
    const uint64_t bytes = dv_call_moments_bytes(c) * (uint64_t)stretch->n_out;
    davy_result r = dv_buffer_create(ctx, dv_context_services(ctx)->gpus[0], bytes, &moments);
    if (r < 0) {
        return r;
    }
    const dv_work work = moments_work(c, stretch, control, dv_buffer_data(moments), true);
    r = dv_call_compute(c, stretch, &work);
    r = r < 0 ? r : finish_on_device(c, stretch, dv_buffer_data(moments), host == NULL);
    r = r < 0 || host == NULL ? r : fetch(c, moments, host);
    if (work.stream_ordered) {
        const davy_result kept = dv_buffer_busy(moments, c->run.stream);
        r = r < 0 ? r : kept;
    }
    dv_buffer_release(moments);
    return r;
}

static davy_result run_on_host(dv_call *c, const dv_stretch *stretch, const dv_control *control, float *moments) {
    const uint64_t one = dv_call_moments_bytes(c) / sizeof(float);
    const dv_work work = moments_work(c, stretch, control, moments, false);
    const davy_result r = dv_call_compute(c, stretch, &work);
    const bool sample = (c->run.flags & DAVY_RUN_SAMPLE) != 0;
    for (int64_t i = 0; r == DAVY_OK && sample && i < stretch->n_out; i++) {
        draw(c, stretch->drawn + i, moments + (uint64_t)i * one);
    }
    return r;
}

davy_result dv_call_posterior(dv_call *c, const dv_stretch *stretch, const dv_control *control) {
    davy_context *ctx = dv_model_context(c->model);
    dv_heap *heap = dv_context_services(ctx)->heap;
    const uint64_t one = dv_call_moments_bytes(c);
    const uint64_t bytes = one * (uint64_t)stretch->n_out;
    void *moments = NULL;
    if (c->out.on_device) {
        return run_on_device(c, stretch, control, NULL);
    }
    davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, bytes, "moments", &moments);
    if (r < 0) {
        return r;
    }
    const bool drawn_there = dv_context_on_gpu(ctx) && (c->run.flags & DAVY_RUN_SAMPLE) != 0;
    r = drawn_there ? run_on_device(c, stretch, control, moments) : run_on_host(c, stretch, control, moments);
    for (int64_t i = 0; r == DAVY_OK && i < stretch->n_out; i++) {
        write_posterior(c, stretch->out + i, (float *)moments + (uint64_t)i * (one / sizeof(float)));
    }
    dv_heap_free(heap, DV_MEM_WORKSPACE, moments, bytes);
    return r;
}
