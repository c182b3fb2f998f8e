/* context.c - see context.h. Everything a context needs from outside (environment, processor, memory) is read once,
 * here. */
#include "core/context.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/mem.h"
#include "core/model.h"
#include "core/options.h"
#include "core/os.h"
#include "core/profile.h"
#include "core/sized.h"

enum { MAX_THREADS = 1024, N_MODEL_FOLDERS = 6 };

struct davy_context {
    _Atomic int64_t refs; /* the host's handle, models, jobs, buffers */
    uint64_t process;
    dv_log log;
    dv_services services;
    dv_jobs *jobs;
    char *model_folders[N_MODEL_FOLDERS]; /* in order of search; NULL: none */
    dv_mutex *lock;                       /* guards models */
    davy_model *models;
};

static void destroy(davy_context *ctx) {
    /* Threads do not follow into a forked child, and a lock may have been held by one of them: there, only memory goes.
     */
    if (!dv_context_is_child(ctx)) {
        dv_jobs_release(ctx->jobs);
        dv_pool_release(ctx->services.pool);
        dv_mutex_release(ctx->lock);
        dv_profile_release(ctx->services.profile);
    }
    dv_heap_release(ctx->services.heap);
    for (size_t i = 0; i < N_MODEL_FOLDERS; i++) {
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
    if (d->n_threads < 0 || d->n_threads > MAX_THREADS) {
        return dv_fail(DAVY_E_INVALID, "context: n_threads is %d, expected 0 to %d", (int)d->n_threads,
                       (int)MAX_THREADS);
    }
    return DAVY_OK;
}

static davy_result check_device(const char *device) {
    if (device == NULL || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0) {
        return DAVY_OK;
    }
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0) {
        return dv_fail(DAVY_E_DEVICE, "%s: this build of davy has no CUDA back end, only \"cpu\"", device);
    }
    return dv_fail(DAVY_E_INVALID, "device \"%s\": expected \"auto\", \"cpu\" or \"cuda:…\"", device);
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

/* DAVY_THREADS and DAVY_CPU are for people, so a mistake in them is reported and not passed over. */
static davy_result count_threads(const davy_context_desc *d, bool environment, int32_t *out) {
    char *text = environment && d->n_threads == 0 ? dv_env("DAVY_THREADS") : NULL;
    int64_t n = d->n_threads != 0 ? d->n_threads : dv_min(dv_cpu_count(), MAX_THREADS);
    davy_result r = DAVY_OK;
    if (text != NULL && !dv_parse_int(text, 1, MAX_THREADS, &n)) {
        r = dv_fail(DAVY_E_OPTION, "environment: DAVY_THREADS is \"%s\", expected 1 to %d", text, (int)MAX_THREADS);
    }
    dv_free(text);
    *out = (int32_t)n;
    return r;
}

static davy_result choose_cpu(bool environment, uint32_t *out) {
    static const struct {
        const char *name;
        uint32_t bits;
    } sets[] = {{"baseline", 0},
                {"avx2", DVK_CPU_AVX2},
                {"avx512", DVK_CPU_AVX2 | DVK_CPU_AVX512},
                {"avx512bf16", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_AVX512BF16},
                {"amx", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_AVX512BF16 | DVK_CPU_AMX}};
    char *text = environment ? dv_env("DAVY_CPU") : NULL;
    davy_result r = DAVY_OK;
    *out = dvk_cpu_detect();
    if (text != NULL) {
        size_t i = 0;
        while (i < DV_ARRAY_LEN(sets) && strcmp(text, sets[i].name) != 0) {
            i++;
        }
        if (i == DV_ARRAY_LEN(sets)) {
            r = dv_fail(DAVY_E_OPTION,
                        "environment: DAVY_CPU is \"%s\", expected baseline, avx2, avx512, avx512bf16 or amx", text);
        } else {
            *out &= sets[i].bits;
        }
    }
    dv_free(text);
    return r;
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

static uint64_t default_budget(void) {
    return dv_memory_total() / 2;
}

static davy_result fill(davy_context *ctx, const davy_context_desc *d, const davy_host *host) {
    static const char *const known[] = {"models_dir", NULL};
    const bool environment = (d->flags & DAVY_CONTEXT_NO_ENVIRONMENT) == 0;
    const dv_options options = {.list = d->options, .n = d->n_options};
    dv_services *s = &ctx->services;
    int32_t n_threads = 1;
    davy_result r = dv_options_check(options, known, "context");
    r = r < 0 ? r : count_threads(d, environment, &n_threads);
    r = r < 0 ? r : choose_cpu(environment, &s->cpu);
    r = r < 0 ? r : find_folders(ctx, dv_options_get(options, "models_dir"), environment);
    if (r < 0) {
        return r;
    }
    s->log = &ctx->log;
    s->heap = dv_heap_create(d->host != NULL ? host : NULL,
                             d->host_budget_bytes != 0 ? d->host_budget_bytes : default_budget());
    s->profile = dv_profile_create();
    ctx->jobs = dv_jobs_create();
    ctx->lock = dv_mutex_create();
    if (s->heap == NULL || s->profile == NULL || ctx->jobs == NULL || ctx->lock == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
    }
    return dv_pool_create(n_threads, &s->pool);
}

davy_result dv_context_create(const davy_context_desc *desc, davy_context **out) {
    davy_host host = {0};
    dv_log log = {0};
    davy_result r = check_desc(desc);
    r = r < 0 ? r : take_host(desc, &host, &log);
    r = r < 0 ? r : check_device(desc->device);
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
    r = fill(ctx, desc, &host);
    if (r < 0) {
        destroy(ctx);
        return r;
    }
    dv_library_pin();
    dv_logf(&ctx->log, DAVY_LOG_INFO, "davy %d.%d.%d: %d threads, instruction sets 0x%x, memory budget %llu MiB",
            DAVY_VERSION_MAJOR, DAVY_VERSION_MINOR, DAVY_VERSION_PATCH, (int)dv_pool_threads(ctx->services.pool),
            (unsigned)ctx->services.cpu, (unsigned long long)(dv_heap_budget(ctx->services.heap) >> 20));
    *out = ctx;
    return DAVY_OK;
}

/* ---- memory ---- */

static uint64_t used(const davy_context *ctx) {
    dv_heap *heap = ctx->services.heap;
    return dv_heap_used(heap, DV_MEM_WEIGHTS) + dv_heap_used(heap, DV_MEM_WORKSPACE);
}

void dv_context_memory(davy_context *ctx, davy_memory_info *out) {
    dv_heap *heap = ctx->services.heap;
    memset(out, 0, sizeof *out);
    out->host_weights_bytes = dv_heap_used(heap, DV_MEM_WEIGHTS);
    out->host_workspace_bytes = dv_heap_used(heap, DV_MEM_WORKSPACE);
    out->host_peak_bytes = dv_heap_peak(heap);
    out->host_budget_bytes = dv_heap_budget(heap);
}

void dv_context_add_model(davy_context *ctx, davy_model *model) {
    dv_mutex_lock(ctx->lock);
    *dv_model_link(model) = ctx->models;
    ctx->models = model;
    dv_mutex_unlock(ctx->lock);
}

void dv_context_remove_model(davy_context *ctx, davy_model *model) {
    if (dv_context_is_child(ctx)) {
        return; /* the lock may be held for ever, and nobody walks the list any more */
    }
    dv_mutex_lock(ctx->lock);
    davy_model **at = &ctx->models;
    while (*at != NULL && *at != model) {
        at = dv_model_link(*at);
    }
    if (*at != NULL) {
        *at = *dv_model_link(model);
    }
    dv_mutex_unlock(ctx->lock);
}

/* The nth model that is still alive, with a reference: freeing memory calls the host's callbacks, so the lock must not
 * be held meanwhile. */
static davy_model *take_model(davy_context *ctx, int64_t n) {
    davy_model *found = NULL;
    dv_mutex_lock(ctx->lock);
    for (davy_model *m = ctx->models; m != NULL && found == NULL; m = *dv_model_link(m)) {
        if (n-- == 0) {
            found = dv_model_try_ref(m);
            n += found == NULL;
        }
    }
    dv_mutex_unlock(ctx->lock);
    return found;
}

bool dv_context_trim(davy_context *ctx, uint64_t keep_bytes, const davy_model *except) {
    const uint64_t before = used(ctx);
    davy_model *m = NULL;
    for (int64_t i = 0; used(ctx) > keep_bytes && (m = take_model(ctx, i)) != NULL; i++) {
        dv_engine_trim(dv_model_engine(m), 0);
        dv_model_release(m);
    }
    for (int64_t i = 0; used(ctx) > keep_bytes && (m = take_model(ctx, i)) != NULL; i++) {
        if (m != except) {
            dv_model_unload_if_idle(m);
        }
        dv_model_release(m);
    }
    return used(ctx) < before;
}

void dv_context_set_budget(davy_context *ctx, uint64_t host_bytes) {
    const uint64_t budget = host_bytes != 0 ? host_bytes : default_budget();
    dv_heap_set_budget(ctx->services.heap, budget);
    if (budget != 0) {
        dv_context_trim(ctx, budget, NULL);
    }
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
    for (size_t i = 0; i < N_MODEL_FOLDERS && is_plain_name(name); i++) {
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

dv_jobs *dv_context_jobs(const davy_context *ctx) {
    return ctx->jobs;
}

/* ---- devices ---- */

int32_t dv_device_count(void) {
    return 1;
}

davy_result dv_device_info(int32_t index, davy_device_info *out) {
    if (index < 0 || index >= dv_device_count()) {
        return dv_fail(DAVY_E_NOT_FOUND, "device %d: there are %d", (int)index, (int)dv_device_count());
    }
    memset(out, 0, sizeof *out);
    out->kind = DAVY_DEVICE_CPU;
    out->features = (dvk_cpu_detect() & DVK_CPU_AVX512BF16) != 0 ? DAVY_FEATURE_BF16 : 0;
    dv_cpu_name(out->name, sizeof out->name);
    snprintf(out->selector, sizeof out->selector, "cpu");
    out->memory_total_bytes = dv_memory_total();
    out->memory_free_bytes = dv_memory_available();
    if (out->memory_free_bytes > out->memory_total_bytes) { /* a container's limit is below what the machine has free */
        out->memory_free_bytes = out->memory_total_bytes;
    }
    return DAVY_OK;
}
