/* filter.c - a filter on the graphics thread: sizes, choice of the engine, drawing. */
#include "filter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <util/profiler.h>

#define IDLE_SECONDS  60.0f
#define TEXTURE_MOST  16384u
#define PAUSE_SECONDS 0.25f /* after a longer pause, results from before it are not shown */

/* ---- sizes ---- */

static double factor_wanted(const filter *f) {
    const int scale = f->settings.scale;
    struct obs_video_info canvas;
    if (scale > 0) {
        return scale;
    }
    if (scale < SCALE_CANVAS) {
        return -(double)scale / f->height;
    }
    if (scale == SCALE_CANVAS && obs_get_video_info(&canvas)) {
        return fmin((double)canvas.base_width / f->width, (double)canvas.base_height / f->height);
    }
    return 0.0;
}

static uint32_t grown(uint32_t size, double factor) {
    const double to = floor(size * factor + 0.5);
    return to < 1.0 ? 1 : to > TEXTURE_MOST ? TEXTURE_MOST : (uint32_t)to;
}

static bool ready(const filter *f) {
    return f->engine != NULL && engine_look(f->engine) == ENGINE_READY;
}

static bool failed(const filter *f) {
    return f->engine != NULL && engine_look(f->engine) == ENGINE_FAILED;
}

/* Size and settings of the engine's result. false: the result is larger than a texture can be. */
static bool goal_of(const filter *f, frames_goal *goal) {
    int32_t num = 1;
    int32_t den = 1;
    engine_scale(f->engine, &num, &den);
    goal->width = (uint32_t)((uint64_t)f->width * (uint32_t)num / (uint32_t)den);
    goal->height = (uint32_t)((uint64_t)f->height * (uint32_t)num / (uint32_t)den);
    goal->sdr_white = f->frames.space == GS_CS_SRGB_16F ? 0.0f : obs_get_video_sdr_white_level();
    goal->latent = f->settings.latent;
    goal->strength = f->settings.strength;
    goal->in_place = f->kind == FILTER_VAE;
    return goal->width > 0 && goal->height > 0 && goal->width <= TEXTURE_MOST && goal->height <= TEXTURE_MOST;
}

static void set_size(filter *f) {
    double factor = failed(f) ? 0.0 : factor_wanted(f);
    if (f->settings.scale == SCALE_MODEL && ready(f)) {
        int32_t num = 1;
        int32_t den = 1;
        engine_scale(f->engine, &num, &den);
        factor = (double)num / den;
    }
    atomic_store(&f->out_width, factor > 0.0 ? grown(f->width, factor) : 0);
    atomic_store(&f->out_height, factor > 0.0 ? grown(f->height, factor) : 0);
}

/* ---- the engine ---- */

static void key_wanted(const filter *f, engine_key *key) {
    memset(key, 0, sizeof *key);
    const filter_settings *s = &f->settings;
    key->task = f->kind == FILTER_VAE ? DAVY_TASK_VAE : DAVY_TASK_UPSCALE;
    if (s->model[0] != '\0' || f->kind == FILTER_VAE) {
        snprintf(key->model, sizeof key->model, "%s", s->model);
    } else {
        const double factor = factor_wanted(f);
        snprintf(key->model, sizeof key->model, "%s", factor > 2.0 ? "davy-live-x4" : "davy-live-x2");
    }
    key->denoise = strstr(key->model, ENGINE_HAS_SISTER) != NULL ? s->denoise : -1.0f;
    snprintf(key->device, sizeof key->device, "%s", s->device);
    snprintf(key->precision, sizeof key->precision, "%s", s->precision);
}

static void drop_engines(filter *f) {
    engine_release(f->next);
    engine_release(f->engine);
    f->next = NULL;
    f->engine = NULL;
}

/* The engine in use works on until the new one has loaded or failed, so that a change of model shows no gap. */
static void choose_engine(filter *f) {
    engine_key key;
    key_wanted(f, &key);
    if (f->engine == NULL) {
        f->engine = engine_acquire(&key);
        f->key = key;
    } else if (memcmp(&key, &f->key, sizeof key) == 0) {
        engine_release(f->next); /* the user has changed the setting back */
        f->next = NULL;
    } else if (f->next == NULL || memcmp(&key, &f->next_key, sizeof key) != 0) {
        engine_release(f->next);
        f->next = engine_acquire(&key);
        f->next_key = key;
    }
    if (f->next != NULL && engine_look(f->next) != ENGINE_LOADING) {
        engine_release(f->engine);
        f->engine = f->next;
        f->key = f->next_key;
        f->next = NULL;
    }
}

/* ---- creation and destruction ---- */

static const char *upscale_name(void *unused) {
    (void)unused;
    return obs_module_text("Davy.Upscale.Name");
}

static const char *vae_name(void *unused) {
    (void)unused;
    return obs_module_text("Davy.Vae.Name");
}

static void update(void *data, obs_data_t *settings) {
    filter *f = data;
    filter_read(settings, &f->settings);
    atomic_store(&f->client->budget_us, f->settings.budget_ms * 1000);
    engine_hurry(f->engine);
}

/* OBS is about to lose its graphics device. The engine must stop using mapped memory first. */
static void device_lost(void *data) {
    filter *f = data;
    atomic_store(&f->client->gone, true);
    frames_wait(&f->frames);
    atomic_store(&f->client->gone, false);
    atomic_store(&f->client->forget, true);
    frames_lose(&f->frames);
}

static void *create(filter_kind kind, obs_data_t *settings, obs_source_t *context) {
    filter *f = bzalloc(sizeof *f);
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    f->context = context;
    f->kind = kind;
    f->lock = fresh;
    f->client = client_create();
    if (f->client == NULL) {
        bfree(f);
        return NULL;
    }
    frames_open(&f->frames);
    plugin_tell_loss(device_lost, f);
    update(f, settings);
    filter_offer(f);
    return f;
}

static void *upscale_create(obs_data_t *settings, obs_source_t *context) {
    return create(FILTER_UPSCALE, settings, context);
}

static void *vae_create(obs_data_t *settings, obs_source_t *context) {
    return create(FILTER_VAE, settings, context);
}

/* Cancels running work, so that other filters do not wait for it. OBS destroys the filter later, on a thread that destroys one
 * source after another. */
static void removed(void *data, obs_source_t *source) {
    filter *f = data;
    (void)source;
    atomic_store(&f->client->gone, true);
}

static void destroy(void *data) {
    filter *f = data;
    filter_withdraw(f);
    atomic_store(&f->client->gone, true);
    frames_wait(&f->frames);
    obs_enter_graphics();
    plugin_forget_loss(f);
    frames_close(&f->frames);
    obs_leave_graphics();
    drop_engines(f);
    client_release(f->client);
    bfree(f);
}

/* ---- a frame ---- */

static void turn(filter *f, float seconds) {
    obs_source_t *target = obs_filter_get_target(f->context);
    f->width = target != NULL ? obs_source_get_base_width(target) : 0;
    f->height = target != NULL ? obs_source_get_base_height(target) : 0;
    f->since_drawn = f->drawn ? 0.0f : f->since_drawn + seconds;
    f->drawn = false;
    filter_offer_hotkey(f);
    if (f->width == 0 || f->height == 0) {
        atomic_store(&f->out_width, 0);
        atomic_store(&f->out_height, 0);
        return;
    }
    if (f->since_drawn > IDLE_SECONDS && !f->settings.keep_loaded) {
        drop_engines(f);
        f->idle = true;
    } else if (!f->idle) {
        choose_engine(f);
    }
    set_size(f);
    filter_say(f, seconds);
}

static void tick(void *data, float seconds) {
    static const char *const measured = "davy_filter_tick";
    profile_start(measured);
    turn(data, seconds);
    profile_end(measured);
}

static enum gs_color_space space_of(const filter *f, size_t count, const enum gs_color_space *preferred) {
    static const enum gs_color_space can[] = {GS_CS_SRGB, GS_CS_SRGB_16F, GS_CS_709_EXTENDED};
    obs_source_t *target = obs_filter_get_target(f->context);
    const enum gs_color_space source =
        f->settings.tone_map || target == NULL ? GS_CS_SRGB : obs_source_get_color_space(target, 3, can);
    enum gs_color_space space = source;
    for (size_t i = 0; i < count; i++) {
        space = preferred[i];
        if (space == source) {
            break;
        }
    }
    return space;
}

static enum gs_color_space color_space(void *data, size_t count, const enum gs_color_space *preferred) {
    return space_of(data, count, preferred);
}

static const char *technique(enum gs_color_space from, float *multiplier) {
    const enum gs_color_space to = gs_get_color_space();
    const float white = obs_get_video_sdr_white_level();
    const bool sdr = from == GS_CS_SRGB || from == GS_CS_SRGB_16F;
    *multiplier = 1.0f;
    if (to == GS_CS_709_SCRGB) {
        *multiplier = white / 80.0f;
        return "DrawMultiply";
    }
    return !sdr && to != GS_CS_709_EXTENDED ? "DrawTonemap" : "Draw";
}

static void draw(const filter *f, gs_texture_t *texture, enum gs_color_space space) {
    const uint32_t out_width = atomic_load(&f->out_width);
    const uint32_t out_height = atomic_load(&f->out_height);
    const uint32_t width = out_width > 0 ? out_width : f->width;
    const uint32_t height = out_height > 0 ? out_height : f->height;
    const uint32_t from_width = gs_texture_get_width(texture);
    const uint32_t from_height = gs_texture_get_height(texture);
    gs_effect_t *effect = frames_resizer(from_width, from_height, width, height);
    float multiplier = 1.0f;
    const char *how = technique(space, &multiplier);
    const bool before = gs_framebuffer_srgb_enabled();
    gs_enable_framebuffer_srgb(true);
    gs_blend_state_push();
    gs_blend_function(GS_BLEND_ONE, GS_BLEND_INVSRCALPHA);
    gs_effect_set_texture_srgb(gs_effect_get_param_by_name(effect, "image"), texture);
    gs_eparam_t *p = gs_effect_get_param_by_name(effect, "multiplier");
    if (p != NULL) {
        gs_effect_set_float(p, multiplier);
    }
    while (gs_effect_loop(effect, how)) {
        gs_draw_sprite(texture, 0, width, height);
    }
    gs_blend_state_pop();
    gs_enable_framebuffer_srgb(before);
}

/* Called once a frame: draws the source below the filter and submits the picture. */
static bool next_picture(filter *f) {
    frames_goal goal;
    if (f->since_drawn > PAUSE_SECONDS) {
        frames_pause(&f->frames);
    }
    f->drawn = true;
    f->idle = false;
    if (!frames_draw(&f->frames, f->context, f->width, f->height, space_of(f, 0, NULL))) {
        return false;
    }
    atomic_store(&f->client->gone, false); /* the filter may have been removed and added again */
    if (ready(f) && goal_of(f, &goal)) {
        static const char *const measured = "davy_filter_turn";
        profile_start(measured);
        frames_turn(&f->frames, f->engine, f->client, &goal);
        profile_end(measured);
    } else {
        frames_take_back(&f->frames);
    }
    return true;
}

static void show(filter *f) {
    if (failed(f)) {
        f->drawn = true; /* shown, though unchanged */
        frames_pause(&f->frames);
        obs_source_skip_video_filter(f->context);
        return;
    }
    if (f->width == 0 || f->height == 0 || (!f->drawn && !next_picture(f))) {
        frames_take_back(&f->frames);
        obs_source_skip_video_filter(f->context);
        return;
    }
    enum gs_color_space space = GS_CS_SRGB;
    gs_texture_t *texture = frames_texture(&f->frames, f->settings.strength, &space);
    if (texture != NULL) {
        draw(f, texture, space);
    }
}

static void render(void *data, gs_effect_t *unused) {
    static const char *const measured = "davy_filter_render"; /* a scope of the profile that OBS logs when it closes */
    (void)unused;
    profile_start(measured);
    show(data);
    profile_end(measured);
}

static uint32_t get_width(void *data) {
    const filter *f = data;
    const uint32_t width = atomic_load(&f->out_width);
    return width > 0 ? width : obs_source_get_base_width(obs_filter_get_target(f->context));
}

static uint32_t get_height(void *data) {
    const filter *f = data;
    const uint32_t height = atomic_load(&f->out_height);
    return height > 0 ? height : obs_source_get_base_height(obs_filter_get_target(f->context));
}

#define SHARED                                                                                                         \
    .type = OBS_SOURCE_TYPE_FILTER, .output_flags = OBS_SOURCE_VIDEO | OBS_SOURCE_SRGB, .destroy = destroy,            \
    .update = update, .video_tick = tick, .video_render = render, .get_width = get_width, .get_height = get_height,    \
    .filter_remove = removed, .missing_files = filter_missing_files, .video_get_color_space = color_space

struct obs_source_info davy_upscale_filter = {
    .id = "davy_upscale_filter",
    SHARED,
    .get_name = upscale_name,
    .create = upscale_create,
    .get_defaults = filter_upscale_defaults,
    .get_properties = filter_upscale_properties,
};

struct obs_source_info davy_vae_filter = {
    .id = "davy_vae_filter",
    SHARED,
    .get_name = vae_name,
    .create = vae_create,
    .get_defaults = filter_vae_defaults,
    .get_properties = filter_vae_properties,
};
