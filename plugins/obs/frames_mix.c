/* frames_mix.c - resizing, and the mixture of a result with the picture it is made from. */
#include <graphics/vec2.h>

#include "frames.h"

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

gs_effect_t *frames_resizer(uint32_t from_width, uint32_t from_height, uint32_t width, uint32_t height) {
    if (from_width == width && from_height == height) {
        return obs_get_base_effect(OBS_EFFECT_DEFAULT);
    }
    const bool smaller = width < from_width || height < from_height;
    gs_effect_t *effect = obs_get_base_effect(smaller ? OBS_EFFECT_AREA : OBS_EFFECT_BICUBIC);
    set_dimension(effect, (float)from_width, (float)from_height);
    return effect;
}

static bool ready(frames_mix *m, enum gs_color_format color) {
    if (!m->tried) {
        char *file = obs_module_file("mix.effect");
        m->tried = true;
        m->effect = file != NULL ? gs_effect_create_from_file(file, NULL) : NULL;
        bfree(file);
    }
    if (m->effect != NULL && (m->mixed == NULL || m->color != color)) {
        gs_texrender_destroy(m->resized);
        gs_texrender_destroy(m->mixed);
        m->resized = gs_texrender_create(color, GS_ZS_NONE);
        m->mixed = gs_texrender_create(color, GS_ZS_NONE);
        m->color = color;
    }
    return m->effect != NULL && m->resized != NULL && m->mixed != NULL;
}

typedef struct drawing {
    gs_texture_t *from;
    uint32_t width, height; /* of the sprite */
    enum gs_color_space space;
    gs_effect_t *effect;
    const char *technique;
} drawing;

/* Overwrites all of `to`. */
static bool fill(gs_texrender_t *to, const drawing *d) {
    gs_texrender_reset(to);
    if (!gs_texrender_begin_with_color_space(to, d->width, d->height, d->space)) {
        return false;
    }
    const bool before = gs_framebuffer_srgb_enabled();
    gs_ortho(0.0f, (float)d->width, 0.0f, (float)d->height, -100.0f, 100.0f);
    gs_enable_framebuffer_srgb(true);
    gs_blend_state_push();
    gs_blend_function(GS_BLEND_ONE, GS_BLEND_ZERO);
    gs_effect_set_texture_srgb(gs_effect_get_param_by_name(d->effect, "image"), d->from);
    while (gs_effect_loop(d->effect, d->technique)) {
        gs_draw_sprite(d->from, 0, d->width, d->height);
    }
    gs_blend_state_pop();
    gs_enable_framebuffer_srgb(before);
    gs_texrender_end(to);
    return true;
}

gs_texture_t *frames_mixed(frames_mix *m, gs_texture_t *result, gs_texture_t *before, enum gs_color_space space,
                           float strength) {
    const uint32_t width = gs_texture_get_width(result);
    const uint32_t height = gs_texture_get_height(result);
    if (!ready(m, gs_get_format_from_space(space))) {
        return NULL;
    }
    if (m->strength != strength) { /* once for each result and strength */
        gs_effect_t *resizer =
            frames_resizer(gs_texture_get_width(before), gs_texture_get_height(before), width, height);
        const drawing resize = {
            .from = before, .width = width, .height = height, .space = space, .effect = resizer, .technique = "Draw"};
        const drawing mix = {
            .from = result, .width = width, .height = height, .space = space, .effect = m->effect, .technique = "Mix"};
        if (!fill(m->resized, &resize)) {
            return NULL;
        }
        gs_effect_set_texture_srgb(gs_effect_get_param_by_name(m->effect, "before"),
                                   gs_texrender_get_texture(m->resized));
        gs_effect_set_float(gs_effect_get_param_by_name(m->effect, "strength"), strength);
        if (!fill(m->mixed, &mix)) {
            return NULL;
        }
        m->strength = strength;
    }
    return gs_texrender_get_texture(m->mixed);
}

void frames_mix_close(frames_mix *m) {
    gs_texrender_destroy(m->resized);
    gs_texrender_destroy(m->mixed);
    gs_effect_destroy(m->effect);
    m->resized = NULL;
    m->mixed = NULL;
    m->effect = NULL;
    m->tried = false;
}
