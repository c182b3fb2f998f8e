/* stack.c - the stack that calls need: stack LIBRARY MODEL CAPTIONER. Each step runs on a thread whose stack is filled with a
 * pattern. The bytes that the step overwrote, beyond those of an empty thread, must be fewer than the header promises. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi/davy_loader.h"
#include "tests/lib/check.h"

enum { STACK_BYTES = 1 << 20, PROMISE_BYTES = 64 << 10, PATTERN = 0xa5, SIDE = 160 };

typedef struct host {
    const davy_api *api;
    const char *path;
    davy_context *ctx;
    davy_model *model;
    davy_job *job;
    davy_result r;
} host;

typedef davy_result (*step)(host *h);

static unsigned char pixels[SIDE * SIDE * 4];

static davy_tensor picture(int64_t channels) {
    davy_tensor t = {.struct_size = sizeof t,
                     .dtype = DAVY_DTYPE_U8,
                     .layout = DAVY_LAYOUT_HWC,
                     .ndim = 3,
                     .shape = {SIDE, SIDE, channels},
                     .data = (uint64_t)(uintptr_t)pixels};
    return t;
}

static davy_result create(host *h) {
    const davy_context_desc d = {
        .struct_size = sizeof d, .abi_version = DAVY_ABI_VERSION, .device = "cpu", .n_threads = 2};
    return h->api->context_create(&d, &h->ctx);
}

static davy_result list_devices(host *h) {
    davy_device_info info = {.struct_size = sizeof info};
    int32_t n = 0;
    const davy_result r = h->api->device_count(NULL, &n);
    return r < 0 ? r : h->api->device_info(NULL, n - 1, &info);
}

static davy_result inspect(host *h) {
    const davy_inspect_1 *x = h->api->get_extension("davy.inspect/1");
    const davy_source s = {.struct_size = sizeof s, .path = h->path};
    const davy_model_desc d = {.struct_size = sizeof d, .sources = &s, .n_sources = 1};
    davy_text *json = NULL;
    const davy_result r = x->describe(h->ctx, &d, &json);
    h->api->text_release(json);
    return r;
}

static davy_result open_model(host *h) {
    const davy_source s = {.struct_size = sizeof s, .path = h->path};
    const davy_model_desc d = {.struct_size = sizeof d, .sources = &s, .n_sources = 1};
    return h->api->model_open(h->ctx, &d, &h->model);
}

static davy_result load(host *h) {
    return h->api->model_load(h->model, NULL, NULL);
}

static davy_result upscale(host *h, int64_t channels, davy_job **job) {
    const davy_tensor in = picture(channels);
    davy_tensor out = {.struct_size = sizeof out};
    const davy_result r = h->api->upscale(h->model, &in, &out, NULL, job);
    h->api->buffer_release(out.buffer);
    return r;
}

static davy_result upscale_colours(host *h) {
    return upscale(h, 3, NULL);
}

static davy_result upscale_alpha(host *h) {
    return upscale(h, 4, NULL);
}

static davy_result upscale_as_job(host *h) {
    davy_result r = upscale(h, 3, &h->job);
    r = r < 0 ? r : h->api->job_wait(h->job, UINT64_MAX);
    h->api->job_release(h->job);
    return r;
}

static davy_result run_sequence(host *h) {
    const davy_tensor in = picture(3);
    const davy_sequence_desc d = {.struct_size = sizeof d, .op = DAVY_OP_UPSCALE, .input = &in};
    davy_sequence *s = NULL;
    davy_tensor out = {.struct_size = sizeof out};
    davy_result r = h->api->sequence_open(h->model, &d, &s);
    r = r < 0 ? r : h->api->sequence_push(s, &in, UINT64_MAX);
    r = r < 0 ? r : h->api->sequence_pull(s, &out, UINT64_MAX);
    h->api->buffer_release(out.buffer);
    h->api->sequence_release(s);
    return r;
}

static davy_result caption(host *h) {
    const davy_tensor in = picture(3);
    const davy_tensor *const images[] = {&in, &in};
    const davy_caption_params p = {.struct_size = sizeof p, .max_tokens = 8};
    davy_text *texts[2] = {NULL, NULL};
    const davy_result r = h->api->caption(h->model, 2, images, &p, NULL, NULL, texts);
    h->api->text_release(texts[0]);
    h->api->text_release(texts[1]);
    return r;
}

static davy_result talk(host *h) {
    const davy_tensor in = picture(3);
    const davy_caption_params p = {.struct_size = sizeof p, .max_tokens = 8, .temperature = 0.7f, .top_p = 0.9f};
    davy_dialogue *d = NULL;
    davy_result r = h->api->dialogue_open(h->model, &p, &d);
    r = r < 0 ? r : h->api->dialogue_add_image(d, &in);
    r = r < 0 ? r : h->api->dialogue_add_text(d, DAVY_ROLE_USER, "What is it?");
    r = r < 0 ? r : h->api->dialogue_generate(d, NULL, NULL, NULL);
    h->api->dialogue_release(d);
    return r;
}

static davy_result close_all(host *h) {
    h->api->model_release(h->model);
    h->api->context_release(h->ctx);
    return DAVY_OK;
}

typedef struct call {
    step run;
    host *h;
    davy_error_info error;
} call;

static void *thread_main(void *arg) {
    call *c = arg;
    if (c->run != NULL) {
        c->h->r = c->run(c->h);
        c->error.struct_size = sizeof c->error;
        c->h->api->last_error(&c->error);
    }
    return NULL;
}

/* Bytes of stack that a thread overwrites with it; run NULL: those of an empty thread. */
static size_t measure(call *c) {
    unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    size_t untouched = 0;
    memset(stack, PATTERN, STACK_BYTES);
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, stack, STACK_BYTES);
    if (pthread_create(&thread, &attr, thread_main, c) != 0) {
        abort();
    }
    pthread_join(thread, NULL);
    while (untouched < STACK_BYTES && stack[untouched] == PATTERN) {
        untouched++;
    }
    pthread_attr_destroy(&attr);
    munmap(stack, STACK_BYTES);
    return STACK_BYTES - untouched;
}

static const struct {
    const char *name;
    step run;
    int captions; /* -1: with both models */
} steps[] = {{"devices", list_devices, -1},  {"context_create", create, -1}, {"inspect", inspect, -1},
             {"model_open", open_model, -1}, {"model_load", load, -1},       {"upscale", upscale_colours, 0},
             {"alpha", upscale_alpha, 0},    {"job", upscale_as_job, 0},     {"sequence", run_sequence, 0},
             {"caption", caption, 1},        {"dialogue", talk, 1},          {"release", close_all, -1}};

static void run_steps(const davy_api *api, const char *path, int captions, size_t empty) {
    host h = {.api = api, .path = path};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        call c = {.run = steps[i].run, .h = &h};
        if (steps[i].captions >= 0 && steps[i].captions != captions) {
            continue;
        }
        const size_t bytes = measure(&c) - empty;
        CHECKF(h.r == DAVY_OK, "%s: %s", steps[i].name, c.error.message);
        CHECKF(bytes < PROMISE_BYTES, "%s: %zu bytes of stack", steps[i].name, bytes);
        printf("%s: %zu bytes of stack\n", steps[i].name, bytes);
    }
}

int main(int argc, char **argv) {
    davy_library davy;
    call nothing = {.run = NULL};
    if (argc != 4 || davy_load(&davy, argv[1], DAVY_ABI_1_0) != DAVY_OK) {
        fprintf(stderr, "%s\n", argc == 4 ? davy.error : "usage: stack LIBRARY MODEL CAPTIONER");
        return 2;
    }
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (unsigned char)(i * 37 >> 3);
    }
    const size_t empty = measure(&nothing);
    run_steps(davy.api, argv[2], 0, empty);
    run_steps(davy.api, argv[3], 1, empty);
    return check_done();
}
