/* gpu_work.c - calls with a GPU: tensors in its memory, jobs, a lost device. It uses a mock of the driver and checks the calls to
 * the driver. gpu_real.c checks the results, gpu_stream.c streams. */
#include <pthread.h>

#include "tests/hosts/gpu/gpu_models.h"

/* ---- tensors ---- */

static void refused(davy_tensor in, davy_tensor out, davy_result want, const char *words) {
    const davy_tensor before = out;
    IS(api->upscale(model, &in, &out, NULL, NULL), want);
    SAYS(words);
    CHECK(memcmp(&before, &out, sizeof out) == 0);
}

static void tensors(void) {
    davy_buffer *a = NULL, *b = NULL;
    models_begin("cuda:0");
    const davy_tensor in = device_picture(3, SIDE, &a), out = device_picture(3, 2 * SIDE, &b);
    const davy_tensor host_in = host_picture(3, SIDE), wish = {.struct_size = sizeof wish};
    davy_tensor t = out;
    IS(api->upscale(model, &in, &t, NULL, NULL), DAVY_OK); /* device to device, and the other three combinations */
    t = host_picture(3, 2 * SIDE);
    IS(api->upscale(model, &in, &t, NULL, NULL), DAVY_OK);
    t = out;
    IS(api->upscale(model, &host_in, &t, NULL, NULL), DAVY_OK);
    t = host_in;
    t.memory = DAVY_MEMORY_HOST_PINNED;
    davy_tensor made = wish;
    IS(api->upscale(model, &t, &made, NULL, NULL), DAVY_OK);
    CHECK(made.memory == DAVY_MEMORY_BUFFER && made.buffer != NULL);
    api->buffer_release(made.buffer);

    t = in;
    t.device = 1;
    refused(t, out, DAVY_E_INVALID, "cuda:1");
    t = in;
    t.memory = DAVY_MEMORY_CUDA_ARRAY;
    refused(t, out, DAVY_E_UNSUPPORTED, "CUDA arrays");
    t = host_in;
    t.memory = DAVY_MEMORY_CUDA; /* but it is host memory */
    refused(t, out, DAVY_E_INVALID, "is not memory of cuda:");
    t = in;
    t.shape[0] = 1 << 20; /* starts in the block, ends far outside */
    refused(t, out, DAVY_E_INVALID, "is not memory of cuda:");
    refused(in, in, DAVY_E_SHAPE, "expected");
    t = out;
    t.data = in.data;
    t.shape[0] = t.shape[1] = 2 * SIDE;
    refused(in, t, DAVY_E_INVALID, "");
    t = wish;
    t.memory = DAVY_MEMORY_HOST_PINNED;
    refused(in, t, DAVY_E_UNSUPPORTED, "cannot allocate");
    davy_buffer *c = NULL;
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_HOST_PINNED, 64, &c), DAVY_E_UNSUPPORTED);
    SAYS("HOST and CUDA");
    api->buffer_release(a);
    api->buffer_release(b);
    models_end("tensors");
}

/* A result allocated on the device is the input of the next call, as a buffer and by its address. */
static void chains(void) {
    models_begin("cuda:0");
    const davy_tensor in = host_picture(3, SIDE);
    davy_tensor latent = {.struct_size = sizeof latent, .memory = DAVY_MEMORY_CUDA};
    davy_tensor pixels = {.struct_size = sizeof pixels, .memory = DAVY_MEMORY_CUDA, .dtype = DAVY_DTYPE_U8};
    IS(api->vae_encode(vae, &in, &latent, NULL, NULL), DAVY_OK);
    CHECK(latent.memory == DAVY_MEMORY_CUDA && latent.device == 0 && latent.buffer != NULL && latent.data != 0);
    CHECK(latent.shape[0] == SIDE / 8 && latent.shape[2] == 4 && latent.dtype == DAVY_DTYPE_F32);
    IS(api->vae_decode(vae, &latent, &pixels, NULL, NULL), DAVY_OK);
    CHECK(pixels.shape[0] == SIDE && pixels.dtype == DAVY_DTYPE_U8 && pixels.memory == DAVY_MEMORY_CUDA);
    davy_tensor again = pixels;
    again.memory = DAVY_MEMORY_BUFFER;
    davy_tensor out = {.struct_size = sizeof out};
    IS(api->upscale(model, &again, &out, NULL, NULL), DAVY_OK);
    CHECK(out.memory == DAVY_MEMORY_BUFFER);
    again.memory = DAVY_MEMORY_HOST; /* wrong: it is device memory */
    davy_tensor none = {.struct_size = sizeof none};
    IS(api->upscale(model, &again, &none, NULL, NULL), DAVY_E_INVALID);
    out.memory = DAVY_MEMORY_CUDA; /* wrong: it is host memory */
    IS(api->upscale(model, &out, &none, NULL, NULL), DAVY_E_INVALID);
    davy_tensor far = {.struct_size = sizeof far, .memory = DAVY_MEMORY_CUDA, .device = 1};
    IS(api->upscale(model, &in, &far, NULL, NULL), DAVY_E_INVALID);
    api->buffer_release(latent.buffer);
    api->buffer_release(pixels.buffer);
    api->buffer_release(out.buffer);
    models_end("chains");
}

/* ---- alpha and the posterior, which the host reads ---- */

static void alpha(void) {
    davy_buffer *a = NULL, *b = NULL;
    models_begin("cuda:0");
    const davy_tensor in = device_picture(4, SIDE, &a);
    davy_tensor out = device_picture(4, 2 * SIDE, &b);
    IS(api->upscale(model, &in, &out, NULL, NULL), DAVY_OK);
    CHECK(mock->copies > 0); /* alpha came to the host */
    davy_tensor host = host_picture(4, 2 * SIDE);
    IS(api->upscale(model, &in, &host, NULL, NULL), DAVY_OK);
    const davy_tensor host_in = host_picture(4, SIDE);
    IS(api->upscale(model, &host_in, &out, NULL, NULL), DAVY_OK);
    api->buffer_release(a);
    api->buffer_release(b);
    models_end("alpha");
}

/* ---- many threads ---- */

typedef struct worker {
    pthread_t thread;
    int first, wrong;
    davy_tensor in;
} worker;

/* Everything at once, on one model: waiting, stream-ordered, as a job, from host memory. */
static void *thread_main(void *arg) {
    worker *w = arg;
    const davy_run runs[3] = {
        {.stream = NULL}, {.stream = LEGACY}, {.stream = LEGACY, .flags = DAVY_RUN_STREAM_ORDERED}};
    const davy_tensor host = host_picture(3, SIDE);
    for (int i = w->first; i < w->first + 40; i++) {
        davy_run run = runs[i % 3];
        davy_tensor out = {.struct_size = sizeof out, .memory = i % 5 < 3 ? DAVY_MEMORY_CUDA : DAVY_MEMORY_HOST};
        davy_job *job = NULL;
        const int as_job = i % 4 == 0 && run.flags == 0;
        run.struct_size = sizeof run;
        out.memory = run.flags != 0 ? DAVY_MEMORY_CUDA : out.memory;
        const davy_tensor *in = i % 7 == 0 && run.flags == 0 ? &host : &w->in;
        w->wrong += api->upscale(model, in, &out, &run, as_job ? &job : NULL) < 0;
        w->wrong += job != NULL && api->job_wait(job, UINT64_MAX) < 0;
        api->job_release(job);
        api->buffer_release(out.buffer);
    }
    return NULL;
}

static void threads(void) {
    enum { THREADS = 4 };
    worker workers[THREADS] = {0};
    models_begin("cuda:0");
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        davy_buffer *buffer = NULL;
        w->first = i;
        w->in = device_picture(3, SIDE, &buffer);
        w->in.buffer = buffer;
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&workers[i].thread, NULL, thread_main, &workers[i]) == 0);
    }
    for (int i = 0; i < 50; i++) {
        IS(api->context_trim(ctx, 0, 0), DAVY_OK);
        memory_of(ctx);
        host_sleep_ms(1);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECKF(workers[i].wrong == 0, "thread %d: %d calls failed", i, workers[i].wrong);
        api->buffer_release(workers[i].in.buffer);
    }
    models_end("threads");
}

/* ---- precision ---- */

static davy_result open_wide(davy_dtype compute, const char *tf32, int channels, davy_model_info *info) {
    const synth_file f = synth_compact(channels, 2, 2, 9);
    const davy_option option = {"tf32", tf32};
    const davy_source s = {.struct_size = sizeof s, .data = f.data, .data_bytes = f.bytes, .name = "compact"};
    const davy_model_desc d = {.struct_size = sizeof d,
                               .sources = &s,
                               .n_sources = 1,
                               .compute = compute,
                               .options = &option,
                               .n_options = tf32 != NULL ? 1 : 0};
    davy_model *m = NULL;
    const davy_result r = api->model_open(ctx, &d, &m);
    info->struct_size = sizeof *info;
    if (r == DAVY_OK) {
        IS(api->model_info(m, info), DAVY_OK);
    }
    api->model_release(m);
    free(f.data);
    return r;
}

static davy_result open_as(davy_dtype compute, const char *tf32, davy_model_info *info) {
    return open_wide(compute, tf32, 16, info);
}

static void precisions(void) {
    davy_model_info info;
    models_begin("cuda:0");
    IS(open_as(DAVY_DTYPE_AUTO, NULL, &info), DAVY_OK);
    CHECK(info.compute == DAVY_DTYPE_F16);
    info.struct_size = sizeof info;
    IS(api->model_info(vae, &info), DAVY_OK);
    CHECK(info.compute == DAVY_DTYPE_BF16);
    IS(open_as(DAVY_DTYPE_F32, NULL, &info), DAVY_OK);
    CHECK(info.compute == DAVY_DTYPE_F32);
    IS(open_as(DAVY_DTYPE_F32, "1", &info), DAVY_OK);
    IS(open_as(DAVY_DTYPE_BF16, "1", &info), DAVY_E_OPTION);
    IS(open_as(DAVY_DTYPE_F32, "yes", &info), DAVY_E_OPTION);
    IS(open_as(DAVY_DTYPE_FP8, NULL, &info), DAVY_OK);
    CHECK(info.compute == DAVY_DTYPE_FP8);
    IS(open_as(DAVY_DTYPE_INT8, NULL, &info), DAVY_OK);
    CHECK(info.compute == DAVY_DTYPE_F16); /* int8 is no gain here, so it is not tested */
    IS(open_as(DAVY_DTYPE_INT4, NULL, &info), DAVY_E_UNSUPPORTED);
    models_end("precisions");
    models_begin("cuda:1"); /* 8.6 */
    IS(open_as(DAVY_DTYPE_FP8, NULL, &info), DAVY_E_UNSUPPORTED);
    IS(open_wide(DAVY_DTYPE_INT8, NULL, 64, &info), DAVY_OK); /* its convolutions were tested */
    CHECK(info.compute == DAVY_DTYPE_INT8);
    models_end("eight bits on an older GPU");
    IS(open_on("cpu", 0, &ctx), DAVY_OK);
    IS(open_as(DAVY_DTYPE_FP8, NULL, &info), DAVY_E_UNSUPPORTED);
    IS(open_as(DAVY_DTYPE_F32, "1", &info), DAVY_E_UNSUPPORTED);
    IS(open_as(DAVY_DTYPE_F16, NULL, &info), DAVY_E_UNSUPPORTED);
    api->context_release(ctx);
}

/* ---- a device that is lost ---- */

static void lost(void) {
    davy_buffer *a = NULL;
    davy_memory_info m = {.struct_size = sizeof m};
    models_begin("cuda:0");
    const davy_tensor in = device_picture(3, SIDE, &a), host_in = host_picture(3, SIDE);
    davy_tensor out = {.struct_size = sizeof out};
    mock->fail_launch_at = 1;
    mock->fail_launch_with = 700; /* an illegal address: sticky */
    IS(api->upscale(model, &in, &out, NULL, NULL), DAVY_E_DEVICE_LOST);
    CHECK(out.buffer == NULL);
    IS(api->upscale(model, &host_in, &out, NULL, NULL), DAVY_E_DEVICE_LOST);
    IS(api->upscale(model, &in, &out, NULL, NULL), DAVY_E_DEVICE_LOST);
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_CUDA, 64, &a), DAVY_E_DEVICE_LOST);
    IS(api->model_load(vae, NULL, NULL), DAVY_E_DEVICE_LOST);
    IS(api->context_memory(ctx, &m), DAVY_OK);
    api->buffer_release(a);
    api->model_release(model);
    api->model_release(vae);
    api->context_release(ctx);
    model = vae = NULL;
    ctx = NULL;
}

int main(void) {
    unsetenv("DAVY_DEVICE");
    mock_begin();
    if (!host_has_device_code(api, "hosts.gpu_work")) {
        return check_done();
    }
    tensors();
    chains();
    alpha();
    threads();
    precisions();
    lost(); /* last: objects of a lost device stay */
    return check_done();
}
