/* test_mem.c - allocation: overflow, injected failures, budgets, the host's allocator, eight threads at one budget. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "tests/lib/check.h"
#include "tests/lib/hooks.h"

static void test_small(void) {
    CHECK(dv_calloc(UINT64_MAX, 2) == NULL);
    CHECK(dv_calloc(UINT64_MAX / 2, 2) == NULL);
    CHECK(dv_realloc(NULL, UINT64_MAX / 4, 8) == NULL);
    void *none = dv_calloc(0, 8);
    CHECK(none != NULL);
    dv_free(none);
    char *s = dv_sprintf("%s-%d", "x", 42);
    CHECK(s != NULL && strcmp(s, "x-42") == 0);
    char *cut = dv_strndup("hello", 3);
    char *all = dv_strndup("hello", 30);
    CHECK(cut != NULL && strcmp(cut, "hel") == 0);
    CHECK(all != NULL && strcmp(all, "hello") == 0);
    dv_free(s);
    dv_free(cut);
    dv_free(all);
    dv_free(NULL);
}

static void test_grow(void) {
    int64_t capacity = 0;
    int32_t *a = NULL;
    for (int32_t i = 0; i < 1000; i++) {
        int32_t *grown = dv_grow(a, i + 1, &capacity, sizeof *a);
        if (!CHECK(grown != NULL)) {
            break;
        }
        a = grown;
        a[i] = i;
    }
    CHECK(capacity >= 1000 && a[0] == 0 && a[999] == 999);
    CHECK(dv_grow(a, INT64_MAX, &capacity, sizeof *a) == NULL && a[999] == 999);
    dv_free(a);
}

static void test_injection(void) {
    dv_alloc_fail_after(2);
    void *a = dv_calloc(1, 8);
    void *b = dv_strdup("b");
    CHECK(a != NULL && b != NULL && dv_calloc(1, 8) == NULL && dv_calloc(1, 8) == NULL);
    dv_heap *none = dv_heap_create(NULL, 0);
    CHECK(none == NULL);
    dv_alloc_fail_after(-1);
    dv_heap *heap = dv_heap_create(NULL, 0);
    if (CHECK(heap != NULL)) {
        void *p = NULL;
        dv_alloc_fail_after(0);
        CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 100, "weights", &p) == DAVY_E_NOMEM_HOST && p == NULL);
        dv_alloc_fail_after(-1);
        CHECK(dv_heap_used(heap, DV_MEM_WEIGHTS) == 0);
        CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 100, "weights", &p) == DAVY_OK);
        dv_heap_free(heap, DV_MEM_WEIGHTS, p, 100);
    }
    dv_heap_release(heap);
    dv_free(a);
    dv_free(b);
}

static void test_budget(void) {
    dv_heap *heap = dv_heap_create(NULL, 1000);
    void *a = NULL;
    void *b = NULL;
    if (!CHECK(heap != NULL)) {
        return;
    }
    CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 600, "a", &a) == DAVY_OK && (uintptr_t)a % 64 == 0);
    memset(a, 1, 600);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, 401, "b", &b) == DAVY_E_BUDGET && b == NULL);
    davy_error_info info;
    dv_error_get(&info);
    CHECK(strstr(info.message, "401") != NULL && strstr(info.message, "600") != NULL &&
          strstr(info.message, "1000") != NULL);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, UINT64_MAX - 10, "b", &b) == DAVY_E_BUDGET);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, 400, "b", &b) == DAVY_OK);
    CHECK(dv_heap_used(heap, DV_MEM_WEIGHTS) == 600 && dv_heap_used(heap, DV_MEM_WORKSPACE) == 400);
    dv_heap_free(heap, DV_MEM_WORKSPACE, b, 400);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0 && dv_heap_peak(heap) == 1000);
    dv_heap_set_budget(heap, 500); /* below the bytes in use: no allocation succeeds until some are freed */
    CHECK(dv_heap_budget(heap) == 500 && dv_heap_alloc(heap, DV_MEM_WORKSPACE, 1, "c", &b) == DAVY_E_BUDGET);
    dv_heap_free(heap, DV_MEM_WEIGHTS, a, 600);
    dv_heap_free(heap, DV_MEM_WEIGHTS, NULL, 600);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, 500, "c", &b) == DAVY_OK);
    dv_heap_free(heap, DV_MEM_WORKSPACE, b, 500);
    CHECK(dv_heap_claim(heap, DV_MEM_WORKSPACE, 501, "d") == DAVY_E_BUDGET);
    CHECK(dv_heap_claim(heap, DV_MEM_WORKSPACE, 200, "d") == DAVY_OK && dv_heap_used(heap, DV_MEM_WORKSPACE) == 200);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, 301, "c", &b) == DAVY_E_BUDGET);
    dv_heap_unclaim(heap, DV_MEM_WORKSPACE, 200);
    dv_heap_set_budget(heap, 0);
    CHECK(dv_heap_alloc(heap, DV_MEM_WORKSPACE, (uint64_t)1 << 63, "d", &b) == DAVY_E_NOMEM_HOST);
    CHECK(dv_heap_used(heap, DV_MEM_WEIGHTS) == 0 && dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    dv_heap_release(heap);
    dv_heap_release(NULL);
}

typedef struct host_count {
    int64_t live;
    uint64_t bytes;
    bool refuse;
    bool misalign;
} host_count;

static void *DAVY_CALL host_alloc(void *user, size_t bytes, size_t align) {
    host_count *h = user;
    if (h->refuse) {
        return NULL;
    }
    char *p = dv_aligned_alloc(bytes + 64, align);
    if (p != NULL) {
        h->live++;
        h->bytes += bytes;
    }
    return p == NULL || !h->misalign ? p : p + 8;
}

static void DAVY_CALL host_free(void *user, void *p, size_t bytes) {
    host_count *h = user;
    h->live--;
    h->bytes -= bytes;
    dv_aligned_free(h->misalign ? (char *)p - 8 : (char *)p);
}

static void test_host(void) {
    host_count count = {0};
    const davy_host host = {.struct_size = sizeof host, .user = &count, .alloc = host_alloc, .free = host_free};
    dv_heap *heap = dv_heap_create(&host, 0);
    void *p = NULL;
    if (!CHECK(heap != NULL)) {
        return;
    }
    CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 0, "empty", &p) == DAVY_OK && p != NULL && count.live == 1);
    dv_heap_free(heap, DV_MEM_WEIGHTS, p, 0);
    CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 1001, "w", &p) == DAVY_OK && count.live == 1);
    memset(p, 0, 1001);
    dv_heap_free(heap, DV_MEM_WEIGHTS, p, 1001);
    CHECK(count.live == 0 && count.bytes == 0);
    count.refuse = true;
    CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 10, "w", &p) == DAVY_E_NOMEM_HOST);
    count.refuse = false;
    count.misalign = true;
    CHECK(dv_heap_alloc(heap, DV_MEM_WEIGHTS, 10, "w", &p) == DAVY_E_INVALID);
    CHECK(count.live == 0 && dv_heap_used(heap, DV_MEM_WEIGHTS) == 0);
    dv_heap_release(heap);
}

typedef struct contest {
    dv_heap *heap;
    _Atomic int64_t granted;
    _Atomic int64_t refused;
} contest;

static void contend(void *arg) {
    contest *c = arg;
    for (int i = 0; i < 500; i++) {
        void *p = NULL;
        if (dv_heap_alloc(c->heap, DV_MEM_WORKSPACE, 300, "part", &p) == DAVY_OK) {
            atomic_fetch_add(&c->granted, 1);
            memset(p, i, 300);
            dv_heap_free(c->heap, DV_MEM_WORKSPACE, p, 300);
        } else {
            atomic_fetch_add(&c->refused, 1);
        }
    }
}

static void test_threads(void) {
    contest c = {.heap = dv_heap_create(NULL, 1000)};
    dv_thread *t[8] = {NULL};
    int started = 0;
    if (!CHECK(c.heap != NULL)) {
        return;
    }
    while (started < 8 && CHECK(dv_thread_start(contend, &c, "test", &t[started]) == DAVY_OK)) {
        started++;
    }
    for (int i = 0; i < started; i++) {
        dv_thread_join(t[i]);
    }
    CHECK(c.granted + c.refused == 8 * 500 && c.granted > 0);
    CHECK(dv_heap_peak(c.heap) <= 1000 && dv_heap_used(c.heap, DV_MEM_WORKSPACE) == 0);
    dv_heap_release(c.heap);
}

int main(void) {
    test_small();
    test_grow();
    test_injection();
    test_budget();
    test_host();
    test_threads();
    return check_done();
}
