/* gpu_stream.c - work on the host's stream, stream-ordered or as a job, on a mock of the driver. Tests errors, that no call
 * waits, and that memory stays until late work is done. */
#include "tests/hosts/gpu/gpu_models.h"

static void stream_refused(const davy_tensor *in, davy_tensor out, davy_run run, davy_job **job, davy_result want,
                           const char *words) {
    run.struct_size = sizeof run;
    IS(api->upscale(model, in, &out, &run, job), want);
    SAYS(words);
}

static void streams_refused(void) {
    const davy_run ordered = {.flags = DAVY_RUN_STREAM_ORDERED, .stream = LEGACY};
    davy_buffer *a = NULL, *b = NULL, *c = NULL;
    davy_job *job = NULL;
    models_begin("cuda:0");
    const davy_tensor in = device_picture(3, SIDE, &a), out = device_picture(3, 2 * SIDE, &b);
    const davy_tensor host_in = host_picture(3, SIDE), rgba = device_picture(4, SIDE, &c);
    const davy_tensor wish = {.struct_size = sizeof wish, .memory = DAVY_MEMORY_CUDA};
    stream_refused(&in, out, (davy_run){.flags = DAVY_RUN_STREAM_ORDERED}, NULL, DAVY_E_INVALID, "needs a stream");
    stream_refused(&in, out, ordered, &job, DAVY_E_INVALID, "job");
    stream_refused(&host_in, out, ordered, NULL, DAVY_E_UNSUPPORTED, "the input is not");
    stream_refused(&in, host_picture(3, 2 * SIDE), ordered, NULL, DAVY_E_UNSUPPORTED, "the output is not");
    davy_tensor made = wish; /* the host does not read alpha */
    davy_run with_alpha = ordered;
    with_alpha.struct_size = sizeof with_alpha;
    IS(api->upscale(model, &rgba, &made, &with_alpha, NULL), DAVY_OK);
    api->buffer_release(made.buffer);
    davy_tensor latent = wish;
    with_alpha.flags |= DAVY_RUN_SAMPLE; /* a TAESD has none */
    IS(api->vae_encode(vae, &in, &latent, &with_alpha, NULL), DAVY_E_UNSUPPORTED);
    davy_run load = ordered;
    load.struct_size = sizeof load;
    IS(api->model_load(model, &load, NULL), DAVY_E_INVALID);
    CHECK(job == NULL);
    api->buffer_release(a);
    api->buffer_release(b);
    api->buffer_release(c);
    models_end("refused streams");
}

/* The host does not read moments for a sample either: stream-ordered, one more kernel follows the encoder. */
static void ordered_sample(void) {
    const synth_file file = synth_kl_encoder(9);
    const davy_run waiting = {.struct_size = sizeof waiting, .flags = DAVY_RUN_SAMPLE, .seed = 3};
    davy_run run = waiting;
    davy_model *kl = NULL;
    davy_buffer *a = NULL;
    models_begin("cuda:0");
    IS(host_open_files(api, ctx, &file, 1, &kl), DAVY_OK);
    const davy_tensor in = device_picture(3, SIDE, &a);
    davy_tensor out = {.struct_size = sizeof out, .memory = DAVY_MEMORY_CUDA};
    davy_tensor host = {.struct_size = sizeof host, .memory = DAVY_MEMORY_HOST};
    run.flags |= DAVY_RUN_STREAM_ORDERED;
    run.stream = LEGACY;
    IS(api->vae_encode(kl, &in, &host, &waiting, NULL), DAVY_OK);
    api->buffer_release(host.buffer);
    for (int i = 0; i < 3; i++) { /* weights, capture, replay */
        IS(api->vae_encode(kl, &in, &out, i == 0 ? &waiting : &run, NULL), DAVY_OK);
    }
    mock->lazy = 1;
    mock->not_ready = 100; /* reading the moments' memory does not mean that work is done */
    const int64_t syncs = mock->syncs, launches = mock->launches;
    IS(api->vae_encode(kl, &in, &out, &run, NULL), DAVY_OK);
    CHECKF(mock->syncs <= syncs + 1, "%lld waits, one is for memory", (long long)(mock->syncs - syncs));
    CHECKF(mock->launches == launches, "%lld launches are done already", (long long)(mock->launches - launches));
    mock->not_ready = 0;
    api->buffer_release(out.buffer);
    mock->lazy = 0;
    const mock_launch *last[2] = {&mock->launch[(mock->launches + MOCK_LAUNCHES - 2) % MOCK_LAUNCHES],
                                  &mock->launch[(mock->launches + MOCK_LAUNCHES - 1) % MOCK_LAUNCHES]};
    CHECKF(strcmp(last[0]->function, "posterior_draw") == 0 && strncmp(last[1]->function, "store", 5) == 0,
           "the last launches are %s and %s", last[0]->function, last[1]->function);
    api->buffer_release(a);
    api->model_release(kl);
    free(file.data);
    models_end("an ordered sample");
}

/* Late work: no call waits for it, and memory stays until it is done. */
static void ordered(void) {
    davy_run run = {.struct_size = sizeof run, .flags = DAVY_RUN_STREAM_ORDERED, .stream = LEGACY};
    davy_buffer *a = NULL, *b = NULL;
    models_begin("cuda:0");
    davy_tensor in = device_picture(3, SIDE, &a);
    in.buffer = a; /* set, so its memory stays until the work is done */
    davy_tensor out = device_picture(3, 2 * SIDE, &b);
    for (int i = 0; i < 3; i++) { /* weights, and other waits of a first run */
        IS(api->upscale(model, &in, &out, &run, NULL), DAVY_OK);
    }
    davy_tensor made = {.struct_size = sizeof made, .memory = DAVY_MEMORY_CUDA};
    IS(api->upscale(model, &in, &made, &run, NULL), DAVY_OK);
    api->buffer_release(made.buffer);
    mock->lazy = 1;
    const int64_t syncs = mock->syncs, launches = mock->launches;
    IS(api->upscale(model, &in, &out, &run, NULL), DAVY_OK);
    CHECKF(mock->syncs == syncs, "stream-ordered work waited %lld times", (long long)(mock->syncs - syncs));
    CHECKF(mock->launches == launches, "%lld launches are done already", (long long)(mock->launches - launches));
    made = (davy_tensor){.struct_size = sizeof made, .memory = DAVY_MEMORY_CUDA};
    IS(api->upscale(model, &in, &made, &run, NULL), DAVY_OK);
    const int64_t live = mock->live;
    mock->not_ready = 100;
    api->buffer_release(made.buffer);
    api->buffer_release(a);
    CHECKF(mock->live == live, "memory of late work has gone: %lld blocks, %lld before", (long long)mock->live,
           (long long)live);
    mock->not_ready = 0;
    run.flags = 0; /* now blocking */
    davy_buffer *c = NULL;
    const davy_tensor other = device_picture(3, SIDE, &c);
    IS(api->upscale(model, &other, &out, &run, NULL), DAVY_OK);
    CHECK(mock->launches > launches);
    CHECKF(mock->live < live, "memory of work that is done stays: %lld blocks", (long long)mock->live);
    mock->lazy = 0;
    api->buffer_release(b);
    api->buffer_release(c);
    models_end("late work");
}

static void jobs(void) {
    const davy_run run = {.struct_size = sizeof run, .stream = LEGACY};
    davy_buffer *a = NULL;
    davy_job *job = NULL;
    models_begin("cuda:0");
    const davy_tensor in = device_picture(3, SIDE, &a);
    davy_tensor out = {.struct_size = sizeof out, .memory = DAVY_MEMORY_CUDA};
    mock->not_ready = 20; /* the host's work on the stream is slow */
    IS(api->upscale(model, &in, &out, &run, &job), DAVY_OK);
    IS(api->job_wait(job, UINT64_MAX), DAVY_OK);
    api->job_release(job);
    api->buffer_release(out.buffer);
    mock->not_ready = 1000000; /* never ready: cancelled meanwhile */
    out = (davy_tensor){.struct_size = sizeof out, .memory = DAVY_MEMORY_CUDA};
    IS(api->upscale(model, &in, &out, &run, &job), DAVY_OK);
    IS(api->job_wait(job, 5000000), DAVY_PENDING);
    IS(api->job_cancel(job), DAVY_OK);
    IS(api->job_wait(job, UINT64_MAX), DAVY_E_CANCELLED);
    api->job_release(job);
    mock->not_ready = 0;
    api->buffer_release(out.buffer);
    api->buffer_release(a);
    models_end("jobs");
}

int main(void) {
    unsetenv("DAVY_DEVICE");
    mock_begin();
    if (!host_has_device_code(api, "hosts.gpu_stream")) {
        return check_done();
    }
    streams_refused();
    ordered();
    ordered_sample();
    jobs();
    return check_done();
}
