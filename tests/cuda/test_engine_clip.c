/* test_engine_clip.c - clips on the mock driver, whose kernels here call the plain references: the same bits in any slices and
 * for every way in and out, nothing allocated from slice to slice, and every way in which a slice can fail. */
#include <math.h>

#include "core/stream.h"
#include "tests/cuda/clip_bench.h"

enum { HEIGHT = 8, WIDTH = 8, LATENTS = 4, FRAMES = 7, PIXELS = HEIGHT * WIDTH };

static dv_clip_stream *stream_of(bench *b, int64_t frames, int64_t slice) {
    dv_clip_stream *s = NULL;
    CHECKF(dv_clip_stream_open(b->engine, DV_STAGE_DECODE, HEIGHT / 4, WIDTH / 4, frames, slice, &s) == DAVY_OK, "%s",
           last_error());
    return s;
}

/* ---- calls ---- */

typedef struct way { /* in which frames come and go */
    bool in_device, out_device, pixels, stream;
} way;

typedef struct clip { /* of latents, and the frames that they become: four values a pixel, the last of them nobody's */
    float *in, *out;
} clip;

enum { IN_BYTES = LATENTS * 4 * PIXELS / 16 * 4, OUT_BYTES = FRAMES * 4 * PIXELS * 4 };

static clip clip_new(void) {
    clip c = {made_up_frames(LATENTS, 4, HEIGHT / 4, WIDTH / 4), malloc(OUT_BYTES)};
    memset(c.out, 0x5a, OUT_BYTES);
    return c;
}

static void clip_free(clip *c) {
    free(c->in);
    free(c->out);
}

static dvk_image out_image(char *data, bool pixels, int64_t at, int64_t n) {
    dvk_image i = frames_image(data, n, 3, HEIGHT, WIDTH);
    i.sn = 4 * PIXELS * 4; /* room for a fourth plane */
    if (pixels) {
        i.sc = 4;
        i.sw = 16;
        i.sh = WIDTH * 16;
    }
    i.data = data + at * i.sn;
    return i;
}

/* `n` latents from the first that has not been given, and what becomes of them. */
static davy_result call_stream(dv_clip_stream *s, const way *y, char *in, char *out, int64_t at, int64_t n,
                               void *stream, const dv_control *control) {
    const int64_t first = at == 0 ? 1 : 0;
    dv_work w = {.stage = DV_STAGE_DECODE,
                 .in = frames_image(in + at * IN_BYTES / LATENTS, n, 4, HEIGHT / 4, WIDTH / 4),
                 .out = out_image(out, y->pixels, at == 0 ? 0 : 2 * at - 1, 2 * n - first),
                 .in_device = y->in_device,
                 .out_device = y->out_device,
                 .stream = stream,
                 .in_mul = 1.0f,
                 .out_mul = 1.0f};
    w.control = control != NULL ? *control : w.control;
    return dv_clip_stream_run(s, &w);
}

/* All latents, `first` in the first call and `later` in the others. */
static davy_result run_clip(bench *b, dv_clip_stream *s, const way *y, clip *c, int64_t first, int64_t later) {
    void *device[2] = {NULL, NULL};
    char *memory[2] = {(char *)c->in, (char *)c->out};
    const uint64_t bytes[2] = {IN_BYTES, OUT_BYTES};
    dv_gpu_queue *q = NULL;
    davy_result r = y->stream ? dv_gpu_queue_take(b->gpu, NULL, &q) : DAVY_OK;
    for (int i = 0; i < 2 && r == DAVY_OK; i++) {
        if (i == 0 ? y->in_device : y->out_device) {
            r = dv_gpu_alloc(b->gpu, DV_MEM_WORKSPACE, bytes[i], "picture", &device[i]);
            memcpy(device[i], memory[i], bytes[i]); /* memory of the mock is the host's */
            memory[i] = device[i];
        }
    }
    for (int64_t at = 0, n = first; r == DAVY_OK && at < LATENTS; at += n, n = dv_min(later, LATENTS - at)) {
        r = call_stream(s, y, memory[0], memory[1], at, n, q != NULL ? q->stream : NULL, NULL);
    }
    if (device[1] != NULL) {
        memcpy(c->out, device[1], OUT_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(b->gpu, DV_MEM_WORKSPACE, device[i], bytes[i]);
    }
    if (q != NULL) {
        dv_gpu_queue_give(q);
    }
    return r;
}

static const way plain;

/* The clip as one slice. */
static clip whole_clip(bench *b, const way *y) {
    clip c = clip_new();
    dv_clip_stream *s = stream_of(b, LATENTS, LATENTS);
    CHECKF(run_clip(b, s, y, &c, LATENTS, 0) == DAVY_OK, "%s", last_error());
    dv_clip_stream_release(s);
    return c;
}

static bool same(const clip *a, const clip *b) {
    return memcmp(a->out, b->out, OUT_BYTES) == 0;
}

/* ---- numbers ---- */

static double distance(const clip *a, const clip *b) {
    double d = 0.0, norm = 0.0;
    for (int64_t i = 0; i < OUT_BYTES / 4; i++) {
        if (i / PIXELS % 4 < 3) {
            const double e = (double)a->out[i] - (double)b->out[i];
            d += e * e;
            norm += (double)b->out[i] * (double)b->out[i];
        }
    }
    return sqrt(d / norm);
}

static void check_ways(bench *b, const way *y, const clip *whole) {
    for (int64_t slice = 1; slice <= 2; slice++) {
        dv_clip_stream *s = stream_of(b, 0, slice);
        for (int round = 0; round < 3; round++) {
            clip c = clip_new();
            m->lazy = round != 1;
            CHECKF(run_clip(b, s, y, &c, 1 + round % 2, 1 + round) == DAVY_OK, "%s", last_error());
            CHECKF(same(&c, whole), "slices of %d, calls of %d: other bits, distance %g", (int)slice, round + 1,
                   distance(&c, whole));
            clip_free(&c);
            dv_clip_stream_reset(s);
        }
        dv_clip_stream_release(s);
    }
    CHECK(m->graphs > 0 || m->live > 0);
}

/* In some of the ways that there are. */
static void test_numbers(davy_dtype compute, double bound, int ways) {
    bench cpu, b;
    if (bench_open(&cpu, DAVY_DTYPE_F32, false, 0) && bench_open(&b, compute, true, 0)) {
        clip expected = whole_clip(&cpu, &plain);
        for (int k = 0; k < ways; k++) {
            const way y = {k % 2 == 1, k / 2 % 2 == 1, k / 3 % 2 == 1, k % 3 == 2};
            clip whole = whole_clip(&b, &y);
            CHECKF(y.pixels || distance(&whole, &expected) < bound, "distance %g", distance(&whole, &expected));
            check_ways(&b, &y, &whole);
            clip_free(&whole);
        }
        clip_free(&expected);
        bench_close(&b, "numbers");
    }
    bench_close(&cpu, "numbers");
}

/* ---- memory ---- */

/* After the first clip nothing is allocated, and steps are launched as they were recorded. */
static void test_steady(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        dv_clip_stream *s = stream_of(&b, 0, 1);
        clip c = clip_new();
        m->lazy = 0;
        for (int round = 0; round < 3; round++) {
            const int64_t before = m->allocs;
            CHECK(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK);
            CHECKF(round == 0 || m->allocs == before, "%d allocations", (int)(m->allocs - before));
            dv_clip_stream_reset(s);
        }
        CHECKF(m->graphs == 3, "%d graphs", (int)m->graphs); /* the first slice, the one behind it, all others */
        clip_free(&c);
        dv_clip_stream_release(s);
    }
    bench_close(&b, "steady");
}

/* However little the device has left: the call says so and may be made again. */
static void test_short(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        int refused = 0;
        for (int64_t left = 4 << 10; left <= 4 << 20; left *= 2) {
            dv_clip_stream *s = stream_of(&b, 0, 1);
            clip c = clip_new();
            m->device_bytes = m->used_bytes + (uint64_t)left;
            const davy_result r = call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL);
            refused += r == DAVY_E_NOMEM_DEVICE;
            CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "%s", last_error());
            m->device_bytes = (uint64_t)4 << 30;
            if (r == DAVY_OK) {
                dv_clip_stream_reset(s);
            }
            CHECKF(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK && same(&c, &whole), "%s", last_error());
            clip_free(&c);
            dv_clip_stream_release(s);
        }
        CHECKF(refused > 2 && refused < 11, "%d refused", refused);
        clip_free(&whole);
    }
    bench_close(&b, "short");
}

static void test_budget(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 1 << 20)) {
        dv_clip_stream *s = NULL;
        CHECK(dv_clip_stream_open(b.engine, DV_STAGE_DECODE, 64, 64, 0, 0, &s) == DAVY_E_BUDGET);
        SAYS("decode of a clip of 64 x 64 needs at least");
        CHECK(s == NULL);
    }
    bench_close(&b, "budget");
}

/* What is kept lies in the host's memory where the device has no room for it: the same bits. */
static void test_away(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        clip c = clip_new();
        dv_clip_stream_info near, away;
        dv_clip_stream *s = stream_of(&b, 0, 1);
        dv_clip_stream_info_get(s, &near);
        dv_clip_stream_release(s);
        dv_gpu_set_budget(b.gpu, dv_gpu_used(b.gpu, DV_MEM_WEIGHTS) + near.arena_bytes + near.state_bytes / 2);
        s = stream_of(&b, 0, 1);
        dv_clip_stream_info_get(s, &away);
        CHECK(!near.state_away && away.state_away && away.away_bytes > 0 && away.state_bytes == near.state_bytes);
        const int64_t pinned = m->pinned;
        CHECKF(run_clip(&b, s, &plain, &c, 1, 2) == DAVY_OK && same(&c, &whole), "%s", last_error());
        CHECK(m->pinned > pinned);
        dv_clip_stream_release(s);
        s = stream_of(&b, 0, 1);
        dv_heap_set_budget(heap, dv_heap_used(heap, DV_MEM_WORKSPACE) + 1024);
        CHECK(call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL) == DAVY_E_BUDGET);
        SAYS("state of a clip");
        dv_heap_set_budget(heap, 0);
        CHECKF(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK && same(&c, &whole), "%s", last_error());
        dv_clip_stream_release(s);
        clip_free(&c);
        clip_free(&whole);
    }
    bench_close(&b, "away");
}

/* ---- failures ---- */

/* An error of a kernel is the end of the device. */
static void test_launches(void) {
    for (int64_t at = 1; at < 400; at = at * 3 + 1) {
        bench b;
        if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
            dv_clip_stream *s = stream_of(&b, 0, 1);
            clip c = clip_new();
            CHECK(call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL) == DAVY_OK);
            m->fail_launch_with = 700;
            m->fail_launch_at = at;
            const davy_result r = call_stream(s, &plain, (char *)c.in, (char *)c.out, 1, 3, NULL, NULL);
            CHECKF(r == DAVY_E_DEVICE_LOST, "launch %d: %s", (int)at, last_error());
            dv_clip_stream_reset(s);
            CHECK(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_E_DEVICE_LOST);
            clip_free(&c);
            dv_clip_stream_release(s);
        }
        dv_engine_release(b.engine);
        dv_pool_release(b.services.pool);
        dv_gpu_release(b.gpu);
        free(b.data);
        mock_call("mock_reset");
    }
}

static void lost_and_found(bench *b, dv_clip_stream *s, clip *c, const clip *whole) {
    CHECK(call_stream(s, &plain, (char *)c->in, (char *)c->out, 1, 1, NULL, NULL) == DAVY_E_STATE);
    SAYS("lost");
    dv_clip_stream_reset(s);
    CHECKF(run_clip(b, s, &plain, c, 2, 1) == DAVY_OK && same(c, whole), "%s", last_error());
}

static int32_t at_once(void *user) {
    int64_t *left = user;
    return --*left < 0;
}

/* The call ends while the device is at work; the next clip waits for that. */
static void test_cancel(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        dv_clip_stream *s = stream_of(&b, 0, 1);
        clip ahead = clip_new(); /* then nothing has to be loaded while the device is busy */
        CHECK(run_clip(&b, s, &plain, &ahead, 1, 1) == DAVY_OK && same(&ahead, &whole));
        dv_clip_stream_reset(s);
        clip_free(&ahead);
        for (int device = 0; device < 2; device++) {
            clip c = clip_new();
            int64_t left = 2; /* before each of two slices, and while the second is waited for */
            const dv_control control = {.cancelled = at_once, .cancelled_user = &left};
            CHECK(call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL) == DAVY_OK);
            m->lazy = 1;
            m->not_ready = 1000000;
            left = 1;
            const davy_result r = call_stream(s, &plain, (char *)c.in, (char *)c.out, 1, 1, NULL, &control);
            m->not_ready = 0;
            CHECKF(r == DAVY_E_CANCELLED, "%s", last_error());
            lost_and_found(&b, s, &c, &whole);
            dv_clip_stream_reset(s);
            clip_free(&c);
        }
        dv_clip_stream_release(s);
        clip_free(&whole);
    }
    m->lazy = 0;
    bench_close(&b, "cancel");
}

int main(void) {
    bench_begin();
    test_numbers(DAVY_DTYPE_F32, 1e-5, 6);
    test_numbers(DAVY_DTYPE_BF16, 3e-2, 2);
    test_steady();
    test_short();
    test_budget();
    test_away();
    test_cancel();
    test_launches();
    return bench_end();
}
