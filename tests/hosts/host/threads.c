/* threads.c - many threads in one library: parallel contexts, one model used by eight threads, results that do not depend on the
 * number of threads. Runs under ThreadSanitizer too. */
#include "tests/hosts/host/threads_host.h"

enum { WIDTH = 97, HEIGHT = 71, RUNNERS = 8 };

static void thread_counts(const picture *in, picture *want) {
    static const int32_t counts[] = {1, 2, 3, 7, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        davy_context *ctx = new_context(counts[i]);
        davy_model *m = new_model(ctx);
        picture out = {0};
        IS(host_upscale(api, m, in, NULL, &out), DAVY_OK);
        if (i == 0) {
            *want = out;
        } else {
            CHECKF(same(&out, want), "%d threads give another result than one", (int)counts[i]);
            picture_free(&out);
        }
        api->model_release(m);
        api->context_release(ctx);
    }
}

/* The same for a VAE, whose decoder ends with other kernels than an upscaler. */
static void vae_thread_counts(void) {
    static const int32_t counts[] = {1, 5};
    synth_file decoder = synth_taesd(1, 4);
    picture latent = picture_new(1, 9, 14, 4), out[2];
    picture_fill(&latent, 8);
    const davy_tensor src = host_tensor(&latent);
    for (int i = 0; i < 2; i++) {
        davy_context *ctx = new_context(counts[i]);
        davy_model *m = NULL;
        IS(host_open_files(api, ctx, &decoder, 1, &m), DAVY_OK);
        out[i] = picture_new(1, 72, 112, 3);
        davy_tensor dst = host_tensor(&out[i]);
        IS(api->vae_decode(m, &src, &dst, NULL, NULL), DAVY_OK);
        api->model_release(m);
        api->context_release(ctx);
    }
    CHECKF(same(&out[0], &out[1]), "decoding depends on the number of threads");
    picture_free(&out[0]);
    picture_free(&out[1]);
    picture_free(&latent);
    free(decoder.data);
}

typedef struct runner {
    davy_context *ctx; /* NULL: creates one */
    davy_model *model;
    const picture *in, *want;
    int rounds, different, failed, wrong_error;
} runner;

static void *run_rounds(void *arg) {
    runner *r = arg;
    davy_context *ctx = r->ctx;
    davy_model *m = r->model;
    if (ctx == NULL) {
        const davy_context_desc desc = {
            .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu", .n_threads = 2};
        r->failed += api->context_create(&desc, &ctx) != DAVY_OK;
        r->failed += host_open_files(api, ctx, &file, 1, &m) != DAVY_OK;
    }
    for (int i = 0; i < r->rounds; i++) {
        picture out = {0};
        if (host_upscale(api, m, r->in, NULL, &out) != DAVY_OK) {
            r->failed++;
            continue;
        }
        r->different += !same(&out, r->want);
        picture_free(&out);
        /* The error record belongs to this thread; other threads do not change it. */
        davy_error_info info = {.struct_size = sizeof info};
        api->job_cancel(NULL);
        host_sleep_ms(1);
        api->last_error(&info);
        r->wrong_error += info.code != DAVY_E_INVALID;
    }
    if (r->ctx == NULL) {
        api->model_release(m);
        api->context_release(ctx);
    }
    return NULL;
}

static void run_together(runner *runners, int n, const char *what) {
    pthread_t threads[RUNNERS];
    for (int i = 0; i < n; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_rounds, &runners[i]) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        CHECKF(runners[i].failed == 0 && runners[i].different == 0 && runners[i].wrong_error == 0,
               "%s, thread %d: %d failed, %d different, %d foreign errors", what, i, runners[i].failed,
               runners[i].different, runners[i].wrong_error);
    }
}

static void two_contexts(const picture *in, const picture *want) {
    runner r[2] = {{.in = in, .want = want, .rounds = 6}, {.in = in, .want = want, .rounds = 6}};
    run_together(r, 2, "two contexts");
}

static void *unload_often(void *arg) {
    const runner *r = arg;
    for (int i = 0; i < 40; i++) {
        api->model_unload(r->model, 0);
        api->context_trim(r->ctx, 0, 0);
        davy_memory_info info = {.struct_size = sizeof info};
        api->context_memory(r->ctx, &info);
        host_sleep_ms(2);
    }
    return NULL;
}

/* Eight threads use one model. It is not loaded at first, so all load it at once. A ninth thread unloads its weights.
 */
static void one_model(const picture *in, const picture *want) {
    davy_context *ctx = new_context(2);
    davy_model *m = new_model(ctx);
    runner r[RUNNERS];
    for (int i = 0; i < RUNNERS; i++) {
        r[i] = (runner){.ctx = ctx, .model = m, .in = in, .want = want, .rounds = 5};
    }
    pthread_t ninth;
    CHECK(pthread_create(&ninth, NULL, unload_often, &r[0]) == 0);
    run_together(r, RUNNERS, "one model");
    pthread_join(ninth, NULL);
    api->model_release(m);
    api->context_release(ctx);
}

int main(void) {
    api = host_load();
    file = synth_compact(24, 4, 2, 17);
    picture in = picture_new(1, HEIGHT, WIDTH, 3), want = {0};
    picture_fill(&in, 3);
    thread_counts(&in, &want);
    vae_thread_counts();
    if (want.v != NULL) {
        two_contexts(&in, &want);
        one_model(&in, &want);
    }
    picture_free(&in);
    picture_free(&want);
    free(file.data);
    return check_done();
}
