/* test_gpu_completion_ring.c - the completion ring of gpu.h, on the mock. */
#include "kernels/lm.h"
#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

typedef struct telling {
    uint64_t *ring;
    uint32_t i;
    int32_t number;
} telling;

static void tell(void *argument) {
    const telling *t = argument;
    t->ring[t->i % DVK_COMPLETION_SLOTS] = (uint64_t)t->i << 32 | (uint32_t)t->number;
}

static void enqueue(dv_gpu_queue *q, telling *t) {
    static void (*const call)(void *argument) = tell;
    void *params[] = {(void *)(uintptr_t)&call, &t};
    dvk_launch l = launch_of("alpha", "host_call");
    l.params = params;
    CHECK(q->base.launch(&q->base, &l) == 0);
}

/* Numbers from `first` on, two under way at a time. */
static void talk(dv_gpu_queue *q, dv_gpu_completion_ring *told, uint32_t first) {
    telling t[20];
    for (uint32_t i = 0; i < 20; i++) {
        t[i] = (telling){dv_gpu_completion_ring_data(told), first + i, i % 3 == 2 ? -1 : (int32_t)(i * 1000003)};
        enqueue(q, &t[i]);
        OK(dv_gpu_completion_ring_mark(told, q, first + i));
        for (uint32_t k = i - 1; i > 0 && k < i + (i == 19); k++) {
            int32_t number = 77;
            OK(dv_gpu_completion_ring_read(told, q, first + k, &number));
            CHECKF(number == t[k].number, "%u: %d", first + k, (int)number);
        }
    }
}

static void test_told(int lazy) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    dv_gpu_completion_ring *told = NULL;
    int32_t number = 0;
    m->lazy = lazy; /* lazy: the kernels run only when the host sleeps */
    OK(dv_gpu_queue_take(g, NULL, &q));
    OK(dv_gpu_completion_ring_create(g, &told));
    talk(q, told, 1);
    talk(q, told, 21);
    talk(q, told, 0xfffffff5u);
    CHECK(dv_gpu_completion_ring_read(told, q, 500, &number) == DAVY_E_INTERNAL);
    OK(dv_gpu_queue_wait(q, NULL, NULL));
    dv_gpu_completion_ring_release(told);
    dv_gpu_queue_give(q);
    close_gpu(g, lazy ? "told late" : "told");
}

/* A lost device writes no numbers, and the host does not wait forever. */
static void test_lost(void) {
    dv_gpu *g = open_gpu(0);
    dv_gpu_queue *q = NULL;
    dv_gpu_completion_ring *told = NULL;
    int32_t number = 0;
    telling t = {NULL, 1, 5};
    OK(dv_gpu_queue_take(g, NULL, &q));
    OK(dv_gpu_completion_ring_create(g, &told));
    t.ring = dv_gpu_completion_ring_data(told);
    m->lazy = 1;
    m->fail_launch_at = 1;
    m->fail_launch_with = 700;
    enqueue(q, &t);
    CHECK(dv_gpu_completion_ring_read(told, q, 1, &number) == DAVY_E_DEVICE_LOST);
    dv_gpu_completion_ring_release(told);
    dv_gpu_queue_give(q);
    dv_gpu_release(g);
    mock_call("mock_reset");
}

int main(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    heap = dv_heap_create(NULL, 0);
    test_told(0);
    test_told(1);
    test_lost();
    dv_heap_release(heap);
    return check_done();
}
