/* test_plan.c - the arena never gives two living blocks the same bytes; planned networks compute what the graph says,
 * on the references and on whatever this processor has; concats and residuals cost no copies. */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/liveness.h"
#include "core/run.h"
#include "tests/check.h"
#include "tests/unit/fake_convnets.h"
#include "tests/unit/fake_networks.h"
#include "tests/unit/fake_transformers.h"
#include "tests/unit/interpret.h"

static uint32_t random_state = 1;

static uint32_t pick(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

/* ---- the arena ---- */

static void check_arena(dv_block *blocks, int64_t n, int64_t steps, double slack) {
    uint64_t total = 0;
    if (!CHECK(dv_arena_pack(blocks, n, &total) == DAVY_OK)) {
        return;
    }
    int clashes = 0;
    for (int64_t i = 0; i < n; i++) {
        clashes += blocks[i].offset % DV_ARENA_ALIGN != 0 || blocks[i].offset + blocks[i].bytes > total;
        for (int64_t k = 0; k < i; k++) {
            const bool together = blocks[i].first <= blocks[k].last && blocks[k].first <= blocks[i].last;
            clashes += together && blocks[i].offset < blocks[k].offset + blocks[k].bytes &&
                       blocks[k].offset < blocks[i].offset + blocks[i].bytes;
        }
    }
    CHECKF(clashes == 0, "%d clashes among %d blocks", clashes, (int)n);
    uint64_t most = 0; /* alive at once: no arena can be smaller */
    for (int64_t t = 0; t < steps; t++) {
        uint64_t alive = 0;
        for (int64_t i = 0; i < n; i++) {
            alive += blocks[i].first <= t && t <= blocks[i].last ? dv_align_up(blocks[i].bytes, DV_ARENA_ALIGN) : 0;
        }
        most = alive > most ? alive : most;
    }
    CHECKF((double)total <= slack * (double)most, "arena %llu, alive at once %llu", (unsigned long long)total,
           (unsigned long long)most);
}

static void test_arena(void) {
    dv_block blocks[200];
    for (int round = 0; round < 50; round++) {
        const int64_t n = 1 + pick(200);
        for (int64_t i = 0; i < n; i++) {
            const int64_t first = pick(100);
            blocks[i] = (dv_block){.bytes = 1 + pick(100000), .first = first, .last = first + pick(10)};
        }
        check_arena(blocks, n, 110, 1.6);
    }
    for (int64_t i = 0; i < 100; i++) { /* a chain: two are enough */
        blocks[i] = (dv_block){.bytes = 6400, .first = i, .last = i + 1};
    }
    check_arena(blocks, 100, 101, 1.0);
    blocks[0].bytes = UINT64_MAX - 10;
    uint64_t total = 0;
    CHECK(dv_arena_pack(blocks, 2, &total) == DAVY_E_SHAPE);
}

/* ---- planned networks ---- */

typedef struct machine {
    dv_services services;
} machine;

static void machine_open(machine *m, uint32_t cpu) {
    *m = (machine){{.heap = dv_heap_create(NULL, 0), .cpu = cpu}};
    CHECK(m->services.heap != NULL && dv_pool_create(2, &m->services.pool) == DAVY_OK);
}

static void machine_close(machine *m) {
    CHECK(dv_heap_used(m->services.heap, DV_MEM_WEIGHTS) == 0 && dv_heap_used(m->services.heap, DV_MEM_WORKSPACE) == 0);
    dv_pool_release(m->services.pool);
    dv_heap_release(m->services.heap);
}

static void copy_pixels(const dvk_view *v, float *packed, bool to_view) {
    for (int64_t i = 0; i < v->h * v->w; i++) {
        float *at = (float *)v->data + i / v->w * v->sh + i % v->w * v->sw;
        memcpy(to_view ? at : packed + i * v->c, to_view ? packed + i * v->c : at, (size_t)v->c * sizeof *at);
    }
}

/* Runs a plan twice in the same instance: nothing may be left of the first run. */
static davy_result run_plan(const machine *m, const dv_tensors *weights, dv_plan *plan, float *in, float *out) {
    static const dv_control nobody;
    dv_store *store = NULL;
    dv_program *program = NULL;
    dv_instance *instance = NULL;
    dv_watch watch;
    dv_watch_begin(&watch, &nobody, "test", 1.0);
    davy_result r = dv_store_create(&m->services, NULL, weights, &store);
    const dv_program_desc desc = {.services = &m->services, .store = store, .stage = DV_STAGE_UPSCALE, .plan = plan};
    r = r < 0 ? r : dv_program_create(&desc, &program);
    r = r < 0 ? r : dv_program_load(program, &watch);
    CHECK(r < 0 || dv_store_missing(store, DV_STAGE_UPSCALE, plan) == 0);
    CHECK(r < 0 || dv_store_bytes(store) == dv_heap_used(m->services.heap, DV_MEM_WEIGHTS));
    r = r < 0 ? r : dv_program_take(program, &instance);
    for (int i = 0; r == DAVY_OK && i < 2; i++) {
        const dvk_view input = dv_instance_input(instance);
        const dvk_view output = dv_instance_output(instance);
        copy_pixels(&input, in, true);
        r = dv_instance_run(instance, &watch);
        copy_pixels(&output, out, false);
    }
    dv_program_give(program, instance);
    dv_program_release(program);
    dv_store_release(store);
    return r;
}

static double distance(const float *a, const float *b, int64_t n) {
    double d = 0.0;
    double norm = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(d / norm);
}

typedef dv_graph *(*build_fn)(const dv_tensors *t);

typedef struct network {
    const char *name;
    dv_tensors *(*weights)(void);
    build_fn build;
} network;

static int64_t elements(const dv_graph *g, dv_value v) {
    const dv_shape s = dv_shape_of(g, v);
    return s.n * s.h * s.w * s.c;
}

static void check_plan(const machine *m, const network *net, const dv_tensors *t, bool lean, const float *expected) {
    dv_graph *g = net->build(t);
    if (!CHECKF(g != NULL && dv_graph_check(g) == DAVY_OK && dv_fuse(g) == DAVY_OK, "%s", net->name)) {
        return;
    }
    const int64_t n_in = elements(g, g->input);
    const int64_t n_out = elements(g, g->output);
    float *in = calloc((size_t)n_in, sizeof *in);
    float *out = calloc((size_t)n_out, sizeof *out);
    for (int64_t i = 0; i < n_in; i++) {
        in[i] = (float)sin((double)i * 0.7);
    }
    dv_plan *plan = NULL;
    const dv_plan_options options = {.cpu = m->services.cpu, .compute = DVK_F32, .lean = lean};
    if (CHECK(dv_plan_create(g, &options, &plan) == DAVY_OK)) {
        char *dump = dv_plan_dump(plan);
        CHECK(dump != NULL && strstr(dump, "arena") != NULL);
        dv_free(dump);
        CHECK(run_plan(m, t, plan, in, out) == DAVY_OK);
        const double d = distance(out, expected, n_out);
        CHECKF(d < 2e-5, "%s, cpu %x%s: distance %g", net->name, (unsigned)m->services.cpu, lean ? ", lean" : "", d);
    }
    free(in);
    free(out);
}

static dv_tensors *weights_compact(void) {
    return fake_compact(20, 3, 2);
}

static dv_graph *build_compact(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 19, 23);
}

static dv_tensors *weights_span(void) {
    return fake_span(12, 2, 1, 0);
}

static dv_graph *build_span(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 17, 15);
}

static dv_tensors *weights_rrdb(void) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 1, .nf = 16, .gc = 8, .blocks = 2, .doublings = 2, .in = 12});
}

static dv_graph *build_rrdb(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 21, 18);
}

static dv_tensors *weights_tae(void) {
    return fake_tae(4, 0, 1);
}

static dv_graph *build_tae(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_DECODE, 4, 5);
}

static dv_tensors *weights_kl(void) {
    return fake_kl(
        (fake_kl_spec){.names = 0, .z = 4, .quant = 1, .levels = 4, .enc = {32, 32, 64, 64}, .dec = {32, 32, 64, 64}});
}

static dv_graph *build_kl_encoder(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_ENCODE, 32, 40);
}

static dv_graph *build_kl_decoder(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_DECODE, 5, 4);
}

/* Every awkward way to meet a concat: prefixes of each other, an input twice, one value in two concats at different
 * places, a crop, the graph's own input, a concat in a concat. */
static dv_tensors *weights_odd(void) {
    dv_tensors *t = fake_new();
    fake_conv(t, "a", 6, 5, 3, 1);
    fake_conv(t, "b", 6, 11, 3, 1);
    fake_conv(t, "c", 6, 17, 3, 1);
    fake_conv(t, "d", 5, 29, 1, 1);
    fake_conv(t, "e", 5, 28, 3, 1);
    fake_done(t);
    return t;
}

static dv_graph *build_odd(const dv_tensors *t) {
    dv_graph *g = NULL;
    if (dv_graph_create(t, &g) != DAVY_OK) {
        return NULL;
    }
    const dv_value x = dv_input(g, (dv_shape){1, 9, 10, 5});
    const dv_value a = dv_conv(g, x, "a", 6, 3, NULL);
    const dv_value xa[] = {x, a};
    const dv_value b = dv_activation(g, dv_conv(g, dv_concat(g, xa, 2), "b", 6, 3, NULL), DVK_ACT_SILU, 0.0f);
    const dv_value xab[] = {x, a, b};
    const dv_value prefix = dv_concat(g, xab, 3);
    const dv_value c = dv_conv(g, prefix, "c", 6, 3, NULL);
    const dv_value again[] = {c, prefix, c}; /* 6 + 17 + 6 */
    const dv_value d = dv_conv(g, dv_concat(g, again, 3), "d", 5, 1, NULL);
    const dv_value larger = dv_pad_to(g, d, 12, 11, DVK_PAD_REFLECT);
    const dv_value back = dv_crop_to(g, larger, 9, 10);
    const dv_value moved[] = {b, back, xab[1], c, x}; /* 6 + 5 + 6 + 6 + 5 */
    const dv_value e = dv_conv(g, dv_concat(g, moved, 5), "e", 5, 3, NULL);
    const dv_value sum = dv_add(g, 0.5f, dv_add(g, 1.0f, e, 0.25f, back), -1.0f, x);
    dv_output(g, dv_crop_to(g, sum, 8, 7));
    return g;
}

static dv_tensors *weights_swinir(void) {
    return fake_swinir(12, 2, 8, 0);
}

static dv_tensors *weights_drct(void) {
    return fake_drct(20, 6, 4);
}

static dv_tensors *weights_hat(void) {
    return fake_hat(24, 2, 8, 12);
}

static dv_tensors *weights_dat(void) {
    return fake_dat(40, 4);
}

static dv_tensors *weights_srformer(void) {
    return fake_srformer(20, 2, 6);
}

static dv_tensors *weights_atd(void) {
    static const int64_t of[3] = {8, 5, 3};
    return fake_atd(20, 2, of);
}

static dv_tensors *weights_rgt(void) {
    return fake_rgt(40, 4);
}

static dv_graph *build_transformer(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 18, 21);
}

/* Views of views: a slice of a slice, a crop within it, read by convolutions, products and concats; products in place of
 * either operand; a gate of one pixel and one of one channel. */
static dv_tensors *weights_views(void) {
    dv_tensors *t = fake_new();
    fake_conv(t, "a", 12, 6, 3, 1);
    fake_conv(t, "b", 5, 5, 3, 1);
    fake_conv(t, "c", 5, 5, 1, 1);
    fake_conv(t, "d", 5, 1, 5, 1);
    fake_conv(t, "e", 6, 15, 1, 1);
    fake_conv(t, "f", 1, 6, 3, 1);
    fake_done(t);
    return t;
}

static dv_graph *build_views(const dv_tensors *t) {
    static const dv_conv_opts valid = {.valid = true};
    dv_graph *g = NULL;
    if (dv_graph_create(t, &g) != DAVY_OK) {
        return NULL;
    }
    const dv_value x = dv_input(g, (dv_shape){1, 11, 13, 6});
    const dv_value a = dv_activation(g, dv_conv(g, x, "a", 12, 3, NULL), DVK_ACT_MISH, 0.0f);
    const dv_value slice = dv_slice(g, dv_slice(g, a, 2, 8), 1, 5);
    const dv_value crop = dv_crop(g, slice, 1, 2, 8, 9);
    const dv_value small = dv_conv(g, crop, "b", 5, 3, &valid);
    const dv_value around = dv_pad(g, small, 1, 1, 8, 9, DVK_PAD_EDGE);
    const dv_value product = dv_multiply(g, around, dv_conv(g, crop, "c", 5, 1, NULL), DVK_ACT_SIGMOID);
    const dv_value deep =
        dv_add(g, 0.5f, dv_activation(g, dv_depthwise(g, crop, "d", 5, NULL), DVK_ACT_GELU, 0.0f), 1.0f, product);
    const dv_value parts[3] = {product, crop, deep};
    dv_value y = dv_conv(g, dv_concat(g, parts, 3), "e", 6, 1, NULL);
    y = dv_multiply(g, y, dv_mean(g, y), DVK_ACT_TANH);
    y = dv_multiply(g, y, dv_conv(g, y, "f", 1, 3, NULL), DVK_ACT_SIGMOID);
    const dv_value low = dv_resize(g, dv_max_pool(g, y, 3, 2), 8, 9);
    dv_output(g, dv_crop(g, dv_add(g, 1.0f, y, -1.0f, low), 1, 1, 6, 7));
    return g;
}

static dv_tensors *weights_plksr(void) {
    return fake_plksr(
        (fake_plksr_spec){.real = 1, .nf = 20, .blocks = 2, .scale = 2, .k = 7, .gates = 1, .samples = 1});
}

static dv_tensors *weights_spanf3(void) {
    return fake_spanf3(12, 2, 2, 4, 1);
}

static dv_tensors *weights_cugan(void) {
    return fake_cugan((fake_cugan_spec){3, 3, 5, 3, 0, 1});
}

static dv_tensors *weights_omnisr(void) {
    return fake_omnisr(32, 1, 4, 2);
}

static dv_graph *build_convnet(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 18, 21);
}

static const network networks[] = {
    {"compact", weights_compact, build_compact},  {"span", weights_span, build_span},
    {"rrdb", weights_rrdb, build_rrdb},           {"tae", weights_tae, build_tae},
    {"kl encoder", weights_kl, build_kl_encoder}, {"kl decoder", weights_kl, build_kl_decoder},
    {"odd concats", weights_odd, build_odd},      {"swinir", weights_swinir, build_transformer},
    {"drct", weights_drct, build_transformer},    {"hat", weights_hat, build_transformer},
    {"dat", weights_dat, build_transformer},      {"srformer", weights_srformer, build_transformer},
    {"rgt", weights_rgt, build_transformer},      {"atd", weights_atd, build_transformer},
    {"views", weights_views, build_views},        {"plksr", weights_plksr, build_convnet},
    {"spanf3", weights_spanf3, build_convnet},    {"cugan", weights_cugan, build_convnet},
    {"omnisr", weights_omnisr, build_convnet},
};

static void test_network(const network *net) {
    dv_tensors *t = net->weights();
    float *data = NULL;
    dv_graph *g = NULL;
    float *expected = NULL;
    if (CHECK(fake_fill(t, &data)) &&
        CHECKF((g = net->build(t)) != NULL && dv_graph_check(g) == DAVY_OK, "%s", net->name)) {
        float *in = calloc((size_t)elements(g, g->input), sizeof *in);
        expected = calloc((size_t)elements(g, g->output), sizeof *expected);
        for (int64_t i = 0; i < elements(g, g->input); i++) {
            in[i] = (float)sin((double)i * 0.7);
        }
        CHECK(interpret(g, in, expected));
        free(in);
        const uint32_t cpus[] = {0, DVK_CPU_AVX2, dvk_cpu_detect()};
        for (size_t i = 0; i < DV_ARRAY_LEN(cpus); i++) {
            machine m;
            machine_open(&m, cpus[i] & dvk_cpu_detect());
            check_plan(&m, net, t, false, expected);
            check_plan(&m, net, t, true, expected);
            machine_close(&m);
        }
    }
    free(expected);
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
}

/* ---- what must not cost anything ---- */

static dv_plan *plan_of(const dv_tensors *t, int64_t h, int64_t w, dvk_dtype compute) {
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, h, w);
    dv_plan *plan = NULL;
    const dv_plan_options options = {.compute = compute};
    if (!CHECK(g != NULL && dv_fuse(g) == DAVY_OK && dv_plan_create(g, &options, &plan) == DAVY_OK)) {
        return NULL;
    }
    return plan;
}

static int64_t count_op(const dv_plan *p, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        n += strcmp(dv_kernel_op(p->steps[i].kernel), op) == 0;
    }
    return n;
}

static void test_dense_blocks(void) {
    dv_tensors *t = fake_rrdb((fake_rrdb_spec){.dialect = 1, .nf = 16, .gc = 8, .blocks = 6, .doublings = 1, .in = 3});
    dv_plan *p = plan_of(t, 32, 32, DVK_F32);
    if (p != NULL) {
        CHECKF(count_op(p, "pointwise") == 0, "%d copies", (int)count_op(p, "pointwise"));
        /* At most five slabs of nf + 4 gc live together: trunk input, block input, unit input, the unit, its output. */
        CHECKF(p->arena_bytes <= 5 * 32 * 32 * 48 * 4 + 32 * 32 * 3 * 4, "arena %llu",
               (unsigned long long)p->arena_bytes);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

/* A dense group writes what it adds behind what it has: the picture without its mean is all that is copied. */
static void test_dense_transformer(void) {
    dv_tensors *t = fake_drct(24, 8, 8);
    dv_plan *p = plan_of(t, 32, 32, DVK_F32);
    if (p != NULL) {
        CHECKF(count_op(p, "pointwise") == 1, "%d copies", (int)count_op(p, "pointwise"));
        CHECKF(count_op(p, "window_attention") == 5 && count_op(p, "row_norm") == 11, "%d layer norms",
               (int)count_op(p, "row_norm"));
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

/* PLKSR's large kernel writes behind what it reads: nothing is copied. */
static void test_large_kernels(void) {
    dv_tensors *t = fake_plksr((fake_plksr_spec){.real = 1, .nf = 32, .blocks = 3, .scale = 2, .k = 5, .gates = 1});
    dv_plan *p = plan_of(t, 24, 24, DVK_F32);
    if (p != NULL) { /* each block's sum with its input, which the group norm is part of */
        CHECKF(count_op(p, "pointwise") == 3 && count_op(p, "multiply") == 3, "%d copies",
               (int)count_op(p, "pointwise") - 3);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

static void test_chain(void) {
    dv_tensors *t = fake_compact(16, 8, 1);
    dv_plan *p = plan_of(t, 32, 32, DVK_F32);
    if (p != NULL) { /* the picture, kept for the skip, and two of the body */
        CHECKF(p->arena_bytes == 32 * 32 * (3 + 16 + 16) * 4, "arena %llu", (unsigned long long)p->arena_bytes);
        CHECK(p->flops == 2ull * 32 * 32 * 9 * (3 * 16 + 8 * 16 * 16 + 16 * 3));
    }
    dv_plan_release(p);
    p = plan_of(t, 32, 32, DVK_BF16);
    if (p != NULL) { /* pictures stay f32, the body is half */
        CHECK(p->input.dtype == DVK_F32 && p->output.dtype == DVK_F32);
        CHECK(p->steps[0].args.conv.y.dtype == DVK_BF16 && p->steps[1].args.conv.x.dtype == DVK_BF16);
        CHECKF(p->arena_bytes == 32 * 32 * (3 * 4 + 16 * 2 + 16 * 2), "arena %llu", (unsigned long long)p->arena_bytes);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

int main(void) {
    test_arena();
    for (size_t i = 0; i < DV_ARRAY_LEN(networks); i++) {
        test_network(&networks[i]);
    }
    test_dense_blocks();
    test_large_kernels();
    test_dense_transformer();
    test_chain();
    return check_done();
}
