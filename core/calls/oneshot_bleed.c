/* oneshot_bleed.c - the pass of the colours of a picture with straight alpha: from a copy of them in which colours have
 * grown into what is hidden (bleed.h), made where the picture lies. */
#include "core/calls/bleed.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/calls/oneshot.h"
#include "kernels/cuda/pixels/bleed.h"

static uint64_t colours_bytes(const dv_call *c) {
    return (uint64_t)c->in.h * (uint64_t)c->in.w * (uint64_t)c->colours_in.count * sizeof(float);
}

uint64_t dv_call_bleed_bytes(const dv_call *c) {
    return c->alpha ? colours_bytes(c) + (uint64_t)c->in.h * (uint64_t)c->in.w : 0;
}

/* The network's input, of colours at `memory`. */
static dvk_image image_of(const dv_call *c, void *memory) {
    const dv_colours colours = dv_colours_of(c->colours_in.count == 1 ? DAVY_CHANNELS_GRAY : DAVY_CHANNELS_RGB);
    dv_pixels p = {.dtype = DAVY_DTYPE_F32, .n = 1, .t = 1, .h = c->in.h, .w = c->in.w, .data = memory};
    p.c = c->colours_in.count;
    p.sc = (int64_t)sizeof(float);
    p.sw = p.sc * p.c;
    p.sh = p.sw * p.w;
    p.sn = p.st = p.sh * p.h;
    return dv_pixels_image(&p, 0, c->in_channels, colours.map);
}

static davy_result run_on_host(dv_call *c, int64_t picture, dv_work *work) {
    const dv_bleed b = {
        .p = &c->in, .index = picture, .colours = c->colours_in, .opacity = dv_mapping_in(&c->in, DAVY_RANGE_UNIT)};
    dv_heap *heap = dv_context_services(dv_model_context(c->model))->heap;
    const uint64_t bytes = dv_call_bleed_bytes(c);
    void *memory = NULL;
    if (!dv_bleed_needed(&b)) {
        return dv_model_run(c->model, work);
    }
    davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, bytes, "colours", &memory);
    if (r < 0) {
        return r;
    }
    dv_bleed_run(&b, memory, (uint8_t *)memory + colours_bytes(c));
    work->in = image_of(c, memory);
    r = dv_model_run(c->model, work);
    dv_heap_free(heap, DV_MEM_WORKSPACE, memory, bytes);
    return r;
}

/* Whether anything is hidden the host does not look. */
static davy_result enqueue(const dv_call *c, int64_t picture, dv_gpu *gpu, void *out) {
    const dvk_image image = dv_pixels_image(&c->in, picture, 1, NULL);
    const dv_mapping opacity = dv_mapping_in(&c->in, DAVY_RANGE_UNIT);
    const int32_t *map = c->colours_in.map;
    const dvk_bleed_params p = {.image = image.data,
                                .sh = image.sh,
                                .sw = image.sw,
                                .sc = image.sc,
                                .dtype = (int32_t)image.dtype,
                                .map = {map[0], map[1], map[2]},
                                .alpha = c->colours_in.alpha,
                                .h = (int32_t)image.h,
                                .w = (int32_t)image.w,
                                .colours = c->colours_in.count,
                                .mul = opacity.mul,
                                .add = opacity.add,
                                .out = out};
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(gpu, c->run.stream, &q);
    return r < 0 ? r : dv_call_finish(c, q, dv_gpu_check(gpu, dvk_cuda_bleed(&p, &q->base), "colours"));
}

static davy_result run_on_device(dv_call *c, int64_t picture, dv_work *work) {
    davy_context *ctx = dv_model_context(c->model);
    dv_gpu *gpu = dv_context_services(ctx)->gpus[0];
    davy_buffer *colours = NULL;
    davy_result r = dv_buffer_create(ctx, gpu, colours_bytes(c), &colours);
    if (r < 0) {
        return r;
    }
    r = enqueue(c, picture, gpu, dv_buffer_data(colours));
    work->in = image_of(c, dv_buffer_data(colours));
    r = r < 0 ? r : dv_model_run(c->model, work);
    if (work->stream_ordered) {
        const davy_result kept = dv_buffer_busy(colours, c->run.stream);
        r = r < 0 ? r : kept;
    }
    dv_buffer_release(colours);
    return r;
}

davy_result dv_call_colours(dv_call *c, int64_t picture, dv_work *work) {
    return c->in.on_device ? run_on_device(c, picture, work) : run_on_host(c, picture, work);
}
