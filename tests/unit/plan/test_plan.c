/* test_plan.c - the arena never gives two living blocks the same bytes. Planned networks compute the graph's
 * values, with the references and with every kernel that this processor supports. Concats and residuals need no
 * copies. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plan/arena.h"
#include "core/exec/run.h"
#include "tests/lib/check.h"
#include "tests/lib/interpret.h"
#include "tests/lib/plan_networks.h"
#include "tests/lib/distance.h"

static uint32_t random_state = 1;

static uint32_t pick(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

/* ---- the arena ---- */

/* Returns the size of the arena. */
static uint64_t check_arena(dv_block *blocks, int64_t n, uint64_t enough, int64_t steps, double slack) {
    uint64_t total = 0;
    if (!CHECK(dv_arena_pack(blocks, n, enough, &total) == DAVY_OK)) {
        return 0;
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
    uint64_t most = 0; /* bytes alive at once: the lower bound of any arena */
    for (int64_t t = 0; t < steps; t++) {
        uint64_t alive = 0;
        for (int64_t i = 0; i < n; i++) {
            alive += blocks[i].first <= t && t <= blocks[i].last ? dv_align_up(blocks[i].bytes, DV_ARENA_ALIGN) : 0;
        }
        most = alive > most ? alive : most;
    }
    CHECKF((double)total <= slack * (double)most, "arena %llu, alive at once %llu", (unsigned long long)total,
           (unsigned long long)most);
    return total;
}

static void test_arena(void) {
    dv_block blocks[200];
    for (int round = 0; round < 50; round++) {
        const int64_t n = 1 + pick(200);
        for (int64_t i = 0; i < n; i++) {
            const int64_t first = pick(100);
            blocks[i] = (dv_block){.bytes = 1 + pick(100000), .first = first, .last = first + pick(10)};
        }
        const uint64_t plain = check_arena(blocks, n, UINT64_MAX, 110, 1.6);
        CHECK(check_arena(blocks, n, 0, 110, 1.6) <= plain);
    }
    uint64_t plain = 0, better = 0;
    for (int round = 0; round < 20; round++) { /* a few large blocks, so that the order matters */
        for (int64_t i = 0; i < 24; i++) {
            const int64_t first = pick(40);
            blocks[i] = (dv_block){.bytes = 1000 * (1 + pick(4)), .first = first, .last = first + 1 + pick(12)};
        }
        plain += check_arena(blocks, 24, UINT64_MAX, 60, 1.6);
        better += check_arena(blocks, 24, 0, 60, 1.3);
    }
    CHECKF(better < plain / 100 * 97, "%llu and %llu", (unsigned long long)better, (unsigned long long)plain);
    for (int64_t i = 0; i < 100; i++) { /* a chain: two blocks suffice */
        blocks[i] = (dv_block){.bytes = 6400, .first = i, .last = i + 1};
    }
    check_arena(blocks, 100, UINT64_MAX, 101, 1.0);
    blocks[0].bytes = UINT64_MAX - 10;
    uint64_t total = 0;
    CHECK(dv_arena_pack(blocks, 2, UINT64_MAX, &total) == DAVY_E_SHAPE);
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

/* Runs a plan twice in the same instance: no trace of the first run may remain. */
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
        const double d = relative_distance(out, expected, n_out);
        CHECKF(d < 2e-5, "%s, cpu %x%s: distance %g", net->name, (unsigned)m->services.cpu, lean ? ", lean" : "", d);
    }
    free(in);
    free(out);
}

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

/* ---- cases that must need no copies ---- */

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
        /* At most five slabs of nf + 4 gc are alive together: the inputs of trunk, block and unit, the unit, its
         * output. */
        CHECKF(p->arena_bytes <= 5 * 32 * 32 * 48 * 4 + 32 * 32 * 3 * 4, "arena %llu",
               (unsigned long long)p->arena_bytes);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

/* A dense group writes new channels behind the existing ones. Only the picture without its mean is copied. */
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

/* PLKSR's large kernel writes behind its operand: nothing is copied. */
static void test_large_kernels(void) {
    dv_tensors *t = fake_plksr((fake_plksr_spec){.real = 1, .nf = 32, .blocks = 3, .scale = 2, .k = 5, .gates = 1});
    dv_plan *p = plan_of(t, 24, 24, DVK_F32);
    if (p != NULL) { /* each block's sum with its input, fused with the group norm */
        CHECKF(count_op(p, "pointwise") == 3 && count_op(p, "multiply") == 3, "%d copies",
               (int)count_op(p, "pointwise") - 3);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

static void test_chain(void) {
    dv_tensors *t = fake_compact(16, 8, 1);
    dv_plan *p = plan_of(t, 32, 32, DVK_F32);
    if (p != NULL) { /* the picture, kept for the skip, and two values of the body */
        CHECKF(p->arena_bytes == 32 * 32 * (3 + 16 + 16) * 4, "arena %llu", (unsigned long long)p->arena_bytes);
        CHECK(p->flops == 2ull * 32 * 32 * 9 * (3 * 16 + 8 * 16 * 16 + 16 * 3));
    }
    dv_plan_release(p);
    p = plan_of(t, 32, 32, DVK_BF16);
    if (p != NULL) { /* pictures stay f32, the body takes half */
        CHECK(p->input.dtype == DVK_F32 && p->output.dtype == DVK_F32);
        CHECK(p->steps[0].args.conv.y.dtype == DVK_BF16 && p->steps[1].args.conv.x.dtype == DVK_BF16);
        CHECKF(p->arena_bytes == 32 * 32 * (3 * 4 + 16 * 2 + 16 * 2), "arena %llu", (unsigned long long)p->arena_bytes);
    }
    dv_plan_release(p);
    dv_tensors_release(t);
}

int main(void) {
    test_arena();
    for (size_t i = 0; i < DV_ARRAY_LEN(plan_networks); i++) {
        test_network(&plan_networks[i]);
    }
    test_dense_blocks();
    test_large_kernels();
    test_dense_transformer();
    test_chain();
    return check_done();
}
