/* test_device.c - gpu.h on the real driver and all its devices: memory, copies of odd sizes, events, graphs. Skipped without a
 * device. */
#include <stdlib.h>
#include <string.h>

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/base/os.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"

static void fill(unsigned char *p, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(seed >> 56);
    }
}

#define OK(call) CHECKF((call) == DAVY_OK, "%s: %s", #call, last_error())

static void copies_1d(dv_gpu *g, dv_gpu_queue *q) {
    static const uint64_t sizes[] = {1,       2,       3,       255,     4095,     4096,    65537,
                                     4194303, 4194304, 4194305, 8388608, 12582913, 50000001};
    for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) {
        const uint64_t n = sizes[i];
        unsigned char *a = malloc(n + 1);
        unsigned char *b = calloc(n + 1, 1);
        void *d = NULL;
        void *e = NULL;
        fill(a, n, i);
        OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, n + 16, "test", &d));
        OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, n, "test", &e));
        CHECK(dv_gpu_used(g, DV_MEM_WEIGHTS) == n);
        OK(dv_gpu_upload(q, (char *)d + i, a, n));
        OK(dv_gpu_copy(q, e, g, (char *)d + i, n));
        b[n] = 77;
        OK(dv_gpu_download(q, b, e, n));
        CHECKF(memcmp(a, b, n) == 0 && b[n] == 77, "copies of %llu bytes", (unsigned long long)n);
        dv_gpu_free(g, DV_MEM_WORKSPACE, d, n + 16);
        dv_gpu_free(g, DV_MEM_WEIGHTS, e, n);
        free(a);
        free(b);
    }
}

static void copies_2d(dv_gpu *g, dv_gpu_queue *q) {
    static const struct {
        uint64_t row, rows, host_pitch, device_pitch;
    } c[] = {{1, 1, 1, 1},
             {3, 5, 7, 4},
             {17, 1000, 19, 32},
             {5760, 1080, 5760, 6144},
             {5760, 1080, 6000, 5760},
             {4194304, 3, 4194311, 4194304},
             {4194305, 3, 4194305, 4194560},
             {9000001, 2, 9000001, 9000008}};
    for (size_t i = 0; i < DV_ARRAY_LEN(c); i++) {
        const uint64_t host = c[i].host_pitch * c[i].rows;
        const uint64_t device = c[i].device_pitch * c[i].rows;
        unsigned char *a = malloc(host);
        unsigned char *b = calloc(host, 1);
        void *d = NULL;
        fill(a, host, i);
        OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, device, "test", &d));
        OK(dv_gpu_upload_2d(q, &(dv_gpu_rows){.dst = d,
                                              .dst_pitch = c[i].device_pitch,
                                              .src = a,
                                              .src_pitch = c[i].host_pitch,
                                              .row_bytes = c[i].row,
                                              .rows = c[i].rows}));
        OK(dv_gpu_download_2d(q, &(dv_gpu_rows){.dst = b,
                                                .dst_pitch = c[i].host_pitch,
                                                .src = d,
                                                .src_pitch = c[i].device_pitch,
                                                .row_bytes = c[i].row,
                                                .rows = c[i].rows}));
        int same = 1;
        for (uint64_t y = 0; y < c[i].rows; y++) {
            same = same && memcmp(a + y * c[i].host_pitch, b + y * c[i].host_pitch, c[i].row) == 0;
            for (uint64_t x = c[i].row; x < c[i].host_pitch; x++) {
                same = same && b[y * c[i].host_pitch + x] == 0;
            }
        }
        CHECKF(same, "2-D copy %d", (int)i);
        dv_gpu_free(g, DV_MEM_WORKSPACE, d, device);
        free(a);
        free(b);
    }
}

static void graphs(dv_gpu *g, dv_gpu_queue *q) {
    enum { N = 1000003 };
    unsigned char *a = malloc(N);
    void *d = NULL;
    dv_gpu_graph *graph = NULL;
    memset(a, 5, N);
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, N, "test", &d));
    OK(dv_gpu_upload(q, d, a, N));
    OK(dv_gpu_queue_wait(q, NULL, NULL));
    OK(dv_gpu_capture_begin(q));
    CHECK(dv_gpu_upload(q, d, a, N) == DAVY_E_STATE);
    CHECK(q->base.clear(&q->base, (char *)d + 1, 500000) == 0);
    CHECK(q->base.clear(&q->base, (char *)d + 600001, N - 600001) == 0);
    void *other = NULL; /* allocating does not disturb the capture */
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 12345, "test", &other));
    dv_gpu_free(g, DV_MEM_WORKSPACE, other, 12345);
    OK(dv_gpu_capture_end(q, &graph));
    OK(dv_gpu_download(q, a, d, N));
    CHECK(a[1] == 5); /* captured, not run */
    for (int round = 0; round < 3 && graph != NULL; round++) {
        memset(a, 5, N);
        OK(dv_gpu_upload(q, d, a, N));
        OK(dv_gpu_graph_launch(graph, q));
        OK(dv_gpu_download(q, a, d, N));
        int right = 1;
        for (int i = 0; i < N; i++) {
            right = right && a[i] == (i == 0 || (i > 500000 && i < 600001) ? 5 : 0);
        }
        CHECK(right);
    }
    OK(dv_gpu_queue_wait(q, NULL, NULL));
    dv_gpu_graph_release(graph);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, N);
    free(a);
}

static void events(dv_gpu *g, dv_gpu_queue *q) {
    dv_gpu_event *e[2] = {0};
    dv_gpu_queue *other = NULL;
    void *d = NULL;
    bool ready = false;
    float ms = -1;
    const uint64_t n = 1u << 30;
    if (!OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, n, "test", &d))) {
        return;
    }
    OK(dv_gpu_event_create(g, true, &e[0]));
    OK(dv_gpu_event_create(g, true, &e[1]));
    OK(dv_gpu_queue_take(g, NULL, &other));
    CHECK(other != q && other->stream != q->stream);
    OK(dv_gpu_event_record(e[0], q));
    for (int i = 0; i < 10; i++) {
        CHECK(q->base.clear(&q->base, d, n) == 0);
    }
    OK(dv_gpu_event_record(e[1], q));
    OK(dv_gpu_event_wait(other, e[1]));
    const uint64_t begin = dv_now_ns();
    OK(dv_gpu_queue_wait(other, NULL, NULL));
    const double waited = (double)(dv_now_ns() - begin) * 1e-6;
    OK(dv_gpu_event_ready(e[1], &ready));
    CHECK(ready);
    OK(dv_gpu_event_ms(e[0], e[1], &ms));
    printf("  clear: %.0f GB/s, %.3f ms on the device, waited %.3f ms\n", 10.0 * (double)n / 1e6 / (double)ms,
           (double)ms, waited);
    CHECK(ms > 0);
    dv_gpu_queue_give(other);
    dv_gpu_event_release(e[0]);
    dv_gpu_event_release(e[1]);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, n);
}

static void times(dv_gpu *g, dv_gpu_queue *q) {
    const uint64_t n = 400u << 20;
    char *a = malloc(n);
    void *d = NULL;
    memset(a, 1, n);
    if (!OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, n, "test", &d))) {
        return;
    }
    for (int round = 0; round < 2; round++) {
        uint64_t t0 = dv_now_ns();
        OK(dv_gpu_upload(q, d, a, n));
        OK(dv_gpu_queue_wait(q, NULL, NULL));
        uint64_t t1 = dv_now_ns();
        OK(dv_gpu_download(q, a, d, n));
        uint64_t t2 = dv_now_ns();
        printf("  pageable: up %.1f GB/s, down %.1f GB/s\n", (double)n / (double)(t1 - t0),
               (double)n / (double)(t2 - t1));
    }
    uint64_t t0 = dv_now_ns();
    for (int i = 0; i < 1000; i++) {
        q->base.clear(&q->base, d, 4096);
    }
    uint64_t t1 = dv_now_ns();
    OK(dv_gpu_queue_wait(q, NULL, NULL));
    uint64_t t2 = dv_now_ns();
    void *p = NULL;
    for (int i = 0; i < 100; i++) {
        OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 1 << 20, "test", &p));
        dv_gpu_free(g, DV_MEM_WORKSPACE, p, 1 << 20);
    }
    uint64_t t3 = dv_now_ns();
    printf("  a clear costs %.2f us to enqueue, %.2f us to run; an allocation %.1f us\n", (double)(t1 - t0) * 1e-6,
           (double)(t2 - t0) * 1e-6, (double)(t3 - t2) * 1e-5);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, n);
    free(a);
}

static void memory(dv_gpu *g) {
    void *p = NULL;
    const uint64_t budget = dv_gpu_budget(g);
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, budget + 1, "test", &p) == DAVY_E_BUDGET);
    dv_gpu_set_budget(g, UINT64_MAX);
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, (uint64_t)1 << 40, "test", &p) == DAVY_E_NOMEM_DEVICE);
    dv_gpu_set_budget(g, 0);
    CHECK(dv_gpu_budget(g) == budget);
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, budget / 4, "test", &p));
    CHECK(dv_gpu_owns(g, p, budget / 4) && dv_gpu_owns(g, (char *)p + 5, 1));
    CHECK(!dv_gpu_owns(g, &p, sizeof p));
    dv_gpu_free(g, DV_MEM_WORKSPACE, p, budget / 4);
    const uint64_t cached = dv_gpu_cached(g);
    dv_gpu_trim(g);
    printf("  pool: %llu MiB before trim, %llu after\n", (unsigned long long)(cached >> 20),
           (unsigned long long)(dv_gpu_cached(g) >> 20));
    CHECK(dv_gpu_cached(g) < (64u << 20) && dv_gpu_used(g, DV_MEM_WORKSPACE) == 0);
}

static void test_one(int32_t i) {
    dv_gpu *g = NULL;
    dv_gpu_queue *q = NULL;
    davy_device_info info;
    dv_heap *heap = dv_heap_create(NULL, 0);
    OK(dv_gpu_describe(NULL, i, &info));
    printf("%s: %s, sm %d.%d, driver %d, %llu MiB%s%s\n", info.selector, info.name, info.compute_major,
           info.compute_minor, info.driver_version, (unsigned long long)(info.memory_total_bytes >> 20),
           info.reason[0] ? ", not usable: " : "", info.reason);
    if (info.reason[0] != '\0') {
        dv_heap_release(heap);
        return;
    }
    const uint64_t t0 = dv_now_ns();
    const dv_gpu_desc desc = {.index = i, .heap = heap};
    if (!OK(dv_gpu_open(&desc, &g))) {
        dv_heap_release(heap);
        return;
    }
    const dvk_cuda_caps *c = dv_gpu_caps(g);
    printf("  open %.1f ms; sm %d, %d processors, shared %d, L2 %d MiB, %.0f GB/s, tensor %.0f TFLOPs, simt %.0f\n",
           (double)(dv_now_ns() - t0) * 1e-6, c->sm, c->processors, c->shared_bytes, c->l2_bytes >> 20, c->memory_gbs,
           c->tensor_tflops, c->simt_tflops);
    CHECK(c->sm >= 75 && c->processors > 0 && c->shared_bytes >= 48 << 10 && c->memory_gbs > 10 &&
          c->tensor_tflops > 1);
    OK(dv_gpu_describe(NULL, i, &info));
    CHECK(info.memory_free_bytes > 0 && info.memory_free_bytes <= info.memory_total_bytes);
    OK(dv_gpu_queue_take(g, NULL, &q));
    memory(g);
    copies_1d(g, q);
    copies_2d(g, q);
    events(g, q);
    graphs(g, q);
    times(g, q);
    dv_gpu_queue_give(q);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) > 0);
    dv_gpu_release(g);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    dv_heap_release(heap);
}

/* Copies from one device's memory to another's. */
static void test_two(int32_t from, int32_t to) {
    enum { N = 64 << 20 };
    dv_gpu *g[2] = {0};
    dv_gpu_queue *q[2] = {0};
    void *d[2] = {0};
    dv_gpu_event *e = NULL;
    unsigned char *a = malloc(N);
    unsigned char *b = calloc(N, 1);
    const int32_t index[2] = {from, to};
    fill(a, N, 5);
    for (int i = 0; i < 2; i++) {
        const dv_gpu_desc desc = {.index = index[i]};
        OK(dv_gpu_open(&desc, &g[i]));
        OK(dv_gpu_queue_take(g[i], NULL, &q[i]));
        OK(dv_gpu_alloc(g[i], DV_MEM_WORKSPACE, N, "test", &d[i]));
    }
    OK(dv_gpu_event_create(g[0], false, &e));
    OK(dv_gpu_upload(q[0], d[0], a, N));
    OK(dv_gpu_event_record(e, q[0]));
    OK(dv_gpu_event_wait(q[1], e)); /* an event of the other device */
    OK(dv_gpu_copy(q[1], d[1], g[0], d[0], N));
    OK(dv_gpu_download(q[1], b, d[1], N));
    CHECK(memcmp(a, b, N) == 0);
    CHECK(!dv_gpu_owns(g[0], d[1], N) && dv_gpu_owns(g[1], d[1], N));
    for (int reached = 0; reached < 2; reached++) {
        const uint64_t t0 = dv_now_ns();
        for (int i = 0; i < 20; i++) {
            OK(dv_gpu_copy(q[1], d[1], g[0], d[0], N));
        }
        OK(dv_gpu_queue_wait(q[1], NULL, NULL));
        printf("cuda:%d to cuda:%d%s: %.1f GB/s\n", (int)from, (int)to, reached ? ", reached" : "",
               20.0 * N / (double)(dv_now_ns() - t0));
        dv_gpu_reach(g[1], g[0]);
    }
    memset(b, 0, N);
    OK(dv_gpu_download(q[1], b, d[1], N));
    CHECK(memcmp(a, b, N) == 0);
    dv_gpu_event_release(e);
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(g[i], DV_MEM_WORKSPACE, d[i], N);
        dv_gpu_queue_give(q[i]);
        dv_gpu_release(g[i]);
    }
    free(a);
    free(b);
}

int main(void) {
    char why[256] = "";
    const int32_t n = dv_gpu_count(NULL, why, sizeof why);
    if (n == 0) {
        check_skip(why);
    }
    for (int32_t i = 0; i < n; i++) {
        test_one(i);
    }
    davy_device_info info;
    for (int32_t i = 1; i < n && dv_gpu_describe(NULL, i, &info) == DAVY_OK && info.reason[0] == '\0'; i++) {
        test_two(0, i);
    }
    return check_done();
}
