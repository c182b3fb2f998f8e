/* client.c - a program written for davy 1.0 and its header, both kept as they were: client LIBRARY MODEL
 * Every later library of ABI 1 must run it unchanged. It finds the library with dlopen alone, passes the struct sizes
 * of 1.0, sets no member that came later, and exits 0 when it got its picture. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "davy.h"

enum { WIDTH = 20, HEIGHT = 14 };

static const davy_api *api;

static int failed(const char *what) {
    davy_error_info info = {.struct_size = sizeof info};
    api->last_error(&info);
    fprintf(stderr, "FAIL %s: %s\n", what, info.message);
    printf("0 passed, 1 failed\n");
    return 1;
}

static int stop_never(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    *(int *)user += done <= total;
    return 0;
}

/* Grey in must be grey out: the network's picture of a flat 0.5 stays near it. */
static int plausible(const float *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!(v[i] > 0.4f && v[i] < 0.6f)) {
            return 0;
        }
    }
    return 1;
}

static int upscale(davy_context *ctx, const char *path) {
    davy_source source = {.struct_size = sizeof source, .path = path};
    davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    davy_model *model = NULL;
    if (api->model_open(ctx, &desc, &model) != DAVY_OK) {
        return failed("model_open");
    }
    davy_model_info info = {.struct_size = sizeof info};
    if (api->model_info(model, &info) != DAVY_OK || info.scale_num != 2 || info.scale_den != 1) {
        return failed("model_info");
    }
    static float in[HEIGHT * WIDTH * 3], out[2 * HEIGHT * 2 * WIDTH * 3];
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        in[i] = 0.5f;
    }
    davy_tensor src = {.struct_size = sizeof src,
                       .memory = DAVY_MEMORY_HOST,
                       .dtype = DAVY_DTYPE_F32,
                       .layout = DAVY_LAYOUT_HWC,
                       .channels = DAVY_CHANNELS_RGB,
                       .range = DAVY_RANGE_UNIT,
                       .ndim = 3,
                       .data = (uint64_t)(uintptr_t)in,
                       .shape = {HEIGHT, WIDTH, 3}};
    davy_tensor dst = src;
    dst.data = (uint64_t)(uintptr_t)out;
    davy_query query = {.struct_size = sizeof query, .op = DAVY_OP_UPSCALE, .input = &src};
    davy_plan_info plan = {.struct_size = sizeof plan};
    if (api->plan_query(model, &query, &plan) != DAVY_OK || plan.ndim != 3) {
        return failed("plan_query");
    }
    memcpy(dst.shape, plan.shape, sizeof dst.shape);
    int calls = 0;
    davy_run run = {.struct_size = sizeof run, .progress = stop_never, .progress_user = &calls};
    if (api->upscale(model, &src, &dst, &run, NULL) != DAVY_OK) {
        return failed("upscale");
    }
    davy_job *job = NULL;
    if (api->upscale(model, &src, &dst, NULL, &job) != DAVY_OK || api->job_wait(job, UINT64_MAX) != DAVY_OK) {
        return failed("upscale as a job");
    }
    api->job_release(job);
    api->model_release(model);
    if (!plausible(out, (int64_t)(sizeof out / sizeof out[0]))) {
        fprintf(stderr, "FAIL a flat picture did not stay flat\n");
        printf("0 passed, 1 failed\n");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: client LIBRARY MODEL\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    davy_get_api_fn get = NULL;
    if (library != NULL) {
        void *symbol = dlsym(library, "davy_get_api");
        memcpy(&get, &symbol, sizeof get);
    }
    if (get == NULL || (api = get(DAVY_ABI_1_0)) == NULL) {
        fprintf(stderr, "FAIL %s: %s\n", argv[1], library == NULL ? dlerror() : "no ABI 1.0");
        printf("0 passed, 1 failed\n");
        return 1;
    }
    davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    davy_context *ctx = NULL;
    if (api->context_create(&desc, &ctx) != DAVY_OK) {
        return failed("context_create");
    }
    const int result = upscale(ctx, argv[2]);
    api->context_release(ctx);
    if (result == 0) {
        printf("1 passed, 0 failed\n");
    }
    return result;
}
