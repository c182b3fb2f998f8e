/* misuse_host.c - see misuse_host.h. */
#include "tests/hosts/calls/misuse_host.h"

const davy_api *api;
davy_context *ctx;
davy_model *model;
picture in, out;

void still_useful(const char *after) {
    picture got = {0};
    const davy_result r = host_upscale(api, model, &in, NULL, &got);
    CHECKF(r == DAVY_OK && got.v != NULL && picture_max_error(&got, &out) == 0, "after %s upscaling gives %s", after,
           r == DAVY_OK ? "another picture" : host_error(api));
    picture_free(&got);
}

int misuse_begin(void) {
    api = host_load();
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    in = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&in, 4);
    return CHECKF(model != NULL && host_upscale(api, model, &in, NULL, &out) == DAVY_OK, "nothing to misuse: %s",
                  host_error(api));
}

int misuse_end(void) {
    api->model_release(model);
    api->context_release(ctx);
    picture_free(&in);
    picture_free(&out);
    return check_done();
}
