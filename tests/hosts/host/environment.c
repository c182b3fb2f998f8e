/* environment.c - environment FOLDER: the three variables that a context reads at creation, and the flag that disables them. Also
 * checks that every instruction set gives the same picture. POSIX only (setenv). */
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/host.h"

enum { WIDTH = 53, HEIGHT = 41 };

static const davy_api *api;
static synth_file file;

static davy_result create(uint32_t flags, int32_t threads, davy_context **out) {
    const davy_context_desc desc = {.struct_size = sizeof desc,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .device = "cpu",
                                    .n_threads = threads,
                                    .flags = flags};
    *out = NULL;
    return api->context_create(&desc, out);
}

static davy_result create_with(const char *name, const char *value, uint32_t flags) {
    davy_context *ctx = NULL;
    setenv(name, value, 1);
    const davy_result r = create(flags, 0, &ctx);
    unsetenv(name);
    api->context_release(ctx);
    return r;
}

static void numbers(void) {
    IS(create_with("DAVY_THREADS", "2", 0), DAVY_OK);
    static const char *const wrong[] = {"none", "0", "-1", "2x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECKF(create_with("DAVY_THREADS", wrong[i], 0) == DAVY_E_OPTION, "DAVY_THREADS=\"%s\" is taken", wrong[i]);
        IS(create_with("DAVY_THREADS", wrong[i], DAVY_CONTEXT_NO_ENVIRONMENT), DAVY_OK);
    }
    IS(create_with("DAVY_CPU", "the fastest", 0), DAVY_E_OPTION);
    CHECKF(strstr(host_error(api), "DAVY_CPU") != NULL, "no variable named in: %s", host_error(api));
    IS(create_with("DAVY_CPU", "the fastest", DAVY_CONTEXT_NO_ENVIRONMENT), DAVY_OK);
}

/* A model with a name that exists in no other folder. */
static void models(const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/only-in-the-test.safetensors", folder);
    if (!CHECKF(host_write_file(path, file.data, file.bytes) == 0, "%s could not be written", path)) {
        return;
    }
    const davy_source source = {.struct_size = sizeof source, .name = "only-in-the-test"};
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    for (uint32_t flags = 0; flags <= DAVY_CONTEXT_NO_ENVIRONMENT; flags++) {
        davy_context *ctx = NULL;
        davy_model *m = NULL;
        setenv("DAVY_MODELS", folder, 1);
        IS(create(flags, 1, &ctx), DAVY_OK);
        unsetenv("DAVY_MODELS"); /* the context has read it at creation */
        IS(api->model_open(ctx, &desc, &m), flags == 0 ? DAVY_OK : DAVY_E_NOT_FOUND);
        api->model_release(m);
        api->context_release(ctx);
    }
    davy_context *without = NULL;
    davy_model *m = NULL;
    IS(create(0, 1, &without), DAVY_OK);
    setenv("DAVY_MODELS", folder, 1); /* too late */
    IS(api->model_open(without, &desc, &m), DAVY_E_NOT_FOUND);
    unsetenv("DAVY_MODELS");
    api->context_release(without);
}

static void instruction_sets(void) {
    static const char *const sets[] = {"baseline", "avx2", "avx512", "avx512bf16", "amx"};
    picture in = picture_new(1, HEIGHT, WIDTH, 3), want = {0};
    picture_fill(&in, 5);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        davy_context *ctx = NULL;
        davy_model *m = NULL;
        picture out = {0};
        setenv("DAVY_CPU", sets[i], 1); /* the highest set to use; a set that the machine lacks is no error */
        IS(create(0, 2, &ctx), DAVY_OK);
        unsetenv("DAVY_CPU");
        IS(host_open_files(api, ctx, &file, 1, &m), DAVY_OK);
        IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
        if (i == 0) {
            want = out;
        } else if (out.v != NULL) {
            printf("  %s: %.2g from the baseline\n", sets[i], picture_l2_error(&out, &want));
            CHECKF(picture_l2_error(&out, &want) < 1e-4, "%s is off by %g", sets[i], picture_l2_error(&out, &want));
            picture_free(&out);
        }
        api->model_release(m);
        api->context_release(ctx);
    }
    picture_free(&in);
    picture_free(&want);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fputs("usage: environment FOLDER\n", stderr);
        return 2;
    }
    api = host_load();
    unsetenv("DAVY_MODELS");
    unsetenv("DAVY_THREADS");
    unsetenv("DAVY_CPU");
    file = synth_compact(24, 3, 2, 13);
    numbers();
    models(argv[1]);
    instruction_sets();
    free(file.data);
    return check_done();
}
