/* lifecycle.c - creation and release of objects: handles released in any order, the library closed while in use, a fork, two
 * hundred repetitions, and a budget that is too small. POSIX only (fork, dlopen). */
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hosts/host.h"

enum { WIDTH = 32, HEIGHT = 24, LIVES = 200, WARM_UP = 100 };

static const davy_api *api;

static davy_context *new_context(host_state *state, uint64_t budget, int32_t threads) {
    davy_host host = {.struct_size = sizeof host};
    davy_context_desc desc = {.struct_size = sizeof desc,
                              .abi_version = DAVY_ABI_VERSION,
                              .device = "cpu",
                              .host_budget_bytes = budget,
                              .n_threads = threads};
    if (state != NULL) {
        host = host_callbacks(state);
        desc.host = &host;
    }
    davy_context *ctx = NULL;
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    return ctx;
}

/* ---- release in any order ---- */

typedef struct family {
    davy_context *ctx;
    davy_model *model;
    davy_job *job;
    davy_buffer *buffer;
    davy_text *text;
} family;

static void release_member(family *f, int which) {
    switch (which) {
    case 0:
        api->context_release(f->ctx);
        break;
    case 1:
        api->model_release(f->model);
        break;
    case 2:
        api->job_release(f->job);
        break;
    case 3:
        api->buffer_release(f->buffer);
        break;
    default:
        api->text_release(f->text);
        break;
    }
}

/* Objects keep the objects they depend on: after the release of the context's handle a buffer can still be read, and so on. */
static void release_in_order(int order, const picture *in) {
    host_state state;
    host_state_init(&state);
    family f = {.ctx = new_context(&state, 0, 2)};
    if (f.ctx == NULL) {
        return;
    }
    IS(host_open_small(api, f.ctx, &f.model), DAVY_OK);
    davy_tensor src = host_tensor(in), dst = {.struct_size = sizeof dst};
    IS(api->upscale(f.model, &src, &dst, NULL, NULL), DAVY_OK);
    f.buffer = dst.buffer;
    picture out = picture_new(1, 2 * HEIGHT, 2 * WIDTH, 3);
    davy_tensor job_dst = host_tensor(&out);
    IS(api->upscale(f.model, &src, &job_dst, NULL, &f.job), DAVY_OK);
    const davy_inspect_1 *inspect = api->get_extension("davy.inspect/1");
    synth_file file = synth_compact(8, 1, 2, 3);
    davy_source source = {.struct_size = sizeof source, .data = file.data, .data_bytes = file.bytes, .name = "m"};
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    IS(inspect->describe(f.ctx, &desc, &f.text), DAVY_OK);
    free(file.data);
    int left[5] = {0, 1, 2, 3, 4};
    for (int n = 5, rest = order; n > 0; n--) { /* the order-th permutation */
        const int at = rest % n;
        rest /= n;
        release_member(&f, left[at]);
        memmove(left + at, left + at + 1, (size_t)(n - 1 - at) * sizeof left[0]);
    }
    CHECKF(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0, "order %d leaves %lld blocks",
           order, atomic_load(&state.blocks));
    picture_free(&out);
}

static void release_orders(void) {
    picture in = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&in, 1);
    for (int order = 0; order < 120; order++) {
        release_in_order(order, &in);
    }
    picture_free(&in);
}

/* Releasing an unfinished job: after the return no thread writes to the caller's memory. */
static void release_running_job(void) {
    davy_context *ctx = new_context(NULL, 0, 0);
    davy_model *m = NULL;
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    picture in = picture_new(1, 1200, 1200, 3), out = picture_new(1, 2400, 2400, 3);
    davy_tensor src = host_tensor(&in), dst = host_tensor(&out);
    davy_job *job = NULL;
    IS(api->upscale(m, &src, &dst, NULL, &job), DAVY_OK);
    api->model_release(m);
    api->context_release(ctx);
    host_sleep_ms(5);
    api->job_release(job);
    memset(out.v, 0x11, (size_t)picture_count(&out) * sizeof *out.v);
    host_sleep_ms(50);
    int64_t touched = 0;
    for (int64_t i = 0; i < picture_count(&out); i++) {
        touched += memcmp(&out.v[i], "\x11\x11\x11\x11", 4) != 0;
    }
    CHECKF(touched == 0, "%lld numbers were written after job_release", (long long)touched);
    picture_free(&in);
    picture_free(&out);
}

/* ---- the library is closed and opened again ---- */

static int mapped(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024];
    int found = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        found += strstr(line, "libdavy.so") != NULL;
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

static void unload(void) {
    const char *path = getenv("DAVY_LIBRARY");
    void *own = dlopen(path != NULL ? path : "libdavy.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!CHECKF(own != NULL, "dlopen: %s", dlerror())) {
        return;
    }
    davy_context *ctx = new_context(NULL, 0, 2);
    davy_model *m = NULL;
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    for (int i = 0; i < 8 && dlclose(own) == 0; i++) { /* also closes the handle of host_load() */
    }
    CHECKF(mapped() > 0, "the library was unmapped");
    picture in = picture_new(1, HEIGHT, WIDTH, 3), out = {0};
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
    picture_free(&out);
    api->model_release(m);
    api->context_release(ctx);
    void *again = dlopen(path != NULL ? path : "libdavy.so.1", RTLD_NOW | RTLD_LOCAL);
    if (CHECK(again != NULL)) {
        davy_get_api_fn get = NULL;
        void *symbol = dlsym(again, "davy_get_api");
        memcpy(&get, &symbol, sizeof get);
        CHECKF(get != NULL && get(DAVY_ABI_1_0) == api, "another table after opening again");
        CHECK(get(0x00020000) == NULL && get(0x00010000 | 0xffff) == NULL && get(0) == NULL);
    }
    picture_free(&in);
}

/* ---- fork ---- */

/* In the child: every call fails with E_FORKED, and releases are harmless. Exit status: the number of the first failed check.
 */
static int child(davy_context *ctx, davy_model *m) {
    picture in = picture_new(1, 4, 4, 3), out = picture_new(1, 8, 8, 3);
    davy_tensor src = host_tensor(&in), dst = host_tensor(&out);
    davy_memory_info memory = {.struct_size = sizeof memory};
    davy_model_info info = {.struct_size = sizeof info};
    davy_model *other = NULL;
    davy_job *job = NULL;
    davy_error_info e = {.struct_size = sizeof e};
    if (api->upscale(m, &src, &dst, NULL, NULL) != DAVY_E_FORKED) {
        return 1;
    }
    if (api->last_error(&e) != DAVY_OK || e.code != DAVY_E_FORKED || e.message[0] == '\0') {
        return 2;
    }
    if (api->upscale(m, &src, &dst, NULL, &job) != DAVY_E_FORKED || job != NULL) {
        return 3;
    }
    if (api->context_memory(ctx, &memory) != DAVY_E_FORKED || api->model_info(m, &info) != DAVY_E_FORKED) {
        return 4;
    }
    if (host_open_small(api, ctx, &other) != DAVY_E_FORKED) {
        return 5;
    }
    api->model_release(m);
    api->context_release(ctx);
    davy_context *fresh = NULL; /* a new context in the child works */
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    if (api->context_create(&desc, &fresh) != DAVY_OK || host_open_small(api, fresh, &other) != DAVY_OK ||
        api->upscale(other, &src, &dst, NULL, NULL) != DAVY_OK) {
        return 6;
    }
    api->model_release(other);
    api->context_release(fresh);
    return 0;
}

static void fork_child(void) {
    davy_context *ctx = new_context(NULL, 0, 2);
    davy_model *m = NULL;
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    picture in = picture_new(1, HEIGHT, WIDTH, 3), out = {0};
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
    picture_free(&out);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* a child that waits for missing threads fails, too */
        _exit(child(ctx, m));
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "in a forked child: step %d%s",
           WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? " (signal)" : "");
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK); /* the parent is not affected */
    picture_free(&out);
    picture_free(&in);
    api->model_release(m);
    api->context_release(ctx);
}

/* ---- repetitions ---- */

static long resident_kib(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;
    if (f != NULL) {
        if (fscanf(f, "%ld %ld", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(f);
    }
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void lives(void) {
    picture in = picture_new(1, HEIGHT, WIDTH, 3);
    size_t heap_before = 0;
    long resident_before = 0;
    for (int i = 0; i < LIVES; i++) {
        if (i == WARM_UP) {
            heap_before = mallinfo2().uordblks;
            resident_before = resident_kib();
        }
        davy_context *ctx = new_context(NULL, 0, 2);
        davy_model *m = NULL;
        picture out = {0};
        IS(host_open_small(api, ctx, &m), DAVY_OK);
        IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
        picture_free(&out);
        api->model_release(m);
        api->context_release(ctx);
    }
    const long long heap_more = (long long)mallinfo2().uordblks - (long long)heap_before;
    const long resident_more = resident_kib() - resident_before;
    printf("  %d lives: heap %+lld bytes, resident %+ld KiB\n", LIVES - WARM_UP, heap_more, resident_more);
    if (host_heap_is_exact()) {
        CHECKF(heap_more < LIVES - WARM_UP, "%d lives leave %lld bytes", LIVES - WARM_UP, heap_more);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECKF(resident_more < 8192, "%d lives leave %ld KiB resident", LIVES - WARM_UP, resident_more);
#endif
    picture_free(&in);
}

int main(void) {
    api = host_load();
    release_orders();
    release_running_job();
    fork_child();
    lives();
    unload();
    return check_done();
}
