/* test_clip_tiles.c - clips in tiles. Each tile equals a stream's result for that part of the frames, and tiles fade as sin^2. Whole
 * clips, calls and slices give the same bits. If memory is short or refused, tiles become smaller. */
#include <stdio.h>

#include "core/clip/tiles.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/fake_clips.h"
#include "tests/lib/hooks.h"
#include "tests/lib/distance.h"

#define PI 3.14159265358979323846

typedef struct pass { /* one computation of a clip by a stage */
    dv_stage stage;
    int64_t c_in, c_out, h_in, w_in, h_out, w_out;
    int64_t n_in, n_out;
    dv_tiling tiling;
} pass;

static const pass encode = {DV_STAGE_ENCODE, 3, 8, 72, 104, 18, 26, 9, 5, {48, 40, 16}};
static const pass decode = {DV_STAGE_DECODE, 4, 3, 18, 26, 72, 104, 5, 9, {12, 10, 4}};

static const pass large_encode = {DV_STAGE_ENCODE, 3, 8, 144, 160, 36, 40, 5, 3, {0}};
static const pass large_decode = {DV_STAGE_DECODE, 4, 3, 36, 40, 144, 160, 3, 5, {0}};

static size_t in_count(const pass *p) {
    return (size_t)(p->n_in * p->c_in * p->h_in * p->w_in);
}

static size_t out_count(const pass *p) {
    return (size_t)(p->n_out * p->c_out * p->h_out * p->w_out);
}

static dvk_image in_image(const pass *p, float *in, int64_t at, int64_t n) {
    return frames_image(in + at * p->c_in * p->h_in * p->w_in, n, p->c_in, p->h_in, p->w_in);
}

static dvk_image out_image(const pass *p, float *out, int64_t at, int64_t n) {
    return frames_image(out + at * p->c_out * p->h_out * p->w_out, n, p->c_out, p->h_out, p->w_out);
}

static dv_work work_of(const pass *p, dvk_image in, dvk_image out) {
    return (dv_work){.stage = p->stage, .in = in, .out = out, .in_mul = 1.0f, .out_mul = 1.0f};
}

static dv_clip_tiles *open_tiles(const fixture *f, const pass *p, int64_t frames, bool parts, int64_t slice) {
    const dv_clip_tiles_desc desc = {.stage = p->stage,
                                     .h = p->h_in,
                                     .w = p->w_in,
                                     .frames = frames,
                                     .parts = parts,
                                     .slice = slice,
                                     .tiling = p->tiling};
    dv_clip_tiles *t = NULL;
    CHECKF(dv_clip_tiles_open(f->engine, &desc, &t) == DAVY_OK, "%s", last_error());
    return t;
}

/* ---- the expected tiles, by the test's own streams ---- */

static int64_t origin_of(int64_t k, int64_t size, int64_t tile, int64_t overlap) {
    return dv_min(k * (tile - overlap), size - tile);
}

/* The fade from tile k - 1 to tile k: the middle `overlap` samples of what they share, behind the fade before. */
static int64_t fade_of(int64_t k, int64_t size, int64_t tile, int64_t overlap) {
    int64_t first = 0;
    for (int64_t i = 1, before = 0; i <= k; i++, before = first + overlap) {
        first = dv_max(origin_of(i, size, tile, overlap), before);
        first += (origin_of(i - 1, size, tile, overlap) + tile - first - overlap) / 2;
    }
    return first;
}

/* Weight of tile k at an output sample. */
static double weight_of(int64_t k, int64_t count, double at, int64_t size, int64_t tile, int64_t overlap,
                        double scale) {
    double weight = 1.0;
    for (int side = 0; side < 2; side++) {
        if (k + side == 0 || k + side == count) {
            continue;
        }
        const double from = (double)fade_of(k + side, size, tile, overlap) * scale;
        const double part = (at - from + 0.5) / ((double)overlap * scale);
        const double rising = part <= 0.0 ? 0.0 : part >= 1.0 ? 1.0 : sin(PI / 2.0 * part) * sin(PI / 2.0 * part);
        weight *= side == 0 ? rising : 1.0 - rising;
    }
    return weight;
}

static int64_t count_of(int64_t size, int64_t tile, int64_t overlap) {
    return 1 + (size - tile + tile - overlap - 1) / (tile - overlap);
}

/* A tile's clip, computed by a stream in one call: [n][c][h][w]. */
static float *tile_results(const fixture *f, const pass *p, float *in, int64_t y, int64_t x, int64_t h, int64_t w) {
    dv_clip_stream *s = NULL;
    float *out = calloc((size_t)(p->n_out * p->c_out * h * w), sizeof(float));
    dvk_image part = in_image(p, in, 0, p->n_in);
    part.data = (float *)part.data + y * p->w_in + x;
    part.h = p->tiling.height;
    part.w = p->tiling.width;
    const dv_work work = work_of(p, part, frames_image(out, p->n_out, p->c_out, h, w));
    CHECKF(dv_clip_stream_open(f->engine,
                               &(dv_clip_stream_desc){.stage = p->stage, .h = part.h, .w = part.w, .frames = p->n_in},
                               &s) == DAVY_OK &&
               dv_clip_stream_run(s, &work) == DAVY_OK,
           "%s", last_error());
    dv_clip_stream_release(s);
    return out;
}

static double *expected_of(const fixture *f, const pass *p, float *in) {
    const dv_tiling *t = &p->tiling;
    const double scale = (double)p->h_out / (double)p->h_in;
    const int64_t ny = count_of(p->h_in, t->height, t->overlap), nx = count_of(p->w_in, t->width, t->overlap);
    const int64_t h = (int64_t)((double)t->height * scale), w = (int64_t)((double)t->width * scale);
    double *sum = calloc(out_count(p), sizeof *sum);
    CHECK(ny > 1 && nx > 1);
    for (int64_t k = 0; k < ny * nx; k++) {
        const int64_t y0 = origin_of(k / nx, p->h_in, t->height, t->overlap);
        const int64_t x0 = origin_of(k % nx, p->w_in, t->width, t->overlap);
        float *tile = tile_results(f, p, in, y0, x0, h, w);
        for (int64_t i = 0; i < p->n_out * p->c_out * h * w; i++) {
            const int64_t y = i / w % h + (int64_t)((double)y0 * scale), x = i % w + (int64_t)((double)x0 * scale);
            sum[(i / (h * w) * p->h_out + y) * p->w_out + x] +=
                (double)tile[i] * weight_of(k / nx, ny, (double)y, p->h_in, t->height, t->overlap, scale) *
                weight_of(k % nx, nx, (double)x, p->w_in, t->width, t->overlap, scale);
        }
        free(tile);
    }
    return sum;
}

static void check_near(const pass *p, const float *got, const double *want, const char *what) {
    double worst = 0.0;
    for (size_t i = 0; i < out_count(p); i++) {
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    }
    CHECKF(worst < 2e-6, "%s, stage %d: %g away", what, (int)p->stage, worst);
}

/* ---- runs ---- */

/* In calls of so many steps; the first call has the least number of frames that begins a clip. */
static davy_result run_calls(dv_clip_tiles *t, const pass *p, const dv_clip_rule *rule, float *in, float *out,
                             int64_t steps) {
    davy_result r = DAVY_OK;
    int64_t made = 0;
    for (int64_t at = 0, n = 0; r == DAVY_OK && at < p->n_in; at += n) {
        n = at == 0 ? rule->first : dv_min(steps * rule->step, p->n_in - at);
        const int64_t results = dv_slice_out(rule, n, at > 0);
        const dv_work w = work_of(p, in_image(p, in, at, n), out_image(p, out, made, results));
        r = dv_clip_tiles_run(t, &w, NULL);
        made += results;
    }
    return r;
}

static davy_result run_whole(dv_clip_tiles *t, const pass *p, float *in, float *out) {
    const dv_work w = work_of(p, in_image(p, in, 0, p->n_in), out_image(p, out, 0, p->n_out));
    return dv_clip_tiles_run(t, &w, NULL);
}

static davy_result run_with_tail(dv_clip_tiles *t, const pass *p, const dv_clip_rule *rule, float *in, float *out) {
    float *behind = malloc((size_t)(rule->step * p->c_in * p->h_in * p->w_in) * sizeof(float));
    const int64_t first = p->n_in - rule->step;
    memcpy(behind, in + first * p->c_in * p->h_in * p->w_in,
           (size_t)(rule->step * p->c_in * p->h_in * p->w_in) * sizeof(float));
    const dvk_image tail = in_image(p, behind, 0, rule->step);
    const dv_work w = work_of(p, in_image(p, in, 0, first), out_image(p, out, 0, p->n_out));
    const davy_result r = dv_clip_tiles_run(t, &w, &tail);
    free(behind);
    return r;
}

static void test_given_tiles(const fixture *f, const pass *p) {
    float *in = made_up_frames(p->n_in, p->c_in, p->h_in, p->w_in);
    double *want = expected_of(f, p, in);
    float *out = calloc(out_count(p), sizeof *out), *other = calloc(out_count(p), sizeof *other);
    dv_clip_rule rule;
    CHECK(dv_engine_clip(f->engine, p->stage, &rule));
    dv_clip_tiles *t = open_tiles(f, p, p->n_in, false, 0);
    dv_clip_tiles_info info;
    dv_clip_tiles_info_get(t, &info);
    CHECK(info.tiles_y == 3 && info.tiles_x == 3 && info.tile_h == p->tiling.height && info.tile_w == p->tiling.width);
    CHECK(info.memory_bytes > 0 && info.flops_first > 0 && info.flops_step > 0);
    CHECKF(run_whole(t, p, in, out) == DAVY_OK, "%s", last_error());
    check_near(p, out, want, "whole clip");
    dv_clip_tiles_release(t);
    t = open_tiles(f, p, p->n_in, true, 0);
    CHECKF(run_with_tail(t, p, &rule, in, other) == DAVY_OK, "%s", last_error());
    CHECK(memcmp(out, other, out_count(p) * sizeof *out) == 0);
    dv_clip_tiles_reset(t);
    memset(other, 0, out_count(p) * sizeof *out);
    CHECK(run_with_tail(t, p, &rule, in, other) == DAVY_OK && memcmp(out, other, out_count(p) * sizeof *out) == 0);
    dv_clip_tiles_release(t);
    for (int64_t steps = 1; steps <= 3; steps++) {
        t = open_tiles(f, p, 0, false, steps == 2 ? 2 * rule.step : 0);
        for (int again = 0; again < 2; again++) {
            memset(other, 0, out_count(p) * sizeof *out);
            CHECKF(run_calls(t, p, &rule, in, other, steps) == DAVY_OK, "%s", last_error());
            CHECKF(memcmp(out, other, out_count(p) * sizeof *out) == 0, "calls of %d steps", (int)steps);
            dv_clip_tiles_reset(t);
        }
        dv_clip_tiles_release(t);
    }
    free(in), free(want), free(out), free(other);
}

/* ---- memory ---- */

static void expect(davy_result got, davy_result wanted, const char *word) {
    CHECKF(got == wanted && strstr(last_error(), word) != NULL, "%d '%s', expected %d and '%s'", (int)got, last_error(),
           (int)wanted, word);
}

static double distance(const pass *p, const float *a, const float *b) {
    return relative_distance(a, b, (int64_t)out_count(p));
}

/* Memory of a clip beside the packed weights. */
static void set_room(const fixture *f, uint64_t bytes) {
    dv_heap_set_budget(f->services.heap, dv_heap_used(f->services.heap, DV_MEM_WEIGHTS) + bytes);
}

/* Budgets force small tiles; the frames stay similar to whole ones. Norms over a part of a frame change them, with generated weights a
 * lot. If frames come in several calls, each tile keeps a state, which may not fit. */
static void test_automatic(const fixture *f, const pass *large, bool flows) {
    pass p = *large;
    float *in = made_up_frames(p.n_in, p.c_in, p.h_in, p.w_in);
    float *whole = calloc(out_count(&p), sizeof *whole), *out = calloc(out_count(&p), sizeof *out);
    dv_clip_rule rule;
    CHECK(dv_engine_clip(f->engine, p.stage, &rule));
    dv_clip_tiles *t = open_tiles(f, &p, p.n_in, false, 0);
    dv_clip_tiles_info info;
    dv_clip_tiles_info_get(t, &info);
    CHECK(info.tiles_y * info.tiles_x == 1 && run_whole(t, &p, in, whole) == DAVY_OK);
    dv_clip_tiles_release(t);
    int64_t tiled = 0;
    uint64_t room = info.memory_bytes;
    for (davy_result r = DAVY_OK; r == DAVY_OK; room -= room / 4) {
        const dv_clip_tiles_desc desc = {
            .stage = p.stage, .h = p.h_in, .w = p.w_in, .frames = flows ? 0 : p.n_in, .slice = rule.step};
        set_room(f, room);
        r = dv_clip_tiles_open(f->engine, &desc, &t);
        if (r != DAVY_OK) {
            expect(r, DAVY_E_BUDGET, "in the smallest tiles");
            break;
        }
        dv_clip_tiles_info_get(t, &info);
        CHECKF(info.memory_bytes <= room, "%llu bytes in %llu", (unsigned long long)info.memory_bytes,
               (unsigned long long)room);
        memset(out, 0, out_count(&p) * sizeof *out);
        CHECKF((flows ? run_calls(t, &p, &rule, in, out, 1) : run_whole(t, &p, in, out)) == DAVY_OK, "%s",
               last_error());
        CHECK(dv_heap_used(f->services.heap, DV_MEM_WORKSPACE) <= room);
        CHECKF(distance(&p, out, whole) < (info.tiles_y * info.tiles_x == 1 ? 1e-7 : 0.6), "%d x %d tiles: %g away",
               (int)info.tiles_x, (int)info.tiles_y, distance(&p, out, whole));
        tiled += info.tiles_y * info.tiles_x > 1;
        dv_clip_tiles_release(t);
    }
    CHECKF(tiled > 0 || flows, "stage %d: no tiles down to %llu bytes", (int)p.stage, (unsigned long long)room);
    dv_heap_set_budget(f->services.heap, 0);
    free(in), free(whole), free(out);
}

/* Memory that is available when the clip is opened, but not when it begins. */
static void test_refused(const fixture *f, bool flows) {
    const pass p = large_decode;
    float *in = made_up_frames(p.n_in, p.c_in, p.h_in, p.w_in);
    float *out = calloc(out_count(&p), sizeof *out), *same = calloc(out_count(&p), sizeof *same);
    dv_clip_rule rule;
    CHECK(dv_engine_clip(f->engine, p.stage, &rule));
    dv_clip_tiles *t = open_tiles(f, &p, flows ? 0 : p.n_in, false, rule.step);
    dv_clip_tiles_info large, small;
    dv_clip_tiles_info_get(t, &large);
    set_room(f, large.memory_bytes * 3 / 4);
    davy_result r = flows ? run_calls(t, &p, &rule, in, out, 1) : run_whole(t, &p, in, out);
    expect(r, DAVY_E_BUDGET, "a clip");
    bool smaller = true;
    while (r == DAVY_E_BUDGET && (smaller = dv_clip_tiles_shrink(t))) {
        r = flows ? run_calls(t, &p, &rule, in, out, 1) : run_whole(t, &p, in, out);
    }
    if (smaller) {
        dv_clip_tiles_info_get(t, &small);
        CHECKF(r == DAVY_OK && small.tiles_y * small.tiles_x > 1, "%s", last_error());
        CHECK(!dv_clip_tiles_shrink(t)); /* some results have been returned */
        dv_clip_tiles_reset(t);
        CHECK((flows ? run_calls(t, &p, &rule, in, same, 1) : run_whole(t, &p, in, same)) == DAVY_OK);
        CHECK(memcmp(out, same, out_count(&p) * sizeof *out) == 0);
    }
    CHECK(smaller || flows);
    dv_heap_set_budget(f->services.heap, 0);
    dv_clip_tiles_reset(t);
    CHECKF((flows ? run_calls(t, &p, &rule, in, out, 1) : run_whole(t, &p, in, out)) == DAVY_OK, "%s", last_error());
    dv_clip_tiles_release(t);
    free(in), free(out), free(same);
}

/* ---- wrong use, cancellation, failing allocations ---- */

static void test_refusals(const fixture *f) {
    const pass *p = &decode;
    float *in = calloc(in_count(p), sizeof *in), *out = calloc(out_count(p), sizeof *out);
    dv_clip_tiles_desc desc = {.stage = DV_STAGE_UPSCALE, .h = 8, .w = 8};
    dv_clip_tiles *t = NULL;
    expect(dv_clip_tiles_open(f->engine, &desc, &t), DAVY_E_UNSUPPORTED, "cannot upscale clips");
    desc = (dv_clip_tiles_desc){.stage = p->stage, .h = p->h_in, .w = p->w_in, .tiling = {4, 4, 6}};
    expect(dv_clip_tiles_open(f->engine, &desc, &t), DAVY_E_INVALID, "too small");
    t = open_tiles(f, p, p->n_in, false, 0);
    dv_work w = work_of(p, in_image(p, in, 0, 4), out_image(p, out, 0, 7));
    expect(dv_clip_tiles_run(t, &w, NULL), DAVY_E_SHAPE, "4 frames of a clip of 5");
    w = work_of(p, in_image(p, in, 0, 5), out_image(p, out, 0, 8));
    expect(dv_clip_tiles_run(t, &w, NULL), DAVY_E_SHAPE, "give 9 frames; the output has 8");
    w = work_of(p, in_image(p, in, 0, 5), out_image(p, out, 0, 9));
    w.out.h--;
    expect(dv_clip_tiles_run(t, &w, NULL), DAVY_E_SHAPE, "to 104 x 71");
    dv_clip_tiles_release(t);
    free(in), free(out);
}

static int32_t stop_at(void *user) {
    int64_t *left = user;
    return --*left < 0;
}

static void test_cancel(const fixture *f, bool flows) {
    const pass *p = &decode;
    float *in = made_up_frames(p->n_in, p->c_in, p->h_in, p->w_in), *out = calloc(out_count(p), sizeof *out);
    dv_clip_tiles *t = open_tiles(f, p, flows ? 0 : p->n_in, false, 0);
    int64_t stopped = 0;
    for (int64_t after = 0; after < 20000; after += 1 + 3 * after) {
        int64_t left = after;
        dv_work w = work_of(p, in_image(p, in, 0, p->n_in), out_image(p, out, 0, p->n_out));
        w.control = (dv_control){.cancelled = stop_at, .cancelled_user = &left};
        const davy_result r = dv_clip_tiles_run(t, &w, NULL);
        CHECKF(r == DAVY_OK || r == DAVY_E_CANCELLED, "%s", last_error());
        stopped += r == DAVY_E_CANCELLED;
        w.control = (dv_control){0};
        if (r == DAVY_E_CANCELLED) {
            expect(dv_clip_tiles_run(t, &w, NULL), DAVY_E_STATE, "lost");
        }
        dv_clip_tiles_reset(t);
    }
    CHECK(stopped > 2);
    dv_clip_tiles_release(t);
    free(in), free(out);
}

static void test_allocations(const fixture *f, bool flows) {
    const pass *p = &decode;
    float *in = made_up_frames(p->n_in, p->c_in, p->h_in, p->w_in), *out = calloc(out_count(p), sizeof *out);
    int64_t failures = 0;
    for (int64_t n = 0; n < 20000; n += 1 + n / 2) {
        const dv_clip_tiles_desc desc = {
            .stage = p->stage, .h = p->h_in, .w = p->w_in, .frames = flows ? 0 : p->n_in, .tiling = p->tiling};
        dv_clip_tiles *t = NULL;
        dv_alloc_fail_after(n);
        davy_result r = dv_clip_tiles_open(f->engine, &desc, &t);
        r = r == DAVY_OK ? run_whole(t, p, in, out) : r;
        dv_alloc_fail_after(-1);
        failures += r != DAVY_OK;
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "%lld: %d %s", (long long)n, (int)r, last_error());
        dv_clip_tiles_release(t);
        CHECK(dv_heap_used(f->services.heap, DV_MEM_WORKSPACE) == 0);
    }
    CHECK(failures > 10);
    free(in), free(out);
}

int main(void) {
    fixture f;
    const fixture_spec spec = {.tensors = fake_seedvr2(), .threads = 2, .cpu = dvk_cpu_detect()};
    if (engine_fixture_open(&f, &spec)) {
        test_given_tiles(&f, &encode);
        test_given_tiles(&f, &decode);
        test_refusals(&f);
        for (int flows = 0; flows < 2; flows++) {
            test_automatic(&f, &large_decode, flows != 0);
            test_refused(&f, flows != 0);
            test_cancel(&f, flows != 0);
            test_allocations(&f, flows != 0);
        }
        test_automatic(&f, &large_encode, false);
        engine_fixture_close(&f);
    }
    return check_done();
}
