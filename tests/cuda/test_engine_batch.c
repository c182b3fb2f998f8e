/* test_engine_batch.c - tiles and pictures computed together, on the mock driver with reference kernels. Every kind of input and output
 * gives the same bits as one tile at a time, on one GPU and on two. */
#include "tests/cuda/batch_bench.h"
#include "tests/lib/fake_clips.h"
#include "tests/lib/fake_transformers.h"

typedef struct subject {
    const char *name;
    dv_tensors *(*make)(void);
    ask_for ask;
    int ways; /* bits: the ways in which it is run */
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
    static const int64_t of[3] = {8, 5, 3}; /* window, tokens, channels of each query */
    return fake_atd(12, 2, of);
}

/* A network whose tiles share four means. */
/* A network whose tiles share two norms. */
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
        CHECKF(open && schedule_of(&b, &q).together == 1, "%s: more than one at once", s->name);
    }
    bench_close(&b, s->name);
    fills = true;
}

static void check_way(const subject *s, bench *b, const ask_for *q, int way, const char *alone) {
    uint64_t bytes = 0;
    char *out = run(b, q, &bytes);
    const dv_tile_schedule l = schedule_of(b, q);
    const int64_t all = q->n * l.tiles;
    CHECKF(alone != NULL && out != NULL && memcmp(alone, out, bytes) == 0,
           "%s, way %d, %d GPUs, %d pictures, %d together: other bits", s->name, way, (int)l.lanes, (int)q->n,
           (int)l.together);
    CHECKF(all < 2 * b->services.n_gpus || l.together > 1, "%s, %d pictures: one by one", s->name, (int)q->n);
    CHECKF(l.together * l.groups >= all && l.together * (l.groups - 1) < all, "%s: %d groups of %d", s->name,
           (int)l.groups, (int)l.together);
    free(out);
}

/* For every way in which pictures enter and leave. Runs are repeated, because the second run captures the steps. */
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

/* Cases in which pictures stayed whole but fewer were computed together than in the first run. */
static int64_t retreats(const bench *b) {
    int64_t count = 0;
    for (int i = 0; i < DV_CACHED_TILE_PLANS; i++) {
        const dv_cached_tile_plan *tile_plan = b->engine->tile_plans[i];
        count += tile_plan != NULL && tile_plan->request.max_together > 0 && tile_plan->schedule.tiles == 1;
    }
    return count;
}

/* The device has too little memory for all at once. Groups become smaller before tiles do, and nothing computed is lost. */
static void test_retreat(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 8, .h = 20, .w = 22};
    bench b;
    if (bench_open(&b, fake_compact(16, 1, 2), 1)) {
        uint64_t bytes = 0;
        fills = false;
        char *alone = run(&b, &q, &bytes);
        fills = true;
        OK(dv_engine_unload(b.engine));
        CHECK(schedule_of(&b, &q).together == 8);
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

/* A run takes the memory that the plan reports. */
static void test_budget(void) {
    const ask_for q = {.stage = DV_STAGE_UPSCALE, .c = 3, .n = 8, .h = 20, .w = 22};
    int64_t most = 0;
    for (uint64_t budget = 128 << 10; budget <= 2 << 20; budget += 128 << 10) {
        bench b;
        if (bench_open(&b, fake_compact(16, 1, 2), 1)) {
            davy_plan_info info = {.struct_size = sizeof info};
            dv_gpu_set_budget(b.gpus[0], budget);
            if (dv_engine_plan(b.engine,
                               &(dv_batch_desc){.stage = q.stage, .n = q.n, .h = q.h, .w = q.w, .tiling = &q.tiling},
                               &info) == DAVY_OK) {
                uint64_t bytes = 0;
                char *out = run(&b, &q, &bytes);
                const dv_tile_schedule l = schedule_of(&b, &q);
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

/* A network for clips computes its frames together, so pictures of a batch are computed one by one. */
static void test_clips(void) {
    const ask_for q = {.stage = DV_STAGE_DECODE, .c = 4, .n = 4, .h = 4, .w = 6};
    bench b;
    if (bench_open(&b, fake_seedvr2(), 1)) {
        const dv_tile_schedule l = schedule_of(&b, &q);
        CHECKF(l.together == 1 && l.groups == 4, "%d pictures together", (int)l.together);
    }
    bench_close(&b, "clips");
}

int main(void) {
    reference_begin();
    for (size_t i = 0; i < DV_ARRAY_LEN(subjects); i++) {
        check_subject(&subjects[i], 1, 3);
        check_subject(&subjects[i], 2, subjects[i].ask.tiling.width > 0 ? 1 : 5);
    }
    test_retreat();
    test_budget();
    test_clips();
    return reference_end();
}
