/* test_engine_batch.c - tiles and pictures that are computed together, on the mock driver with kernels that call the plain
 * references: every way in and out gives the very bits that one tile at a time gives, on one GPU and on two. */
#include <stdlib.h>

#include "core/engine_priv.h"
#include "tests/cuda/reference_kernels.h"
#include "tests/unit/engine_fixture.h"
#include "tests/unit/fake_clips.h"
#include "tests/unit/fake_convnets.h"
#include "tests/unit/fake_transformers.h"

/* ---- engines ---- */

typedef struct bench {
    dv_services services;
    dv_gpu *gpus[2];
    dv_engine *engine;
    float *data;
    dv_log log;
} bench;

static bool bench_open(bench *b, dv_tensors *t, int32_t n_gpus) {
    *b = (bench){0};
    for (int32_t i = 0; i < n_gpus; i++) {
        const dv_gpu_desc desc = {.index = i, .heap = heap, .log = &b->log};
        if (!CHECKF(dv_gpu_open(&desc, &b->gpus[i]) == DAVY_OK, "%s", last_error())) {
            return false;
        }
    }
    b->services = (dv_services){.heap = heap, .log = &b->log, .gpus = b->gpus, .n_gpus = n_gpus};
    const dv_engine_desc desc = {
        .services = &b->services, .tensors = t, .file_name = "mock", .compute = DAVY_DTYPE_F32};
    return CHECK(fake_fill(t, &b->data)) && CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

static void bench_close(bench *b, const char *where) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_gpu_release(b->gpus[1]);
    close_gpu(b->gpus[0], where);
    free(b->data);
}

typedef struct ask_for {
    dv_stage stage;
    int64_t c, n, h, w;
    bool in_device, out_device, ordered, pixels; /* pixels: of four values, of which three are the picture's */
    dv_tiling tiling;
} ask_for;

/* n pictures with a few bytes between them. */
static dvk_image images(void *data, const ask_for *q, int64_t c, int64_t h, int64_t w) {
    dvk_image i = planes(data, c, h, w);
    if (q->pixels) {
        i.sw = 16;
        i.sh = w * 16;
        i.sc = 4;
    }
    i.n = q->n;
    i.sn = (q->pixels ? 16 * h * w : 4 * c * h * w) + 32;
    return i;
}

/* The whole of the output's memory, what is not of a picture included; NULL: it failed. To be freed. */
static char *run(bench *b, const ask_for *q, uint64_t *bytes) {
    davy_plan_info info = {.struct_size = sizeof info};
    OK(dv_engine_plan_batch(b->engine, q->stage, q->n, q->h, q->w, &q->tiling, &info));
    dvk_image in = images(NULL, q, q->c, q->h, q->w);
    dvk_image out = images(NULL, q, info.shape[2], info.shape[0], info.shape[1]);
    const uint64_t sizes[2] = {(uint64_t)(q->n * in.sn), (uint64_t)(q->n * out.sn)};
    char *memory[2] = {malloc(sizes[0]), malloc(sizes[1])};
    void *device[2] = {NULL, NULL};
    float *values = made_up(1, (int64_t)sizes[0] / 4, 1);
    memcpy(memory[0], values, sizes[0]);
    memset(memory[1], 0x5a, sizes[1]);
    free(values);
    davy_result r = DAVY_OK;
    for (int i = 0; i < 2; i++) {
        if (r == DAVY_OK && (i == 0 ? q->in_device : q->out_device)) {
            r = dv_gpu_alloc(b->gpus[0], DV_MEM_WORKSPACE, sizes[i], "picture", &device[i]);
            memcpy(device[i], memory[i], sizes[i]); /* memory of the mock is the host's */
        }
    }
    in.data = q->in_device ? device[0] : memory[0];
    out.data = q->out_device ? device[1] : memory[1];
    dv_gpu_queue *queue = NULL;
    r = r == DAVY_OK ? dv_gpu_queue_take(b->gpus[0], NULL, &queue) : r;
    const dv_work w = {.stage = q->stage,
                       .in = in,
                       .out = out,
                       .in_mul = 1.0f,
                       .out_mul = 1.0f,
                       .in_device = q->in_device,
                       .out_device = q->out_device,
                       .stream = q->ordered ? queue->stream : NULL,
                       .stream_ordered = q->ordered,
                       .tiling = q->tiling};
    r = r == DAVY_OK ? dv_engine_run(b->engine, &w) : r;
    if (!CHECKF(r == DAVY_OK, "%s", last_error())) {
        free(memory[1]);
        memory[1] = NULL;
    }
    dv_gpu_queue_wait(queue, NULL, NULL);
    dv_gpu_queue_give(queue);
    if (q->out_device && memory[1] != NULL) {
        memcpy(memory[1], device[1], sizes[1]);
    }
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(b->gpus[0], DV_MEM_WORKSPACE, device[i], sizes[i]);
    }
    free(memory[0]);
    *bytes = sizes[1];
    return memory[1];
}

static dv_layout layout_of(bench *b, const ask_for *q) {
    const dv_request request = {.stage = q->stage, .batch = q->n, .h = q->h, .w = q->w, .tiling = q->tiling};
    dv_route *route = NULL;
    dv_layout l = {0};
    if (CHECKF(dv_route_get(b->engine, &request, &route) == DAVY_OK, "%s", last_error())) {
        l = route->layout;
        dv_route_release(route);
    }
    return l;
}

typedef struct subject {
    const char *name;
    dv_tensors *(*make)(void);
    ask_for ask;
    int ways; /* in which it is run */
} subject;

static dv_tensors *compact(void) {
    return fake_compact(6, 1, 2);
}

static dv_tensors *rrdb(void) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 1, .nf = 8, .gc = 4, .blocks = 1, .doublings = 1, .in = 3});
}

static dv_tensors *kl(void) {
    return fake_kl((fake_kl_spec){.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {32, 32}, .dec = {32, 32}});
}

static dv_tensors *swinir(void) {
    return fake_swinir(12, 2, 8, 0);
}

static dv_tensors *drct(void) {
    return fake_drct(12, 4, 4);
}

static dv_tensors *dat(void) {
    return fake_dat(24, 4);
}

static dv_tensors *atd(void) {
    static const int64_t of[3] = {8, 5, 3}; /* window, tokens, channels of a query */
    return fake_atd(12, 2, of);
}

/* Whose tiles share four means. */
static dv_tensors *cugan(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 3, .k = 4, .out = 3}, 32);
}

/* Whose tiles share two norms. */
static dv_tensors *plksr(void) {
    return fake_plksr(
        (fake_plksr_spec){.real = 1, .nf = 16, .blocks = 2, .scale = 2, .k = 3, .gates = 1, .mixer = {3, 1}});
}

enum { WAYS = 9 };

static const subject subjects[] = {
    {"compact", compact, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 9, .w = 10}, WAYS},
    {"compact in tiles", compact, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 30, .w = 34, .tiling = {20, 18, 0}}, WAYS},
    {"rrdb in faded tiles", rrdb, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 20, .w = 26, .tiling = {12, 11, 4}}, WAYS},
    {"kl", kl, {.stage = DV_STAGE_DECODE, .c = 4, .h = 4, .w = 5}, 2},
    {"kl in faded tiles", kl, {.stage = DV_STAGE_DECODE, .c = 4, .h = 9, .w = 10, .tiling = {6, 6, 2}}, 4},
    {"swinir", swinir, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 9, .w = 8}, 2},
    {"drct", drct, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 6, .w = 7}, 2},
    {"dat", dat, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 6, .w = 7}, 2},
    {"atd", atd, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 9, .w = 14}, 2},
    {"cugan in tiles", cugan, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 38, .w = 42, .tiling = {38, 1000, 0}}, 2},
    {"plksr in tiles", plksr, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 20, .w = 42, .tiling = {30, 1000, 0}}, 4},
    {"atd in faded tiles", atd, {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 56, .w = 40, .tiling = {32, 32, 8}}, 2},
};

static ask_for way_of(const subject *s, int way, int64_t n) {
    ask_for q = s->ask;
    q.n = n;
    q.in_device = way % 2 == 1;
    q.out_device = way / 2 % 2 == 1;
    q.pixels = way / 4 == 1 && q.c == 3;
    q.ordered = way == 8;
    q.in_device = q.in_device || q.ordered;
    q.out_device = q.out_device || q.ordered;
    return q;
}

/* One tile at a time, on one GPU. */
static void run_alone(const subject *s, int64_t n, char *out[WAYS]) {
    bench b;
    const bool open = bench_open(&b, s->make(), 1);
    fills = false;
    for (int way = 0; way < s->ways; way++) {
        const ask_for q = way_of(s, way, n);
        uint64_t bytes = 0;
        out[way] = open ? run(&b, &q, &bytes) : NULL;
        CHECKF(open && layout_of(&b, &q).together == 1, "%s: more than one at once", s->name);
    }
    bench_close(&b, s->name);
    fills = true;
}

static void check_way(const subject *s, bench *b, const ask_for *q, int way, const char *alone) {
    uint64_t bytes = 0;
    char *out = run(b, q, &bytes);
    const dv_layout l = layout_of(b, q);
    const int64_t all = q->n * l.tiles;
    CHECKF(alone != NULL && out != NULL && memcmp(alone, out, bytes) == 0,
           "%s, way %d, %d GPUs, %d pictures, %d together: other bits", s->name, way, (int)l.lanes, (int)q->n,
           (int)l.together);
    CHECKF(all < 2 * b->services.n_gpus || l.together > 1, "%s, %d pictures: one by one", s->name, (int)q->n);
    CHECKF(l.together * l.groups >= all && l.together * (l.groups - 1) < all, "%s: %d groups of %d", s->name,
           (int)l.groups, (int)l.together);
    free(out);
}

/* In every way that pictures come and go; again and again, for steps are recorded the second time. */
static void check_subject(const subject *s, int32_t n_gpus, int64_t n) {
    char *alone[WAYS] = {NULL};
    run_alone(s, n, alone);
    bench b;
    const bool open = bench_open(&b, s->make(), n_gpus);
    for (int k = 0; open && k < s->ways * 2; k++) {
        const ask_for q = way_of(s, k / 2, n);
        m->lazy = k / 2 % 2 != k % 2;
        check_way(s, &b, &q, k / 2, alone[k / 2]);
    }
    bench_close(&b, s->name);
    for (int way = 0; way < WAYS; way++) {
        free(alone[way]);
    }
}

/* Routes by which pictures stayed whole, but fewer of them came together than the first time. */
static int64_t retreats(const bench *b) {
    int64_t count = 0;
    for (int i = 0; i < DV_ROUTES; i++) {
        const dv_route *route = b->engine->routes[i];
        count += route != NULL && route->request.most > 0 && route->layout.tiles == 1;
    }
    return count;
}

/* The device has too little for all at once: groups become smaller before tiles do, and nothing that has been computed is
 * lost. */
static void test_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 8, .h = 20, .w = 22};
    bench b;
    if (bench_open(&b, fake_compact(16, 1, 2), 1)) {
        uint64_t bytes = 0;
        fills = false;
        char *alone = run(&b, &q, &bytes);
        fills = true;
        OK(dv_engine_unload(b.engine));
        CHECK(layout_of(&b, &q).together == 8);
        OK(dv_engine_load(b.engine, &(dv_control){0}));
        int64_t fewer = 0;
        for (uint64_t left = 192 << 10; left <= 2 << 20; left += 192 << 10) {
            dv_engine_trim(b.engine, 0);
            m->device_bytes = m->used_bytes + left;
            char *some = run(&b, &q, &bytes);
            CHECKF(some != NULL && memcmp(alone, some, bytes) == 0, "%d bytes: other bits", (int)left);
            fewer += retreats(&b);
            free(some);
        }
        CHECKF(fewer > 0, "never fewer together");
        free(alone);
        m->device_bytes = (uint64_t)4 << 30;
    }
    bench_close(&b, "retreat");
}

static double furthest(const char *a, const char *b, uint64_t bytes) {
    double most = a != NULL && b != NULL ? 0.0 : 1e30;
    for (uint64_t i = 0; most < 1e30 && i + 4 <= bytes; i += 4) {
        float of[2];
        memcpy(&of[0], a + i, 4);
        memcpy(&of[1], b + i, 4);
        most = fmax(most, fabs((double)of[0] - (double)of[1]));
    }
    return most;
}

/* Tiles that share means, or norms, against the whole picture, alone and together, on one GPU and on two. */
static void test_shared(dv_tensors *(*make)(void), int32_t means, int32_t norms, int32_t n_gpus) {
    ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 2, .h = 44, .w = 51, .tiling = {.width = -1}};
    bench b;
    if (bench_open(&b, make(), n_gpus)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        q.tiling = (dv_tiling){.width = 43, .height = 42};
        for (int k = 0; k < 2; k++) {
            fills = k > 0;
            OK(dv_engine_unload(b.engine));
            char *tiles = run(&b, &q, &bytes);
            const dv_layout l = layout_of(&b, &q);
            CHECKF(l.means == means && l.norms == norms && l.tiles > 3 && l.lanes == n_gpus &&
                       (l.together > 1) == fills,
                   "%d together on %d", (int)l.together, (int)l.lanes);
            CHECKF(furthest(whole, tiles, bytes) < 1e-5, "%g apart", furthest(whole, tiles, bytes));
            free(tiles);
        }
        free(whole);
    }
    bench_close(&b, "shared");
}

/* Where the device has not enough for the whole picture, the sums begin anew with smaller tiles. */
static void test_means_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 1, .h = 170, .w = 150};
    bench b;
    if (bench_open(&b, cugan(), 1)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        const dv_layout l = layout_of(&b, &q);
        CHECK(l.tiles == 1 && l.means == 0);
        OK(dv_engine_unload(b.engine));
        OK(dv_engine_load(b.engine, &(dv_control){0}));
        dv_engine_trim(b.engine, 0);
        m->device_bytes = m->used_bytes + l.workspace * 3 / 4;
        char *tiles = run(&b, &q, &bytes);
        int32_t means = 0;
        for (int i = 0; i < DV_ROUTES; i++) {
            const dv_route *route = b.engine->routes[i];
            means += route != NULL && route->request.limit > 0 ? route->layout.means : 0;
        }
        CHECKF(means == 4, "%d means", (int)means);
        CHECKF(furthest(whole, tiles, bytes) < 1e-5, "%g apart", furthest(whole, tiles, bytes));
        free(tiles);
        free(whole);
        m->device_bytes = (uint64_t)4 << 30;
    }
    bench_close(&b, "retreat of means");
}

/* The same of norms; and with still less tiles take their own. */
static void test_norms_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 1, .h = 190, .w = 170};
    bench b;
    if (bench_open(&b, plksr(), 1)) {
        uint64_t bytes = 0;
        char *whole = run(&b, &q, &bytes);
        const dv_layout l = layout_of(&b, &q);
        CHECK(l.tiles == 1 && l.norms == 0);
        for (int k = 0; k < 2; k++) {
            OK(dv_engine_unload(b.engine));
            OK(dv_engine_load(b.engine, &(dv_control){0}));
            dv_engine_trim(b.engine, 0);
            m->device_bytes = m->used_bytes + l.workspace * (k == 0 ? 9 : 4) / 10;
            char *tiles = run(&b, &q, &bytes);
            int64_t norms = -1;
            for (int i = 0; i < DV_ROUTES; i++) {
                const dv_route *route = b.engine->routes[i];
                norms = route != NULL && route->request.limit > 0 ? dv_max(route->layout.norms, norms) : norms;
            }
            CHECKF(norms == (k == 0 ? 2 : 0), "%d norms", (int)norms);
            CHECKF((furthest(whole, tiles, bytes) < 1e-5) == (k == 0), "%g apart", furthest(whole, tiles, bytes));
            free(tiles);
            m->device_bytes = (uint64_t)4 << 30;
        }
        free(whole);
    }
    bench_close(&b, "retreat of norms");
}

/* What a plan says is what a run takes. */
static void test_budget(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 8, .h = 20, .w = 22};
    int64_t most = 0;
    for (uint64_t budget = 128 << 10; budget <= 2 << 20; budget += 128 << 10) {
        bench b;
        if (bench_open(&b, fake_compact(16, 1, 2), 1)) {
            davy_plan_info info = {.struct_size = sizeof info};
            dv_gpu_set_budget(b.gpus[0], budget);
            if (dv_engine_plan_batch(b.engine, q.stage, q.n, q.h, q.w, &q.tiling, &info) == DAVY_OK) {
                uint64_t bytes = 0;
                char *out = run(&b, &q, &bytes);
                const dv_layout l = layout_of(&b, &q);
                CHECKF(l.together >= most, "%d together with %d bytes", (int)l.together, (int)budget);
                CHECKF(info.workspace_bytes <= budget && dv_gpu_peak(b.gpus[0]) <= budget,
                       "%d bytes: %d planned, %d taken", (int)budget, (int)info.workspace_bytes,
                       (int)dv_gpu_peak(b.gpus[0]));
                most = l.together;
                free(out);
            }
        }
        bench_close(&b, "budget");
    }
    CHECKF(most == 8, "%d together at most", (int)most);
}

/* What comes together in a network for clips are its frames: pictures of a batch come one by one. */
static void test_clips(void) {
    const ask_for q = {.stage = DV_STAGE_DECODE, .c = 4, .n = 4, .h = 4, .w = 6};
    bench b;
    if (bench_open(&b, fake_seedvr2(), 1)) {
        const dv_layout l = layout_of(&b, &q);
        CHECKF(l.together == 1 && l.groups == 4, "%d pictures together", (int)l.together);
    }
    bench_close(&b, "clips");
}

int main(void) {
    heap = dv_heap_create(NULL, 0);
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    mock_call("mock_reset");
    complete_kernels();
    for (size_t i = 0; i < DV_ARRAY_LEN(subjects); i++) {
        check_subject(&subjects[i], 1, 3);
        check_subject(&subjects[i], 2, subjects[i].ask.tiling.width > 0 ? 1 : 5);
    }
    test_retreat();
    for (int32_t gpus = 1; gpus <= 2; gpus++) {
        test_shared(cugan, 4, 0, gpus);
        test_shared(plksr, 0, 2, gpus);
    }
    test_means_retreat();
    test_norms_retreat();
    test_budget();
    test_clips();
    while (calls != NULL) {
        call *c = calls;
        calls = c->next;
        free(c);
    }
    dv_heap_release(heap);
    return check_done();
}
