/* test_plan_winograd.c - GPU plans whose convolutions read transformed frames, computed step by step by the plain references in host
 * memory. They give the networks' numbers, and the same bits whole, in slices and frame by frame. */
#include "tests/lib/interpret.h" /* first, because later headers define variables with the names of its parameters */
#include "tests/lib/time_networks.h"

#include "tests/cuda/reference_kernels.h"
#include "tests/lib/gpus.h"

/* ---- a plan on the host ---- */

typedef struct machine {
    const network *net;
    const dv_tensors *weights;
    dvk_dtype compute;
    bool winograd, bands, by_frame, second;
    dv_rings stay_plain;
    uint64_t room;
    double worth;
} machine;

typedef struct slice {
    dv_plan *plan;
    char *arena;
    void **weights;
} slice;

static dv_plan *plan_of(const machine *of, int64_t frames, bool continues, bool keeps) {
    const dv_plan_options options = {.caps = &hopper,
                                     .compute = of->compute,
                                     .policy = {.transform_frames = of->winograd,
                                                .transform_bands = of->bands,
                                                .plain_rings = of->stay_plain,
                                                .transform_max_arena = of->room,
                                                .transform_min_gain = of->worth}};
    dv_graph *g = NULL;
    dv_plan *plan = NULL;
    bool changed = false;
    CHECK(dv_graph_create(of->weights, &g) == DAVY_OK);
    g->pictures = frames;
    g->continues = continues;
    g->keeps = keeps;
    g->second = of->second;
    of->net->build(g, dv_input(g, (dv_shape){1, HEIGHT, WIDTH, of->net->in_c}));
    CHECK(!of->by_frame || dv_by_frame(g, &changed) == DAVY_OK);
    CHECK(dv_fuse(g) == DAVY_OK);
    CHECKF(dv_plan_create(g, &options, &plan) == DAVY_OK, "%s: %s", of->net->name, last_error());
    return plan;
}

static void *packed(const dv_plan *p, const dv_weight *w, const float *values) {
    const dv_param_info *param = &p->graph->params[w->param];
    int64_t have = 1;
    for (int32_t i = 0; i < param->ndim; i++) {
        have *= param->shape[i];
    }
    char *out = dv_aligned_alloc(w->bytes + 64, 64);
    for (int64_t i = 0; dv_kernel_none(w->kernel) && i < w->count; i++) {
        ((float *)(void *)out)[i] = values[i % have];
    }
    const int64_t parts = dv_max(w->parts, 1);
    for (int64_t i = 0; !dv_kernel_none(w->kernel) && i < parts; i++) {
        char *to = out + (uint64_t)i * (w->bytes / (uint64_t)parts);
        dv_kernel_pack(w->kernel, &w->conv, values + i * (have / parts), to, 0,
                       dv_kernel_pack_units(w->kernel, &w->conv));
    }
    return out;
}

static slice slice_open(const machine *of, int64_t frames, bool continues, bool keeps) {
    slice s = {.plan = plan_of(of, frames, continues, keeps)};
    interpreter it = {.g = s.plan->graph};
    it.params = calloc((size_t)it.g->n_params + 1, sizeof *it.params);
    CHECK(in_params(&it));
    s.weights = calloc((size_t)s.plan->n_weights + 1, sizeof *s.weights);
    for (int64_t i = 0; i < s.plan->n_weights; i++) {
        s.weights[i] = packed(s.plan, &s.plan->weights[i], it.params[s.plan->weights[i].param]);
    }
    for (int64_t i = 0; i < it.g->n_params; i++) {
        free(it.params[i]);
    }
    free(it.params);
    s.arena = dv_aligned_alloc(s.plan->arena_bytes + 64, 256);
    memset(s.arena, 0xff, s.plan->arena_bytes); /* NaN: no value may be read before it is written */
    return s;
}

static void slice_close(slice *s) {
    for (int64_t i = 0; i < s->plan->n_weights; i++) {
        dv_aligned_free(s->weights[i]);
    }
    free(s->weights);
    dv_aligned_free(s->arena);
    dv_plan_release(s->plan);
}

static void run_step(const slice *s, const dv_step *step, char *state) {
    dvk_args args = step->args;
    for (int64_t i = step->first_bind; i < step->first_bind + step->n_binds; i++) {
        const dv_bind *b = &s->plan->binds[i];
        char *p = b->kind == DV_BIND_WEIGHT ? (char *)s->weights[b->at] + b->within
                                            : (b->kind == DV_BIND_STATE ? state : s->arena) + b->at;
        memcpy((char *)&args + b->field, &p, sizeof p);
    }
    run_reference(dv_kernel_op(step->kernel), &args);
}

static void move_pixels(const dvk_view *v, float *values, bool to_view) {
    for (int64_t i = 0; i < v->n * v->h * v->w; i++) {
        float *at = (float *)v->data + i / (v->h * v->w) * v->sn + i / v->w % v->h * v->sh + i % v->w * v->sw;
        memcpy(to_view ? at : values + i * v->c, to_view ? values + i * v->c : at, (size_t)v->c * sizeof *at);
    }
}

/* Returns the number of output frames. */
static int64_t slice_run(const slice *s, char *state, float *in, float *out) {
    const dvk_view input = dv_view_at(s->plan->input, s->arena, s->plan->input_at);
    const dvk_view output = dv_view_at(s->plan->output, s->arena, s->plan->output_at);
    move_pixels(&input, in, true);
    for (int64_t i = 0; i < s->plan->n_steps; i++) {
        run_step(s, &s->plan->steps[i], state);
    }
    move_pixels(&output, out, false);
    return output.n;
}

static int64_t count_op(const dv_plan *p, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        n += strcmp(dv_kernel_op(p->steps[i].kernel), op) == 0;
    }
    return n;
}

/* ---- checks ---- */

/* Computes a clip in a first slice of `first` frames and others of `next` frames. */
static void check_slices(const machine *of, const clip *x, const clip *whole, int64_t first, int64_t next) {
    machine other = *of;
    other.second = of->net->second && first == of->net->first;
    slice head = slice_open(of, first, false, true), rest = slice_open(of, next, true, true);
    slice second = other.second ? slice_open(&other, next, true, true) : rest;
    const uint64_t bytes = head.plan->state_bytes;
    char *state = dv_aligned_alloc(bytes + 64, 256);
    memset(state, 0xff, bytes);
    const int64_t in = HEIGHT * WIDTH * x->c, out = whole->h * whole->w * whole->c;
    float *y = calloc((size_t)clip_count(whole), sizeof *y);
    CHECK(rest.plan->state_bytes == bytes && second.plan->state_bytes == bytes);
    int64_t at = first, made = slice_run(&head, state, x->data, y);
    for (; at + next <= x->t; at += next) {
        made += slice_run(at == first ? &second : &rest, state, x->data + at * in, y + made * out);
    }
    CHECKF(made > 0 && memcmp(y, whole->data, (size_t)(made * out) * sizeof *y) == 0,
           "%s in slices of %d and %d%s: distance %g", of->net->name, (int)first, (int)next,
           of->by_frame ? ", by frame" : "", clip_distance(y, whole));
    free(y);
    dv_aligned_free(state);
    if (other.second) {
        slice_close(&second);
    }
    slice_close(&head);
    slice_close(&rest);
}

static int64_t count_transformed(const dv_plan *p) {
    return count_op(p, "conv2d_winograd") + count_op(p, "conv2d_winograd_band");
}

/* Computes all frames at once. expected: the numbers to compare with, or NULL. */
static clip whole_of(const machine *of, const clip *x, const clip *like) {
    slice s = slice_open(of, x->t, false, false);
    clip y = clip_copy(like);
    CHECK(slice_run(&s, NULL, x->data, y.data) == like->t && s.plan->state_bytes == 0);
    CHECKF((count_transformed(s.plan) > 0) == of->winograd && count_op(s.plan, "winograd_input") >= of->winograd,
           "%s: %d convolutions", of->net->name, (int)count_transformed(s.plan));
    CHECK((count_op(s.plan, "conv2d_winograd_band") > 0) == (of->bands && !of->by_frame));
    slice_close(&s);
    return y;
}

static void check_network(machine *of, double bound) {
    const int64_t frames = of->net->first + 4 * of->net->step;
    clip x = clip_new(frames, HEIGHT, WIDTH, of->net->in_c);
    for (int64_t i = 0; i < clip_count(&x); i++) {
        x.data[i] = (float)sin((double)i * 0.37 + (double)(i % 7));
    }
    clip expected = of->net->reference(of->weights, clip_copy(&x));
    of->winograd = false;
    clip plain = whole_of(of, &x, &expected);
    of->winograd = true;
    clip whole = whole_of(of, &x, &expected);
    const double before = clip_distance(plain.data, &expected), now = clip_distance(whole.data, &expected);
    CHECKF(now < bound && now < 1.2 * before, "%s: distance %g, of direct products %g", of->net->name, now, before);
    for (int way = 0; way <= 1 + of->net->by_frame; way++) {
        of->by_frame = way == 2;
        of->bands = way > 0;
        clip again = whole_of(of, &x, &expected);
        CHECKF(memcmp(again.data, whole.data, (size_t)clip_count(&whole) * sizeof *whole.data) == 0,
               "%s%s: distance %g", of->net->name,
               of->by_frame ? " by frame"
               : of->bands  ? " in bands"
                            : "",
               clip_distance(again.data, &whole));
        free(again.data);
        const int64_t longest = way == 1 ? of->net->first + of->net->step : frames;
        for (int64_t first = of->net->first; first < longest; first += of->net->step) {
            check_slices(of, &x, &whole, first, of->net->step);
            check_slices(of, &x, &whole, first, 2 * of->net->step);
        }
    }
    of->by_frame = of->bands = false;
    free(whole.data);
    free(plain.data);
    free(expected.data);
    free(x.data);
}

/* ---- some frames plain, some transformed ---- */

static int64_t count_rings(const dv_rings *r) {
    int64_t n = 0;
    for (int32_t i = 0; i < DV_RINGS; i++) {
        n += dv_rings_have(r, i);
    }
    return n;
}

/* A plan made for a limited arena stays within it, unless buffers leave gaps. The frames that it leaves plain are plain in every
 * plan. */
static void check_rooms(machine *of) {
    dv_plan *all = plan_of(of, of->net->first, false, true), *none = NULL;
    const int64_t most = count_op(all, "conv2d_winograd");
    CHECK(!dv_rings_any(&all->plain_rings));
    of->room = 1;
    none = plan_of(of, of->net->first, false, true);
    CHECK(count_op(none, "conv2d_winograd") == 0 && count_op(none, "winograd_input") == 0);
    const int64_t candidates = count_rings(&none->plain_rings);
    CHECK(candidates > 0);
    uint64_t before = none->arena_bytes;
    int64_t plain = candidates;
    for (of->room = none->arena_bytes; plain > 0; of->room += (all->arena_bytes - none->arena_bytes) / 8 + 256) {
        dv_plan *p = plan_of(of, of->net->first, false, true);
        machine again = *of;
        CHECK(count_rings(&p->plain_rings) <= plain && count_op(p, "conv2d_winograd") <= most);
        CHECKF(p->arena_bytes <= of->room + of->room / 4, "%s: %llu bytes in %llu", of->net->name,
               (unsigned long long)p->arena_bytes, (unsigned long long)of->room);
        plain = count_rings(&p->plain_rings);
        before = p->arena_bytes > before ? p->arena_bytes : before;
        again.stay_plain = p->plain_rings;
        again.room = 0;
        dv_plan *same = plan_of(&again, of->net->first, false, true);
        CHECK(same->arena_bytes == p->arena_bytes && same->n_steps == p->n_steps &&
              memcmp(&same->plain_rings, &p->plain_rings, sizeof p->plain_rings) == 0);
        dv_plan_release(same);
        dv_plan_release(p);
    }
    CHECK(before <= all->arena_bytes + all->arena_bytes / 4);
    of->room = 0;
    dv_plan_release(all);
    dv_plan_release(none);
}

/* The higher the value of a byte of weights, the fewer frames are transformed, down to none; at value 0 all are. False: this network has
 * no weights that are larger in transformed form. */
static bool check_worth(machine *of) {
    int64_t before = 0, transformed = 0;
    for (of->worth = 0.0; of->worth<1e3; of->worth = of->worth> 0.0 ? 4.0 * of->worth : 1e-4) {
        dv_plan *p = plan_of(of, of->net->first + of->net->step, false, true);
        const int64_t plain = count_rings(&p->plain_rings);
        CHECK(plain >= before && (of->worth > 0.0 || plain == 0));
        before = plain;
        transformed = count_transformed(p);
        dv_plan_release(p);
    }
    of->worth = 0.0;
    CHECKF((before > 0) == (transformed == 0), "%s: %d plain, %d transformed", of->net->name, (int)before,
           (int)transformed);
    return before > 0;
}

/* No plan of a whole clip, frame by frame or not, needs less than the lower bound of its graph. */
static void check_least(machine *of) {
    for (int by_frame = 0; by_frame <= of->net->by_frame; by_frame++) {
        of->by_frame = by_frame == 1;
        for (int64_t steps = 0; steps < 12; steps += 3) {
            const int64_t frames = of->net->first + steps * of->net->step;
            dv_plan *plan = plan_of(of, frames, false, false);
            dv_graph *g = NULL;
            uint64_t least = 0;
            CHECK(dv_graph_create(of->weights, &g) == DAVY_OK);
            g->pictures = frames;
            of->net->build(g, dv_input(g, (dv_shape){1, HEIGHT, WIDTH, of->net->in_c}));
            CHECK(dv_by_frame_least(g, &least) == DAVY_OK && least > 0);
            CHECKF(2 * least <= plan->arena_bytes, "%s, %d frames: %llu bytes at least, %llu", of->net->name,
                   (int)frames, (unsigned long long)(2 * least), (unsigned long long)plan->arena_bytes);
            dv_graph_release(g);
            dv_plan_release(plan);
        }
    }
    of->by_frame = false;
}

/* Every other candidate. */
static dv_rings some_rings(machine *of, bool odd) {
    dv_rings some = {0};
    int64_t n = 0;
    of->room = 1;
    dv_plan *none = plan_of(of, of->net->first, false, true);
    of->room = 0;
    for (int32_t i = 0; i < DV_RINGS; i++) {
        if (dv_rings_have(&none->plain_rings, i) && n++ % 2 == odd) {
            dv_rings_add(&some, i);
        }
    }
    dv_plan_release(none);
    return n > 1 ? some : (dv_rings){0};
}

/* For any set of plain frames: whole, in slices, frame by frame. */
static void check_some(machine *of) {
    const int64_t frames = of->net->first + 2 * of->net->step;
    clip x = clip_new(frames, HEIGHT, WIDTH, of->net->in_c);
    for (int64_t i = 0; i < clip_count(&x); i++) {
        x.data[i] = (float)cos((double)i * 0.23);
    }
    clip like = of->net->reference(of->weights, clip_copy(&x));
    of->winograd = true;
    for (int odd = 0; odd < 2; odd++) {
        of->stay_plain = some_rings(of, odd == 1);
        clip whole = whole_of(of, &x, &like);
        for (int by_frame = 0; by_frame <= of->net->by_frame; by_frame++) {
            of->by_frame = by_frame == 1;
            check_slices(of, &x, &whole, of->net->first, of->net->step);
        }
        of->by_frame = false;
        free(whole.data);
    }
    of->stay_plain = (dv_rings){0};
    free(like.data);
    free(x.data);
}

/* ---- a network with zeros before its first frame, such as Wan ---- */

static dv_tensors *weights_zeros(void) {
    dv_tensors *t = fake_new();
    fake_conv3d(t, "a", channels, 3, 3, 3);
    fake_conv3d(t, "b", channels, channels, 3, 3);
    fake_norm(t, "n", channels);
    fake_conv3d(t, "c", channels, channels, 3, 3);
    fake_conv3d(t, "o", 3, channels, 3, 1);
    fake_done(t);
    return t;
}

static void build_zeros(dv_graph *g, dv_value x) {
    const dv_conv3d_opts zero = {.before = DV_BEFORE_ZERO};
    const dv_conv3d_opts mix = {.k = 1, .before = DV_BEFORE_ZERO};
    const dv_value a = dv_conv3d(g, x, "a", channels, &zero);
    dv_value b = dv_conv3d(g, dv_activation(g, a, DVK_ACT_SILU, 0.0f), "b", channels, &zero);
    b = dv_add(g, 1.0f, dv_conv3d(g, act_of_norm(g, b, "n"), "c", channels, &zero), 1.0f, a);
    dv_output(g, dv_conv3d(g, b, "o", 3, &mix));
}

static clip reference_zeros(const dv_tensors *t, clip x) {
    const clip_conv a = {"a.weight", "a.bias", channels, 3, 3, 1, 1, 0, 1};
    const clip_conv b = {"b.weight", "b.bias", channels, 3, 3, 1, 1, 0, 1};
    const clip_conv c = {"c.weight", "c.bias", channels, 3, 3, 1, 1, 0, 1};
    const clip_conv o = {"o.weight", "o.bias", 3, 3, 1, 1, 1, 0, 1};
    const clip skip = clip_convolve(t, x, &a);
    clip y = clip_copy(&skip);
    clip_silu(&y);
    const clip z = clip_convolve(t, y, &b);
    y = clip_convolve(t, clip_normed(t, &z, "n.weight", "n.bias"), &c);
    clip_add(&y, &skip);
    free(skip.data);
    free(z.data);
    return clip_convolve(t, y, &o);
}

int main(void) {
    static const network zeros = {"zeros", 16, 3, 1, 1, 1, 1, weights_zeros, build_zeros, reference_zeros, true, false};
    const network *const all[] = {&time_networks[0], &time_networks[2], &zeros};
    int worth = 0;
    complete_kernels();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        float *data = NULL;
        channels = all[i]->channels;
        dv_tensors *t = all[i]->weights();
        CHECK(fake_fill(t, &data));
        machine of = {.net = all[i], .weights = t, .compute = DVK_F16};
        check_network(&of, 4e-3);
        of.compute = DVK_BF16;
        check_network(&of, 3e-2);
        check_some(&of);
        check_least(&of);
        worth += check_worth(&of);
        for (int by_frame = 0; by_frame <= of.net->by_frame; by_frame++) {
            of.by_frame = by_frame == 1;
            check_rooms(&of);
        }
        dv_tensors_release(t);
        free(data);
    }
    CHECK(worth == 2);
    return check_done();
}
