/* video_run.c - see video_run.h. Four threads, with a few frames between each two of them: decoding; to RGB and to the
 * library; from the library and to the sink's pixels; the sink. The slowest of them and the network set the speed, and
 * memory stays what these few frames take. The first thread looks on, draws the bar and hears interrupts. */
#include <libavutil/imgutils.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/queue.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video_run.h"

enum { BETWEEN = 3, THREADS = 4, ALIGN = 64 };

typedef struct stamp { /* of a frame that is in the network */
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
    cli_picture in, out; /* RGB before and behind the network */
    cli_queue *decoded, *stamps, *results;
    cli_thread *threads[THREADS];
    atomic_int failed, ended; /* failed: an exit status, the first thread's to fail */
    atomic_llong frames;
    video_scaler from_rgb;
    AVBufferPool *pool; /* of the sink's frames; the encoder may hold some */
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

/* From any thread; what failed has been told. */
static void give_up(run *r, int status) {
    int none = 0;
    atomic_compare_exchange_strong(&r->failed, &none, status);
    stop_queues(r);
}

static int is_over(run *r) {
    return atomic_load(&r->failed) != 0 || cli_interrupted() != 0;
}

/* Of two threads that fail for one reason, one tells it. */
static void sequence_failed(run *r, davy_result result) {
    if (!is_over(r)) {
        give_up(r, cli_session_fail(r->task->session, r->task->video->path, result));
    }
}

static void no_memory(run *r) {
    give_up(r, cli_fail(r->task->video->path, "out of memory"));
}

/* ---- the threads ---- */

static void decode(void *user) {
    run *r = user;
    int more = 1;
    while (more == 1 && !is_over(r)) {
        AVFrame *f = av_frame_alloc();
        more = f != NULL ? video_decode(r->task->video, f) : -1;
        if (more != 1 || cli_queue_put(r->decoded, f) != 0) {
            av_frame_free(&f);
            break;
        }
    }
    if (more < 0) {
        give_up(r, CLI_FAILED);
    }
    cli_queue_close(r->decoded);
}

static int push_one(run *r, const AVFrame *f, int64_t number) {
    const video_task *t = r->task;
    cli_video *v = t->video;
    stamp *s = malloc(sizeof *s);
    if (s == NULL || video_to_rgb(&v->to_rgb, f, &v->colour, &r->in) != 0) {
        free(s);
        no_memory(r);
        return -1;
    }
    *s = (stamp){f->pts, video_duration(f), number};
    const davy_tensor in = cli_tensor_of_picture(&r->in);
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

static int convert(run *r, const stamp *s, out_frame *o) {
    const video_sink *sink = r->task->sink;
    if (sink->pixels == AV_PIX_FMT_NONE) {
        o->rgb = r->out;
        o->rgb.pixels = NULL;
        if (cli_picture_alloc(&o->rgb) != 0) {
            return -1;
        }
        memcpy(o->rgb.pixels, r->out.pixels, cli_picture_stride(&r->out) * r->out.height);
        return 0;
    }
    o->frame = av_frame_alloc();
    if (o->frame == NULL) {
        return -1;
    }
    const video_colour *c = &r->task->video->colour;
    o->frame->format = sink->pixels;
    o->frame->width = sink->w;
    o->frame->height = sink->h;
    o->frame->pts = s->pts;
    o->frame->colorspace = c->matrix;
    o->frame->color_primaries = c->primaries;
    o->frame->color_trc = c->transfer;
    o->frame->color_range = c->range;
    o->frame->chroma_location = c->siting;
    video_set_duration(o->frame, s->duration);
    o->frame->buf[0] = av_buffer_pool_get(r->pool);
    return o->frame->buf[0] == NULL || av_image_fill_arrays(o->frame->data, o->frame->linesize, o->frame->buf[0]->data,
                                                            sink->pixels, sink->w, sink->h, ALIGN) < 0
               ? -1
               : video_from_rgb(&r->from_rgb, &r->out, c, o->frame);
}

static void pull(void *user) {
    run *r = user;
    stamp *s = NULL;
    while ((s = cli_queue_get(r->stamps)) != NULL) {
        davy_tensor out = cli_tensor_of_picture(&r->out);
        const davy_result d = r->task->session->api->sequence_pull(r->sequence, &out, UINT64_MAX);
        out_frame *o = d == DAVY_OK ? calloc(1, sizeof *o) : NULL;
        int bad = o == NULL || convert(r, s, o) != 0;
        if (d < 0) {
            sequence_failed(r, d);
        } else if (bad && d == DAVY_OK) {
            no_memory(r);
        } else if (!bad) {
            o->number = s->number;
            bad = cli_queue_put(r->results, o);
        }
        free(s);
        if (bad) {
            drop_result(o);
            break;
        }
    }
    cli_queue_close(r->results);
}

static void put(void *user) {
    run *r = user;
    const video_sink *sink = r->task->sink;
    out_frame *o = NULL;
    while ((o = cli_queue_get(r->results)) != NULL) {
        const int status = sink->put(sink->user, o->frame, o->frame == NULL ? &o->rgb : NULL, o->number);
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

static davy_result open_sequence(run *r) {
    const video_task *t = r->task;
    const cli_video_facts *f = cli_video_about(t->video);
    davy_run how = cli_session_run(t->args);
    r->in = (cli_picture){.width = f->width, .height = f->height, .channels = 3, .bits = f->bits};
    const davy_tensor in = cli_tensor_of_picture(&r->in);
    davy_plan_info plan = {.struct_size = sizeof plan};
    how.progress = NULL; /* the bar counts frames */
    const davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_UPSCALE, .input = &in, .run = &how};
    const davy_sequence_desc desc = {.struct_size = sizeof desc, .op = DAVY_OP_UPSCALE, .input = &in, .run = &how};
    davy_result d = t->session->api->plan_query(t->session->model, &query, &plan);
    d = d < 0 ? d : t->session->api->sequence_open(t->session->model, &desc, &r->sequence);
    r->out = r->in;
    r->out.height = (uint32_t)plan.shape[0];
    r->out.width = (uint32_t)plan.shape[1];
    return d;
}

static int open_run(run *r) {
    const video_task *t = r->task;
    const davy_result d = open_sequence(r);
    if (d < 0) {
        return cli_session_fail(t->session, t->video->path, d);
    }
    const video_sink *sink = t->sink;
    if (sink->pixels != AV_PIX_FMT_NONE) {
        const int bytes = av_image_get_buffer_size(sink->pixels, sink->w, sink->h, ALIGN);
        r->pool = av_buffer_pool_init((size_t)bytes + ALIGN, NULL); /* swscale may write a little beyond a row */
    }
    r->decoded = cli_queue_create(BETWEEN);
    r->stamps = cli_queue_create(64);
    r->results = cli_queue_create(BETWEEN);
    if (video_picture_alloc(&r->in) != 0 || video_picture_alloc(&r->out) != 0 || r->decoded == NULL ||
        r->stamps == NULL || r->results == NULL || (sink->pixels != AV_PIX_FMT_NONE && r->pool == NULL)) {
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
            t->session->api->sequence_reset(r->sequence); /* wakes those that wait for it */
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
    if (r.sequence != NULL && is_over(&r)) { /* whoever waits for it after all */
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
    cli_picture_free(&r.in);
    cli_picture_free(&r.out);
    video_scaler_free(&r.from_rgb);
    av_buffer_pool_uninit(&r.pool);
    return status;
}
