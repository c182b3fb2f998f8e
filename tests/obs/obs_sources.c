/* obs_sources.c - sources for the tests, which work like those of capture and media plugins. */
#include "obs_world.h"

typedef struct own {
    uint32_t width, height, frame;
    gs_texture_t *texture; /* only of a source that shows pixels */
} own;

static const char *own_name(void *unused) {
    (void)unused;
    return "own";
}

static void *own_create(obs_data_t *settings, obs_source_t *source) {
    own *o = bzalloc(sizeof *o);
    const uint8_t *rgba = (const uint8_t *)(intptr_t)obs_data_get_int(settings, "pixels");
    (void)source;
    o->width = (uint32_t)obs_data_get_int(settings, "width");
    o->height = (uint32_t)obs_data_get_int(settings, "height");
    if (rgba != NULL) {
        obs_enter_graphics();
        o->texture = gs_texture_create(o->width, o->height, GS_RGBA, 1, &rgba, 0);
        obs_leave_graphics();
    }
    return o;
}

static void own_destroy(void *data) {
    own *o = data;
    obs_enter_graphics();
    gs_texture_destroy(o->texture);
    obs_leave_graphics();
    bfree(o);
}

static uint32_t own_width(void *data) {
    return ((const own *)data)->width;
}

/* Changes in each frame. */
static uint32_t growing_width(void *data) {
    const own *o = data;
    return o->width + o->frame % 16;
}

static uint32_t own_height(void *data) {
    return ((const own *)data)->height;
}

static void solid(const own *o, const struct vec4 *colour, uint32_t rows) {
    if (rows == 0) {
        return;
    }
    gs_effect_t *effect = obs_get_base_effect(OBS_EFFECT_SOLID);
    gs_effect_set_vec4(gs_effect_get_param_by_name(effect, "color"), colour);
    while (gs_effect_loop(effect, "Solid")) {
        gs_draw_sprite(NULL, 0, o->width, rows);
    }
}

static void window_render(void *data, gs_effect_t *effect) {
    const own *o = data;
    struct vec4 colour;
    (void)effect;
    vec4_set(&colour, 0.25f, 0.5f, 0.125f, 1.0f);
    solid(o, &colour, o->height / 2);
}

static void moving_tick(void *data, float seconds) {
    (void)seconds;
    ((own *)data)->frame++;
}

static void moving_render(void *data, gs_effect_t *effect) {
    const own *o = data;
    struct vec4 colour;
    (void)effect;
    vec4_set(&colour, (float)(o->frame % 64) / 64.0f, 0.5f, (float)(o->frame % 7) / 7.0f, 1.0f);
    solid(o, &colour, o->height / 2 + o->frame % 8);
}

static void pixels_render(void *data, gs_effect_t *effect) {
    const own *o = data;
    effect = obs_get_base_effect(OBS_EFFECT_DEFAULT);
    const bool before = gs_framebuffer_srgb_enabled();
    gs_enable_framebuffer_srgb(true);
    gs_effect_set_texture_srgb(gs_effect_get_param_by_name(effect, "image"), o->texture);
    while (gs_effect_loop(effect, "Draw")) { /* the edge pixels fill the space beyond the edge */
        gs_draw_sprite_subregion(o->texture, 0, o->frame % o->width, 0, o->width, o->height);
    }
    gs_enable_framebuffer_srgb(before);
}

static obs_source_t *create(const char *id, const char *name, uint32_t width, uint32_t height, const uint8_t *rgba) {
    static const uint32_t drawn = OBS_SOURCE_VIDEO | OBS_SOURCE_CUSTOM_DRAW;
    struct obs_source_info info = {.id = id,
                                   .type = OBS_SOURCE_TYPE_INPUT,
                                   .output_flags = drawn,
                                   .get_name = own_name,
                                   .create = own_create,
                                   .destroy = own_destroy,
                                   .get_width = own_width,
                                   .get_height = own_height,
                                   .video_render = window_render};
    if (strcmp(id, "test_moving") == 0) {
        info.video_tick = moving_tick;
        info.video_render = moving_render;
    } else if (strcmp(id, "test_growing") == 0) {
        info.video_tick = moving_tick;
        info.get_width = growing_width;
    } else if (strcmp(id, "test_pixels") == 0 || strcmp(id, "test_scrolling") == 0) {
        info.video_tick = strcmp(id, "test_scrolling") == 0 ? moving_tick : NULL;
        info.output_flags = drawn | OBS_SOURCE_SRGB;
        info.video_render = pixels_render;
    } else if (strcmp(id, "test_player") == 0) { /* libobs draws the frames that the source outputs */
        info.output_flags = OBS_SOURCE_ASYNC_VIDEO;
        info.get_width = NULL;
        info.get_height = NULL;
        info.video_render = NULL;
    }
    if (obs_source_get_display_name(id) == NULL) { /* not registered yet */
        obs_register_source(&info);
    }
    obs_data_t *settings = obs_data_create();
    obs_data_set_int(settings, "width", width);
    obs_data_set_int(settings, "height", height);
    obs_data_set_int(settings, "pixels", (long long)(intptr_t)rgba);
    obs_source_t *source = obs_source_create(id, name, settings, NULL);
    obs_data_release(settings);
    return source;
}

obs_source_t *world_moving(const char *name, uint32_t width, uint32_t height) {
    return create("test_moving", name, width, height, NULL);
}

obs_source_t *world_pixels(const char *name, const uint8_t *rgba, uint32_t width, uint32_t height, bool scrolling) {
    return create(scrolling ? "test_scrolling" : "test_pixels", name, width, height, rgba);
}

obs_source_t *world_growing(const char *name, uint32_t width, uint32_t height) {
    return create("test_growing", name, width, height, NULL);
}

obs_source_t *world_window(const char *name, uint32_t width, uint32_t height) {
    return create("test_window", name, width, height, NULL);
}

obs_source_t *world_player(const char *name) {
    return create("test_player", name, 0, 0, NULL);
}
