/* test_time.c - networks of clips. A plan must compute the same as plain loops over all frames. A clip in slices of
 * any lengths must give bit-identical results. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/exec/run.h"
#include "tests/lib/check.h"
#include "tests/lib/time_networks.h"

/* ---- plans ---- */

typedef struct machine {
    dv_services services;
    dv_store *store;
    const network *net;
    const dv_tensors *weights;
    bool second; /* of the slice being opened */
    bool by_frame;
    bool offload; /* offloads the state, except for some bytes */
    uint64_t resident, room;
} machine;

typedef struct slice { /* a slice that is ready to run */
    dv_program *program;
    dv_instance *instance;
    void *block;
    uint64_t block_bytes, state_bytes, offloaded_bytes;
} slice;

static dv_graph *make_graph(const machine *m, int64_t frames, bool continues, bool keeps) {
    dv_graph *g = NULL;
    if (!CHECK(dv_graph_create(m->weights, &g) == DAVY_OK)) {
        return NULL;
    }
    g->pictures = frames;
    g->continues = continues;
    g->keeps = keeps;
    g->second = m->second;
    bool changed = false;
    m->net->build(g, dv_input(g, (dv_shape){1, HEIGHT, WIDTH, m->net->in_c}));
    if (!CHECK(dv_graph_check(g) == DAVY_OK) || !CHECK(!m->by_frame || dv_by_frame(g, &changed) == DAVY_OK) ||
        !CHECK(dv_fuse(g) == DAVY_OK)) {
        dv_graph_release(g);
        return NULL;
    }
    const bool many = dv_shape_of(g, g->output).n > 1 || continues || keeps;
    CHECKF(changed == (m->by_frame && m->net->by_frame && many), "%s in %d frames%s: %sframe by frame", m->net->name,
           (int)frames, continues ? ", continued" : "", changed ? "" : "not ");
    return g;
}

static void slice_close(const machine *m, slice *s) {
    dv_instance_drop(s->instance);
    dv_program_release(s->program);
    dv_heap_free(m->services.heap, DV_MEM_WORKSPACE, s->block, s->block_bytes);
    *s = (slice){0};
}

/* The state lies behind the arena of `keeper`, an open slice; the offloaded part comes first. NULL: behind the
 * slice's own arena. */
static int slice_open(const machine *m, int64_t frames, bool continues, bool keeps, const slice *keeper, slice *s) {
    static const dv_control nobody;
    const dv_plan_options options = {
        .cpu = m->services.cpu,
        .compute = DVK_F32,
        .policy = {.offload_state = m->offload, .resident_bytes = m->resident, .overlap_arena_bytes = m->room}};
    dv_plan *plan = NULL;
    dv_watch watch;
    *s = (slice){0};
    dv_graph *g = make_graph(m, frames, continues, keeps);
    if (g == NULL || !CHECK(dv_plan_create(g, &options, &plan) == DAVY_OK)) {
        return 0;
    }
    const uint64_t work = dv_align_up(dv_plan_workspace(plan, dv_pool_threads(m->services.pool)), 256);
    s->state_bytes = plan->state_bytes;
    s->offloaded_bytes = plan->offloaded_bytes;
    s->block_bytes = work + plan->offloaded_bytes + plan->state_bytes;
    const dv_program_desc desc = {.services = &m->services, .store = m->store, .stage = DV_STAGE_DECODE, .plan = plan};
    dv_watch_begin(&watch, &nobody, "test", 1.0);
    davy_result r = dv_program_create(&desc, &s->program);
    r = r < 0 ? r : dv_program_load(s->program, &watch);
    r = r < 0 ? r : dv_heap_alloc(m->services.heap, DV_MEM_WORKSPACE, s->block_bytes, "test", &s->block);
    if (r == DAVY_OK) {
        memset(s->block, 0xff, s->block_bytes); /* NaN: no part may be read before it is written */
        const slice *of = keeper != NULL ? keeper : s;
        char *state = (char *)of->block + of->block_bytes - of->state_bytes;
        r = dv_program_lend(s->program, s->block, state, &s->instance);
        if (r == DAVY_OK) {
            dv_instance_set_offloaded(s->instance, state - of->offloaded_bytes);
        }
    }
    return CHECK(r == DAVY_OK) && CHECK(keeper == NULL || (keeper->state_bytes == s->state_bytes &&
                                                           keeper->offloaded_bytes == s->offloaded_bytes));
}

static void move_pixels(const dvk_view *v, float *packed, bool to_view) {
    for (int64_t i = 0; i < v->n * v->h * v->w; i++) {
        float *at = (float *)v->data + i / (v->h * v->w) * v->sn + i / v->w % v->h * v->sh + i % v->w * v->sw;
        memcpy(to_view ? at : packed + i * v->c, to_view ? packed + i * v->c : at, (size_t)v->c * sizeof *at);
    }
}

/* Returns the number of output frames. */
static int64_t slice_run(const slice *s, float *in, float *out) {
    static const dv_control nobody;
    dv_watch watch;
    dv_watch_begin(&watch, &nobody, "test", 1.0);
    const dvk_view input = dv_instance_input(s->instance);
    const dvk_view output = dv_instance_output(s->instance);
    move_pixels(&input, in, true);
    CHECK(dv_instance_run(s->instance, &watch) == DAVY_OK);
    move_pixels(&output, out, false);
    return output.n;
}

static clip made_up_clip(int64_t t, int64_t c) {
    clip x = clip_new(t, HEIGHT, WIDTH, c);
    for (int64_t i = 0; i < clip_count(&x); i++) {
        x.data[i] = (float)sin((double)i * 0.37 + (double)(i % 7));
    }
    return x;
}

/* Runs twice in the same slices: no trace of the first clip may remain. */
static void check_slices(const machine *m, const clip *x, const clip *whole, int64_t first, int64_t next) {
    slice head, rest, second = {0};
    machine other = *m;
    other.second = m->net->second && first == m->net->first;
    const int64_t in = HEIGHT * WIDTH * x->c, out = whole->h * whole->w * whole->c;
    float *y = calloc((size_t)clip_count(whole), sizeof *y);
    if (slice_open(m, first, false, true, NULL, &head)) {
        if (slice_open(m, next, true, true, &head, &rest) &&
            (!other.second || slice_open(&other, next, true, true, &head, &second))) {
            for (int round = 0; round < 2; round++) {
                int64_t at = first;
                int64_t made = slice_run(&head, x->data, y);
                for (; at + next <= x->t; at += next) {
                    made += slice_run(other.second && at == first ? &second : &rest, x->data + at * in, y + made * out);
                }
                const int64_t all = m->net->first_out + (at - m->net->first) / m->net->step * m->net->step_out;
                CHECKF(made == all && memcmp(y, whole->data, (size_t)(made * out) * sizeof *y) == 0,
                       "%s in slices of %d and %d: %d frames of %d, distance %g", m->net->name, (int)first, (int)next,
                       (int)made, (int)all, clip_distance(y, whole));
            }
        }
        slice_close(m, &second);
        slice_close(m, &rest);
    }
    slice_close(m, &head);
    free(y);
}

static void check_all_slices(const machine *m, const clip *x, const clip *whole) {
    for (int64_t first = m->net->first; first < x->t; first += m->net->step) {
        for (int64_t next = m->net->step; next <= 2 * m->net->step; next += m->net->step) {
            check_slices(m, x, whole, first, next);
        }
    }
}

/* Offloads all of the state, or all but a part; fetches it as late, or as early, as possible. */
static void check_offloaded(const machine *m, const clip *x, const clip *whole) {
    machine other = *m;
    other.offload = true;
    for (int way = 0; way < 3; way++) {
        slice head;
        other.resident = way == 1 ? 12000 : 0;
        other.room = way == 2 ? 0 : UINT64_MAX;
        if (slice_open(&other, m->net->first, false, true, NULL, &head)) {
            CHECKF(!m->net->by_frame || (head.offloaded_bytes > 0 && (other.resident == 0 || head.state_bytes > 0)),
                   "%s: %d bytes offloaded of %d", m->net->name, (int)head.offloaded_bytes,
                   (int)(head.offloaded_bytes + head.state_bytes));
        }
        slice_close(&other, &head);
        check_all_slices(&other, x, whole);
    }
}

/* Frame by frame: bit-identical. */
static void check_by_frame(const machine *m, clip *x, const clip *whole) {
    machine other = *m;
    slice all;
    other.by_frame = true;
    if (slice_open(&other, x->t, false, false, NULL, &all)) {
        clip y = clip_copy(whole);
        CHECK(slice_run(&all, x->data, y.data) == whole->t);
        CHECKF(memcmp(y.data, whole->data, (size_t)clip_count(whole) * sizeof *y.data) == 0, "%s by frame: distance %g",
               m->net->name, clip_distance(y.data, whole));
        free(y.data);
    }
    slice_close(&other, &all);
    if (m->net->by_frame) {
        check_all_slices(&other, x, whole);
        check_offloaded(&other, x, whole);
    }
}

static void check_network(const machine *m) {
    const int64_t frames = m->net->first + 4 * m->net->step;
    clip x = made_up_clip(frames, m->net->in_c);
    clip expected = m->net->reference(m->weights, clip_copy(&x));
    slice all;
    if (slice_open(m, frames, false, false, NULL, &all)) {
        clip y = clip_copy(&expected);
        CHECK(slice_run(&all, x.data, y.data) == expected.t && all.state_bytes == 0);
        CHECKF(clip_distance(y.data, &expected) < 2e-6, "%s: distance %g", m->net->name,
               clip_distance(y.data, &expected));
        check_all_slices(m, &x, &y);
        check_offloaded(m, &x, &y);
        check_by_frame(m, &x, &y);
        free(y.data);
    }
    slice_close(m, &all);
    free(expected.data);
    free(x.data);
}

/* A single picture is a clip of one frame. */
static void check_picture(const machine *m) {
    slice alone;
    if (m->net->first == 1 && slice_open(m, 1, false, false, NULL, &alone)) {
        clip x = made_up_clip(1, m->net->in_c);
        clip expected = m->net->reference(m->weights, clip_copy(&x));
        clip y = clip_copy(&expected);
        CHECK(slice_run(&alone, x.data, y.data) == 1);
        CHECKF(clip_distance(y.data, &expected) < 2e-6, "%s, a picture: distance %g", m->net->name,
               clip_distance(y.data, &expected));
        char *dump = dv_plan_dump(dv_program_plan(alone.program));
        CHECKF(dump != NULL && strstr(dump, " frames ") == NULL, "a picture's plan has no windows in time:\n%s", dump);
        dv_free(dump);
        slice_close(m, &alone);
        free(expected.data);
        free(x.data);
        free(y.data);
    }
}

static void test_networks(uint32_t cpu) {
    machine m = {.services = {.heap = dv_heap_create(NULL, 0), .cpu = cpu}};
    CHECK(m.services.heap != NULL && dv_pool_create(2, &m.services.pool) == DAVY_OK);
    for (size_t i = 0; i < DV_ARRAY_LEN(time_networks); i++) {
        float *data = NULL;
        channels = time_networks[i].channels;
        dv_tensors *t = time_networks[i].weights();
        CHECK(fake_fill(t, &data));
        m.net = &time_networks[i];
        m.weights = t;
        if (CHECK(dv_store_create(&m.services, NULL, t, &m.store) == DAVY_OK)) {
            check_network(&m);
            check_picture(&m);
        }
        dv_store_release(m.store);
        dv_tensors_release(t);
        free(data);
    }
    CHECK(dv_heap_used(m.services.heap, DV_MEM_WORKSPACE) == 0);
    dv_pool_release(m.services.pool);
    dv_heap_release(m.services.heap);
}

/* ---- errors ---- */

static void check_refused(const dv_tensors *t, int64_t frames, dv_value (*build)(dv_graph *g, dv_value x),
                          const char *word) {
    dv_graph *g = NULL;
    davy_error_info info = {.struct_size = sizeof info};
    CHECK(dv_graph_create(t, &g) == DAVY_OK);
    g->pictures = frames;
    dv_output(g, build(g, dv_input(g, (dv_shape){1, HEIGHT, WIDTH, 16})));
    CHECK(dv_graph_check(g) != DAVY_OK);
    dv_error_get(&info);
    CHECKF(strstr(info.message, word) != NULL, "'%s' does not say '%s'", info.message, word);
    dv_graph_release(g);
}

static dv_value uneven(dv_graph *g, dv_value x) {
    const dv_conv3d_opts o = {.step = 2};
    return dv_conv3d(g, x, "d", 24, &o);
}

static dv_value odd_pool(dv_graph *g, dv_value x) {
    return dv_frames_to_channels(g, x, 2);
}

static dv_value too_many(dv_graph *g, dv_value x) {
    return dv_take_frames(g, x, 1, 4);
}

static dv_value nothing(dv_graph *g, dv_value x) {
    return dv_take_frames(g, x, 1, 0);
}

static dv_value missing(dv_graph *g, dv_value x) {
    return dv_conv3d(g, x, "nowhere", 24, NULL);
}

static dv_value misshapen(dv_graph *g, dv_value x) {
    return dv_conv3d(g, x, "a", channels, NULL);
}

static dv_value split(dv_graph *g, dv_value x) {
    return dv_channels_to_frames(g, x, 3);
}

static void test_refusals(void) {
    channels = 16;
    dv_tensors *t = weights_causal();
    check_refused(t, 4, uneven, "4 frames");
    check_refused(t, 3, odd_pool, "3 frames");
    check_refused(t, 4, too_many, "4 frames from frame 1 on");
    check_refused(t, 4, nothing, "0 frames from frame 1 on");
    check_refused(t, 4, missing, "'nowhere.weight' is missing");
    check_refused(t, 4, misshapen, "[16,3,3,3,3]");
    check_refused(t, 4, split, "3 frames");
    dv_tensors_release(t);
}

int main(void) {
    test_networks(0);
    test_networks(dvk_cpu_detect());
    test_refusals();
    return check_done();
}
