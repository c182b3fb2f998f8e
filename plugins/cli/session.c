/* session.c - see session.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/session.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

const char *cli_without_name(const char *what, const char *message) {
    const char *slash = strrchr(what, '/');
    const char *names[2] = {what, slash != NULL ? slash + 1 : what};
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(message, names[i], n) == 0 && strncmp(message + n, ": ", 2) == 0) {
            return message + n + 2;
        }
    }
    return message;
}

int cli_session_fail(const cli_session *s, const char *what, davy_result r) {
    if (r == DAVY_E_CANCELLED && cli_interrupted()) {
        return cli_stopped(what);
    }
    davy_error_info e = {.struct_size = sizeof e};
    if (s->api->last_error(&e) != DAVY_OK || e.code != r || e.message[0] == 0) {
        return cli_fail(what, "%s", s->api->result_name(r));
    }
    return cli_fail(what, "%s", cli_without_name(what, e.message));
}

int cli_session_load(cli_session *s) {
    memset(s, 0, sizeof *s);
    if (davy_load(&s->library, NULL, DAVY_ABI_1_0) != 0) {
        return cli_fail("libdavy", "%s", s->library.error);
    }
    s->api = s->library.api;
    return CLI_OK;
}

static void DAVY_CALL on_log(void *user, davy_log_level level, const char *utf8) {
    (void)user;
    if (level != DAVY_LOG_ERROR && level != DAVY_LOG_MISUSE) { /* these return as results, and the caller prints them */
        cli_note("libdavy", "%s", utf8);
    }
}

/* Compares a text such as "GPU-12ab…" with the bytes of a UUID. */
static int is_uuid(const char *text, const uint8_t uuid[16]) {
    char have[33];
    size_t n = 0;
    for (size_t i = 0; i < 16; i++) {
        snprintf(have + 2 * i, 3, "%02x", uuid[i]);
    }
    for (text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0; *text != 0 && *text != ','; text++) {
        if (*text != '-' && (n == 32 || (*text | 32) != have[n++])) {
            return 0;
        }
    }
    return 1;
}

/* Whether the first device of a selector is this device of the list. The list has no PCI addresses. */
static int is_selected(const char *selector, const davy_device_info *d) {
    const size_t n = strcspn(selector, ",");
    if (strncmp(selector, "cuda:uuid=", 10) == 0) {
        return is_uuid(selector + 10, d->uuid);
    }
    const int any = strncmp(selector, "cuda:", 5) != 0;
    return any ? d->reason[0] == 0 : strlen(d->selector) == n && strncmp(selector, d->selector, n) == 0;
}

/* Fills s->device. The context does not report its device; this function repeats the context's choice. */
static void find_device(cli_session *s, const char *given) {
    const char *variable = getenv("DAVY_DEVICE");
    const char *selector = given == NULL || strcmp(given, "auto") == 0 ? variable : given;
    int32_t n = 0;
    s->device.struct_size = sizeof s->device;
    if (s->api->device_count(NULL, &n) < 0 || s->api->device_info(NULL, 0, &s->device) < 0 || !s->on_gpu) {
        return;
    }
    snprintf(s->device.selector, sizeof s->device.selector, "%s", selector != NULL ? selector : "cuda");
    s->device.name[0] = 0;
    for (int32_t i = 1; i < n; i++) {
        davy_device_info d = {.struct_size = sizeof d};
        if (s->api->device_info(NULL, i, &d) >= 0 && is_selected(selector != NULL ? selector : "auto", &d)) {
            s->device = d;
            if (selector != NULL && strchr(selector, ',') != NULL) {
                snprintf(s->device.selector, sizeof s->device.selector, "%s", selector);
            }
            return;
        }
    }
}

/* --memory limits the device's memory if a GPU computes, else the host's. */
static davy_result set_memory(cli_session *s, const cli_args *a) {
    davy_memory_info m = {.struct_size = sizeof m};
    const davy_result r = s->api->context_memory(s->context, &m);
    s->on_gpu = r >= 0 && m.device_budget_bytes > 0;
    return r < 0 || s->on_gpu || a->memory == 0 ? r : s->api->context_budget(s->context, 0, a->memory);
}

int cli_session_context(cli_session *s, const cli_args *a) {
    const davy_host host = {.struct_size = sizeof host, .log_level = DAVY_LOG_WARN, .log = on_log};
    davy_context_desc d = {.struct_size = sizeof d, .abi_version = DAVY_ABI_VERSION, .host = &host};
    d.device = a->device;
    d.device_budget_bytes = a->memory;
    d.n_threads = a->threads;
    davy_result r = s->api->context_create(&d, &s->context);
    r = r < 0 ? r : set_memory(s, a);
    if (r >= 0 && (a->json || a->command == CLI_BENCH)) { /* they print it */
        find_device(s, a->device);
    }
    return r < 0 ? cli_session_fail(s, a->device != NULL ? a->device : "device", r) : CLI_OK;
}

void cli_model_precision(davy_dtype precision, davy_model_desc *desc) {
    static const davy_option tf32 = {"tf32", "1"};
    desc->compute = precision == CLI_TF32 ? DAVY_DTYPE_F32 : precision;
    desc->options = precision == CLI_TF32 ? &tf32 : NULL;
    desc->n_options = precision == CLI_TF32 ? 1 : 0;
}

void cli_model_desc(const cli_args *a, const char *shipped, davy_source *sources, davy_model_desc *out) {
    const davy_model_desc d = {.struct_size = sizeof d, .sources = sources, .n_sources = 1};
    *out = d;
    cli_model_precision(a->precision, out);
    static davy_option both[2];
    if (a->split != NULL) {
        both[0] = (davy_option){"split", a->split};
        both[1] = out->n_options > 0 ? out->options[0] : both[1];
        out->options = both;
        out->n_options++;
    }
    for (int i = 0; i < CLI_MODELS_MAX; i++) {
        const davy_source empty = {.struct_size = sizeof empty};
        sources[i] = empty;
    }
    if (a->n_models == 0) {
        sources[0].name = shipped;
        return;
    }
    out->n_sources = (uint32_t)a->n_models;
    for (int i = 0; i < a->n_models; i++) {
        /* A plain word that is not a file is the name of a shipped model. */
        const char *m = a->models[i];
        if (strpbrk(m, "/\\.") == NULL && cli_path_kind_of(m) == CLI_PATH_MISSING) {
            sources[i].name = m;
        } else {
            sources[i].path = m;
        }
    }
}

int cli_session_open_model(cli_session *s, const davy_model_desc *desc, const char *name) {
    s->model_name = name;
    davy_result r = s->api->model_open(s->context, desc, &s->model);
    if (r < 0) {
        return cli_session_fail(s, name, r);
    }
    s->info.struct_size = sizeof s->info;
    r = s->api->model_info(s->model, &s->info);
    return r < 0 ? cli_session_fail(s, name, r) : CLI_OK;
}

int cli_session_model(cli_session *s, const cli_args *a, const char *shipped, davy_task task) {
    davy_source sources[CLI_MODELS_MAX];
    davy_model_desc desc;
    cli_model_desc(a, shipped, sources, &desc);
    desc.task = task;
    return cli_session_open_model(s, &desc, a->n_models > 0 ? a->models[0] : shipped);
}

void cli_session_close(cli_session *s) {
    if (s->api != NULL) {
        s->api->model_release(s->model);
        s->api->context_release(s->context);
        davy_unload(&s->library);
    }
    memset(s, 0, sizeof *s);
}

static int32_t DAVY_CALL on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user;
    cli_progress_update(stage, done, total);
    return cli_interrupted() != 0;
}

davy_run cli_session_run(const cli_args *a) {
    const davy_run run = {.struct_size = sizeof run,
                          .seed = a->seed,
                          .tile_width = a->tile,
                          .tile_height = a->tile,
                          .tile_overlap = a->overlap,
                          .progress = on_progress};
    return run;
}

davy_tensor cli_tensor_of_picture(const cli_picture *p) {
    static const davy_channels channels[5] = {0, DAVY_CHANNELS_GRAY, DAVY_CHANNELS_GRAYA, DAVY_CHANNELS_RGB,
                                              DAVY_CHANNELS_RGBA};
    const davy_tensor t = {.struct_size = sizeof t,
                           .memory = DAVY_MEMORY_HOST,
                           .dtype = p->bits == 16 ? DAVY_DTYPE_U16 : DAVY_DTYPE_U8,
                           .layout = DAVY_LAYOUT_HWC,
                           .channels = channels[p->channels],
                           .ndim = 3,
                           .data = (uint64_t)(uintptr_t)p->pixels,
                           .shape = {p->height, p->width, p->channels}};
    return t;
}

davy_tensor cli_tensor_of_array(const cli_array *a, davy_layout layout, davy_channels channels) {
    const int64_t c = a->shape[a->ndim - 3];
    const int64_t h = a->shape[a->ndim - 2];
    const int64_t w = a->shape[a->ndim - 1];
    const int64_t bytes = a->dtype == DAVY_DTYPE_F32 ? 4 : 2;
    davy_tensor t = {.struct_size = sizeof t,
                     .memory = DAVY_MEMORY_HOST,
                     .dtype = a->dtype,
                     .layout = layout,
                     .channels = channels,
                     .range = DAVY_RANGE_RAW,
                     .ndim = 3,
                     .data = (uint64_t)(uintptr_t)a->data};
    const int64_t chw[6] = {c, h, w};
    const int64_t chw_strides[6] = {h * w * bytes, w * bytes, bytes};
    for (int i = 0; i < 3; i++) {
        const int from = layout == DAVY_LAYOUT_CHW ? i : (i + 1) % 3;
        t.shape[i] = chw[from];
        t.stride_bytes[i] = chw_strides[from];
    }
    return t;
}
