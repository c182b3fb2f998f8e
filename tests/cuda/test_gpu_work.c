/* test_gpu_work.c - gpu.h on the mock: copies, events, waiting, graphs. */
#include <stdio.h>

#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

/* ---- copies ---- */

static void fill(unsigned char *p, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(seed >> 56);
    }
}

static void copy_1d(dv_gpu *g, dv_gpu_queue *q, uint64_t n) {
    unsigned char *a = malloc(n);
    unsigned char *b = calloc(n, 1);
    void *d = NULL;
    void *e = NULL;
    fill(a, n, n);
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, n, "test", &d));
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, n, "test", &e));
    OK(dv_gpu_upload(q, d, a, n));
    OK(dv_gpu_copy(q, e, g, d, n));
    memcpy(b, a, n);
    memset(a, 0, n); /* src has been read */
    OK(dv_gpu_download(q, a, e, n));
    CHECKF(memcmp(a, b, n) == 0, "%llu bytes", (unsigned long long)n);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, n);
    dv_gpu_free(g, DV_MEM_WORKSPACE, e, n);
    free(a);
    free(b);
}

static void copy_2d(dv_gpu *g, dv_gpu_queue *q, uint64_t row, uint64_t rows, uint64_t host_pitch,
                    uint64_t device_pitch) {
    const uint64_t host = host_pitch * (rows - 1) + row; /* no byte behind the last row */
    const uint64_t device = device_pitch * (rows - 1) + row;
    unsigned char *a = malloc(host);
    unsigned char *b = calloc(host, 1);
    void *d = NULL;
    fill(a, host, row + rows);
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, device, "test", &d));
    OK(dv_gpu_upload_2d(
        q,
        &(dv_gpu_rows){
            .dst = d, .dst_pitch = device_pitch, .src = a, .src_pitch = host_pitch, .row_bytes = row, .rows = rows}));
    OK(dv_gpu_download_2d(
        q,
        &(dv_gpu_rows){
            .dst = b, .dst_pitch = host_pitch, .src = d, .src_pitch = device_pitch, .row_bytes = row, .rows = rows}));
    int same = 1;
    for (uint64_t y = 0; y < rows; y++) {
        same = same && memcmp(a + y * host_pitch, b + y * host_pitch, row) == 0;
        for (uint64_t x = row; x < host_pitch && y + 1 < rows; x++) {
            same = same && b[y * host_pitch + x] == 0;
        }
    }
    CHECKF(same, "%llu x %llu", (unsigned long long)row, (unsigned long long)rows);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, device);
    free(a);
    free(b);
}

static void test_copies(int lazy) {
    static const uint64_t sizes[] = {1, 3, 4095, 4194303, 4194304, 4194305, 8388608, 12582913, 20000003};
    m->lazy = lazy; /* lazy: a late copy would find a stage that was reused too early */
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    OK(dv_gpu_queue_take(g, NULL, &q));
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    copy_1d(g, q, 100);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 4 << 20); /* a second stage is taken only for a second piece */
    for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) {
        copy_1d(g, q, sizes[i]);
    }
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 8 << 20 && m->pinned == 2);
    copy_2d(g, q, 1, 1, 1, 1);
    copy_2d(g, q, 3, 5, 7, 4);
    copy_2d(g, q, 5760, 1000, 5760, 6144);
    copy_2d(g, q, 5760, 1000, 6001, 5760);
    copy_2d(g, q, 5760, 1600, 5760, 5760);
    copy_2d(g, q, 4194304, 3, 4194311, 4194304);
    copy_2d(g, q, 4194305, 3, 4194305, 4194560);
    copy_2d(g, q, 9000001, 2, 9000001, 9000008);
    OK(dv_gpu_upload(q, NULL, NULL, 0));
    OK(dv_gpu_download_2d(q, &(dv_gpu_rows){.rows = 5}));
    m->not_ready = 100000000; /* so the wait uses the driver's blocking wait */
    copy_1d(g, q, 9000000);
    m->not_ready = 0;
    /* pinned memory is copied directly */
    void *pinned = NULL;
    void *d = NULL;
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 9 << 20, "test", &d));
    OK(gpu_enter(g, "test"));
    CHECK(g->cu->host_alloc(&pinned, 9 << 20, 1) == 0);
    gpu_leave(g);
    memset(pinned, 1, 9 << 20);
    const int64_t before = m->copies;
    OK(dv_gpu_upload(q, d, pinned, 9 << 20));
    OK(dv_gpu_download(q, pinned, d, 9 << 20));
    CHECK(m->copies == before + 2 && dv_gpu_owns(g, pinned, 9 << 20));
    OK(gpu_enter(g, "test"));
    CHECK(g->cu->host_free(pinned) == 0);
    gpu_leave(g);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 9 << 20);
    dv_gpu_queue_give(q);
    dv_gpu_trim(g);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0 && m->pinned == 0);
    copy_1d(g, q, 5000000);
    close_gpu(g, lazy ? "late copies" : "copies");
}

static void test_stage_budget(void) {
    dv_heap *small = dv_heap_create(NULL, 1 << 20);
    const dv_gpu_desc desc = {.index = 0, .heap = small};
    dv_gpu *g = NULL;
    dv_gpu_queue *q = NULL;
    void *d = NULL;
    char byte = 1;
    OK(dv_gpu_open(&desc, &g));
    OK(dv_gpu_queue_take(g, NULL, &q));
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 16, "test", &d));
    CHECK(dv_gpu_upload(q, d, &byte, 1) == DAVY_E_BUDGET);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 16);
    close_gpu(g, "stages over the budget");
    dv_heap_release(small);
}

/* ---- pinned memory ---- */

enum { LARGE = (16 << 20) + 5000 };

static void pin(dv_gpu *g, uint64_t bytes, dv_pinned *out, davy_result wanted) {
    const davy_result r = dv_gpu_pin(g, bytes, "a state", out);
    CHECKF(r == wanted, "%d: %s", (int)r, last_error());
    if (r == DAVY_OK) {
        CHECK(out->bytes >= bytes && dv_gpu_owns(g, out->data, bytes));
        memset(out->data, 7, bytes);
    }
}

/* Large memory is the process's own if the driver can register it. Freed blocks are reused. */
static void test_pinned(int fail_register) {
    dv_heap *all = dv_heap_create(NULL, 3 * (uint64_t)LARGE);
    const dv_gpu_desc desc = {.index = 0, .heap = all};
    dv_pinned a, b, c;
    dv_gpu *g = NULL;
    m->fail_register = fail_register;
    OK(dv_gpu_open(&desc, &g));
    const int64_t registered = fail_register == 0 ? 1 : 0;
    pin(g, LARGE, &a, DAVY_OK);
    pin(g, 5000, &b, DAVY_OK);
    CHECK(a.registered == (registered > 0) && !b.registered);
    CHECK(m->registered == registered && m->pinned == 2 - registered);
    CHECK(dv_heap_used(all, DV_MEM_WORKSPACE) == LARGE + 5000);
    void *was = a.data;
    dv_gpu_unpin(g, &a);
    CHECK(a.data == NULL && dv_heap_used(all, DV_MEM_WORKSPACE) == LARGE + 5000);
    pin(g, LARGE / 10 * 9, &a, DAVY_OK);
    CHECK(a.data == was && a.bytes == LARGE && m->registered == registered);
    pin(g, LARGE, &c, DAVY_OK);
    CHECK(c.data != was);
    dv_gpu_unpin(g, &c);
    pin(g, 2 * (uint64_t)LARGE - 6000, &c, DAVY_OK); /* idle blocks are freed first */
    CHECK(m->registered == 2 * registered);
    dv_pinned none;
    pin(g, LARGE, &none, DAVY_E_BUDGET);
    SAYS("a state");
    dv_gpu_unpin(g, &a);
    dv_gpu_unpin(g, &b);
    dv_gpu_unpin(g, &c);
    CHECK(dv_gpu_unpin_idle(g) > 0 && dv_gpu_unpin_idle(g) == 0);
    CHECK(m->registered == 0 && m->pinned == 0 && dv_heap_used(all, DV_MEM_WORKSPACE) == 0);
    pin(g, 5000, &b, DAVY_OK);
    dv_gpu_unpin(g, &b);
    m->fail_register = 0;
    close_gpu(g, "pinned");
    CHECK(m->pinned == 0 && dv_heap_used(all, DV_MEM_WORKSPACE) == 0);
    dv_heap_release(all);
}

/* ---- events, waiting, graphs ---- */

static int polls;

static davy_result count_polls(void *user) {
    polls++;
    return user != NULL && polls == 2 ? DAVY_E_CANCELLED : DAVY_OK;
}

static void test_events(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q[2] = {0};
    dv_gpu_event *e[2] = {0};
    unsigned char host[8] = {0};
    void *d = NULL;
    bool ready = true;
    float ms = -1;
    m->lazy = 1;
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 8, "test", &d));
    memset(d, 9, 8); /* the mock's device memory is host memory */
    OK(dv_gpu_queue_take(g, NULL, &q[0]));
    OK(dv_gpu_queue_take(g, NULL, &q[1]));
    OK(dv_gpu_event_create(g, true, &e[0]));
    OK(dv_gpu_event_create(g, true, &e[1]));
    OK(dv_gpu_event_record(e[0], q[0]));
    CHECK(q[0]->base.clear(&q[0]->base, d, 8) == 0);
    OK(dv_gpu_event_record(e[1], q[0]));
    OK(dv_gpu_event_wait(q[1], e[1]));
    OK(dv_gpu_download(q[1], host, d, 8)); /* runs after the clear on the other queue */
    CHECK(host[0] == 0 && host[7] == 0);
    m->not_ready = 1;
    OK(dv_gpu_event_ready(e[1], &ready));
    CHECK(!ready);
    OK(dv_gpu_event_ready(e[1], &ready));
    CHECK(ready);
    OK(dv_gpu_event_ms(e[0], e[1], &ms));
    CHECK(ms >= 0);
    m->not_ready = 1000000;
    polls = 0;
    CHECK(dv_gpu_queue_wait(q[0], count_polls, &polls) == DAVY_E_CANCELLED && polls == 2);
    m->not_ready = 50;
    OK(dv_gpu_queue_wait(q[0], count_polls, NULL));
    dv_gpu_event_release(e[0]);
    dv_gpu_event_release(e[1]);
    dv_gpu_event_release(NULL);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 8);
    close_gpu(g, "events");
}

static void test_graphs(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    dv_gpu_graph *graph = NULL;
    void *d = NULL;
    char byte = 0;
    const dvk_launch l = launch_of("alpha", "kernel");
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 64, "test", &d));
    OK(dv_gpu_queue_take(g, NULL, &q));
    CHECK(dv_gpu_capture_end(q, &graph) == DAVY_E_STATE);
    OK(dv_gpu_capture_begin(q));
    CHECK(dv_gpu_capture_begin(q) == DAVY_E_STATE);
    CHECK(dv_gpu_upload(q, d, &byte, 1) == DAVY_E_STATE);
    CHECK(q->base.launch(&q->base, &l) == 0 && q->base.clear(&q->base, d, 64) == 0);
    OK(dv_gpu_capture_end(q, &graph));
    CHECK(graph != NULL && m->launches == 0);
    OK(dv_gpu_graph_launch(graph, q));
    OK(dv_gpu_graph_launch(graph, q));
    CHECK(m->launches == 2);
    dv_gpu_graph_release(graph);
    dv_gpu_graph_release(NULL);
    static const int failures[] = {901, 908, 2};
    for (size_t i = 0; i < DV_ARRAY_LEN(failures); i++) {
        OK(dv_gpu_capture_begin(q));
        CHECK(q->base.launch(&q->base, &l) == 0);
        m->fail_capture = failures[i];
        CHECK(dv_gpu_capture_end(q, &graph) == (failures[i] == 2 ? DAVY_E_NOMEM_DEVICE : DAVY_E_DEVICE) &&
              graph == NULL);
        const int64_t before = m->launches;
        CHECK(q->base.launch(&q->base, &l) == 0 && m->launches == before + 1); /* usable again, and work runs at once */
    }
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 64);
    close_gpu(g, "graphs");
}

/* Direct copies are requested once in each direction. */
static void test_peers(int none) {
    dv_gpu *g[2] = {open_gpu(0), NULL};
    const dv_gpu_desc desc = {.index = 1};
    OK(dv_gpu_open(&desc, &g[1]));
    m->no_peers = none;
    for (int again = 0; again < 2; again++) {
        dv_gpu_reach(g[0], g[1]);
        dv_gpu_reach(g[1], g[0]);
        dv_gpu_reach(g[0], g[0]);
        CHECK(m->peer_pools == (none ? 0 : 2));
    }
    dv_gpu_release(g[1]);
    close_gpu(g[0], "peers");
}

int main(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    heap = dv_heap_create(NULL, 0);
    test_copies(0);
    test_copies(1);
    test_stage_budget();
    test_pinned(0);
    test_pinned(801);
    test_events();
    test_graphs();
    test_peers(0);
    test_peers(1);
    dv_heap_release(heap);
    return check_done();
}
