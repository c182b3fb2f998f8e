/* misuse.h - a host that does everything wrong. Each call must answer the right error with a sentence, touch no output, and
 * leave the context as useful as before, which is tried after each group. */
#ifndef DV_TESTS_MISUSE_H
#define DV_TESTS_MISUSE_H

#include "tests/hosts/host.h"

enum { WIDTH = 24, HEIGHT = 16 };

static const davy_api *api;
static davy_context *ctx;
static davy_model *model;
static picture in, out;

/* An error of this code, with a message that was written for it. */
#define FAILS(call, want)                                                                                              \
    do {                                                                                                               \
        IS(call, want);                                                                                                \
        davy_error_info failed = {.struct_size = sizeof failed};                                                       \
        api->last_error(&failed);                                                                                      \
        CHECKF(failed.code == (want) && strlen(failed.message) >= 8, "%s: no sentence: \"%s\"", #call,                 \
               failed.message);                                                                                        \
    } while (0)

static inline void still_useful(const char *after) {
    picture got = {0};
    const davy_result r = host_upscale(api, model, &in, NULL, &got);
    CHECKF(r == DAVY_OK && got.v != NULL && picture_max_error(&got, &out) == 0, "after %s upscaling gives %s", after,
           r == DAVY_OK ? "another picture" : host_error(api));
    picture_free(&got);
}

/* 0: there is nothing to misuse. */
static inline int misuse_begin(void) {
    api = host_load();
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    in = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&in, 4);
    return CHECKF(model != NULL && host_upscale(api, model, &in, NULL, &out) == DAVY_OK, "nothing to misuse: %s",
                  host_error(api));
}

static inline int misuse_end(void) {
    api->model_release(model);
    api->context_release(ctx);
    picture_free(&in);
    picture_free(&out);
    return check_done();
}

#endif
