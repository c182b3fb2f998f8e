/* client.c - a complete host in C. Usage: client MODELS FOLDER
 * It loads the library, lists devices and opens two models: the shipped davy-live-x2 by name from MODELS, and a TAESD from files
 * that it writes into FOLDER. It upscales, encodes, decodes, waits for jobs, reads errors, and must not leak memory. It writes
 * the results to FOLDER as raw floats (upscaled.f32, decoded.f32), for comparing two systems. */
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#include <shellapi.h>
#endif

#include "tests/hosts/host.h"

enum { WIDTH = 61, HEIGHT = 47, LATENT_WIDTH = 12, LATENT_HEIGHT = 9, PATH_BYTES = 1024 };

static const davy_api *api;
static davy_context *ctx;
static host_state state;
static const char *models, *folder;

static void path_in(char out[PATH_BYTES], const char *in, const char *name) {
    snprintf(out, PATH_BYTES, "%s/%s", in, name);
}

static void write_result(const char *name, const picture *p) {
    char path[PATH_BYTES];
    path_in(path, folder, name);
    CHECKF(host_write_file(path, p->v, (uint64_t)picture_count(p) * sizeof *p->v) == 0, "%s could not be written",
           path);
}

/* ---- base, devices, context ---- */

static void look_around(void) {
    CHECK(strcmp(api->version(), "1.0.0") == 0);
    CHECK(api->struct_size >= sizeof(davy_api));
    CHECK(api->abi_version >= DAVY_ABI_1_0 && api->abi_version >> 16 == 1);
    CHECK(strcmp(api->result_name(DAVY_OK), "OK") == 0 && strcmp(api->result_name(DAVY_E_SHAPE), "E_SHAPE") == 0);
    CHECK(strcmp(api->result_name(12345), "?") == 0);
    int32_t n = 0;
    IS(api->device_count(NULL, &n), DAVY_OK);
    CHECK(n >= 1);
    for (int32_t i = 0; i < n; i++) {
        davy_device_info d = {.struct_size = sizeof d};
        IS(api->device_info(NULL, i, &d), DAVY_OK);
        printf("  device %d: %s (%s) %s\n", (int)i, d.name, d.selector, d.reason);
        CHECK(d.index == i || i > 0);
        CHECK(d.name[0] != '\0' && d.selector[0] != '\0');
        if (i == 0) {
            CHECK(d.kind == DAVY_DEVICE_CPU && strcmp(d.selector, "cpu") == 0 && d.reason[0] == '\0');
            CHECK(d.memory_total_bytes > 0 && d.memory_free_bytes <= d.memory_total_bytes);
        }
    }
}

static int open_context(void) {
    host_state_init(&state);
    const davy_host host = host_callbacks(&state);
    const davy_option options[] = {{"models_dir", models}, {"?an_option_of_the_future", "1"}};
    const davy_context_desc desc = {.struct_size = sizeof desc,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .host = &host,
                                    .device = "cpu",
                                    .flags = DAVY_CONTEXT_NO_ENVIRONMENT,
                                    .options = options,
                                    .n_options = 2};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    return ctx != NULL;
}

/* ---- upscaling ---- */

typedef struct progress_state {
    int calls, backwards;
    uint64_t last, total;
} progress_state;

static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    progress_state *p = user;
    p->calls++;
    p->backwards += done < p->last || done > total || stage == NULL || stage[0] == '\0';
    p->last = done;
    p->total = total;
    return 0;
}

static void check_shipped_info(davy_model *m) {
    davy_model_info info = {.struct_size = sizeof info};
    IS(api->model_info(m, &info), DAVY_OK);
    printf("  model: %s, %s, %llu parameters\n", info.arch, info.variant, (unsigned long long)info.parameters);
    CHECK(info.task == DAVY_TASK_UPSCALE && strcmp(info.arch, "compact") == 0 && info.variant[0] != '\0');
    CHECK(info.parameters == 115756 && info.weight_bytes == 2 * 115756); /* models/davy-live/README.md; stored as f16 */
    CHECK(info.in_channels == 3 && info.out_channels == 3 && info.latent_channels == 0);
    CHECK(info.scale_num == 2 && info.scale_den == 1);
    CHECK((info.features & DAVY_MODEL_UPSCALES) != 0 && (info.features & DAVY_MODEL_TILES_EXACT) != 0);
    CHECK((info.features & (DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES)) == 0);
    CHECK(info.compute == DAVY_DTYPE_F32);
}

/* The same work as a job: the call returns at once, and the picture has the same bits. */
static void upscale_as_job(davy_model *m, const picture *in, const picture *want) {
    const davy_tensor src = host_tensor(in);
    picture out = picture_new(want->n, want->h, want->w, want->c);
    davy_tensor dst = host_tensor(&out);
    progress_state seen = {0};
    const davy_run run = {.struct_size = sizeof run, .progress = on_progress, .progress_user = &seen};
    davy_job *job = NULL;
    IS(api->upscale(m, &src, &dst, &run, &job), DAVY_OK);
    if (CHECK(job != NULL)) {
        const davy_result r = api->job_wait(job, 0);
        CHECK(r == DAVY_OK || r == DAVY_PENDING);
        IS(api->job_wait(job, UINT64_MAX), DAVY_OK);
        davy_job_info info = {.struct_size = sizeof info};
        IS(api->job_info(job, &info), DAVY_OK);
        CHECK(info.state == DAVY_OK && info.done == info.total && info.elapsed_ns > 0);
        davy_error_info none = {.struct_size = sizeof none};
        IS(api->job_error(job, &none), DAVY_OK);
        CHECK(none.code == DAVY_OK && none.message[0] == '\0');
        api->job_release(job);
    }
    CHECK(seen.backwards == 0);
    CHECKF(memcmp(out.v, want->v, (size_t)picture_count(want) * sizeof *want->v) == 0, "a job gives another result");
    picture_free(&out);
}

/* Output memory from the library: it fills in the tensor, the caller releases the buffer. */
static void upscale_into_buffer(davy_model *m, const picture *in, const picture *want) {
    const davy_tensor src = host_tensor(in);
    davy_tensor dst = {.struct_size = sizeof dst};
    IS(api->upscale(m, &src, &dst, NULL, NULL), DAVY_OK);
    if (!CHECK(dst.buffer != NULL)) {
        return;
    }
    davy_tensor seen = {.struct_size = sizeof seen};
    IS(api->buffer_tensor(dst.buffer, &seen), DAVY_OK);
    CHECK(dst.memory == DAVY_MEMORY_BUFFER && dst.dtype == DAVY_DTYPE_F32 && dst.layout == src.layout && dst.ndim == 4);
    CHECK(seen.data != 0 && memcmp(seen.shape, dst.shape, sizeof dst.shape) == 0);
    if (seen.data != 0) {
        picture got = tensor_load(&seen);
        CHECKF(picture_max_error(&got, want) == 0, "a library buffer holds another result");
        picture_free(&got);
    }
    api->buffer_release(dst.buffer);
}

static void upscale(void) {
    const davy_source source = {.struct_size = sizeof source, .name = "davy-live-x2"};
    progress_state seen = {0};
    const davy_model_desc desc = {.struct_size = sizeof desc,
                                  .task = DAVY_TASK_UPSCALE,
                                  .sources = &source,
                                  .n_sources = 1,
                                  .progress = on_progress,
                                  .progress_user = &seen};
    davy_model *m = NULL;
    IS(api->model_open(ctx, &desc, &m), DAVY_OK);
    if (m == NULL) {
        return;
    }
    check_shipped_info(m);
    IS(api->model_load(m, NULL, NULL), DAVY_OK);
    davy_memory_info memory = {.struct_size = sizeof memory};
    IS(api->context_memory(ctx, &memory), DAVY_OK);
    CHECK(memory.host_weights_bytes >= 4 * 115756 && memory.host_peak_bytes >= memory.host_weights_bytes);
    CHECK(memory.host_budget_bytes > 0);

    picture in = picture_new(1, HEIGHT, WIDTH, 3), out, tiled;
    picture_fill(&in, 1);
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
    if (out.v != NULL) {
        CHECK(out.n == 1 && out.h == 2 * HEIGHT && out.w == 2 * WIDTH && out.c == 3);
        write_result("upscaled.f32", &out);
        upscale_as_job(m, &in, &out);
        upscale_into_buffer(m, &in, &out);
        const davy_run small_tiles = {.struct_size = sizeof small_tiles, .tile_width = 40, .tile_height = 36};
        IS(host_upscale(api, m, &in, &small_tiles, &tiled), DAVY_OK);
        if (tiled.v != NULL) { /* TILES_EXACT: the overlap is the network's reach */
            CHECKF(picture_max_error(&tiled, &out) < 1e-5, "tiles change the result by %g",
                   picture_max_error(&tiled, &out));
            picture_free(&tiled);
        }
        picture_free(&out);
    }
    IS(api->model_unload(m, 0), DAVY_OK);
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK); /* loads the weights again */
    picture_free(&out);
    picture_free(&in);
    api->model_release(m);
}

/* ---- VAE ---- */

static davy_model *open_taesd(void) {
    char paths[2][PATH_BYTES];
    davy_source sources[2];
    memset(sources, 0, sizeof sources);
    for (int decoder = 0; decoder < 2; decoder++) {
        synth_file f = synth_taesd(decoder, 100u + (uint32_t)decoder);
        path_in(paths[decoder], folder, decoder ? "taesd_decoder.safetensors" : "taesd_encoder.safetensors");
        CHECKF(host_write_file(paths[decoder], f.data, f.bytes) == 0, "%s could not be written", paths[decoder]);
        free(f.data);
        sources[decoder].struct_size = sizeof sources[decoder];
        sources[decoder].path = paths[decoder];
    }
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = sources, .n_sources = 2};
    davy_model *m = NULL;
    IS(api->model_open(ctx, &desc, &m), DAVY_OK);
    return m;
}

static void decode(davy_model *m) {
    picture latent = picture_new(1, LATENT_HEIGHT, LATENT_WIDTH, 4);
    uint32_t seed = 5;
    for (int64_t i = 0; i < picture_count(&latent); i++) {
        latent.v[i] = 2 * synth_uniform(&seed) - 1;
    }
    const davy_tensor src = host_tensor(&latent);
    picture out = host_result_picture(api, m, DAVY_OP_VAE_DECODE, &src, NULL);
    if (CHECK(out.h == 8 * LATENT_HEIGHT && out.w == 8 * LATENT_WIDTH && out.c == 3)) {
        davy_tensor dst = host_tensor(&out);
        dst.range = DAVY_RANGE_RAW;
        IS(api->vae_decode(m, &src, &dst, NULL, NULL), DAVY_OK);
        write_result("decoded.f32", &out);
        const davy_run scaled = {.struct_size = sizeof scaled, .flags = DAVY_RUN_SCALED_LATENT};
        picture again = picture_new(out.n, out.h, out.w, out.c);
        davy_tensor dst2 = host_tensor(&again);
        dst2.range = DAVY_RANGE_RAW;
        IS(api->vae_decode(m, &src, &dst2, &scaled, NULL), DAVY_OK); /* no effect on this family */
        CHECK(picture_max_error(&again, &out) == 0);
        picture_free(&again);
    }
    picture_free(&out);
    picture_free(&latent);
}

static void encode(davy_model *m) {
    picture pixels = picture_new(1, 8 * LATENT_HEIGHT, 8 * LATENT_WIDTH, 3);
    picture_fill(&pixels, 2);
    davy_tensor src = host_tensor(&pixels);
    picture latent = host_result_picture(api, m, DAVY_OP_VAE_ENCODE, &src, NULL);
    if (CHECK(latent.h == LATENT_HEIGHT && latent.w == LATENT_WIDTH && latent.c == 4)) {
        davy_tensor dst = host_tensor(&latent);
        IS(api->vae_encode(m, &src, &dst, NULL, NULL), DAVY_OK);
        write_result("encoded.f32", &latent);
        const davy_run moments = {.struct_size = sizeof moments, .flags = DAVY_RUN_MOMENTS};
        IS(api->vae_encode(m, &src, &dst, &moments, NULL), DAVY_E_UNSUPPORTED); /* TAESD has no posterior */
    }
    src.shape[1] -= 1;
    davy_tensor any = {.struct_size = sizeof any};
    IS(api->vae_encode(m, &src, &any, NULL, NULL), DAVY_E_SHAPE); /* not a multiple of 8 */
    CHECKF(any.buffer == NULL && any.data == 0, "an output was touched by a failing call");
    picture_free(&latent);
    picture_free(&pixels);
}

static void vae(void) {
    davy_model *m = open_taesd();
    if (m == NULL) {
        return;
    }
    davy_model_info info = {.struct_size = sizeof info};
    IS(api->model_info(m, &info), DAVY_OK);
    printf("  model: %s, %s, %llu parameters\n", info.arch, info.variant, (unsigned long long)info.parameters);
    CHECK(info.task == DAVY_TASK_VAE && strcmp(info.arch, "vae_tae") == 0);
    CHECK(info.latent_channels == 4 && info.spatial_factor == 8 && info.temporal_factor == 1);
    CHECK((info.features & (DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES)) == (DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES));
    CHECK((info.features & (DAVY_MODEL_MOMENTS | DAVY_MODEL_UPSCALES)) == 0);
    decode(m);
    encode(m);
    api->model_release(m);
}

/* ---- extensions and errors ---- */

static void check_text(davy_text *t, const char *needle) {
    const char *utf8 = NULL;
    uint64_t bytes = 0;
    IS(api->text_get(t, &utf8, &bytes), DAVY_OK);
    CHECK(utf8 != NULL && strlen(utf8) == bytes);
    CHECKF(utf8 != NULL && strstr(utf8, needle) != NULL, "\"%s\" is not in: %s", needle, utf8 != NULL ? utf8 : "NULL");
    api->text_release(t);
}

static void describe(const davy_inspect_1 *inspect, const davy_source *source, const char *needle) {
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = source, .n_sources = 1};
    davy_text *json = NULL;
    IS(inspect->describe(ctx, &desc, &json), DAVY_OK);
    if (json != NULL) {
        check_text(json, needle);
    }
}

static void extensions(void) {
    const davy_inspect_1 *inspect = api->get_extension("davy.inspect/1");
    const davy_profile_1 *profile = api->get_extension("davy.profile/1");
    CHECK(api->get_extension("davy.inspect/999") == NULL && api->get_extension("") == NULL);
    if (!CHECK(inspect != NULL && profile != NULL)) {
        return;
    }
    describe(inspect, &(davy_source){.struct_size = sizeof(davy_source), .name = "davy-live-x2"}, "compact");
    static const char unknown[] =
        "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}          abcd";
    describe(
        inspect,
        &(davy_source){.struct_size = sizeof(davy_source), .name = "x.safetensors", .data = unknown, .data_bytes = 76},
        "looks_like");
    davy_model *m = NULL;
    davy_text *json = NULL;
    picture in = picture_new(1, 16, 16, 3), out = {0};
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    IS(profile->start(ctx), DAVY_OK);
    IS(host_upscale(api, m, &in, NULL, &out), DAVY_OK);
    IS(profile->stop(ctx, &json), DAVY_OK);
    if (json != NULL) {
        check_text(json, "\"kernel\"");
    }
    picture_free(&in);
    picture_free(&out);
    api->model_release(m);
}

static void errors(void) {
    char path[PATH_BYTES];
    davy_model *m = NULL;
    path_in(path, folder, "there is no such file.safetensors");
    IS(host_open_path(api, ctx, path, &m), DAVY_E_NOT_FOUND);
    CHECKF(strstr(host_error(api), "there is no such file") != NULL, "no file name in: %s", host_error(api));
    path_in(path, folder, "broken.safetensors");
    CHECK(host_write_file(path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10) == 0);
    IS(host_open_path(api, ctx, path, &m), DAVY_E_FORMAT);
    CHECKF(strstr(host_error(api), "broken.safetensors") != NULL, "no file name in: %s", host_error(api));
    CHECK(m == NULL);
    davy_error_info info = {.struct_size = sizeof info};
    IS(api->last_error(&info), DAVY_OK);
    CHECK(info.code == DAVY_E_FORMAT);
    IS(api->device_count(NULL, &(int32_t){0}), DAVY_OK);
    IS(api->last_error(&info), DAVY_OK);
    CHECKF(info.code == DAVY_E_FORMAT, "success wiped the record of the last error");
}

static int run(void) {
    api = host_load();
    printf("davy %s\n", api->version());
    look_around();
    if (open_context()) {
        upscale();
        vae();
        extensions();
        errors();
        IS(api->context_trim(ctx, 0, 0), DAVY_OK);
        davy_memory_info memory = {.struct_size = sizeof memory};
        IS(api->context_memory(ctx, &memory), DAVY_OK);
        CHECK(memory.host_weights_bytes == 0 && memory.host_workspace_bytes == 0);
        api->context_release(ctx);
        CHECKF(atomic_load(&state.blocks) == 0 && atomic_load(&state.bytes) == 0, "%lld blocks were never given back",
               atomic_load(&state.blocks));
        CHECK(atomic_load(&state.allocations) > 0 && atomic_load(&state.wrong_frees) == 0);
        CHECK(atomic_load(&state.messages) > 0 && atomic_load(&state.bad_messages) == 0);
    }
    return check_done();
}

#if defined(_WIN32)
/* main's own arguments are in the system's code page; these are UTF-8. */
static char *utf8_argument(int index) {
    int n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char *out = calloc(1, PATH_BYTES);
    if (wide == NULL || out == NULL || index >= n ||
        WideCharToMultiByte(CP_UTF8, 0, wide[index], -1, out, PATH_BYTES, NULL, NULL) == 0) {
        exit(2);
    }
    LocalFree(wide);
    return out;
}
#endif

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: client MODELS FOLDER\n", stderr);
        return 2;
    }
#if defined(_WIN32)
    (void)argv;
    models = utf8_argument(1);
    folder = utf8_argument(2);
#else
    models = argv[1];
    folder = argv[2];
#endif
    return run();
}
