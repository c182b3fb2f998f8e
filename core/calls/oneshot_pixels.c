/* oneshot_pixels.c - the few things a call does with pixels in CUDA memory beside the network: looking at alpha, filling
 * it in, the encoder's moments and samples. */
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/calls/oneshot.h"
#include "kernels/cuda/pixels/alpha.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/pixels/posterior.h"

enum { CHUNK_BYTES = 32 << 20 };

static dv_gpu *gpu_of(const dv_call *c) {
    return dv_context_services(dv_model_context(c->model))->gpus[0];
}

/* Rows [y, y + rows) of an image and the block, as the ops "load" and "store" take them. */
static dvk_convert_args rows_of(void *block, const dvk_image *image, int64_t y, int64_t rows) {
    const int64_t c = image->channels;
    dvk_convert_args args = {.image = *image, .mul = 1.0f};
    args.image.data = (char *)image->data + y * image->sh;
    args.image.h = rows;
    args.view = (dvk_view){.data = block,
                           .dtype = DVK_F32,
                           .n = 1,
                           .h = rows,
                           .w = image->w,
                           .c = c,
                           .sn = c * image->w * rows,
                           .sh = c * image->w,
                           .sw = c};
    return args;
}

static davy_result convert(dv_gpu_queue *q, const char *op, const dvk_convert_args *args) {
    const dvk_cuda_caps *caps = dv_gpu_caps(q->gpu);
    const dvk_cuda_kernel *kernel = dvk_cuda_choose(op, args, caps, DVK_COMPUTES_F32);
    if (kernel == NULL || (kernel->scratch_bytes != NULL && kernel->scratch_bytes(args, caps) > 0)) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op %s that needs no scratch", op);
    }
    return dv_gpu_check(q->gpu, kernel->enqueue(args, NULL, &q->base), op);
}

/* ---- between the device and the host, some rows at a time ---- */

typedef struct transfer {
    dv_gpu *gpu;
    dv_gpu_queue *q;
    void *block; /* f32 rows, packed, in device memory */
    uint64_t bytes;
    int64_t rows;
} transfer;

/* Whatever happened, nothing may use the block any more when it goes. */
static void transfer_end(transfer *t) {
    davy_error_info saved;
    dv_error_get(&saved);
    if (t->q != NULL) {
        dv_gpu_queue_wait(t->q, NULL, NULL);
        dv_gpu_queue_give(t->q);
    }
    if (t->block != NULL) {
        dv_gpu_free(t->gpu, DV_MEM_WORKSPACE, t->block, t->bytes);
    }
    dv_error_set(&saved);
}

static davy_result transfer_begin(const dv_call *c, const dvk_image *image, transfer *t) {
    const uint64_t row = (uint64_t)image->w * (uint64_t)image->channels * sizeof(float);
    *t = (transfer){.gpu = gpu_of(c)};
    t->rows = dv_min(image->h, dv_max(1, (int64_t)(CHUNK_BYTES / row)));
    t->bytes = row * (uint64_t)t->rows;
    davy_result r = dv_gpu_alloc(t->gpu, DV_MEM_WORKSPACE, t->bytes, "pixels", &t->block);
    r = r < 0 ? r : dv_gpu_queue_take(t->gpu, c->run.stream, &t->q);
    if (r < 0) {
        transfer_end(t);
    }
    return r;
}

davy_result dv_call_constant(const dv_call *c, const dvk_image *image, bool *constant, float *value) {
    transfer t;
    davy_result r = transfer_begin(c, image, &t);
    if (r < 0) {
        return r;
    }
    float *rows = dv_calloc(t.bytes, 1);
    r = rows != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "alpha: out of memory");
    *constant = true;
    for (int64_t y = 0; r == DAVY_OK && *constant && y < image->h; y += t.rows) {
        const int64_t n = dv_min(t.rows, image->h - y);
        const dvk_convert_args args = rows_of(t.block, image, y, n);
        r = convert(t.q, "load", &args);
        r = r < 0 ? r : dv_gpu_download(t.q, rows, t.block, (uint64_t)(n * args.view.sh) * sizeof(float));
        *value = y == 0 && r == DAVY_OK ? rows[0] : *value;
        for (int64_t i = 0; r == DAVY_OK && *constant && i < n * args.view.sh; i++) {
            *constant = rows[i] == *value;
        }
    }
    dv_free(rows);
    transfer_end(&t);
    return r;
}

davy_result dv_call_fill(const dv_call *c, const dvk_image *image, float value) {
    const uint64_t n = (uint64_t)image->w * (uint64_t)image->channels;
    transfer t;
    float *row = dv_calloc(n, sizeof *row);
    davy_result r = row != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "alpha: out of memory");
    r = r < 0 ? r : transfer_begin(c, image, &t);
    if (r < 0) {
        dv_free(row);
        return r;
    }
    for (uint64_t i = 0; i < n; i++) {
        row[i] = value;
    }
    for (int64_t y = 0; r == DAVY_OK && y < t.rows; y++) {
        r = dv_gpu_upload(t.q, (char *)t.block + (uint64_t)y * n * sizeof(float), row, n * sizeof(float));
    }
    for (int64_t y = 0; r == DAVY_OK && y < image->h; y += t.rows) {
        const dvk_convert_args args = rows_of(t.block, image, y, dv_min(t.rows, image->h - y));
        r = convert(t.q, "store", &args);
    }
    r = r < 0 ? r : dv_gpu_queue_wait(t.q, NULL, NULL);
    transfer_end(&t);
    dv_free(row);
    return r;
}

/* ---- alpha that the host does not look at ---- */

/* The work of a plane: from alpha as it was given to alpha upscaled, both as f32. */
static davy_result enqueue_alpha(const dv_call *c, const dv_work *work, dv_gpu_queue *q, const dvk_alpha_params *p) {
    dv_work plane = *work;
    dvk_image given = work->in;
    given.channels = 1; /* the network gets it three times, one is enough here */
    dvk_convert_args args = rows_of((void *)(uintptr_t)p->in, &given, 0, given.h);
    davy_result r = convert(q, "load", &args);
    r = r < 0 ? r : dv_gpu_check(q->gpu, dvk_cuda_alpha_range(p, &q->base), "alpha");
    plane.out =
        (dvk_image){.data = p->out, .dtype = DVK_F32, .channels = 1, .n = 1, .h = work->out.h, .w = work->out.w};
    plane.out.sc = (int64_t)sizeof(float);
    plane.out.sw = plane.out.sc;
    plane.out.sh = plane.out.sw * plane.out.w;
    plane.out.sn = plane.out.sh * plane.out.h;
    plane.out_mul = 1.0f;
    plane.out_add = 0.0f;
    plane.out_clamp = false;
    r = r < 0 ? r : dv_model_run(c->model, &plane);
    r = r < 0 ? r : dv_gpu_check(q->gpu, dvk_cuda_alpha_settle(p, &q->base), "alpha");
    args = rows_of(p->out, &work->out, 0, work->out.h);
    args.mul = work->out_mul;
    args.add = work->out_add;
    args.lo = work->out_lo;
    args.hi = work->out_hi;
    args.clamp = work->out_clamp;
    return r < 0 ? r : convert(q, "store", &args);
}

davy_result dv_call_alpha_ordered(const dv_call *c, const dv_work *work) {
    davy_context *ctx = dv_model_context(c->model);
    dv_gpu *gpu = dv_context_services(ctx)->gpus[0];
    dvk_alpha_params p = {.n_in = work->in.h * work->in.w, .n_out = work->out.h * work->out.w};
    davy_buffer *block = NULL;
    dv_gpu_queue *q = NULL;
    const uint64_t bytes = (uint64_t)(p.n_in + p.n_out) * sizeof(float) + DVK_ALPHA_RANGE_BYTES;
    davy_result r = dv_buffer_create(ctx, gpu, bytes, &block);
    if (r < 0) {
        return r;
    }
    p.range = dv_buffer_data(block);
    p.in = p.range + DVK_ALPHA_RANGE_BYTES / sizeof(float);
    p.out = p.range + DVK_ALPHA_RANGE_BYTES / sizeof(float) + p.n_in;
    p.mul = work->in_mul;
    p.add = work->in_add;
    r = dv_gpu_queue_take(gpu, c->run.stream, &q);
    r = r < 0 ? r : enqueue_alpha(c, work, q, &p);
    const davy_result kept = dv_buffer_busy(block, c->run.stream); /* also of what was enqueued before an error */
    dv_gpu_queue_give(q);
    dv_buffer_release(block);
    return r < 0 ? r : kept;
}

davy_result dv_call_finish(const dv_call *c, dv_gpu_queue *q, davy_result r) {
    const bool wait = (c->run.flags & DAVY_RUN_STREAM_ORDERED) == 0;
    const davy_result waited = wait ? dv_gpu_queue_wait(q, NULL, NULL) : DAVY_OK;
    dv_gpu_queue_give(q);
    return r < 0 ? r : waited;
}

davy_result dv_call_gather(const dv_call *c, int64_t picture, float *to) {
    const int32_t *map = c->op == DAVY_OP_VAE_DECODE ? NULL : c->colours_in.map;
    const dvk_image image = dv_pixels_image(&c->in, picture, c->in_channels, map);
    const dvk_convert_args args = rows_of(to, &image, 0, image.h);
    dv_gpu_queue *q = NULL;
    const davy_result r = dv_gpu_queue_take(gpu_of(c), c->run.stream, &q);
    return r < 0 ? r : dv_call_finish(c, q, convert(q, "load", &args));
}

/* ---- the encoder's moments ---- */

/* Channels [first, first + n) of the packed moments into the same ones of the result. */
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

davy_result dv_call_draw(const dv_call *c, int64_t drawn, float *moments, float lo, float hi) {
    const dvk_posterior_params p = {.moments = moments,
                                    .pixels = c->out.h * c->out.w,
                                    .seed = c->run.seed,
                                    .stream = (uint64_t)drawn,
                                    .z = c->out_channels / 2,
                                    .lo = lo,
                                    .hi = hi,
                                    .mul = c->map_out.mul,
                                    .add = c->map_out.add};
    dv_gpu_queue *q = NULL;
    const davy_result r = dv_gpu_queue_take(gpu_of(c), c->run.stream, &q);
    return r < 0 ? r : dv_call_finish(c, q, dv_gpu_check(q->gpu, dvk_cuda_posterior_draw(&p, &q->base), "sample"));
}

davy_result dv_call_fetch_moments(const dv_call *c, davy_buffer *moments, float *host) {
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(dv_buffer_gpu(moments), c->run.stream, &q);
    if (r == DAVY_OK) {
        r = dv_gpu_download(q, host, dv_buffer_data(moments), dv_buffer_bytes(moments));
        dv_gpu_queue_give(q);
    }
    return r;
}

davy_result dv_call_store_moments(const dv_call *c, int64_t picture, float *moments, float lo, float hi) {
    const bool both = (c->run.flags & DAVY_RUN_MOMENTS) != 0;
    const int32_t z = c->out_channels / 2;
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(gpu_of(c), c->run.stream, &q);
    if (r < 0) {
        return r;
    }
    dvk_convert_args args = channels_of(c, picture, moments, 0, z);
    r = convert(q, "store", &args);
    if (both && r == DAVY_OK) {
        args = channels_of(c, picture, moments, z, z);
        args.lo = lo;
        args.hi = hi;
        args.clamp = 1;
        r = convert(q, "store", &args);
    }
    return dv_call_finish(c, q, r);
}
