/* test_obs_engine.c - the OBS plugin's engine thread over a mock library, whose calls fail and take time on request. Tested: errors
 * that concern one filter alone, retries, a filter that changes its model. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/obs/engine_work.h"
#include "plugins/obs/plugin.h"
#include "plugins/obs/sync.h"
#include "plugins/obs/text.h"
#include "tests/lib/check.h"

enum { SIDE = 8, ODD = 7, MOST_MS = 20000 };

/* ---- the library ---- */

static struct {
    atomic_int contexts, opens, inside, most_inside, fail_open, fail_run;
    atomic_bool slow;
} fake;

static _Thread_local davy_result failure;

static davy_result fails_with(davy_result r) {
    failure = r;
    return r;
}

static davy_result DAVY_CALL last_error(davy_error_info *out) {
    out->code = failure;
    snprintf(out->message, sizeof out->message, "error %d", (int)failure);
    return DAVY_OK;
}

static davy_result DAVY_CALL device_count(const davy_context_desc *desc, int32_t *out) {
    (void)desc;
    *out = 0;
    return DAVY_OK;
}

static davy_result DAVY_CALL context_create(const davy_context_desc *desc, davy_context **out) {
    (void)desc;
    *out = NULL;
    atomic_fetch_add(&fake.contexts, 1);
    return DAVY_OK;
}

static void DAVY_CALL context_release(davy_context *ctx) {
    (void)ctx;
}

static davy_result DAVY_CALL model_open(davy_context *ctx, const davy_model_desc *desc, davy_model **out) {
    (void)ctx;
    (void)desc;
    *out = NULL;
    atomic_fetch_add(&fake.opens, 1);
    const int r = atomic_exchange(&fake.fail_open, DAVY_OK);
    return r < 0 ? fails_with(r) : DAVY_OK;
}

static void DAVY_CALL model_release(davy_model *model) {
    (void)model;
}

static davy_result DAVY_CALL model_info(davy_model *model, davy_model_info *out) {
    (void)model;
    snprintf(out->arch, sizeof out->arch, "none");
    out->scale_num = out->scale_den = 1;
    return DAVY_OK;
}

static davy_result DAVY_CALL model_load(davy_model *model, const davy_run *run, davy_job **job) {
    (void)model;
    (void)run;
    (void)job;
    return DAVY_OK;
}

static davy_result compute(const davy_run *run, const davy_tensor *in) {
    for (int ms = 0; atomic_load(&fake.slow) && ms < MOST_MS; ms++) {
        plugin_sleep_ms(1);
        if (run->progress(run->progress_user, "upscale", 0, 1) != 0) {
            return fails_with(DAVY_E_CANCELLED);
        }
    }
    const int r = atomic_exchange(&fake.fail_run, DAVY_OK);
    return in->shape[1] == ODD ? fails_with(DAVY_E_SHAPE) : r < 0 ? fails_with(r) : DAVY_OK;
}

static davy_result DAVY_CALL upscale(davy_model *model, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                                     davy_job **job) {
    (void)model;
    (void)out;
    (void)job;
    const int inside = atomic_fetch_add(&fake.inside, 1) + 1;
    if (inside > atomic_load(&fake.most_inside)) {
        atomic_store(&fake.most_inside, inside);
    }
    const davy_result r = compute(run, in);
    atomic_fetch_sub(&fake.inside, 1);
    return r;
}

static const davy_api api = {.struct_size = sizeof api,
                             .abi_version = DAVY_ABI_VERSION,
                             .last_error = last_error,
                             .device_count = device_count,
                             .context_create = context_create,
                             .context_release = context_release,
                             .model_open = model_open,
                             .model_release = model_release,
                             .model_info = model_info,
                             .model_load = model_load,
                             .upscale = upscale};

/* ---- mocks of the plugin's functions that an engine calls ---- */

const davy_api *plugin_davy(const char **why) {
    *why = "";
    return &api;
}

const char *obs_module_text(const char *key) {
    return key;
}

obs_module_t *obs_current_module(void) {
    return NULL;
}

bool engine_vae(const engine_model *m, const work *w) {
    (void)m;
    (void)w;
    return false;
}

bool engine_caption(const engine_model *m, work *w) {
    (void)m;
    (void)w;
    return false;
}

void test_sleep_ms(uint32_t ms);

/* Replaces plugin_sleep_ms in engine.c: waits before a retry take a hundredth of the time. */
void test_sleep_ms(uint32_t ms) {
    const struct timespec t = {.tv_nsec = (long)ms * 10000};
    nanosleep(&t, NULL);
}

/* ---- pictures ---- */

static uint8_t pixels[SIDE * SIDE * 4];
static uint8_t results[SIDE * SIDE * 4];

typedef struct filter {
    client *client;
    work work;
} filter;

static engine *acquire(const char *model) {
    engine_key key;
    memset(&key, 0, sizeof key);
    key.task = DAVY_TASK_UPSCALE;
    key.denoise = -1.0f;
    snprintf(key.model, sizeof key.model, "%s", model);
    return engine_acquire(&key);
}

static bool becomes(engine *e, engine_state state) {
    for (int ms = 0; ms < MOST_MS && engine_look(e) != state; ms++) {
        plugin_sleep_ms(1);
    }
    return engine_look(e) == state;
}

static void hand_over(engine *e, filter *f, uint32_t width, uint64_t number) {
    memset(pixels, (int)number, sizeof pixels);
    f->work = (work){.owner = f->client,
                     .number = number,
                     .width = width,
                     .height = SIDE,
                     .out_width = width,
                     .out_height = SIDE,
                     .in = pixels,
                     .out = results,
                     .in_stride = SIDE * 4,
                     .out_stride = SIDE * 4};
    engine_submit(e, &f->work);
}

static work_state settled(filter *f) {
    for (int ms = 0; ms < MOST_MS && atomic_load(&f->work.state) == WORK_QUEUED; ms++) {
        plugin_sleep_ms(1);
    }
    return (work_state)atomic_load(&f->work.state);
}

static work_state show(engine *e, filter *f, uint32_t width, uint64_t number) {
    hand_over(e, f, width, number);
    return settled(f);
}

/* ---- the tests ---- */

/* A picture that the network rejects is an error of one filter. Filters that share the model continue, and so does this one. */
static void test_one_filter(void) {
    char why[512] = "";
    engine *e = acquire("shared");
    filter odd = {.client = client_create()};
    filter other = {.client = client_create()};
    CHECK(becomes(e, ENGINE_READY));
    CHECK(show(e, &odd, ODD, 1) == WORK_FAILED);
    CHECK(client_why(odd.client, why, sizeof why) && strstr(why, "error") != NULL);
    CHECK(engine_look(e) == ENGINE_READY);
    CHECK(show(e, &other, SIDE, 2) == WORK_DONE);
    CHECK(!client_why(other.client, why, sizeof why));
    CHECK(show(e, &odd, ODD, 3) == WORK_PASSED); /* not retried in each frame */
    CHECK(show(e, &odd, SIDE, 4) == WORK_DONE);  /* another size is tried at once */
    CHECK(!client_why(odd.client, why, sizeof why));
    client_release(odd.client);
    client_release(other.client);
    engine_release(e);
}

/* After the loss of a device, three times in a row, the engine opens it again and computes pictures. */
static void test_lost(void) {
    engine *e = acquire("lost");
    filter f = {.client = client_create()};
    CHECK(becomes(e, ENGINE_READY));
    for (int i = 0; i < 3; i++) {
        const int before = atomic_load(&fake.contexts);
        atomic_store(&fake.fail_run, DAVY_E_DEVICE_LOST);
        CHECK(show(e, &f, SIDE, (uint64_t)(10 + 2 * i)) == WORK_FAILED);
        CHECKF(becomes(e, ENGINE_READY), "loss %d of the device: the engine does not recover", i + 1);
        CHECK(atomic_load(&fake.contexts) == before + 1);
        f.client->failed_on = 0; /* as if PROBE_NS had passed */
        CHECK(show(e, &f, SIDE, (uint64_t)(11 + 2 * i)) == WORK_DONE);
    }
    client_release(f.client);
    engine_release(e);
}

/* A missing file has appeared. A change of a setting opens it at once, without the rest of the wait. */
static void test_hurry(void) {
    atomic_store(&fake.fail_open, DAVY_E_NOT_FOUND);
    engine *e = acquire("missing");
    CHECK(becomes(e, ENGINE_FAILED));
    engine_hurry(e);
    CHECK(becomes(e, ENGINE_READY));
    engine_release(e);
}

/* A filter that has changed its model has a picture in each of two engines. They must not compute for it at the same time, and the
 * old engine stops. */
static void test_change(void) {
    engine *slow = acquire("slow");
    engine *next = acquire("next");
    filter f = {.client = client_create()};
    filter g = {.client = f.client}; /* another slot of the same filter */
    CHECK(becomes(slow, ENGINE_READY) && becomes(next, ENGINE_READY));
    atomic_store(&fake.most_inside, 0);
    atomic_store(&fake.slow, true);
    hand_over(slow, &f, SIDE, 21);
    while (atomic_load(&fake.inside) == 0) {
        plugin_sleep_ms(1);
    }
    hand_over(next, &g, SIDE, 22);
    CHECK(settled(&f) == WORK_STALE);
    atomic_store(&fake.slow, false);
    CHECK(settled(&g) == WORK_DONE);
    CHECKF(atomic_load(&fake.most_inside) == 1, "%d threads compute for one filter", atomic_load(&fake.most_inside));
    CHECK(engine_look(slow) == ENGINE_READY);
    client_release(f.client);
    engine_release(slow);
    engine_release(next);
}

/* A text is cut between characters. */
static void test_text(void) {
    char text[8];
    text_put(text, sizeof text, "abcdef\xc3\xa4");
    CHECK(strcmp(text, "abcdef") == 0);
    text_put(text, sizeof text, "%.5s", "ab\xe3\x81\x82\xe3\x81\x82");
    CHECK(strcmp(text, "ab\xe3\x81\x82") == 0);
    text_put(text, sizeof text, "%.4s", "ab\xe3\x81\x82");
    text_add(text, sizeof text, "\xf0\x9f\x98\x80%d", 12345);
    CHECK(strcmp(text, "ab\xf0\x9f\x98\x80"
                       "1") == 0);
}

int main(void) {
    test_one_filter();
    test_lost();
    test_hurry();
    test_change();
    test_text();
    engine_stop_all();
    return check_done();
}
