/* loading.c - one thread loads a captioning model while other threads use it: no call waits longer than its timeout. Usage:
 * loading MODEL_FOLDER */
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/hosts/host/threads_host.h"

enum { SIDE = 32, SOON_MS = 2000, LONG_MS = 10000, RATE_MS = 60 };

typedef struct loader {
    davy_model *model;
    davy_tensor image;
    davy_result r;
    int calls;
    atomic_bool inside, go;
} loader;

static void wait_for(const atomic_bool *what) {
    for (int ms = 0; ms < LONG_MS && !atomic_load(what); ms++) {
        host_sleep_ms(1);
    }
}

/* The second call is in the middle of loading; it is slow. */
static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    loader *l = user;
    (void)done;
    (void)total;
    if (++l->calls == 1) {
        host_sleep_ms(RATE_MS);
    } else if (l->calls == 2 && strcmp(stage, "load") == 0) {
        atomic_store(&l->inside, true);
        wait_for(&l->go);
    }
    return 0;
}

static davy_result caption(const loader *l, const davy_run *run) {
    const davy_tensor *const images[] = {&l->image};
    const davy_caption_params params = {.struct_size = sizeof params, .max_tokens = 2, .context_tokens = 200};
    davy_text *text = NULL;
    const davy_result r = api->caption(l->model, 1, images, &params, run, NULL, &text);
    api->text_release(text);
    return r;
}

static void *load(void *arg) {
    loader *l = arg;
    const davy_run run = {.struct_size = sizeof run, .progress = on_progress, .progress_user = l};
    l->r = caption(l, &run);
    return NULL;
}

static void soon(uint64_t start_ns, const char *what) {
    const double ms = (double)(host_now_ns() - start_ns) * 1e-6;
    CHECKF(ms < SOON_MS, "%s took %.0f ms while another thread loads the model", what, ms);
}

int main(int argc, char **argv) {
    api = host_load();
    davy_context *ctx = new_context(1);
    const davy_source source = {.struct_size = sizeof source, .path = argc > 1 ? argv[1] : ""};
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    picture in = picture_new(1, SIDE, SIDE, 3);
    loader l = {.image = host_tensor(&in)};
    pthread_t thread;
    IS(api->model_open(ctx, &desc, &l.model), DAVY_OK);
    CHECK(pthread_create(&thread, NULL, load, &l) == 0);
    wait_for(&l.inside);
    CHECK(atomic_load(&l.inside));
    uint64_t start = host_now_ns();
    IS(api->context_trim(ctx, 0, 0), DAVY_OK);
    IS(api->model_unload(l.model, 0), DAVY_OK);
    soon(start, "giving memory back");
    const davy_run little = {.struct_size = sizeof little, .timeout_ns = 50u * 1000000u};
    start = host_now_ns();
    IS(caption(&l, &little), DAVY_E_TIMEOUT);
    soon(start, "a caption with 50 ms");
    atomic_store(&l.go, true);
    pthread_join(thread, NULL);
    IS(l.r, DAVY_OK);
    IS(caption(&l, NULL), DAVY_OK);
    api->model_release(l.model);
    api->context_release(ctx);
    picture_free(&in);
    return check_done();
}
