/* context.c - see context.h. Everything a context needs from outside (environment, devices, memory) is read once, while
 * it is created. */
#include "core/host/context_priv.h"

#include <stdio.h>
#include <string.h>

#include "core/host/buffer.h"
#include "core/host/environment.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/host/model.h"
#include "core/base/options.h"
#include "core/base/profile.h"
#include "core/base/sized.h"

static void destroy(davy_context *ctx) {
    /* Threads do not follow into a forked child, and a lock may have been held by one of them: there, only memory goes.
     */
    if (!dv_context_is_child(ctx)) {
        dv_jobs_release(ctx->jobs);
        if (ctx->buffers != NULL) {
            dv_buffers_reap(ctx, true);
        }
        dv_pool_release(ctx->services.pool);
        dv_mutex_release(ctx->lock);
        dv_profile_release(ctx->services.profile);
    }
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu_release(ctx->gpus[i]);
    }
    dv_heap_release(ctx->services.heap);
    for (size_t i = 0; i < DV_MODEL_FOLDERS; i++) {
        dv_free(ctx->model_folders[i]);
    }
    dv_free(ctx);
}

davy_context *dv_context_ref(davy_context *ctx) {
    atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
    return ctx;
}

void dv_context_release(davy_context *ctx) {
    if (ctx != NULL && atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) == 1) {
        destroy(ctx);
    }
}

bool dv_context_is_child(const davy_context *ctx) {
    return ctx->process != dv_process_id();
}

davy_result dv_context_check(const davy_context *ctx) {
    if (ctx == NULL) {
        return dv_fail(DAVY_E_INVALID, "context is NULL");
    }
    if (dv_context_is_child(ctx)) {
        return dv_fail(DAVY_E_FORKED, "the context was created before fork(), create one in this process");
    }
    return DAVY_OK;
}

/* ---- creation ---- */

static davy_result check_desc(const davy_context_desc *d) {
    if (d->abi_version >> 16 != DAVY_ABI_VERSION >> 16) {
        return dv_fail(DAVY_E_INVALID, "context: abi_version is 0x%x, expected DAVY_ABI_VERSION (0x%x)",
                       (unsigned)d->abi_version, (unsigned)DAVY_ABI_VERSION);
    }
    if ((d->flags & ~(uint32_t)DAVY_CONTEXT_NO_ENVIRONMENT) != 0) {
        return dv_fail(DAVY_E_INVALID, "context: flags has bits this library does not know: 0x%x", (unsigned)d->flags);
    }
    if (d->reserved0 != 0) {
        return dv_fail(DAVY_E_INVALID, "context: reserved0 must be 0");
    }
    if (d->n_threads < 0 || d->n_threads > DV_THREADS_MAX) {
        return dv_fail(DAVY_E_INVALID, "context: n_threads is %d, expected 0 to %d", (int)d->n_threads,
                       (int)DV_THREADS_MAX);
    }
    return DAVY_OK;
}

static davy_result take_host(const davy_context_desc *d, davy_host *host, dv_log *log) {
    if (d->host == NULL) {
        return DAVY_OK;
    }
    const davy_result r = dv_sized_in(d->host, sizeof *host, sizeof *host, "host", host);
    if (r < 0) {
        return r;
    }
    if ((host->alloc == NULL) != (host->free == NULL) || (host->device_alloc == NULL) != (host->device_free == NULL)) {
        return dv_fail(DAVY_E_INVALID,
                       "host: alloc and free come both or not at all, device_alloc and device_free too");
    }
    if (host->log_level < DAVY_LOG_NONE || host->log_level > DAVY_LOG_DEBUG) {
        return dv_fail(DAVY_E_INVALID, "host: log_level is %d, expected 0 to 5", (int)host->log_level);
    }
    *log = (dv_log){.fn = host->log, .user = host->user, .level = host->log_level};
    return DAVY_OK;
}

/* Given folder, environment, then where the library and its models are installed or built together. */
static davy_result find_folders(davy_context *ctx, const char *given, bool environment) {
    static const char *const beside[] = {"models", "../share/davy/models", "../../share/davy/models",
                                         "../packaging/models"};
    char *library = dv_library_folder();
    bool ok = true;
    if (given != NULL) {
        ctx->model_folders[0] = dv_strdup(given);
        ok = ctx->model_folders[0] != NULL;
    }
    ctx->model_folders[1] = environment ? dv_env("DAVY_MODELS") : NULL;
    for (size_t i = 0; i < DV_ARRAY_LEN(beside) && library != NULL; i++) {
        ctx->model_folders[2 + i] = dv_path_join(library, beside[i]);
        ok = ok && ctx->model_folders[2 + i] != NULL;
    }
    dv_free(library);
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
}

static davy_result open_devices(davy_context *ctx, const davy_context_desc *d, bool environment) {
    const dv_options options = {.list = d->options, .n = d->n_options};
    dv_devices_desc desc = {.library_dir = d->library_dir,
                            .cuda_context = d->cuda_context,
                            .budget_bytes = d->device_budget_bytes,
                            .host = &ctx->host,
                            .log = &ctx->log,
                            .heap = ctx->services.heap};
    char *selector = NULL;
    davy_result r = dv_env_device(environment, d->device, &selector);
    r = r < 0 ? r : dv_env_nvidia(environment, dv_options_get(options, "nvidia_libraries"), &desc.nvidia);
    desc.selector = selector;
    r = r < 0 ? r : dv_devices_open(&desc, ctx->gpus, &ctx->services.n_gpus);
    dv_free(selector);
    ctx->services.gpus = ctx->gpus;
    if (r == DAVY_OK && ctx->services.n_gpus > 0) {
        const dvk_cuda_caps *caps = dv_gpu_caps(ctx->gpus[0]);
        const dv_peak peak = {
            .tensor = caps->tensor_tflops * 1e3, .simt = caps->simt_tflops * 1e3, .bytes = caps->memory_gbs};
        dv_profile_set_peak(ctx->services.profile, &peak);
    }
    return r;
}

static davy_result fill(davy_context *ctx, const davy_context_desc *d) {
    static const char *const known[] = {"models_dir", "nvidia_libraries", NULL};
    const bool environment = (d->flags & DAVY_CONTEXT_NO_ENVIRONMENT) == 0;
    const dv_options options = {.list = d->options, .n = d->n_options};
    dv_services *s = &ctx->services;
    int32_t n_threads = 1;
    davy_result r = dv_options_check(options, known, "context");
    r = r < 0 ? r : dv_env_threads(environment, d->n_threads, &n_threads);
    r = r < 0 ? r : dv_env_cpu(environment, &s->cpu);
    r = r < 0 ? r : find_folders(ctx, dv_options_get(options, "models_dir"), environment);
    if (r < 0) {
        return r;
    }
    s->log = &ctx->log;
    s->heap = dv_heap_create(d->host != NULL ? &ctx->host : NULL,
                             d->host_budget_bytes != 0 ? d->host_budget_bytes : dv_context_default_budget());
    s->profile = dv_profile_create();
    ctx->jobs = dv_jobs_create();
    ctx->lock = dv_mutex_create();
    if (s->heap == NULL || s->profile == NULL || ctx->jobs == NULL || ctx->lock == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
    }
    r = open_devices(ctx, d, environment);
    return r < 0 ? r : dv_pool_create(n_threads, &s->pool);
}

static void tell(const davy_context *ctx) {
    const dv_services *s = &ctx->services;
    dv_logf(&ctx->log, DAVY_LOG_INFO, "davy %d.%d.%d: %d threads, instruction sets 0x%x, memory budget %llu MiB",
            DAVY_VERSION_MAJOR, DAVY_VERSION_MINOR, DAVY_VERSION_PATCH, (int)dv_pool_threads(s->pool), (unsigned)s->cpu,
            (unsigned long long)(dv_heap_budget(s->heap) >> 20));
    for (int32_t i = 0; i < s->n_gpus; i++) {
        dv_logf(&ctx->log, DAVY_LOG_INFO, "cuda:%d computes, memory budget %llu MiB", (int)dv_gpu_index(s->gpus[i]),
                (unsigned long long)(dv_gpu_budget(s->gpus[i]) >> 20));
    }
}

davy_result dv_context_create(const davy_context_desc *desc, davy_context **out) {
    davy_host host = {0};
    dv_log log = {0};
    davy_result r = check_desc(desc);
    r = r < 0 ? r : take_host(desc, &host, &log);
    if (r < 0) {
        return r;
    }
    davy_context *ctx = dv_calloc(1, sizeof *ctx);
    if (ctx == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
    }
    atomic_init(&ctx->refs, 1);
    ctx->process = dv_process_id();
    ctx->log = log;
    ctx->host = host;
    r = fill(ctx, desc);
    if (r < 0) {
        destroy(ctx);
        return r;
    }
    dv_library_pin();
    tell(ctx);
    *out = ctx;
    return DAVY_OK;
}

/* ---- shipped models ---- */

/* A name is a name: with a separator or a dot in front it would be a way out of the folder. */
static bool is_plain_name(const char *name) {
    return name[0] != '\0' && name[0] != '.' && strpbrk(name, "/\\:") == NULL;
}

davy_result dv_context_find_model(const davy_context *ctx, const char *name, char **path) {
    static const char *const endings[] = {"", ".safetensors"};
    char tried[400] = "";
    size_t n = 0;
    for (size_t i = 0; i < DV_MODEL_FOLDERS && is_plain_name(name); i++) {
        const char *folder = ctx->model_folders[i];
        for (size_t k = 0; k < DV_ARRAY_LEN(endings) && folder != NULL; k++) {
            char *file = dv_sprintf("%s/%s%s", folder, name, endings[k]);
            if (file == NULL) {
                return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name);
            }
            if (dv_path_stat(file) == DV_PATH_FILE) {
                *path = file;
                return DAVY_OK;
            }
            dv_free(file);
        }
        if (folder != NULL && n < sizeof tried) {
            n += (size_t)dv_max(0, snprintf(tried + n, sizeof tried - n, "%s%s", n > 0 ? ", " : "", folder));
        }
    }
    return dv_fail(DAVY_E_NOT_FOUND, "no model called \"%s\" is shipped with davy%s%s", name,
                   n > 0 ? "; looked in " : "", tried);
}

const dv_services *dv_context_services(const davy_context *ctx) {
    return &ctx->services;
}

bool dv_context_on_gpu(const davy_context *ctx) {
    return ctx->services.n_gpus > 0;
}

dv_gpu *dv_context_gpu(const davy_context *ctx, int32_t device) {
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        if (dv_gpu_index(ctx->gpus[i]) == device) {
            return ctx->gpus[i];
        }
    }
    return NULL;
}

dv_jobs *dv_context_jobs(const davy_context *ctx) {
    return ctx->jobs;
}
