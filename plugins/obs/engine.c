/* engine.c - the list of engines, and each engine's thread. The thread opens the model, then takes pictures from a lock-free
 * stack. The newest comes first, so that outdated pictures cost nothing. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <util/platform.h>

#include "engine_work.h"
#include "plugin.h"
#include "sync.h"
#include "text.h"

struct engine {
    engine_key key;
    uint64_t number;   /* never used again for another engine */
    int32_t holders;   /* guarded by `lock` */
    engine *next;      /* of the list */
    atomic_int owners; /* one for all holders, one for the thread; the last one frees */
    bool hopeless;     /* no retry: only another setting or another installation helps */
    uint32_t wait_ms;  /* wait before the last retry */
    uint64_t ready_ns; /* when it became ready; 0: never */
    atomic_bool stop, hurry;
    atomic_int state;       /* engine_state; num, den are written before it leaves LOADING */
    char text[ENGINE_TEXT]; /* guarded by `lock` */
    int32_t num, den, device;
    plugin_semaphore wake;
    _Atomic(work *) pushed;
    davy_context *context;
    davy_model *model;
    davy_model_info info;
};

static plugin_lock lock =
    PLUGIN_LOCK_INIT; /* guards the list, holders and texts; held for a few instructions, never during work */
static engine *engines;
static uint64_t engines_so_far;

/* ---- the model ---- */

static void say(engine *e, const char *text) {
    plugin_lock_take(&lock);
    text_put(e->text, sizeof e->text, "%s", text);
    plugin_lock_give(&lock);
}

static void fail(engine *e, const davy_api *api, const char *what) {
    davy_error_info error = {.struct_size = sizeof error};
    if (api == NULL || api->last_error(&error) != DAVY_OK) {
        error.message[0] = '\0';
    }
    char text[ENGINE_TEXT];
    text_put(text, sizeof text, "%s%s%s", what, error.message[0] != '\0' ? ": " : "", error.message);
    if (strcmp(text, e->text) != 0) { /* only this thread writes it */
        plugin_log(LOG_WARNING, "%s", text);
    }
    say(e, text);
    atomic_store(&e->state, ENGINE_FAILED);
}

static int32_t DAVY_CALL stopped(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    return atomic_load(&((engine *)user)->stop) ? 1 : 0;
}

static bool open_context(engine *e, const davy_api *api) {
    char *models = obs_module_file("models");
    const davy_option options[] = {{"models_dir", models}};
    const uint32_t cores = plugin_cores();
    if (e->key.task == DAVY_TASK_CAPTION) {
        plugin_thread_yield_to_others(); /* the context's threads inherit the priority */
    }
    const davy_context_desc desc = {.struct_size = sizeof desc,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .device = e->key.device,
                                    .n_threads = (int32_t)(cores > 2 ? cores - 1 : 1), /* one stays free for OBS */
                                    .options = options,
                                    .n_options = models != NULL ? 1 : 0};
    const davy_result r = api->context_create(&desc, &e->context);
    bfree(models);
    if (r != DAVY_OK) {
        fail(e, api, obs_module_text("Davy.Error.Device"));
    }
    return r == DAVY_OK;
}

/* A path's last part, as the dialog's list of models shows it. */
static const char *last_part(const char *path) {
    const char *part = path;
    for (const char *at = path; *at != '\0'; at++) {
        if ((*at == '/' || *at == '\\') && at[1] != '\0') {
            part = at + 1;
        }
    }
    return part;
}

static bool open_model(engine *e, const davy_api *api) {
    if (e->key.model[0] == '\0') {
        e->hopeless = true;
        fail(e, NULL,
             obs_module_text(e->key.task == DAVY_TASK_CAPTION ? "Davy.Error.ChooseFolder" : "Davy.Error.Choose"));
        return false;
    }
    char other[sizeof e->key.model];
    davy_source sources[2] = {{.struct_size = sizeof(davy_source)}, {.struct_size = sizeof(davy_source)}};
    if (e->key.task == DAVY_TASK_CAPTION || strchr(e->key.model, '/') != NULL || strchr(e->key.model, '\\') != NULL) {
        sources[0].path = e->key.model;
    } else {
        sources[0].name = e->key.model;
    }
    const bool halves = e->key.task == DAVY_TASK_VAE && engine_other_half(e->key.model, other, sizeof other);
    const bool sisters = engine_sister(&e->key, other, sizeof other);
    char share[32];
    snprintf(share, sizeof share, "%d.%02d", (int)(e->key.denoise * 100.0f + 0.5f) / 100, /* in no locale */
             (int)(e->key.denoise * 100.0f + 0.5f) % 100);
    const davy_option blend = {"blend", share};
    sources[1].path = other;
    const davy_model_desc desc = {.struct_size = sizeof desc,
                                  .task = e->key.task,
                                  .sources = sources,
                                  .n_sources = halves || sisters ? 2 : 1,
                                  .options = &blend,
                                  .n_options = sisters ? 1 : 0,
                                  .compute = engine_precision(e->key.precision)};
    const davy_run run = {.struct_size = sizeof run, .progress = stopped, .progress_user = e};
    davy_model_info info = {.struct_size = sizeof info};
    if (api->model_open(e->context, &desc, &e->model) != DAVY_OK || api->model_info(e->model, &info) != DAVY_OK ||
        api->model_load(e->model, &run, NULL) != DAVY_OK) {
        if (!atomic_load(&e->stop)) {
            fail(e, api, obs_module_text("Davy.Error.Model"));
        }
        return false;
    }
    const uint32_t both = DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES;
    if (e->key.task == DAVY_TASK_VAE && (info.features & both) != both) {
        e->hopeless = true;
        fail(e, NULL, obs_module_text("Davy.Error.Half"));
        return false;
    }
    if (e->key.task == DAVY_TASK_UPSCALE) {
        e->num = info.scale_num;
        e->den = info.scale_den;
    }
    e->info = info;
    char device[160];
    e->device = engine_name_device(&e->key, api, device, sizeof device);
    char mixture[64] = "";
    if (sisters) {
        snprintf(mixture, sizeof mixture, ", %s %d %%", obs_module_text("Davy.Status.Denoise"),
                 (int)(e->key.denoise * 100.0f + 0.5f));
    }
    char text[ENGINE_TEXT];
    text_put(text, sizeof text, "%s, %s%s", last_part(e->key.model), device, mixture);
    say(e, text);
    plugin_log(LOG_INFO, "%s: architecture %s (%s)", e->key.model, info.arch, info.variant);
    return true;
}

/* Whether an error concerns this picture or question alone, such as a wrong size or too little memory at the moment. Pictures of
 * other filters may succeed. */
static bool is_of_picture(davy_result code) {
    static const davy_result codes[] = {DAVY_E_INVALID,   DAVY_E_SHAPE,       DAVY_E_UNSUPPORTED,
                                        DAVY_E_BUDGET,    DAVY_E_NOMEM_HOST,  DAVY_E_NOMEM_DEVICE,
                                        DAVY_E_TOKENIZER, DAVY_E_CONTEXT_FULL};
    bool is = false;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        is = is || code == codes[i];
    }
    return is;
}

static void work_failed(engine *e, const davy_api *api, client *owner) {
    davy_error_info error = {.struct_size = sizeof error};
    char why[sizeof owner->why];
    if (api->last_error(&error) != DAVY_OK || !is_of_picture(error.code)) {
        fail(e, api, obs_module_text("Davy.Error.Run"));
        return;
    }
    text_put(why, sizeof why, "%s: %s", obs_module_text("Davy.Error.Run"), error.message);
    if (client_say(owner, why)) {
        plugin_log(LOG_WARNING, "%s", why);
    }
}

static void take_works(engine *e, const davy_api *api) {
    const engine_model m = {
        .api = api, .model = e->model, .engine = e->number, .device = e->device, .info = &e->info, .task = e->key.task};
    work *w = atomic_exchange(&e->pushed, NULL);
    while (w != NULL) {
        work *next = atomic_load(&w->next);
        client *owner = w->owner;
        const bool ready = atomic_load(&e->state) == ENGINE_READY;
        const work_state state = ready ? engine_work(&m, w) : WORK_PASSED;
        if (state == WORK_FAILED && !atomic_load(&e->stop)) {
            work_failed(e, api, owner);
        } else if (state == WORK_DONE) {
            client_say(owner, "");
        }
        atomic_store(&w->state, state); /* the filter may free w from here on */
        client_release(owner);
        w = next;
    }
}

static void close_model(engine *e, const davy_api *api) {
    if (api != NULL) {
        api->model_release(e->model);
        api->context_release(e->context);
        e->model = NULL;
        e->context = NULL;
    }
}

static bool open_all(engine *e, const davy_api *api) {
    if (!open_context(e, api) || !open_model(e, api)) {
        return false;
    }
    e->ready_ns = plugin_now_ns();
    atomic_store(&e->state, ENGINE_READY);
    return true;
}

/* Opens everything again after a wait: a lost device or a missing file may be back. Each further wait is twice as long. */
static void try_again(engine *e, const davy_api *api) {
    enum { SOON_MS = 2000, LATER_MS = 64000, MOST_MS = 1024000, NAP_MS = 20 };
    const bool steady = e->ready_ns != 0 && plugin_now_ns() - e->ready_ns > LATER_MS * UINT64_C(1000000);
    const uint32_t first_ms = e->ready_ns != 0 ? SOON_MS : LATER_MS;
    e->wait_ms = steady || e->wait_ms == 0 ? first_ms : e->wait_ms < MOST_MS ? 2 * e->wait_ms : MOST_MS;
    bool hurry = false;
    close_model(e, api);
    for (uint32_t ms = 0; ms < e->wait_ms && !hurry && !atomic_load(&e->stop); ms += NAP_MS) {
        plugin_sleep_ms(NAP_MS);
        take_works(e, api); /* returns pictures unfinished: a filter never waits for the retry */
        hurry = atomic_exchange(&e->hurry, false);
    }
    if (!atomic_load(&e->stop) && open_all(e, api)) {
        plugin_log(LOG_INFO, "model loaded again: %s", e->text);
    }
}

static void disown(engine *e) {
    if (atomic_fetch_sub(&e->owners, 1) == 1) {
        plugin_semaphore_close(&e->wake);
        free(e);
    }
}

static void engine_thread(void *arg) {
    engine *e = arg;
    const char *why = NULL;
    const davy_api *api = plugin_davy(&why);
    if (api == NULL) {
        char text[ENGINE_TEXT];
        e->hopeless = true;
        text_put(text, sizeof text, "%s %s", obs_module_text("Davy.Error.Library"), why);
        say(e, text);
        atomic_store(&e->state, ENGINE_FAILED);
    } else if (open_all(e, api)) {
        plugin_log(LOG_INFO, "model loaded: %s", e->text);
    }
    while (!atomic_load(&e->stop)) {
        if (!e->hopeless && atomic_load(&e->state) == ENGINE_FAILED) {
            try_again(e, api);
        } else {
            plugin_semaphore_wait(&e->wake);
            take_works(e, api);
        }
    }
    take_works(e, api); /* returns the pictures that arrived last */
    close_model(e, api);
    disown(e);
}

/* ---- the list ---- */

static engine *create(const engine_key *key) {
    engine *e = calloc(1, sizeof *e);
    if (e == NULL || !plugin_semaphore_open(&e->wake)) {
        free(e);
        return NULL;
    }
    e->key = *key;
    e->number = ++engines_so_far;
    e->num = e->den = 1;
    atomic_init(&e->owners, 2);
    if (!plugin_thread_start(engine_thread, e, "davy")) {
        plugin_semaphore_close(&e->wake);
        free(e);
        return NULL;
    }
    return e;
}

engine *engine_acquire(const engine_key *key) {
    plugin_lock_take(&lock);
    engine *e = engines;
    while (e != NULL && memcmp(&e->key, key, sizeof *key) != 0) {
        e = e->next;
    }
    if (e == NULL) {
        e = create(key);
        if (e != NULL) {
            e->next = engines;
            engines = e;
        }
    }
    if (e != NULL) {
        e->holders++;
    }
    plugin_lock_give(&lock);
    return e;
}

void engine_hold(engine *e) {
    plugin_lock_take(&lock);
    e->holders++;
    plugin_lock_give(&lock);
}

void engine_release(engine *e) {
    if (e == NULL) {
        return;
    }
    plugin_lock_take(&lock);
    const bool last = --e->holders == 0;
    if (last) {
        engine **at = &engines;
        while (*at != e) {
            at = &(*at)->next;
        }
        *at = e->next;
    }
    plugin_lock_give(&lock);
    if (last) {
        atomic_store(&e->stop, true);
        plugin_semaphore_post(&e->wake);
        disown(e);
    }
}

engine_state engine_look(engine *e) {
    return (engine_state)atomic_load(&e->state);
}

void engine_hurry(engine *e) {
    if (e != NULL) {
        atomic_store(&e->hurry, engine_look(e) == ENGINE_FAILED);
    }
}

void engine_scale(const engine *e, int32_t *num, int32_t *den) {
    *num = e->num;
    *den = e->den;
}

int32_t engine_multiple(const engine *e) {
    return e->key.task == DAVY_TASK_VAE ? e->info.size_multiple : 1;
}

uint32_t engine_padded(uint32_t size, int32_t multiple) {
    const uint32_t m = multiple > 1 ? (uint32_t)multiple : 1;
    return (size + m - 1) / m * m;
}

int32_t engine_device(const engine *e) {
    return e->device;
}

void engine_text(const engine *e, char *out, size_t bytes) {
    plugin_lock_take(&lock);
    text_put(out, bytes, "%s", e->text);
    plugin_lock_give(&lock);
}

void engine_submit(engine *e, work *w) {
    atomic_fetch_add(&w->owner->refs, 1);
    w->engine = e->number;
    atomic_store(&w->owner->engine, w->engine);
    atomic_store(&w->owner->newest, w->number);
    atomic_store(&w->state, WORK_QUEUED);
    work *head = atomic_load(&e->pushed);
    do {
        atomic_store(&w->next, head);
    } while (!atomic_compare_exchange_weak(&e->pushed, &head, w));
    plugin_semaphore_post(&e->wake);
}

void engine_stop_all(void) {
    plugin_threads_end();
}
