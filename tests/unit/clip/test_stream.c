/* test_stream.c - streams of clips: the same bits in any slices and calls. Refused memory changes nothing. Any other error loses only
 * the current clip. */
#include <stdio.h>

#include "core/clip/stream.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_clips.h"
#include "tests/lib/hooks.h"

enum { HEIGHT = 16, WIDTH = 24 };

typedef struct pass { /* one computation of a clip by a stage */
    dv_stage stage;
    int64_t c_in, c_out, h_in, w_in, h_out, w_out;
    int64_t n_in, n_out;
} pass;

static const pass encode = {DV_STAGE_ENCODE, 3, 8, HEIGHT, WIDTH, HEIGHT / 4, WIDTH / 4, 9, 5};
static const pass decode = {DV_STAGE_DECODE, 4, 3, HEIGHT / 4, WIDTH / 4, HEIGHT, WIDTH, 5, 9};

static dv_work work_of(const pass *p, float *in, int64_t at, int64_t n, float *out, int64_t out_at, int64_t out_n) {
    return (dv_work){
        .stage = p->stage,
        .in = frames_image(in + at * p->c_in * p->h_in * p->w_in, n, p->c_in, p->h_in, p->w_in),
        .out = frames_image(out + out_at * p->c_out * p->h_out * p->w_out, out_n, p->c_out, p->h_out, p->w_out),
        .in_mul = 1.0f,
        .out_mul = 1.0f};
}

static dv_clip_stream *open_stream(const fixture *f, const pass *p, int64_t frames, int64_t slice) {
    dv_clip_stream *s = NULL;
    CHECKF(dv_clip_stream_open(
               f->engine,
               &(dv_clip_stream_desc){.stage = p->stage, .h = p->h_in, .w = p->w_in, .frames = frames, .slice = slice},
               &s) == DAVY_OK,
           "%s", last_error());
    return s;
}

static int64_t made_by(const dv_clip_rule *rule, int64_t n, bool begins) {
    return begins ? rule->first_out + (n - rule->first) / rule->step * rule->step_out : n / rule->step * rule->step_out;
}

/* Computes the clip in calls of `call` steps after the first call, which has `first` steps more than the least. */
static davy_result run_calls(dv_clip_stream *s, const pass *p, float *in, float *out, int64_t first, int64_t call) {
    dv_clip_stream_info info;
    dv_clip_stream_info_get(s, &info);
    const dv_clip_rule *rule = &info.clip;
    davy_result r = DAVY_OK;
    int64_t made = 0;
    for (int64_t at = 0; r == DAVY_OK && at < p->n_in;) {
        const int64_t wanted = at == 0 ? rule->first + first * rule->step : call * rule->step;
        const int64_t n = dv_min(wanted, p->n_in - at);
        const int64_t results = made_by(rule, n, at == 0);
        const dv_work w = work_of(p, in, at, n, out, made, results);
        r = dv_clip_stream_run(s, &w);
        at += n;
        made += results;
    }
    return r;
}

static float *results_of(const pass *p) {
    return calloc(1, (size_t)frames_bytes(p->n_out, p->c_out, p->h_out, p->w_out));
}

static bool same(const pass *p, const float *a, const float *b) {
    return memcmp(a, b, (size_t)frames_bytes(p->n_out, p->c_out, p->h_out, p->w_out)) == 0;
}

/* The clip as one slice. */
static float *whole_clip(const fixture *f, const pass *p, float *in) {
    float *out = results_of(p);
    dv_clip_stream *s = open_stream(f, p, p->n_in, p->n_in);
    dv_clip_stream_info info;
    dv_clip_stream_info_get(s, &info);
    CHECK(info.slice == p->n_in && info.state_bytes == 0 && info.flops_first > 0);
    CHECK(info.out_h == p->h_out && info.out_w == p->w_out && info.out_c == p->c_out);
    CHECKF(run_calls(s, p, in, out, p->n_in, 1) == DAVY_OK, "%s", last_error());
    dv_clip_stream_release(s);
    return out;
}

static void test_slices(const fixture *f, const pass *p) {
    float *in = made_up_frames(p->n_in, p->c_in, p->h_in, p->w_in);
    float *whole = whole_clip(f, p, in);
    float *out = results_of(p);
    dv_clip_rule rule;
    CHECK(dv_engine_clip(f->engine, p->stage, &rule));
    for (int64_t slice = 1; slice <= 3; slice++) {
        dv_clip_stream *s = open_stream(f, p, 0, slice * rule.step);
        for (int64_t call = 1; call <= 4; call += 3) {
            memset(out, 0x55, (size_t)frames_bytes(p->n_out, p->c_out, p->h_out, p->w_out));
            CHECKF(run_calls(s, p, in, out, call - 1, call) == DAVY_OK, "%s", last_error());
            CHECKF(same(p, out, whole), "stage %d, slices of %d, calls of %d", (int)p->stage, (int)slice, (int)call);
            dv_clip_stream_reset(s);
        }
        dv_clip_stream_info info;
        dv_clip_stream_info_get(s, &info);
        CHECK(info.slice == slice * rule.step && info.state_bytes > 0 && info.flops_step > 0);
        dv_clip_stream_release(s);
    }
    free(out);
    free(whole);
    free(in);
}

static void expect(davy_result got, davy_result wanted, const char *word) {
    CHECKF(got == wanted && strstr(last_error(), word) != NULL, "%d '%s', expected %d and '%s'", (int)got, last_error(),
           (int)wanted, word);
}

static void test_refusals(const fixture *f) {
    float *in = made_up_frames(decode.n_in, decode.c_in, decode.h_in, decode.w_in);
    float *out = results_of(&decode);
    dv_clip_stream *s = NULL;
    dv_clip_rule rule;
    CHECK(!dv_engine_clip(f->engine, DV_STAGE_UPSCALE, &rule));
    expect(dv_clip_stream_open(f->engine, &(dv_clip_stream_desc){.stage = DV_STAGE_UPSCALE, .h = 8, .w = 8}, &s),
           DAVY_E_UNSUPPORTED, "cannot upscale clips");
    expect(dv_clip_stream_open(f->engine,
                               &(dv_clip_stream_desc){.stage = DV_STAGE_ENCODE, .h = 16, .w = 16, .frames = 4}, &s),
           DAVY_E_SHAPE, "4 frames");
    expect(dv_clip_stream_open(f->engine, &(dv_clip_stream_desc){.stage = DV_STAGE_ENCODE, .h = 0, .w = 16}, &s),
           DAVY_E_SHAPE, "16 x 0");
    expect(dv_clip_stream_open(f->engine, &(dv_clip_stream_desc){.stage = DV_STAGE_ENCODE, .h = 18, .w = 16}, &s),
           DAVY_E_SHAPE, "16 x 18");
    s = open_stream(f, &decode, 0, 1);
    dv_work w = work_of(&decode, in, 0, 1, out, 0, 2);
    expect(dv_clip_stream_run(s, &w), DAVY_E_SHAPE, "2 frames, expected 1");
    w = work_of(&decode, in, 0, 1, out, 0, 1);
    w.in.w--;
    expect(dv_clip_stream_run(s, &w), DAVY_E_SHAPE, "5 x 4 pixels and 4 channels, expected 6 x 4");
    w = work_of(&decode, in, 0, 1, out, 0, 1);
    w.out.h--;
    expect(dv_clip_stream_run(s, &w), DAVY_E_SHAPE, "expected 24 x 16");
    w = work_of(&decode, in, 0, 1, out, 0, 1);
    w.grey = true;
    expect(dv_clip_stream_run(s, &w), DAVY_E_UNSUPPORTED, "grey");
    w = work_of(&decode, in, 0, 1, out, 0, 1);
    w.in.n = 0;
    expect(dv_clip_stream_run(s, &w), DAVY_E_SHAPE, "0 frames at frame 0 of a clip");
    dv_clip_stream_release(s);
    s = open_stream(f, &decode, 5, 0);
    w = work_of(&decode, in, 0, 1, out, 0, 1); /* the stream was opened for five frames */
    dv_clip_stream_info info;
    dv_clip_stream_info_get(s, &info);
    if (info.state_bytes == 0) {
        expect(dv_clip_stream_run(s, &w), DAVY_E_SHAPE, "1 frames");
    }
    dv_clip_stream_release(s);
    free(in);
    free(out);
}

/* The budget is read when a stream is opened, and may be smaller at its first run. */
static void test_budget(const fixture *f) {
    dv_heap *heap = f->services.heap;
    float *in = made_up_frames(decode.n_in, decode.c_in, decode.h_in, decode.w_in);
    float *whole = whole_clip(f, &decode, in);
    float *out = results_of(&decode);
    dv_clip_stream *s = open_stream(f, &decode, 0, 2);
    dv_clip_stream_info large, small;
    dv_clip_stream_info_get(s, &large);
    dv_work w = work_of(&decode, in, 0, 3, out, 0, 5);
    dv_heap_set_budget(heap, dv_heap_used(heap, DV_MEM_WEIGHTS) + 1024);
    expect(dv_clip_stream_run(s, &w), DAVY_E_BUDGET, "a clip");
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    dv_clip_stream *none = NULL;
    expect(dv_clip_stream_open(f->engine, &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = 4, .w = 6, .slice = 2},
                               &none),
           DAVY_E_BUDGET, "shortest slices");
    const uint64_t room = large.arena_bytes + large.state_bytes;
    dv_heap_set_budget(heap, dv_heap_used(heap, DV_MEM_WEIGHTS) + room - 1);
    dv_clip_stream *tight = open_stream(f, &decode, 0, 2);
    dv_clip_stream_info_get(tight, &small);
    CHECKF(small.slice == 1 && small.arena_bytes < large.arena_bytes, "slices of %d", (int)small.slice);
    dv_heap_set_budget(heap, 0);
    CHECKF(run_calls(s, &decode, in, out, 2, 2) == DAVY_OK && same(&decode, out, whole), "%s", last_error());
    CHECKF(run_calls(tight, &decode, in, out, 0, 1) == DAVY_OK && same(&decode, out, whole), "%s", last_error());
    dv_clip_stream_release(tight);
    dv_clip_stream_release(s);
    free(in);
    free(out);
    free(whole);
}

static int32_t stop_at(void *user) {
    int64_t *left = user;
    return --*left < 0;
}

static void test_cancel(const fixture *f) {
    float *in = made_up_frames(decode.n_in, decode.c_in, decode.h_in, decode.w_in);
    float *whole = whole_clip(f, &decode, in);
    float *out = results_of(&decode);
    dv_clip_stream *s = open_stream(f, &decode, 0, 1);
    int64_t stopped = 0;
    for (int64_t after = 0; after < 400; after += 1 + after / 2) {
        int64_t left = after;
        dv_work w = work_of(&decode, in, 0, decode.n_in, out, 0, decode.n_out);
        w.control = (dv_control){.cancelled = stop_at, .cancelled_user = &left};
        const davy_result r = dv_clip_stream_run(s, &w);
        CHECKF(r == DAVY_OK || r == DAVY_E_CANCELLED, "%s", last_error());
        stopped += r == DAVY_E_CANCELLED;
        w = work_of(&decode, in, 0, 1, out, 0, 1);
        if (r == DAVY_E_CANCELLED && after > 60) { /* some slice had been computed by then */
            expect(dv_clip_stream_run(s, &w), DAVY_E_STATE, "lost");
        }
        dv_clip_stream_reset(s);
    }
    CHECK(stopped > 2);
    CHECKF(run_calls(s, &decode, in, out, 0, 2) == DAVY_OK && same(&decode, out, whole), "%s", last_error());
    dv_clip_stream_release(s);
    free(in);
    free(out);
    free(whole);
}

/* Each allocation fails once: the call returns an error that reports it, and nothing leaks. */
static void test_allocations(const fixture *f) {
    float *in = made_up_frames(decode.n_in, decode.c_in, decode.h_in, decode.w_in);
    float *out = results_of(&decode);
    int64_t failures = 0;
    for (int64_t n = 0; n < 4000; n += 1 + n / 5) {
        dv_clip_stream *s = NULL;
        dv_alloc_fail_after(n);
        davy_result r = dv_clip_stream_open(
            f->engine, &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = 4, .w = 6, .slice = 1}, &s);
        r = r == DAVY_OK ? run_calls(s, &decode, in, out, 1, 1) : r;
        dv_alloc_fail_after(-1);
        failures += r != DAVY_OK;
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "%lld: %d %s", (long long)n, (int)r, last_error());
        dv_clip_stream_release(s);
        CHECK(dv_heap_used(f->services.heap, DV_MEM_WORKSPACE) == 0);
    }
    CHECK(failures > 10);
    free(in);
    free(out);
}

int main(void) {
    fixture f;
    const fixture_spec spec = {.tensors = fake_seedvr2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (engine_fixture_open(&f, &spec)) {
        test_slices(&f, &encode);
        test_slices(&f, &decode);
        test_refusals(&f);
        test_budget(&f);
        test_cancel(&f);
        test_allocations(&f);
        engine_fixture_close(&f);
    }
    return check_done();
}
