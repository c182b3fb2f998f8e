/* alloc_fail.c - each allocation fails once: davy's small allocations, the host's callback, and each malloc of the process (also
 * cJSON's). Each time the call must return E_NOMEM_HOST with a message and leak nothing. The same context must then do the same
 * work. With the arguments "cuda:0" and the test's name it uses a mock of the driver. The mock computes nothing and allocates
 * memory itself, so pictures and malloc are not checked. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "tests/fault/life.h"
#include "tests/lib/hooks.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OTHER_MALLOC 1 /* a sanitizer's; it cannot be replaced */
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OTHER_MALLOC 1
#endif

enum { MOST = 100000 };

static const davy_api *api;
static host_state state;
static const char *device = "cpu";
static bool on_cpu = true;

#if !defined(OTHER_MALLOC)
/* ---- every malloc of the process: replaces glibc's ---- */

static atomic_llong malloc_left = -1; /* negative: never fails */

static bool malloc_fails(void) {
    long long n = atomic_load(&malloc_left);
    while (n > 0 && !atomic_compare_exchange_weak(&malloc_left, &n, n - 1)) {
    }
    errno = n == 0 ? ENOMEM : errno;
    return n == 0;
}

/* Visible to the libraries: the build hides functions without this mark. */
#define EVERYBODYS __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

EVERYBODYS void *malloc(size_t bytes) {
    return malloc_fails() ? NULL : __libc_malloc(bytes);
}

EVERYBODYS void *calloc(size_t count, size_t bytes) {
    return malloc_fails() ? NULL : __libc_calloc(count, bytes);
}

EVERYBODYS void *realloc(void *p, size_t bytes) {
    return malloc_fails() ? NULL : __libc_realloc(p, bytes);
}

EVERYBODYS void *aligned_alloc(size_t align, size_t bytes) {
    return malloc_fails() ? NULL : __libc_memalign(align, bytes);
}

EVERYBODYS int posix_memalign(void **out, size_t align, size_t bytes) {
    void *p = malloc_fails() ? NULL : __libc_memalign(align, bytes);
    if (p == NULL) {
        return 12; /* ENOMEM */
    }
    *out = p;
    return 0;
}
#endif

/* ---- the kinds of allocations that fail ---- */

static void arm_small(long long n) {
    dv_alloc_fail_after(n);
}

static void arm_host(long long n) {
    atomic_store(&state.fail_from, n < 0 ? -1 : atomic_load(&state.allocations) + n);
}

#if !defined(OTHER_MALLOC)
static void arm_malloc(long long n) {
    atomic_store(&malloc_left, n);
}
#endif

typedef struct shortage {
    const char *name;
    void (*arm)(long long n); /* the allocations after n more fail; negative: off */
} shortage;

static const shortage shortages[] = {
    {"small allocations", arm_small},
    {"the host's callback", arm_host},
#if !defined(OTHER_MALLOC)
    {"malloc", arm_malloc},
#endif
};

static bool is_nomem(davy_result r) {
    davy_error_info info = {.struct_size = sizeof info};
    api->last_error(&info);
    return r == DAVY_E_NOMEM_HOST && (info.code != r || strlen(info.message) >= 8);
}

static long long heap_bytes(void) {
    return (long long)mallinfo2().uordblks;
}

/* One sweep: n increases until a whole life succeeds. Returns the number of failures. */
static int sweep(life *l, const shortage *s) {
    int failures = 0, wrong = 0;
    davy_result r = DAVY_E_INTERNAL;
    api->context_trim(l->ctx, 0, 0);
    const long long lent = atomic_load(&state.bytes);
    for (long long n = 0; n < MOST; n++, failures++) {
        s->arm(n);
        r = life_live(l);
        s->arm(-1);
        if (r == DAVY_OK) {
            break;
        }
        if (!is_nomem(r) && wrong++ < 5) {
            CHECKF(0, "%s, number %lld: %s (%s)", s->name, n, api->result_name(r), host_error(api));
        }
        api->context_trim(l->ctx, 0, 0);
        CHECKF(atomic_load(&state.bytes) == lent, "%s, number %lld: %lld bytes of the host are not given back", s->name,
               n, atomic_load(&state.bytes) - lent);
    }
    CHECKF(failures > 0, "%s: nothing ever failed", s->name);
    CHECKF(r == DAVY_OK && (!on_cpu || life_right(l, 0)), "%s: a life with enough memory ends with %s", s->name,
           api->result_name(r));
    api->context_trim(l->ctx, 0, 0);
    return failures;
}

/* In an existing context. The first sweep fills the allocator's caches; the second must leak nothing. */
static void in_context(life *l, const shortage *s) {
    sweep(l, s);
    const long long before = heap_bytes();
    const int failures = sweep(l, s);
    const long long more = heap_bytes() - before;
    printf("  %s%s: %d failures, heap %+lld bytes\n", s->name,
           l->as_job     ? ", as a job"
           : l->as_frame ? ", as a frame"
                         : "",
           failures, more);
    if (on_cpu && host_heap_is_exact()) { /* the mock allocates in the same heap */
        CHECKF(more < failures, "%s: %d failures leave %lld bytes", s->name, failures, more);
    }
}

/* The creation of a context. */
static void of_context(const shortage *s) {
    const davy_host host = host_callbacks(&state);
    const davy_option options[] = {{"models_dir", "/nowhere"}};
    const davy_context_desc desc = {.struct_size = sizeof desc,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .host = &host,
                                    .device = device,
                                    .n_threads = 3,
                                    .options = options,
                                    .n_options = 1};
    int failures = 0;
    for (long long n = 0; n < MOST; n++) {
        davy_context *ctx = NULL;
        s->arm(n);
        const davy_result r = api->context_create(&desc, &ctx);
        s->arm(-1);
        if (r == DAVY_OK) {
            api->context_release(ctx);
            break;
        }
        failures++;
        CHECKF(is_nomem(r) && ctx == NULL, "context, %s, number %lld: %s", s->name, n, api->result_name(r));
    }
    printf("  context, %s: %d failures\n", s->name, failures);
    CHECKF(s->arm == arm_host || failures > 0, "context, %s: nothing ever failed", s->name);
    CHECK(atomic_load(&state.blocks) == 0);
}

int main(int argc, char **argv) {
    device = argc > 1 ? argv[1] : device;
    on_cpu = strcmp(device, "cpu") == 0;
    api = davy_get_api(DAVY_ABI_1_0);
    if (!on_cpu && !host_has_device_code(api, argc > 2 ? argv[2] : argv[0])) {
        return check_done();
    }
    host_state_init(&state);
    state.level = DAVY_LOG_DEBUG;
    const size_t n_shortages = on_cpu ? sizeof shortages / sizeof shortages[0] : 2;
    for (size_t i = 0; i < n_shortages; i++) {
        of_context(&shortages[i]);
    }
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .host = &host, .device = device, .n_threads = 2};
    davy_context *ctx = NULL;
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    if (ctx == NULL) {
        return check_done();
    }
    life l;
    life_begin(&l, api, ctx);
    IS(life_live(&l), DAVY_OK);
    CHECK(!on_cpu || life_right(&l, 0));
    for (size_t i = 0; i < (size_t)life_ways * n_shortages; i++) {
        l.as_job = i % (size_t)life_ways == 1;
        l.as_frame = i % (size_t)life_ways == 2;
        in_context(&l, &shortages[i / (size_t)life_ways]);
    }
    life_end(&l);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0);
    return check_done();
}
