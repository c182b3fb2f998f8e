/* test_gpu.c - gpu.h on the mock: memory under a budget, queues, a lost device, fork. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

/* ---- memory ---- */

static void test_budget(void) {
    dv_gpu *g = open_gpu(1000000);
    void *a = NULL;
    void *b = NULL;
    OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 600000, "weights", &a));
    CHECK((uintptr_t)a % 256 == 0);
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 400001, "an arena", &b) == DAVY_E_BUDGET);
    SAYS("an arena");
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 400000, "an arena", &b));
    CHECK(dv_gpu_used(g, DV_MEM_WEIGHTS) == 600000 && dv_gpu_used(g, DV_MEM_WORKSPACE) == 400000);
    dv_gpu_free(g, DV_MEM_WORKSPACE, b, 400000);
    CHECK(dv_gpu_used(g, DV_MEM_WORKSPACE) == 0 && dv_gpu_peak(g) == 1000000 && dv_gpu_cached(g) == 400000);
    dv_gpu_trim(g);
    CHECK(dv_gpu_cached(g) == 0);
    CHECK(dv_gpu_owns(g, a, 600000) && dv_gpu_owns(g, (char *)a + 599999, 1));
    CHECK(!dv_gpu_owns(g, (char *)a + 599999, 1000) && !dv_gpu_owns(g, &g, 8) && !dv_gpu_owns(g, NULL, 0));
    dv_gpu_set_budget(g, 0);
    CHECK(dv_gpu_budget(g) == ((uint64_t)4 << 30) / 10 * 9);
    dv_gpu_free(g, DV_MEM_WEIGHTS, a, 600000);
    dv_gpu_free(g, DV_MEM_WEIGHTS, NULL, 0);
    OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 0, "nothing", &a));
    dv_gpu_free(g, DV_MEM_WEIGHTS, a, 0);
    close_gpu(g, "budget");
}

static void test_out_of_memory(int no_pools) {
    void *p[3] = {0};
    m->no_pools = no_pools;
    m->device_bytes = 1 << 20;
    dv_gpu *g = open_gpu((uint64_t)1 << 40);
    OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 700000, "test", &p[0]));
    CHECK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 700000, "test", &p[1]) == DAVY_E_NOMEM_DEVICE && last_native() == 2);
    SAYS("700000");
    OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 300000, "test", &p[1]));
    dv_gpu_free(g, DV_MEM_WEIGHTS, p[0], 700000);
    dv_gpu_free(g, DV_MEM_WEIGHTS, p[1], 300000);
    m->fail_alloc_at = 2;
    OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 100, "test", &p[0]));
    if (no_pools) {
        CHECK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 100, "test", &p[1]) == DAVY_E_NOMEM_DEVICE);
    } else { /* the pool is trimmed, then the allocation is repeated */
        OK(dv_gpu_alloc(g, DV_MEM_WEIGHTS, 100, "test", &p[1]));
        dv_gpu_free(g, DV_MEM_WEIGHTS, p[1], 100);
    }
    dv_gpu_free(g, DV_MEM_WEIGHTS, p[0], 100);
    CHECK(dv_gpu_used(g, DV_MEM_WEIGHTS) == 0);
    close_gpu(g, "out of memory");
}

static struct {
    int64_t allocs, frees;
    int fail, crooked;
} books;

static uint64_t DAVY_CALL lend(void *user, int32_t device, uint64_t bytes, void *stream) {
    CHECK(user == &books && device == 0 && stream != NULL);
    if (books.fail) {
        return 0;
    }
    books.allocs++;
    void *p = NULL;
    return posix_memalign(&p, 512, bytes + 512) == 0 ? (uint64_t)(uintptr_t)p + (books.crooked ? 64 : 0) : 0;
}

static void DAVY_CALL take_back(void *user, int32_t device, uint64_t p, uint64_t bytes, void *stream) {
    CHECK(user == &books && device == 0 && stream != NULL && bytes > 0);
    books.frees++;
    free((void *)(uintptr_t)(p & ~(uint64_t)255));
}

static void test_host_callbacks(void) {
    const davy_host host = {.struct_size = sizeof host, .user = &books, .device_alloc = lend, .device_free = take_back};
    const dv_gpu_desc desc = {.index = 0, .budget_bytes = 5000, .heap = heap, .host = &host};
    dv_gpu *g = NULL;
    void *p = NULL;
    OK(dv_gpu_open(&desc, &g));
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4000, "test", &p));
    CHECK(books.allocs == 1 && m->allocs == 0);
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4000, "test", &p) == DAVY_E_BUDGET && books.allocs == 1);
    dv_gpu_free(g, DV_MEM_WORKSPACE, p, 4000);
    books.fail = 1;
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4000, "test", &p) == DAVY_E_NOMEM_DEVICE);
    SAYS("device_alloc");
    books.fail = 0;
    books.crooked = 1;
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4000, "test", &p) == DAVY_E_INVALID);
    books.crooked = 0;
    CHECK(dv_gpu_used(g, DV_MEM_WORKSPACE) == 0 && books.allocs == books.frees);
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4000, "test", &p));
    m->sticky = 700; /* memory of a lost device is still returned to the host's device_free */
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 10, "test", &(void *){NULL}) == DAVY_E_DEVICE_LOST);
    dv_gpu_free(g, DV_MEM_WORKSPACE, p, 4000);
    CHECK(books.allocs == books.frees);
    dv_gpu_release(g);
    mock_call("mock_reset");
}

/* ---- queues ---- */

static const mock_launch *last_launch(void) {
    return &m->launch[(m->launches - 1) % MOCK_LAUNCHES];
}

static void test_launch(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    char name[16] = "first";
    OK(dv_gpu_queue_take(g, NULL, &q));
    CHECK(q->base.caps->sm == 90 && q->base.caps->shared_bytes == 227 << 10);
    dvk_launch l = launch_of("beta", name);
    CHECK(m->loads == 0 && q->base.launch(&q->base, &l) == 0 && m->loads == 1);
    CHECK(strcmp(last_launch()->module, "beta") == 0 && strcmp(last_launch()->function, "first") == 0);
    CHECK(last_launch()->grid[0] == 3 && last_launch()->grid[1] == 2 && last_launch()->block[0] == 128);
    for (int i = 0; i < 5; i++) {
        CHECK(q->base.launch(&q->base, &l) == 0);
    }
    CHECK(m->function_lookups == 1 && m->loads == 1);
    memcpy(name, "other", 6); /* another function name at the same address */
    CHECK(q->base.launch(&q->base, &l) == 0 && strcmp(last_launch()->function, "other") == 0);
    l = launch_of("alpha", "big");
    l.shared_bytes = 200 << 10;
    l.cluster = 4;
    l.flags = DVK_LAUNCH_OVERLAP;
    CHECK(q->base.launch(&q->base, &l) == 0);
    CHECK(last_launch()->shared_bytes == 200 << 10 && last_launch()->cluster == 4 && last_launch()->overlap == 1);
    l.cluster = 16;
    CHECK(q->base.launch(&q->base, &l) == 0 && last_launch()->cluster == 16);
    l.shared_bytes = 227 << 10; /* the maximum, less the function's static part */
    CHECK(q->base.launch(&q->base, &l) == CU_INVALID_VALUE);
    l = launch_of("gamma", "x");
    CHECK(dv_gpu_check(g, q->base.launch(&q->base, &l), "a kernel") == DAVY_E_DEVICE && last_native() == 500);
    SAYS("a kernel");
    l = launch_of("alpha", "no_such");
    CHECK(q->base.launch(&q->base, &l) == CU_NOT_FOUND);
    CHECK(q->base.clear(&q->base, NULL, 0) == 0);
    dvk_tensor_map map;
    const dvk_tensor_map_desc d = {.data = g->memory_stream,
                                   .dtype = DVK_BF16,
                                   .rank = 2,
                                   .size = {64, 5},
                                   .stride_bytes = {128},
                                   .box = {64, 1},
                                   .swizzle_bytes = 128};
    dvk_tensor_map_desc aligned = d;
    aligned.data = (void *)(uintptr_t)4096;
    CHECK(q->base.tensor_map(&q->base, &aligned, &map) == 0);
    int numbers[8];
    memcpy(numbers, map.opaque + 16, sizeof numbers);
    CHECK(numbers[0] == 9 && numbers[1] == 2 && numbers[2] == 64 && numbers[3] == 128 && numbers[5] == 1 &&
          numbers[7] == 3);
    aligned.rank = 6;
    CHECK(q->base.tensor_map(&q->base, &aligned, &map) == CU_INVALID_VALUE);
    dv_gpu_queue_give(q);
    close_gpu(g, "launch");
}

static void test_reuse(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q[3] = {0};
    void *mine = (void *)(uintptr_t)2;
    OK(dv_gpu_queue_take(g, NULL, &q[0]));
    OK(dv_gpu_queue_take(g, NULL, &q[1]));
    OK(dv_gpu_queue_take(g, mine, &q[2]));
    CHECK(q[0] != q[1] && q[0]->stream != q[1]->stream && !q[0]->foreign && q[2]->foreign && q[2]->stream == mine);
    CHECK(m->streams == 3); /* one of them is the stream for memory */
    dv_gpu_queue *first = q[0];
    dv_gpu_queue_give(q[0]);
    dv_gpu_queue_give(q[2]);
    OK(dv_gpu_queue_take(g, NULL, &q[0]));
    CHECK(q[0] == first && m->streams == 3);
    OK(dv_gpu_queue_take(g, (void *)(uintptr_t)1, &q[0]));
    CHECK(q[0] == q[2] && q[0]->stream == (void *)(uintptr_t)1);
    CHECK(dv_gpu_capture_begin(q[0]) == DAVY_E_STATE);
    close_gpu(g, "reuse"); /* also frees queues that were not returned */
}

/* ---- failures ---- */

static void test_lost(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    dv_gpu_event *e = NULL;
    void *d = NULL;
    void *p = NULL;
    char byte = 0;
    bool ready = false;
    const dvk_launch l = launch_of("alpha", "kernel");
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 64, "test", &d));
    OK(dv_gpu_queue_take(g, NULL, &q));
    OK(dv_gpu_event_create(g, false, &e));
    m->fail_launch_at = 2;
    m->fail_launch_with = 719;
    m->lazy = 1;
    CHECK(q->base.launch(&q->base, &l) == 0 && q->base.launch(&q->base, &l) == 0);
    CHECK(dv_gpu_queue_wait(q, NULL, NULL) == DAVY_E_DEVICE_LOST && last_native() == 719);
    SAYS("CUDA_ERROR_LAUNCH_FAILED");
    m->sticky = 0; /* it stays lost, whatever the driver returns later */
    CHECK(q->base.launch(&q->base, &l) == 719);
    CHECK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 64, "test", &p) == DAVY_E_DEVICE_LOST);
    CHECK(dv_gpu_upload(q, d, &byte, 1) == DAVY_E_DEVICE_LOST);
    CHECK(dv_gpu_event_record(e, q) == DAVY_E_DEVICE_LOST && dv_gpu_event_ready(e, &ready) == DAVY_E_DEVICE_LOST);
    CHECK(dv_gpu_capture_begin(q) == DAVY_E_DEVICE_LOST && dv_gpu_check(g, 1, "x") == DAVY_E_DEVICE_LOST);
    const int64_t before = m->pushes;
    dv_gpu_event_release(e);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 64);
    dv_gpu_queue_give(q);
    dv_gpu_release(g);
    CHECK(m->pushes == before && m->retained == 1); /* no driver calls were made */
    balanced("lost");
    m->sticky = 719; /* a real driver keeps this error for the life of the process */
    g = NULL;
    CHECK(dv_gpu_open(&(dv_gpu_desc){.index = 0}, &g) == DAVY_E_DEVICE_LOST && g == NULL);
    SAYS("another process");
    mock_call("mock_reset");
}

static void test_errors(void) {
    m->fail_module = 209;
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    const dvk_launch l = launch_of("alpha", "kernel");
    OK(dv_gpu_queue_take(g, NULL, &q));
    CHECK(dv_gpu_check(g, q->base.launch(&q->base, &l), "kernel") == DAVY_E_DEVICE && last_native() == 209);
    SAYS("CUDA error 209");
    m->fail_module = 0;
    CHECK(q->base.launch(&q->base, &l) == 0);
    close_gpu(g, "errors");
}

static void test_host_context(void) {
    void *(*host_context)(int) = NULL;
    void *symbol = mock_symbol("mock_host_context");
    memcpy(&host_context, &symbol, sizeof host_context);
    dv_gpu_desc desc = {.index = 0, .heap = heap, .cuda_context = host_context(0)};
    dv_gpu *g = NULL;
    OK(dv_gpu_open(&desc, &g));
    CHECK(m->retained == 0 && dv_gpu_index(g) == 0);
    close_gpu(g, "the host's context");
    desc.cuda_context = host_context(1);
    g = NULL;
    CHECK(dv_gpu_open(&desc, &g) == DAVY_E_INVALID && g == NULL);
    SAYS("cuda:1");
    balanced("another device's context");
}

static void test_fork(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    void *d = NULL;
    const dvk_launch l = launch_of("alpha", "kernel");
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, 64, "test", &d));
    OK(dv_gpu_queue_take(g, NULL, &q));
    CHECK(q->base.launch(&q->base, &l) == 0);
    OK(dv_gpu_upload(q, d, &l, 64));
    const int64_t before = m->pushes;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        void *p = NULL;
        int bad = dv_gpu_alloc(g, DV_MEM_WORKSPACE, 64, "test", &p) != DAVY_E_FORKED;
        bad |= dv_gpu_queue_take(g, NULL, &(dv_gpu_queue *){NULL}) != DAVY_E_FORKED;
        dv_gpu_queue_give(q);
        bad |= dv_gpu_owns(g, d, 1) || dv_gpu_cached(g) != 0;
        dv_gpu_free(g, DV_MEM_WORKSPACE, d, 64);
        dv_gpu_trim(g);
        dv_gpu_release(g);
        _exit(bad || m->pushes != before || m->retained != 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    dv_gpu_free(g, DV_MEM_WORKSPACE, d, 64);
    close_gpu(g, "fork");
}

/* Each allocation in host memory fails once, together with all later ones: no crash, no leak. */
static void test_no_host_memory(void) {
    int64_t n = 0;
    int whole = 0;
    for (; n < 100 && !whole; n++) {
        const dv_gpu_desc desc = {.index = 0, .heap = heap};
        dv_gpu *g = NULL;
        dv_gpu_queue *q = NULL;
        dv_gpu_event *e = NULL;
        dv_gpu_graph *graph = NULL;
        const dvk_launch l = launch_of("alpha", "kernel");
        dv_alloc_fail_after(n);
        davy_result r = dv_gpu_open(&desc, &g);
        r = r < 0 ? r : dv_gpu_queue_take(g, NULL, &q);
        r = r < 0 ? r : dv_gpu_event_create(g, false, &e);
        int launched = r == DAVY_OK ? q->base.launch(&q->base, &l) : CU_OUT_OF_MEMORY;
        r = r < 0 || launched != 0 ? DAVY_E_NOMEM_HOST : dv_gpu_capture_begin(q);
        r = r < 0 ? r : dv_gpu_capture_end(q, &graph);
        dv_alloc_fail_after(-1);
        whole = r == DAVY_OK;
        CHECK(whole || (r == DAVY_E_NOMEM_HOST && launched % CU_OUT_OF_MEMORY == 0));
        dv_gpu_graph_release(graph);
        dv_gpu_event_release(e);
        dv_gpu_queue_give(q);
        close_gpu(g, "no host memory");
    }
    CHECK(whole && n > 5);
}

static void *worker(void *arg) {
    dv_gpu *g = arg;
    static const char *const names[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};
    for (int i = 0; i < 50; i++) {
        dv_gpu_queue *q = NULL;
        void *p = NULL;
        if (dv_gpu_queue_take(g, NULL, &q) != DAVY_OK ||
            dv_gpu_alloc(g, DV_MEM_WORKSPACE, 4096, "test", &p) != DAVY_OK) {
            return arg;
        }
        const dvk_launch l = launch_of(i % 2 ? "alpha" : "beta", names[i % 8]);
        if (q->base.launch(&q->base, &l) != 0 || dv_gpu_queue_wait(q, NULL, NULL) != DAVY_OK) {
            return arg;
        }
        dv_gpu_free(g, DV_MEM_WORKSPACE, p, 4096);
        dv_gpu_queue_give(q);
    }
    return NULL;
}

static void test_threads(void) {
    dv_gpu *g = open_gpu(0);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&thread[i], NULL, worker, g) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(thread[i], &failed);
        CHECK(failed == NULL);
    }
    CHECK(m->launches == 200 && m->loads == 2 && m->function_lookups <= 8 && m->streams <= 5);
    close_gpu(g, "threads");
}

int main(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    heap = dv_heap_create(NULL, 0);
    test_budget();
    test_out_of_memory(0);
    test_out_of_memory(1);
    test_host_callbacks();
    test_launch();
    test_reuse();
    test_lost();
    test_errors();
    test_host_context();
    test_fork();
    test_no_host_memory();
    test_threads();
    dv_heap_release(heap);
    return check_done();
}
