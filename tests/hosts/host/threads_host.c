/* threads_host.c - see threads_host.h. */
#include "tests/hosts/host/threads_host.h"

const davy_api *api;
synth_file file;

davy_context *new_context(int32_t threads) {
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu", .n_threads = threads};
    davy_context *ctx = NULL;
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    return ctx;
}

davy_model *new_model(davy_context *ctx) {
    davy_model *m = NULL;
    IS(host_open_files(api, ctx, &file, 1, &m), DAVY_OK);
    return m;
}

int same(const picture *a, const picture *b) {
    return picture_count(a) == picture_count(b) && memcmp(a->v, b->v, (size_t)picture_count(a) * sizeof *a->v) == 0;
}
