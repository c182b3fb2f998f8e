/* cuda.c - computes a slice on a GPU: upload of the frames, the captured steps, download of the result. A slice takes long compared
 * with the host's work between two slices, so the host waits for each. */
#include "core/base/error.h"
#include "core/clip/stream_priv.h"
#include "core/exec/run_cuda.h"
#include "core/tiles/picture_view.h"
#include "core/tiles/staging.h"
#include "kernels/dtype.h"

/* ---- the caller's pictures in device memory ---- */

static davy_result grow(dv_clip_stream *s, int32_t which, uint64_t bytes) {
    dv_gpu *gpu = dv_engine_gpu(s->e, 0);
    dv_stage_memory *m = &s->staging[which];
    if (m->bytes >= bytes) {
        return DAVY_OK;
    }
    if (m->data != NULL) { /* not in use: the host has waited for every slice */
        dv_gpu_free(gpu, DV_MEM_WORKSPACE, m->data, m->bytes);
        *m = (dv_stage_memory){0};
    }
    const davy_result r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, bytes, "frames of a clip", &m->data);
    m->bytes = r == DAVY_OK ? bytes : 0;
    return r;
}

/* The staging of one frame. */
static dv_staging staging_of(const dvk_image *image, int64_t frame) {
    const dvk_image one = dv_image_part(image, frame, 0, 0, image->h, image->w);
    dv_staging s;
    dv_staging_describe(&one, &s);
    return s;
}

davy_result dv_clip_stream_stage(dv_clip_stream *s, const dv_work *work, int64_t frames_in, int64_t frames_out) {
    davy_result r = DAVY_OK;
    if (!s->choice.apart) {
        return r;
    }
    if (!work->in_device) {
        r = grow(s, 0, staging_of(&work->in, 0).bytes * (uint64_t)frames_in);
    }
    if (r == DAVY_OK && !work->out_device) {
        r = grow(s, 1, staging_of(&work->out, 0).bytes * (uint64_t)frames_out);
    }
    return r;
}

bool dv_clip_stream_passes(uint64_t arena, const dvk_view *view, uint64_t at, uint64_t bytes, uint64_t *where) {
    const uint64_t end = dv_align_up(at + (uint64_t)(view->n * view->sn) * dvk_dtype_size(view->dtype), 256);
    *where = at >= bytes ? 0 : end;
    return at >= bytes || (end <= arena && bytes <= arena - end);
}

/* Finds device memory for staging the caller's frames. Before and after the steps, only `view` uses the arena. */
static davy_result find_way(dv_clip_stream *s, int32_t which, const dvk_view *view, const dvk_image *host, char **out) {
    const uint64_t bytes = staging_of(host, 0).bytes * (uint64_t)host->n;
    uint64_t where = 0;
    if (!s->choice.apart && dv_clip_stream_passes(s->choice.info.arena_bytes, view,
                                                  (uint64_t)((char *)view->data - (char *)s->arena), bytes, &where)) {
        *out = (char *)s->arena + where;
        return DAVY_OK;
    }
    const davy_result r = grow(s, which, bytes);
    *out = s->staging[which].data;
    return r;
}

/* The image of the staged frames at `at`. */
static dvk_image staged(const dvk_image *host, char *at) {
    const dv_staging one = staging_of(host, 0);
    dvk_image image = dv_staging_image(&one, at);
    image.n = host->n;
    image.sn = (int64_t)one.bytes;
    return image;
}

/* Copies each frame between the caller's memory and the staging memory; up: to the device. */
static davy_result move_frames(const dv_clip_stream *s, char *to, const dvk_image *host, dv_gpu_queue *q, bool up) {
    davy_result r = DAVY_OK;
    for (int64_t f = 0; r == DAVY_OK && f < host->n; f++) {
        const dv_staging one = staging_of(host, f);
        char *at = to + (uint64_t)f * one.bytes;
        r = up ? dv_staging_upload(&one, q, s->e->services.heap, at)
               : dv_staging_download(&one, q, s->e->services.heap, at);
    }
    return r;
}

/* ---- a slice ---- */

static davy_result poll(void *user) {
    return dv_watch_poll(user);
}

static uint64_t convert_bytes(const dvk_convert_args *a) {
    return (uint64_t)(a->view.n * a->view.h * a->view.w * a->view.c) *
           (dvk_dtype_size(a->view.dtype) + dvk_dtype_size(a->image.dtype));
}

static davy_result load(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, dv_gpu_queue *q) {
    const dvk_image *in = &work->in;
    const dvk_view input = dv_instance_input(p->instance);
    char *way = NULL;
    davy_result r = work->in_device ? DAVY_OK : find_way(s, 0, &input, in, &way);
    r = r == DAVY_OK && !work->in_device ? move_frames(s, way, in, q, true) : r;
    if (r < 0) {
        return r;
    }
    const dvk_image image = work->in_device ? *in : staged(in, way);
    const dvk_convert_args args = dv_load_args(work, &image, &input);
    return dv_instance_enqueue_op(p->instance, q, "load", &args, convert_bytes(&args));
}

/* way: staging memory of the result, if the caller's output is in host memory. */
static davy_result store(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, char *way, dv_gpu_queue *q) {
    const dvk_image *out = &work->out;
    const dvk_image image = work->out_device ? *out : staged(out, way);
    dvk_view output = dv_instance_output(p->instance);
    output.c = work->out.channels;
    const dvk_convert_args args = dv_store_args(work, &image, &output);
    davy_result r = DAVY_OK;
    if (!work->out_device && staging_of(out, 0).gaps) { /* the caller's bytes between the pixels must not change */
        r = move_frames(s, way, out, q, true);
    }
    return r < 0 ? r : dv_instance_enqueue_op(p->instance, q, "store", &args, convert_bytes(&args));
}

static davy_result compute(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, dv_watch *watch) {
    dv_gpu_queue *q = dv_instance_queue(p->instance);
    const dvk_view output = dv_instance_output(p->instance);
    char *way = NULL;
    dv_gpu_event *done = NULL;
    davy_result r = dv_instance_event(p->instance, DV_SLOT_TILE, &done);
    r = r < 0 ? r : load(s, p, work, q);
    const uint64_t since = dv_now_ns();
    r = r < 0 ? r : dv_instance_enqueue(p->instance);
    r = r == DAVY_OK && !work->out_device ? find_way(s, 1, &output, &work->out, &way) : r;
    r = r < 0 ? r : store(s, p, work, way, q);
    r = r < 0 ? r : dv_gpu_event_record(done, q);
    r = r == DAVY_OK && dv_instance_timed(p->instance) ? dv_instance_collect(p->instance) : r;
    r = r < 0 ? r : dv_instance_await(p->instance, done, since, poll, watch);
    if (r == DAVY_OK && !work->out_device) {
        r = move_frames(s, way, &work->out, q, false);
    }
    return r;
}

davy_result dv_clip_stream_slice_cuda(dv_clip_stream *s, dv_slice_program *p, const dv_work *work, dv_watch *watch) {
    davy_result r = dv_instance_begin(p->instance, work->stream);
    if (r < 0) {
        return r;
    }
    r = compute(s, p, work, watch);
    if (r == DAVY_OK) {
        dv_watch_advance(watch, s->choice.cost_frame * (double)work->in.n);
    } else {
        davy_error_info error = {.struct_size = sizeof error};
        dv_error_get(&error);
        s->busy = p->instance;
        if (work->in_device || work->out_device || s->group.streams > 1) { /* others may use this memory at once */
            dv_gpu_queue_wait(dv_instance_queue(p->instance), NULL, NULL);
        }
        dv_error_set(&error);
    }
    dv_instance_end(p->instance);
    return r;
}

void dv_clip_stream_settle(dv_clip_stream *s) {
    if (s->busy != NULL) {
        dv_instance_settle(s->busy);
        s->busy = NULL;
    }
}
