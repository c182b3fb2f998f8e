/* context.c - see context.h. Creation reads environment, devices and memory size once. Models and busy buffers register
 * entries in the context's lists; the context calls them through these entries. */
#include "core/host/context.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/os.h"
#include "core/base/profile.h"
#include "core/base/sized.h"

#define BUSY_POLL_NS 100000ull

enum { MODEL_FOLDERS = 6 };

struct davy_context {
    _Atomic int64_t refs; /* the host's handle, models, jobs, buffers */
    uint64_t process;
    dv_log log;
    davy_host host; /* zeros if the host gave none */
    dv_services services;
    dv_gpu *gpus[DV_GPUS_MAX];
    dv_jobs *jobs;
    char *model_folders[MODEL_FOLDERS]; /* in search order; NULL: not set */
    dv_mutex *lock;                     /* guards models, busy */
    dv_model_entry *models;
    dv_busy_buffer *busy;
};

/* Default budget of host memory; 0: no limit. */
static uint64_t default_budget(void) {
    return dv_memory_total() / 2;
}

static void destroy(davy_context *ctx) {
    /* A forked child has no threads, and locks may stay locked. There only memory is freed. */
    if (!dv_context_is_child(ctx)) {
        dv_jobs_release(ctx->jobs);
        if (ctx->busy != NULL) {
            dv_context_free_idle(ctx, true);
        }
        dv_pool_release(ctx->services.pool);
        dv_mutex_release(ctx->lock);
        dv_profile_release(ctx->services.profile);
    }
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu_release(ctx->gpus[i]);
    }
    dv_heap_release(ctx->services.heap);
    for (size_t i = 0; i < MODEL_FOLDERS; i++) {
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
        return dv_fail(DAVY_E_FORKED, "the context was created before fork(); create one in this process");
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
        return dv_fail(DAVY_E_INVALID, "context: flags has unknown bits: 0x%x", (unsigned)d->flags);
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
                       "host: set both of alloc and free or neither; the same for device_alloc and device_free");
    }
    if (host->log_level < DAVY_LOG_NONE || host->log_level > DAVY_LOG_DEBUG) {
        return dv_fail(DAVY_E_INVALID, "host: log_level is %d, expected 0 to 5", (int)host->log_level);
    }
    *log = (dv_log){.fn = host->log, .user = host->user, .level = host->log_level};
    return DAVY_OK;
}

/* Search order: the given folder, DAVY_MODELS, then folders beside the library (installed or built). */
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
    const dv_jobs_owner owner = {.context = ctx, .ref = dv_context_ref, .release = dv_context_release};
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
                             d->host_budget_bytes != 0 ? d->host_budget_bytes : default_budget());
    s->profile = dv_profile_create();
    ctx->jobs = dv_jobs_create(&owner);
    ctx->lock = dv_mutex_create();
    if (s->heap == NULL || s->profile == NULL || ctx->jobs == NULL || ctx->lock == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
    }
    r = open_devices(ctx, d, environment);
    return r < 0 ? r : dv_pool_create(n_threads, &s->pool);
}

static void log_setup(const davy_context *ctx) {
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
    log_setup(ctx);
    *out = ctx;
    return DAVY_OK;
}

/* ---- shipped models ---- */

/* Rejects separators and a leading dot: such a name could leave the folder. */
static bool is_plain_name(const char *name) {
    return name[0] != '\0' && name[0] != '.' && strpbrk(name, "/\\:") == NULL;
}

davy_result dv_context_find_model(const davy_context *ctx, const char *name, char **path) {
    static const char *const endings[] = {"", ".safetensors"};
    char tried[400] = "";
    size_t n = 0;
    for (size_t i = 0; i < MODEL_FOLDERS && is_plain_name(name); i++) {
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
    return dv_fail(DAVY_E_NOT_FOUND, "model \"%s\" is not shipped with davy%s%s", name, n > 0 ? "; searched " : "",
                   tried);
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

/* ---- memory in use ---- */

static uint64_t used(const davy_context *ctx) {
    dv_heap *heap = ctx->services.heap;
    return dv_heap_used(heap, DV_MEM_WEIGHTS) + dv_heap_used(heap, DV_MEM_WORKSPACE);
}

/* Allocated memory of all GPUs, without the unused memory of their pools. */
static uint64_t device_used(const davy_context *ctx) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        bytes += dv_gpu_used(ctx->gpus[i], DV_MEM_WEIGHTS) + dv_gpu_used(ctx->gpus[i], DV_MEM_WORKSPACE);
    }
    return bytes;
}

static uint64_t device_cached(const davy_context *ctx) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        bytes += dv_gpu_cached(ctx->gpus[i]);
    }
    return bytes;
}

void dv_context_memory(davy_context *ctx, davy_memory_info *out) {
    dv_heap *heap = ctx->services.heap;
    memset(out, 0, sizeof *out);
    out->host_weights_bytes = dv_heap_used(heap, DV_MEM_WEIGHTS);
    out->host_workspace_bytes = dv_heap_used(heap, DV_MEM_WORKSPACE);
    out->host_peak_bytes = dv_heap_peak(heap);
    out->host_budget_bytes = dv_heap_budget(heap);
    out->device_cache_bytes = device_cached(ctx);
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu *gpu = ctx->gpus[i];
        out->device_weights_bytes += dv_gpu_used(gpu, DV_MEM_WEIGHTS);
        out->device_workspace_bytes += dv_gpu_used(gpu, DV_MEM_WORKSPACE);
        out->device_peak_bytes += dv_gpu_peak(gpu);
        out->device_budget_bytes += dv_gpu_budget(gpu);
    }
}

/* ---- objects of a context ---- */

void dv_context_add_model(davy_context *ctx, dv_model_entry *entry) {
    dv_mutex_lock(ctx->lock);
    entry->next = ctx->models;
    ctx->models = entry;
    dv_mutex_unlock(ctx->lock);
}

void dv_context_remove_model(davy_context *ctx, dv_model_entry *entry) {
    if (dv_context_is_child(ctx)) {
        return; /* in a forked child the lock may stay locked, and no thread walks the list */
    }
    dv_mutex_lock(ctx->lock);
    dv_model_entry **at = &ctx->models;
    while (*at != NULL && *at != entry) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = entry->next;
    }
    dv_mutex_unlock(ctx->lock);
}

/* Returns the nth living model with a reference. The caller can then work without the lock, as freeing memory calls the
 * host's callbacks. */
static dv_model_entry *take_model(davy_context *ctx, int64_t n) {
    dv_model_entry *found = NULL;
    dv_mutex_lock(ctx->lock);
    for (dv_model_entry *e = ctx->models; e != NULL && found == NULL; e = e->next) {
        if (n-- == 0) {
            found = e->calls->try_ref(e->model) != NULL ? e : NULL;
            n += found == NULL;
        }
    }
    dv_mutex_unlock(ctx->lock);
    return found;
}

void dv_context_add_busy(davy_context *ctx, dv_busy_buffer *entry) {
    dv_mutex_lock(ctx->lock);
    entry->next = ctx->busy;
    ctx->busy = entry;
    dv_mutex_unlock(ctx->lock);
}

static dv_busy_buffer *take_busy(davy_context *ctx) {
    dv_mutex_lock(ctx->lock);
    dv_busy_buffer *all = ctx->busy;
    ctx->busy = NULL;
    dv_mutex_unlock(ctx->lock);
    return all;
}

void dv_context_free_idle(davy_context *ctx, bool wait) {
    davy_error_info saved;
    dv_error_get(&saved);
    dv_busy_buffer *e = take_busy(ctx);
    while (e != NULL) {
        dv_busy_buffer *next = e->next;
        bool freed = e->free_if_idle(e->buffer);
        while (wait && !freed) {
            dv_sleep_ns(BUSY_POLL_NS);
            freed = e->free_if_idle(e->buffer);
        }
        if (!freed) {
            dv_context_add_busy(ctx, e);
        }
        e = next;
    }
    dv_error_set(&saved);
}

/* ---- freeing memory ---- */

static bool over(const davy_context *ctx, const dv_keep *keep) {
    return used(ctx) > keep->host_bytes || device_used(ctx) > keep->device_bytes;
}

bool dv_context_trim(davy_context *ctx, const dv_keep *keep, const davy_model *except) {
    const uint64_t before = used(ctx);
    const uint64_t device_before = device_used(ctx) + device_cached(ctx);
    dv_model_entry *m = NULL;
    dv_context_free_idle(ctx, false);
    for (int32_t i = 0; i < ctx->services.n_gpus && over(ctx, keep); i++) {
        dv_gpu_unpin_idle(ctx->gpus[i]);
    }
    for (int64_t i = 0; over(ctx, keep) && (m = take_model(ctx, i)) != NULL; i++) {
        m->calls->trim(m->model);
        m->calls->release(m->model);
    }
    for (int64_t i = 0; over(ctx, keep) && (m = take_model(ctx, i)) != NULL; i++) {
        if (m->model != except) {
            m->calls->unload_if_idle(m->model);
        }
        m->calls->release(m->model);
    }
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        if (device_used(ctx) + device_cached(ctx) > keep->device_bytes) {
            dv_gpu_trim(ctx->gpus[i]);
        }
    }
    return used(ctx) < before || device_used(ctx) + device_cached(ctx) < device_before;
}

void dv_context_set_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes) {
    const uint64_t budget = host_bytes != 0 ? host_bytes : default_budget();
    dv_keep keep = {.host_bytes = budget != 0 ? budget : UINT64_MAX};
    dv_heap_set_budget(ctx->services.heap, budget);
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu_set_budget(ctx->gpus[i], device_bytes);
        keep.device_bytes += dv_gpu_budget(ctx->gpus[i]);
    }
    dv_context_trim(ctx, &keep, NULL);
    dv_model_entry *m = NULL;
    for (int64_t i = 0; (m = take_model(ctx, i)) != NULL; i++) {
        m->calls->review(m->model);
        m->calls->release(m->model);
    }
}
