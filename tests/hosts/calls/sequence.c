/* sequence.c - sequences: every result has the bits of the one-shot call, in the order of the pushes, with at most max_in_flight
 * frames in flight. Also waiting, finishing, cancelling, errors and wrong use. Threads push and pull at once. */
#include <pthread.h>

#include "tests/hosts/host.h"

enum { WIDTH = 61, HEIGHT = 47, FRAMES = 24 };

#define FOREVER UINT64_MAX

static const davy_api *api;
static davy_context *ctx;
static davy_model *model;

static const view_format u8_rgb = {"u8 RGB", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGB, DAVY_RANGE_FULL, 0, 0,
                                   0};
static const view_format u8_gaps = {
    "u8 with gaps", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGB, DAVY_RANGE_FULL, 7, 1, 1};
static const view_format u16_rgba = {
    "u16 RGBA", DAVY_DTYPE_U16, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGBA, DAVY_RANGE_FULL, 0, 0, 0};
static const view_format f32_chw = {
    "f32 CHW", DAVY_DTYPE_F32, DAVY_LAYOUT_CHW, DAVY_CHANNELS_RGB, DAVY_RANGE_UNIT, 8, 0, 0};

static davy_sequence *open_like(const davy_tensor *in, const davy_tensor *out, int32_t max_in_flight) {
    const davy_sequence_desc desc = {
        .struct_size = sizeof desc, .op = DAVY_OP_UPSCALE, .input = in, .output = out, .max_in_flight = max_in_flight};
    davy_sequence *s = NULL;
    IS(api->sequence_open(model, &desc, &s), DAVY_OK);
    return s;
}

static view frame_of(const view_format *f, uint32_t number) {
    const int64_t c = f->channels == DAVY_CHANNELS_RGBA ? 4 : 3;
    picture p = picture_new(1, HEIGHT, WIDTH, c);
    view v = view_new(f, 1, HEIGHT, WIDTH, c);
    picture_fill_8bit(&p, 100 + number);
    view_store(&v, &p);
    v.tensor.pts = 1000 + 3 * (int64_t)number;
    picture_free(&p);
    return v;
}

static davy_sequence_info info_of(davy_sequence *s) {
    davy_sequence_info info = {.struct_size = sizeof info};
    IS(api->sequence_info(s, &info), DAVY_OK);
    return info;
}

/* The one-shot call's result for frame `number`, in the same format. */
static picture alone(const view_format *f, uint32_t number) {
    view in = frame_of(f, number);
    view out = view_new(f, 1, 2 * in.h, 2 * in.w, in.c);
    IS(api->upscale(model, &in.tensor, &out.tensor, NULL, NULL), DAVY_OK);
    picture p = view_load(&out);
    view_free(&in);
    view_free(&out);
    return p;
}

static void compare(const view_format *f, const davy_tensor *got, uint32_t number) {
    picture want = alone(f, number), have = tensor_load(got);
    CHECKF(picture_max_error(&have, &want) == 0.0, "%s: frame %u differs from the one-shot call's", f->name, number);
    CHECKF(got->pts == 1000 + 3 * (int64_t)number, "%s: frame %u has pts %lld", f->name, number, (long long)got->pts);
    picture_free(&want);
    picture_free(&have);
}

/* ---- one thread ---- */

/* Pushes until it is full, then one by one. Results go into the caller's memory, or the library hands its buffers over. */
static void in_order(const view_format *f, int32_t most, int hand_over) {
    view first = frame_of(f, 0);
    davy_sequence *s = open_like(&first.tensor, NULL, most);
    uint32_t pushed = 0, pulled = 0;
    int full = 0;
    while (pulled < FRAMES) {
        view in = frame_of(f, pushed);
        const davy_result r = pushed < FRAMES ? api->sequence_push(s, &in.tensor, 0) : DAVY_FULL;
        view_free(&in); /* push has copied it */
        if (pushed == FRAMES && info_of(s).finished == 0) {
            IS(api->sequence_finish(s), DAVY_OK);
        }
        if (r == DAVY_OK) {
            pushed++;
            continue;
        }
        CHECK(r == DAVY_FULL);
        full++;
        const davy_sequence_info info = info_of(s);
        CHECK(info.in_flight == (int32_t)(pushed - pulled) && info.in_flight <= info.max_in_flight);
        CHECK(info.max_in_flight == (most > 0 ? most : 4) && info.frames_in == pushed && info.frames_out == pulled);
        view out = view_new(f, 1, 2 * first.h, 2 * first.w, first.c);
        davy_tensor t = out.tensor;
        if (hand_over) {
            const davy_tensor none = {.struct_size = sizeof none};
            t = none;
        }
        IS(api->sequence_pull(s, &t, FOREVER), DAVY_OK);
        compare(f, &t, pulled++);
        CHECK(view_trampled(&out) == 0);
        if (hand_over) {
            api->buffer_release(t.buffer);
        }
        view_free(&out);
    }
    CHECK(full > 0);
    IS(api->sequence_pull(s, &first.tensor, FOREVER), DAVY_E_SHAPE); /* too small */
    davy_tensor none = {.struct_size = sizeof none};
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_END);
    IS(api->sequence_push(s, &first.tensor, FOREVER), DAVY_E_STATE);
    api->sequence_release(s);
    view_free(&first);
}

/* The output has another format than the input. */
static void other_output(void) {
    view in = frame_of(&u8_gaps, 5);
    const davy_tensor want = {.struct_size = sizeof want, .dtype = DAVY_DTYPE_F32, .layout = DAVY_LAYOUT_CHW};
    davy_sequence *s = open_like(&in.tensor, &want, 1);
    davy_tensor got = {.struct_size = sizeof got}, once = want;
    IS(api->sequence_push(s, &in.tensor, 0), DAVY_OK);
    IS(api->sequence_pull(s, &got, FOREVER), DAVY_OK);
    IS(api->upscale(model, &in.tensor, &once, NULL, NULL), DAVY_OK);
    picture a = tensor_load(&got), b = tensor_load(&once);
    CHECK(got.dtype == DAVY_DTYPE_F32 && got.layout == DAVY_LAYOUT_CHW && picture_max_error(&a, &b) == 0.0);
    picture_free(&a);
    picture_free(&b);
    api->buffer_release(got.buffer);
    api->buffer_release(once.buffer);
    api->sequence_release(s);
    view_free(&in);
}

/* ---- two threads ---- */

static void *push_all(void *arg) {
    davy_sequence *s = arg;
    for (uint32_t i = 0; i < FRAMES; i++) {
        view in = frame_of(&u8_rgb, i);
        IS(api->sequence_push(s, &in.tensor, FOREVER), DAVY_OK);
        view_free(&in);
    }
    IS(api->sequence_finish(s), DAVY_OK);
    return NULL;
}

static void at_once(int32_t most) {
    view first = frame_of(&u8_rgb, 0);
    davy_sequence *s = open_like(&first.tensor, NULL, most);
    pthread_t pusher;
    uint32_t pulled = 0;
    pthread_create(&pusher, NULL, push_all, s);
    for (davy_result r = DAVY_OK; r != DAVY_END;) {
        davy_tensor t = {.struct_size = sizeof t};
        r = api->sequence_pull(s, &t, FOREVER);
        if (r == DAVY_NEED_INPUT) {
            host_sleep_ms(1);
        } else if (CHECKF(r == DAVY_OK || r == DAVY_END, "pull: %s", host_error(api)) && r == DAVY_OK) {
            compare(&u8_rgb, &t, pulled++);
            api->buffer_release(t.buffer);
        }
    }
    pthread_join(pusher, NULL);
    CHECK(pulled == FRAMES);
    api->sequence_release(s);
    view_free(&first);
}

/* ---- waiting and cancelling ---- */

typedef struct pusher {
    davy_sequence *sequence;
    _Atomic int done;
} pusher;

static void *push_until_reset(void *arg) {
    pusher *p = arg;
    davy_result r = DAVY_OK;
    for (uint32_t i = 0; r == DAVY_OK; i++) {
        view in = frame_of(&u8_rgb, i);
        r = api->sequence_push(p->sequence, &in.tensor, FOREVER);
        view_free(&in);
    }
    p->done = 1;
    CHECKF(r == DAVY_E_CANCELLED, "a push that waits while the sequence is reset: %s", host_error(api));
    return NULL;
}

static void resets(void) {
    view first = frame_of(&u8_rgb, 0);
    davy_sequence *s = open_like(&first.tensor, NULL, 3);
    davy_tensor none = {.struct_size = sizeof none};
    pusher p = {.sequence = s};
    pthread_t thread;
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_NEED_INPUT);
    pthread_create(&thread, NULL, push_until_reset, &p);
    while (!p.done) { /* a reset between two pushes cancels no push */
        host_sleep_ms(60);
        IS(api->sequence_reset(s), DAVY_OK);
    }
    pthread_join(thread, NULL);
    IS(api->sequence_reset(s), DAVY_OK);
    CHECK(info_of(s).frames_in == 0 && info_of(s).in_flight == 0);
    IS(api->sequence_push(s, &first.tensor, 0), DAVY_OK);
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_OK);
    compare(&u8_rgb, &none, 0);
    api->buffer_release(none.buffer);
    IS(api->sequence_push(s, &first.tensor, 0), DAVY_OK); /* released with a frame in flight */
    api->sequence_release(s);
    view_free(&first);
}

/* ---- failing ---- */

/* The budget becomes too small in the middle. That frame fails the sequence, earlier results stay, and a reset recovers it. */
static void fails(void) {
    view first = frame_of(&u8_rgb, 0);
    davy_sequence *s = open_like(&first.tensor, NULL, 2);
    davy_tensor none = {.struct_size = sizeof none};
    IS(api->sequence_push(s, &first.tensor, 0), DAVY_OK);
    while (info_of(s).ready == 0) {
        host_sleep_ms(1);
    }
    IS(api->context_budget(ctx, 0, 1), DAVY_OK);
    const davy_result pushed = api->sequence_push(s, &first.tensor, 0);
    davy_tensor before = none;
    IS(api->sequence_pull(s, &before, FOREVER), DAVY_OK);
    CHECKF(pushed == DAVY_E_BUDGET || api->sequence_pull(s, &none, FOREVER) == DAVY_E_BUDGET, "no memory: %s",
           host_error(api));
    if (pushed == DAVY_OK) {
        IS(api->sequence_pull(s, &none, FOREVER), DAVY_E_BUDGET);
        IS(api->sequence_push(s, &first.tensor, FOREVER), DAVY_E_BUDGET);
    }
    IS(api->context_budget(ctx, 0, 0), DAVY_OK);
    compare(&u8_rgb, &before, 0);
    api->buffer_release(before.buffer);
    IS(api->sequence_reset(s), DAVY_OK);
    IS(api->sequence_push(s, &first.tensor, 0), DAVY_OK);
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_OK);
    api->buffer_release(none.buffer);
    api->sequence_release(s);
    view_free(&first);
}

static void misuse(void) {
    view in = frame_of(&u8_rgb, 0), other = frame_of(&f32_chw, 0);
    davy_sequence *s = NULL;
    davy_sequence_desc d = {.struct_size = sizeof d, .op = DAVY_OP_UPSCALE, .input = &in.tensor};
    const davy_run stream = {.struct_size = sizeof stream, .stream = (void *)1};
    const davy_run timed = {.struct_size = sizeof timed, .timeout_ns = 5};
    davy_tensor none = {.struct_size = sizeof none}, narrow = in.tensor;
    IS(api->sequence_open(NULL, &d, &s), DAVY_E_INVALID);
    IS(api->sequence_open(model, NULL, &s), DAVY_E_INVALID);
    IS(api->sequence_open(model, &d, NULL), DAVY_E_INVALID);
    d.op = DAVY_OP_VAE_DECODE;
    IS(api->sequence_open(model, &d, &s), DAVY_E_UNSUPPORTED);
    d.op = 9;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    d.op = DAVY_OP_UPSCALE;
    d.max_in_flight = 65;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    d.max_in_flight = 0;
    d.flags = 1;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    d.flags = 0;
    d.run = &stream;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    d.run = &timed;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    d.run = NULL;
    d.input = NULL;
    IS(api->sequence_open(model, &d, &s), DAVY_E_INVALID);
    CHECK(s == NULL);
    s = open_like(&in.tensor, NULL, 0);
    IS(api->sequence_push(s, NULL, 0), DAVY_E_INVALID);
    IS(api->sequence_push(NULL, &in.tensor, 0), DAVY_E_INVALID);
    IS(api->sequence_push(s, &other.tensor, 0), DAVY_E_INVALID);
    narrow.shape[1]--;
    narrow.stride_bytes[0] = 3 * WIDTH;
    narrow.stride_bytes[1] = 3;
    narrow.stride_bytes[2] = 1;
    IS(api->sequence_push(s, &narrow, 0), DAVY_E_SHAPE);
    IS(api->sequence_pull(s, NULL, 0), DAVY_E_INVALID);
    IS(api->sequence_info(s, NULL), DAVY_E_INVALID);
    IS(api->sequence_reset(NULL), DAVY_E_INVALID);
    IS(api->sequence_finish(NULL), DAVY_E_INVALID);
    IS(api->sequence_pull(s, &none, 0), DAVY_NEED_INPUT);
    IS(api->sequence_finish(s), DAVY_OK);
    IS(api->sequence_pull(s, &none, 0), DAVY_END);
    api->sequence_release(s);
    api->sequence_release(NULL);
    view_free(&in);
    view_free(&other);
}

/* The sequence continues if model and context are released first. */
static void outlives(void) {
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION};
    davy_context *own = NULL;
    davy_model *kept = model;
    view in = frame_of(&u8_rgb, 1);
    davy_tensor none = {.struct_size = sizeof none};
    IS(api->context_create(&desc, &own), DAVY_OK);
    IS(host_open_small(api, own, &model), DAVY_OK);
    davy_sequence *s = open_like(&in.tensor, NULL, 2);
    IS(api->sequence_push(s, &in.tensor, 0), DAVY_OK);
    api->model_release(model);
    api->context_release(own);
    model = kept;
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_OK);
    compare(&u8_rgb, &none, 1);
    api->sequence_release(s);
    api->buffer_release(none.buffer);
    view_free(&in);
}

int main(void) {
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .n_threads = 2};
    api = host_load();
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    misuse();
    in_order(&u8_rgb, 0, 0);
    in_order(&u8_gaps, 3, 0);
    in_order(&u16_rgba, 1, 1);
    in_order(&f32_chw, 2, 0);
    other_output();
    at_once(1);
    at_once(6);
    resets();
    fails();
    outlives();
    api->model_release(model);
    api->context_release(ctx);
    return check_done();
}
