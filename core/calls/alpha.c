/* alpha.c - straight alpha, see call.h. kernels/cuda/pixels/bleed.cu adds in the same order as dv_bleed_run. */
#include "core/calls/call.h"

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/pixels/alpha.h"
#include "kernels/cuda/pixels/bleed.h"

enum { NEVER = 255 };

/* ---- bleeding ---- */

static bool visible(const dv_bleed *b, int64_t y, int64_t x) {
    const char *at = dv_pixels_at(b->p, b->index, y, x, b->colours.alpha);
    return dv_element_load(at, b->p->dtype) * b->opacity.mul + b->opacity.add > 0.0f;
}

bool dv_bleed_needed(const dv_bleed *b) {
    bool found[2] = {false, false};
    for (int64_t y = 0; y < b->p->h; y++) {
        for (int64_t x = 0; x < b->p->w; x++) {
            found[visible(b, y, x)] = true;
        }
        if (found[0] && found[1]) {
            return true;
        }
    }
    return false;
}

typedef struct bleeding {
    const dv_bleed *b;
    float *out;
    uint8_t *age; /* [h][w]: the pass that gave the pixel its colour; 0: visible */
} bleeding;

/* Writes the mean of the neighbours that had a colour before this pass. Returns false if there are none. */
static bool grow(const bleeding *s, int pass, int64_t y, int64_t x) {
    const dv_bleed *b = s->b;
    const uint8_t *age = s->age;
    float *out = s->out;
    const int64_t w = b->p->w;
    const int32_t colours = b->colours.count;
    float sum[3] = {0.0f, 0.0f, 0.0f};
    int n = 0;
    for (int64_t j = dv_max(y - 1, 0); j <= dv_min(y + 1, b->p->h - 1); j++) {
        for (int64_t i = dv_max(x - 1, 0); i <= dv_min(x + 1, w - 1); i++) {
            if (age[j * w + i] < pass) {
                n++;
                for (int32_t c = 0; c < colours; c++) {
                    sum[c] += out[(j * w + i) * colours + c];
                }
            }
        }
    }
    for (int32_t c = 0; n > 0 && c < colours; c++) {
        out[(y * w + x) * colours + c] = sum[c] / (float)n;
    }
    return n > 0;
}

static void read_row(const bleeding *s, int64_t y) {
    const dv_bleed *b = s->b;
    const dv_pixels *p = b->p;
    for (int64_t x = 0; x < p->w; x++) {
        for (int32_t c = 0; c < b->colours.count; c++) {
            const char *at = dv_pixels_at(p, b->index, y, x, b->colours.map[c]);
            s->out[(y * p->w + x) * b->colours.count + c] = dv_element_load(at, p->dtype);
        }
        s->age[y * p->w + x] = visible(b, y, x) ? 0 : NEVER;
    }
}

void dv_bleed_run(const dv_bleed *b, float *out, uint8_t *age) {
    const bleeding s = {.b = b, .out = out, .age = age};
    const int64_t w = b->p->w;
    for (int64_t y = 0; y < b->p->h; y++) {
        read_row(&s, y);
    }
    for (int pass = 1; pass <= DVK_BLEED_REACH; pass++) {
        for (int64_t y = 0; y < b->p->h; y++) {
            for (int64_t x = 0; x < w; x++) {
                if (age[y * w + x] > pass && grow(&s, pass, y, x)) {
                    age[y * w + x] = (uint8_t)pass;
                }
            }
        }
    }
}

/* ---- the pass of the colours ---- */

static uint64_t colours_bytes(const dv_call *c) {
    return (uint64_t)c->in.h * (uint64_t)c->in.w * (uint64_t)c->colours_in.count * sizeof(float);
}

uint64_t dv_call_bleed_bytes(const dv_call *c) {
    return c->alpha ? colours_bytes(c) + (uint64_t)c->in.h * (uint64_t)c->in.w : 0;
}

/* The network's input image for packed f32 colours at `memory`. */
static dvk_image colours_image(const dv_call *c, void *memory) {
    const dv_colours colours = dv_colours_of(c->colours_in.count == 1 ? DAVY_CHANNELS_GRAY : DAVY_CHANNELS_RGB);
    dv_pixels p = {.dtype = DAVY_DTYPE_F32, .n = 1, .t = 1, .h = c->in.h, .w = c->in.w, .data = memory};
    p.c = c->colours_in.count;
    p.sc = (int64_t)sizeof(float);
    p.sw = p.sc * p.c;
    p.sh = p.sw * p.w;
    p.sn = p.st = p.sh * p.h;
    return dv_pixels_image(&p, 0, c->in_channels, colours.map);
}

static davy_result colours_on_host(dv_call *c, int64_t picture, dv_work *work) {
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
    work->in = colours_image(c, memory);
    r = dv_model_run(c->model, work);
    dv_heap_free(heap, DV_MEM_WORKSPACE, memory, bytes);
    return r;
}

/* Bleeds always: a test for transparent pixels would make the host wait. */
static davy_result enqueue_bleed(const dv_call *c, int64_t picture, dv_gpu *gpu, void *out) {
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

static davy_result colours_on_device(dv_call *c, int64_t picture, dv_work *work) {
    davy_context *ctx = dv_model_context(c->model);
    dv_gpu *gpu = dv_context_services(ctx)->gpus[0];
    davy_buffer *colours = NULL;
    davy_result r = dv_buffer_create(ctx, gpu, colours_bytes(c), &colours);
    if (r < 0) {
        return r;
    }
    r = enqueue_bleed(c, picture, gpu, dv_buffer_data(colours));
    work->in = colours_image(c, dv_buffer_data(colours));
    r = r < 0 ? r : dv_model_run(c->model, work);
    if (work->stream_ordered) {
        const davy_result kept = dv_buffer_busy(colours, c->run.stream);
        r = r < 0 ? r : kept;
    }
    dv_buffer_release(colours);
    return r;
}

davy_result dv_call_colours(dv_call *c, int64_t picture, dv_work *work) {
    return c->in.on_device ? colours_on_device(c, picture, work) : colours_on_host(c, picture, work);
}

/* ---- alpha in CUDA memory, in blocks of rows ---- */

enum { CHUNK_BYTES = 32 << 20 };

typedef struct transfer {
    dv_gpu *gpu;
    dv_gpu_queue *q;
    void *block; /* f32 rows, packed, in device memory */
    uint64_t bytes;
    int64_t rows;
} transfer;

/* Waits before it frees the block, also after an error: enqueued work may still use it. */
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
    *t = (transfer){.gpu = dv_call_gpu(c)};
    t->rows = dv_min(image->h, dv_max(1, (int64_t)(CHUNK_BYTES / row)));
    t->bytes = row * (uint64_t)t->rows;
    davy_result r = dv_gpu_alloc(t->gpu, DV_MEM_WORKSPACE, t->bytes, "pixels", &t->block);
    r = r < 0 ? r : dv_gpu_queue_take(t->gpu, c->run.stream, &t->q);
    if (r < 0) {
        transfer_end(t);
    }
    return r;
}

/* Tests whether all values of an image in CUDA memory are equal. Waits. */
static davy_result constant_on_device(const dv_call *c, const dvk_image *image, bool *constant, float *value) {
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
        const dvk_convert_args args = dv_call_rows(t.block, image, y, n);
        r = dv_call_convert(t.q, "load", &args);
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

/* Waits. */
static davy_result fill_on_device(const dv_call *c, const dvk_image *image, float value) {
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
        const dvk_convert_args args = dv_call_rows(t.block, image, y, dv_min(t.rows, image->h - y));
        r = dv_call_convert(t.q, "store", &args);
    }
    r = r < 0 ? r : dv_gpu_queue_wait(t.q, NULL, NULL);
    transfer_end(&t);
    dv_free(row);
    return r;
}

/* ---- the pass of alpha ---- */

/* Enqueues the alpha pass: load as f32, upscale, restore a constant, store. */
static davy_result enqueue_alpha(const dv_call *c, const dv_work *work, dv_gpu_queue *q, const dvk_alpha_params *p) {
    dv_work plane = *work;
    dvk_image given = work->in;
    given.channels = 1; /* the network reads alpha as three channels; the range needs one */
    dvk_convert_args args = dv_call_rows((void *)(uintptr_t)p->in, &given, 0, given.h);
    davy_result r = dv_call_convert(q, "load", &args);
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
    args = dv_call_rows(p->out, &work->out, 0, work->out.h);
    args.mul = work->out_mul;
    args.add = work->out_add;
    args.lo = work->out_lo;
    args.hi = work->out_hi;
    args.clamp = work->out_clamp;
    return r < 0 ? r : dv_call_convert(q, "store", &args);
}

/* Stream-ordered: always runs the network. Then the GPU restores the value of a constant alpha. */
static davy_result run_ordered(const dv_call *c, const dv_work *work) {
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
    const davy_result kept = dv_buffer_busy(block, c->run.stream); /* also after an error: work may be enqueued */
    dv_gpu_queue_give(q);
    dv_buffer_release(block);
    return r < 0 ? r : kept;
}

/* Tests for constant alpha, which is most often opaque. It skips the network, which would not reproduce it exactly. */
static davy_result constant_alpha(const dv_call *c, int64_t picture, bool *constant, float *value) {
    const dv_pixels *p = &c->in;
    const int32_t a = c->colours_in.alpha;
    *constant = false;
    if (p->on_device) {
        const dvk_image image = dv_pixels_image(p, picture, 1, &a);
        return constant_on_device(c, &image, constant, value);
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
        return fill_on_device(c, &image, v);
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

davy_result dv_call_alpha(dv_call *c, int64_t picture, const dv_control *control) {
    float value = 0.0f;
    bool constant = false;
    const dv_work work = alpha_work(c, picture, control);
    if (work.stream_ordered) {
        return run_ordered(c, &work);
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
