/* test_engine_clip.c - clips on the mock driver with reference kernels: the same bits in any slices and for every kind of input and
 * output. No allocation between slices. All ways in which a slice can fail. */
#include "tests/cuda/clip_calls.h"

/* ---- numbers ---- */

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

/* In some of the possible ways. */
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

/* After the first clip nothing is allocated, and steps are launched as captured graphs. */
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

/* ---- failures ---- */

/* After an error of a kernel the device is lost. */
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

/* The call ends while the device still works; the next clip waits for that work. */
static void test_cancel(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        dv_clip_stream *s = stream_of(&b, 0, 1);
        clip ahead = clip_new(); /* so that nothing has to be loaded while the device is busy */
        CHECK(run_clip(&b, s, &plain, &ahead, 1, 1) == DAVY_OK && same(&ahead, &whole));
        dv_clip_stream_reset(s);
        clip_free(&ahead);
        for (int device = 0; device < 2; device++) {
            clip c = clip_new();
            int64_t left = 2; /* polls before each of two slices, then one while waiting for the second */
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
    reference_begin();
    test_numbers(DAVY_DTYPE_F32, 1e-5, 6);
    test_numbers(DAVY_DTYPE_BF16, 3e-2, 2);
    test_steady();
    test_cancel();
    test_launches();
    return reference_end();
}
