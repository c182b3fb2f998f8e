/* upscale.c - the upscaling filter on the graphics thread: sizes, which engine, drawing. */
#include "upscale.h"

#include <math.h>
#include <string.h>

#define IDLE_SECONDS 60.0f
#define TEXTURE_MOST 16384u

/* ---- sizes ---- */

static double factor_wanted(const upscale *u) {
    const int scale = u->settings.scale;
    struct obs_video_info canvas;
    if (scale > 0) {
        return scale;
    }
    if (scale < SCALE_CANVAS) {
        return -(double)scale / u->height;
    }
    if (scale == SCALE_CANVAS && obs_get_video_info(&canvas)) {
        return fmin((double)canvas.base_width / u->width, (double)canvas.base_height / u->height);
    }
    return 0.0;
}

static uint32_t grown(uint32_t size, double factor) {
    const double to = floor(size * factor + 0.5);
    return to < 1.0 ? 1 : to > TEXTURE_MOST ? TEXTURE_MOST : (uint32_t)to;
}

static bool ready(const upscale *u) {
    return u->engine != NULL && engine_look(u->engine) == ENGINE_READY;
}

static bool failed(const upscale *u) {
    return u->engine != NULL && engine_look(u->engine) == ENGINE_FAILED;
}

/* What the engine makes of a picture; false: more than a texture holds. */
static bool goal_of(const upscale *u, frames_goal *goal) {
    int32_t num = 1;
    int32_t den = 1;
    engine_scale(u->engine, &num, &den);
    goal->width = (uint32_t)((uint64_t)u->width * (uint32_t)num / (uint32_t)den);
    goal->height = (uint32_t)((uint64_t)u->height * (uint32_t)num / (uint32_t)den);
    goal->sdr_white = obs_get_video_sdr_white_level();
    return goal->width > 0 && goal->height > 0 && goal->width <= TEXTURE_MOST && goal->height <= TEXTURE_MOST;
}

static void set_size(upscale *u) {
    double factor = failed(u) ? 0.0 : factor_wanted(u);
    if (u->settings.scale == SCALE_MODEL && ready(u)) {
        int32_t num = 1;
        int32_t den = 1;
        engine_scale(u->engine, &num, &den);
        factor = (double)num / den;
    }
    atomic_store(&u->out_width, factor > 0.0 ? grown(u->width, factor) : 0);
    atomic_store(&u->out_height, factor > 0.0 ? grown(u->height, factor) : 0);
}

/* ---- the engine ---- */

static void key_wanted(const upscale *u, engine_key *key) {
    memset(key, 0, sizeof *key);
    const upscale_settings *s = &u->settings;
    if (s->model[0] != '\0') {
        snprintf(key->model, sizeof key->model, "%s", s->model);
    } else {
        const double factor = factor_wanted(u);
        snprintf(key->model, sizeof key->model, "%s", factor > 2.0 ? "davy-live-x4" : "davy-live-x2");
    }
    snprintf(key->device, sizeof key->device, "%s", s->device);
    snprintf(key->precision, sizeof key->precision, "%s", s->precision);
}

static void drop_engines(upscale *u) {
    engine_release(u->next);
    engine_release(u->engine);
    u->next = NULL;
    u->engine = NULL;
}

/* The engine in use stays until the one that is wanted can take over, so that a change of model shows no gap. */
static void choose_engine(upscale *u) {
    engine_key key;
    key_wanted(u, &key);
    if (u->engine == NULL) {
        u->engine = engine_acquire(&key);
        u->key = key;
    } else if (memcmp(&key, &u->key, sizeof key) == 0) {
        engine_release(u->next); /* asked for and taken back */
        u->next = NULL;
    } else if (u->next == NULL || memcmp(&key, &u->next_key, sizeof key) != 0) {
        engine_release(u->next);
        u->next = engine_acquire(&key);
        u->next_key = key;
    }
    if (u->next != NULL && engine_look(u->next) != ENGINE_LOADING) {
        engine_release(u->engine);
        u->engine = u->next;
        u->key = u->next_key;
        u->next = NULL;
    }
}

/* ---- life ---- */

static const char *name(void *unused) {
    (void)unused;
    return obs_module_text("Davy.Upscale.Name");
}

static void update(void *data, obs_data_t *settings) {
    upscale *u = data;
    upscale_read(settings, &u->settings);
    atomic_store(&u->client->budget_us, u->settings.budget_ms * 1000);
}

static void *create(obs_data_t *settings, obs_source_t *context) {
    upscale *u = bzalloc(sizeof *u);
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    u->context = context;
    u->lock = fresh;
    u->client = client_create();
    if (u->client == NULL) {
        bfree(u);
        return NULL;
    }
    frames_open(&u->frames);
    update(u, settings);
    return u;
}

static void destroy(void *data) {
    upscale *u = data;
    atomic_store(&u->client->gone, true);
    frames_wait(&u->frames);
    obs_enter_graphics();
    frames_close(&u->frames);
    obs_leave_graphics();
    drop_engines(u);
    client_release(u->client);
    bfree(u);
}

/* ---- a frame ---- */

static void tick(void *data, float seconds) {
    upscale *u = data;
    obs_source_t *target = obs_filter_get_target(u->context);
    u->width = target != NULL ? obs_source_get_base_width(target) : 0;
    u->height = target != NULL ? obs_source_get_base_height(target) : 0;
    u->since_drawn = u->drawn ? 0.0f : u->since_drawn + seconds;
    u->drawn = false;
    if (u->width == 0 || u->height == 0) {
        atomic_store(&u->out_width, 0);
        atomic_store(&u->out_height, 0);
        return;
    }
    if (u->since_drawn > IDLE_SECONDS && !u->settings.keep_loaded) {
        drop_engines(u);
        u->idle = true;
    } else if (!u->idle) {
        choose_engine(u);
    }
    set_size(u);
    upscale_say(u, seconds);
}

static enum gs_color_space space_of(const upscale *u, size_t count, const enum gs_color_space *preferred) {
    static const enum gs_color_space can[] = {GS_CS_SRGB, GS_CS_SRGB_16F, GS_CS_709_EXTENDED};
    obs_source_t *target = obs_filter_get_target(u->context);
    const enum gs_color_space source =
        u->settings.tone_map || target == NULL ? GS_CS_SRGB : obs_source_get_color_space(target, 3, can);
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

static gs_effect_t *effect_for(uint32_t from_width, uint32_t from_height, uint32_t width, uint32_t height) {
    if (from_width == width && from_height == height) {
        return obs_get_base_effect(OBS_EFFECT_DEFAULT);
    }
    const bool smaller = width < from_width || height < from_height;
    return obs_get_base_effect(smaller ? OBS_EFFECT_AREA : OBS_EFFECT_BICUBIC);
}

static void set_dimension(gs_effect_t *effect, float width, float height) {
    struct vec2 v = {.x = width, .y = height};
    gs_eparam_t *p = gs_effect_get_param_by_name(effect, "base_dimension");
    if (p != NULL) {
        gs_effect_set_vec2(p, &v);
    }
    v.x = 1.0f / width;
    v.y = 1.0f / height;
    p = gs_effect_get_param_by_name(effect, "base_dimension_i");
    if (p != NULL) {
        gs_effect_set_vec2(p, &v);
    }
}

static void draw(const upscale *u, gs_texture_t *texture) {
    const uint32_t out_width = atomic_load(&u->out_width);
    const uint32_t out_height = atomic_load(&u->out_height);
    const uint32_t width = out_width > 0 ? out_width : u->width;
    const uint32_t height = out_height > 0 ? out_height : u->height;
    const uint32_t from_width = gs_texture_get_width(texture);
    const uint32_t from_height = gs_texture_get_height(texture);
    gs_effect_t *effect = effect_for(from_width, from_height, width, height);
    float multiplier = 1.0f;
    const char *how = technique(u->space, &multiplier);
    const bool before = gs_framebuffer_srgb_enabled();
    gs_enable_framebuffer_srgb(true);
    gs_blend_state_push();
    gs_blend_function(GS_BLEND_ONE, GS_BLEND_INVSRCALPHA);
    gs_effect_set_texture_srgb(gs_effect_get_param_by_name(effect, "image"), texture);
    gs_eparam_t *p = gs_effect_get_param_by_name(effect, "multiplier");
    if (p != NULL) {
        gs_effect_set_float(p, multiplier);
    }
    set_dimension(effect, (float)from_width, (float)from_height);
    while (gs_effect_loop(effect, how)) {
        gs_draw_sprite(texture, 0, width, height);
    }
    gs_blend_state_pop();
    gs_enable_framebuffer_srgb(before);
}

/* The first time in a frame: what is below is drawn and goes on its way. */
static bool next_picture(upscale *u) {
    frames_goal goal;
    u->drawn = true;
    u->idle = false;
    u->space = space_of(u, 0, NULL);
    if (!frames_draw(&u->frames, u->context, u->width, u->height, u->space)) {
        return false;
    }
    if (ready(u) && goal_of(u, &goal)) {
        frames_turn(&u->frames, u->engine, u->client, &goal);
    } else {
        frames_take_back(&u->frames);
    }
    return true;
}

static void render(void *data, gs_effect_t *unused) {
    upscale *u = data;
    (void)unused;
    if (u->width == 0 || u->height == 0 || failed(u) || (!u->drawn && !next_picture(u))) {
        frames_take_back(&u->frames);
        obs_source_skip_video_filter(u->context);
        return;
    }
    bool upscaled = false;
    gs_texture_t *texture = frames_texture(&u->frames, &upscaled);
    if (texture != NULL) {
        draw(u, texture);
    }
}

static uint32_t get_width(void *data) {
    const upscale *u = data;
    const uint32_t width = atomic_load(&u->out_width);
    return width > 0 ? width : obs_source_get_base_width(obs_filter_get_target(u->context));
}

static uint32_t get_height(void *data) {
    const upscale *u = data;
    const uint32_t height = atomic_load(&u->out_height);
    return height > 0 ? height : obs_source_get_base_height(obs_filter_get_target(u->context));
}

struct obs_source_info davy_upscale_filter = {
    .id = "davy_upscale_filter",
    .type = OBS_SOURCE_TYPE_FILTER,
    .output_flags = OBS_SOURCE_VIDEO | OBS_SOURCE_SRGB,
    .get_name = name,
    .create = create,
    .destroy = destroy,
    .update = update,
    .video_tick = tick,
    .video_render = render,
    .get_width = get_width,
    .get_height = get_height,
    .get_defaults = upscale_defaults,
    .get_properties = upscale_properties,
    .missing_files = upscale_missing_files,
    .video_get_color_space = color_space,
};
