/* run.c - see run.h. Four threads with short queues between them: one decodes; one converts to RGB and pushes to the library; one
 * pulls from the library and converts to the sink's pixels; one runs the sink. The slowest thread, or the network, sets the
 * speed. Memory holds only the few frames in the queues. The main thread draws the bar and watches for interrupts. */
#include <libavutil/cpu.h>
#include <libavutil/imgutils.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/video/queue.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/run.h"

enum { BETWEEN = 3, THREADS = 4, ALIGN = 64, CONVERTING_MAX = 8 };

typedef struct stamp { /* of a frame in the network */
    int64_t pts, duration, number;
} stamp;

typedef struct out_frame {
    AVFrame *frame; /* NULL: rgb */
    cli_picture rgb;
    int64_t number;
} out_frame;

typedef struct run {
    video_task *task;
    davy_sequence *sequence;
    cli_picture picture; /* shape of the network's result; no pixels */
    AVFrame *in, *out;   /* RGB before and after the network */
    cli_queue *decoded, *stamps, *results;
    cli_thread *threads[THREADS];
    atomic_int failed, ended; /* failed: exit status of the first thread that failed */
    atomic_llong frames;
    video_scaler from_rgb;
    AVBufferPool *pool; /* memory of the sink's frames; the encoder may keep some */
} run;

static void drop_frame(void *thing) {
    AVFrame *f = thing;
    av_frame_free(&f);
}

static void drop_result(void *thing) {
    out_frame *o = thing;
    if (o != NULL) {
        av_frame_free(&o->frame);
        cli_picture_free(&o->rgb);
        free(o);
    }
}

static void stop_queues(run *r) {
    cli_queue_stop(r->decoded);
    cli_queue_stop(r->stamps);
    cli_queue_stop(r->results);
}

/* Stops all threads. Any thread may call it, after it has printed the error. */
static void give_up(run *r, int status) {
    int none = 0;
    atomic_compare_exchange_strong(&r->failed, &none, status);
    stop_queues(r);
}

static int is_over(run *r) {
    return atomic_load(&r->failed) != 0 || cli_interrupted() != 0;
}

/* If two threads fail for the same reason, only one prints it. */
static void sequence_failed(run *r, davy_result result) {
    if (!is_over(r)) {
        give_up(r, cli_session_fail(r->task->session, r->task->video->path, result));
    }
}

static void no_memory(run *r) {
    give_up(r, cli_fail(r->task->video->path, "out of memory"));
}

static void not_converted(run *r, int format, int error) {
    char why[128];
    give_up(r, cli_fail(r->task->video->path, "frames of %s cannot be converted: %s", video_pixels_name(format),
                        video_error(error, why)));
}

/* A tensor over the pixels of an AVFrame. */
static davy_tensor tensor_of(const AVFrame *rgb) {
    const uint32_t bytes = rgb->format == AV_PIX_FMT_RGB48 ? 2 : 1;
    const cli_picture p = {.width = (uint32_t)rgb->width,
                           .height = (uint32_t)rgb->height,
                           .channels = 3,
                           .bits = 8 * bytes,
                           .pixels = rgb->data[0]};
    davy_tensor t = cli_tensor_of_picture(&p);
    const int64_t strides[] = {rgb->linesize[0], 3 * bytes, bytes};
    memcpy(t.stride_bytes, strides, sizeof strides);
    return t;
}

/* ---- the threads ---- */

static void decode(void *user) {
    run *r = user;
    int more = 1;
    while (more == 1 && !is_over(r)) {
        AVFrame *f = av_frame_alloc();
        const double begin = cli_seconds();
        more = f != NULL ? video_decode(r->task->video, f) : -1;
        r->task->busy.decode += cli_seconds() - begin;
        if (more != 1 || cli_queue_put(r->decoded, f) != 0) {
            av_frame_free(&f);
            break;
        }
    }
    if (more < 0 && !cli_interrupted()) {
        give_up(r, CLI_FAILED);
    }
    cli_queue_close(r->decoded);
}

static int push_one(run *r, const AVFrame *f, int64_t number) {
    video_task *t = r->task;
    cli_video *v = t->video;
    stamp *s = malloc(sizeof *s);
    if (s == NULL) {
        no_memory(r);
        return -1;
    }
    const double begin = cli_seconds();
    const int e = video_to_rgb(&v->to_rgb, f, &v->colour, r->in);
    t->busy.to_rgb += cli_seconds() - begin;
    if (e < 0) {
        free(s);
        not_converted(r, f->format, e);
        return -1;
    }
    *s = (stamp){f->pts, video_duration(f), number};
    const davy_tensor in = tensor_of(r->in);
    const davy_result d = t->session->api->sequence_push(r->sequence, &in, UINT64_MAX);
    if (d != DAVY_OK || cli_queue_put(r->stamps, s) != 0) {
        free(s);
        if (d < 0) {
            sequence_failed(r, d);
        }
        return -1;
    }
    return 0;
}

static void push(void *user) {
    run *r = user;
    AVFrame *f = NULL;
    int64_t number = r->task->first;
    int bad = 0;
    while (!bad && (f = cli_queue_get(r->decoded)) != NULL) {
        bad = push_one(r, f, number++);
        av_frame_free(&f);
    }
    cli_queue_close(r->stamps);
}

/* A frame for the sink, without its pixels. NULL: out of memory. */
static AVFrame *new_frame(run *r, const stamp *s) {
    const video_sink *sink = r->task->sink;
    const video_colour *c = &r->task->video->colour;
    AVFrame *f = av_frame_alloc();
    if (f == NULL) {
        return NULL;
    }
    f->format = sink->pixels;
    f->width = sink->w;
    f->height = sink->h;
    f->pts = s->pts;
    f->colorspace = c->matrix;
    f->color_primaries = c->primaries;
    f->color_trc = c->transfer;
    f->color_range = c->range;
    f->chroma_location = c->siting;
    video_set_duration(f, s->duration);
    f->buf[0] = av_buffer_pool_get(r->pool);
    if (f->buf[0] == NULL ||
        av_image_fill_arrays(f->data, f->linesize, f->buf[0]->data, sink->pixels, sink->w, sink->h, ALIGN) < 0) {
        av_frame_free(&f);
    }
    return f;
}

/* Converts the library's picture to the sink's format. NULL: failed, the error is printed. */
static out_frame *convert(run *r, const stamp *s) {
    int e = AVERROR(ENOMEM);
    out_frame *o = calloc(1, sizeof *o);
    if (o != NULL && r->task->sink->pixels == AV_PIX_FMT_NONE) {
        o->rgb = r->picture;
        e = cli_picture_alloc(&o->rgb) == 0 ? 0 : e;
        if (e == 0) {
            video_rgb_to_picture(r->out, &o->rgb);
        }
    } else if (o != NULL && (o->frame = new_frame(r, s)) != NULL) {
        e = video_from_rgb(&r->from_rgb, r->out, &r->task->video->colour, o->frame);
    }
    if (e < 0) {
        not_converted(r, r->out->format, e);
        drop_result(o);
        return NULL;
    }
    o->number = s->number;
    return o;
}

/* Pulls the next frame from the library and passes it on. */
static int pull_one(run *r, const stamp *s) {
    video_task *t = r->task;
    davy_tensor out = tensor_of(r->out);
    const davy_result d = t->session->api->sequence_pull(r->sequence, &out, UINT64_MAX);
    if (d != DAVY_OK) {
        if (d < 0) {
            sequence_failed(r, d);
        }
        return -1;
    }
    const double begin = cli_seconds();
    out_frame *o = convert(r, s);
    t->busy.from_rgb += cli_seconds() - begin;
    if (o == NULL || cli_queue_put(r->results, o) != 0) {
        drop_result(o);
        return -1;
    }
    return 0;
}

static void pull(void *user) {
    run *r = user;
    stamp *s = NULL;
    int bad = 0;
    while (!bad && (s = cli_queue_get(r->stamps)) != NULL) {
        bad = pull_one(r, s);
        free(s);
    }
    cli_queue_close(r->results);
}

static void put(void *user) {
    run *r = user;
    const video_sink *sink = r->task->sink;
    out_frame *o = NULL;
    while ((o = cli_queue_get(r->results)) != NULL) {
        const double begin = cli_seconds();
        const int status = sink->put(sink->user, o->frame, o->frame == NULL ? &o->rgb : NULL, o->number);
        r->task->busy.write += cli_seconds() - begin;
        drop_result(o);
        if (status != CLI_OK) {
            give_up(r, status);
            break;
        }
        atomic_fetch_add(&r->frames, 1);
    }
    atomic_store(&r->ended, 1);
}

/* ---- the whole ---- */

/* If a GPU computes, the CPU is free for swscale. If the CPU computes, the network uses all of its threads. */
static int converting_threads(const video_task *t) {
    const int cores = av_cpu_count();
    const int wish = t->args->threads > 0 ? t->args->threads : cores;
    return !t->session->on_gpu ? 1 : wish < CONVERTING_MAX ? wish : CONVERTING_MAX;
}

static davy_result open_sequence(run *r) {
    const video_task *t = r->task;
    const cli_video_facts *f = cli_video_about(t->video);
    davy_run how = cli_session_run(t->args);
    r->picture = (cli_picture){.width = f->width, .height = f->height, .channels = 3, .bits = f->bits};
    const davy_tensor in = cli_tensor_of_picture(&r->picture);
    davy_plan_info plan = {.struct_size = sizeof plan};
    how.progress = NULL; /* the bar counts frames */
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_UPSCALE, .input = &in, .run = &how};
    const davy_sequence_desc desc = {.struct_size = sizeof desc, .op = DAVY_OP_UPSCALE, .input = &in, .run = &how};
    davy_result d = t->session->api->plan_query(t->session->model, &query, &plan);
    d = d < 0 ? d : t->session->api->sequence_open(t->session->model, &desc, &r->sequence);
    r->picture.height = (uint32_t)plan.shape[0];
    r->picture.width = (uint32_t)plan.shape[1];
    return d;
}

static int open_run(run *r) {
    const video_task *t = r->task;
    const cli_video_facts *f = cli_video_about(t->video);
    const davy_result d = open_sequence(r);
    if (d < 0) {
        return cli_session_fail(t->session, t->video->path, d);
    }
    const video_sink *sink = t->sink;
    if (sink->pixels != AV_PIX_FMT_NONE) {
        const int bytes = av_image_get_buffer_size(sink->pixels, sink->w, sink->h, ALIGN);
        r->pool = av_buffer_pool_init((size_t)bytes + ALIGN, NULL); /* swscale may write a few bytes beyond a row */
    }
    t->video->to_rgb.threads = r->from_rgb.threads = converting_threads(t);
    r->in = video_rgb_alloc(f->width, f->height, f->bits);
    r->out = video_rgb_alloc(r->picture.width, r->picture.height, f->bits);
    r->decoded = cli_queue_create(BETWEEN);
    r->stamps = cli_queue_create(64);
    r->results = cli_queue_create(BETWEEN);
    if (r->in == NULL || r->out == NULL || r->decoded == NULL || r->stamps == NULL || r->results == NULL ||
        (sink->pixels != AV_PIX_FMT_NONE && r->pool == NULL)) {
        return cli_fail(t->video->path, "out of memory");
    }
    return CLI_OK;
}

static void watch(run *r) {
    const video_task *t = r->task;
    const double begin = cli_seconds();
    const int64_t total = cli_video_about(t->video)->frames;
    while (!atomic_load(&r->ended)) {
        const int64_t done = (int64_t)atomic_load(&r->frames);
        cli_sleep(0.02);
        cli_progress_frames(t->first + done, total, (double)done / (cli_seconds() - begin));
        if (is_over(r)) {
            stop_queues(r);
            t->session->api->sequence_reset(r->sequence); /* wakes the threads that wait for it */
        }
    }
}

int video_run(video_task *t) {
    void (*const work[THREADS])(void *) = {decode, push, pull, put};
    run r = {.task = t};
    int status = open_run(&r);
    int started = 0;
    while (status == CLI_OK && started < THREADS &&
           (r.threads[started] = cli_thread_start(work[started], &r)) != NULL) {
        started++;
    }
    if (status == CLI_OK && started < THREADS) {
        no_memory(&r);
    } else if (status == CLI_OK) {
        watch(&r);
    }
    if (r.sequence != NULL && is_over(&r)) { /* a thread may still wait for it */
        stop_queues(&r);
        t->session->api->sequence_reset(r.sequence);
    }
    for (int i = 0; i < started; i++) {
        cli_thread_join(r.threads[i]);
    }
    t->frames = (int64_t)atomic_load(&r.frames);
    status = status != CLI_OK ? status : atomic_load(&r.failed);
    if (status == CLI_OK && cli_interrupted()) {
        status = cli_stopped(t->video->path);
    }
    t->session->api->sequence_release(r.sequence);
    cli_queue_free(r.decoded, drop_frame);
    cli_queue_free(r.stamps, free);
    cli_queue_free(r.results, drop_result);
    av_frame_free(&r.in);
    av_frame_free(&r.out);
    video_scaler_free(&r.from_rgb);
    av_buffer_pool_uninit(&r.pool);
    return status;
}
