/* frames_gpu.c - see frames_gpu.h. CUDA accepts no sRGB textures. A pass with straight.effect therefore writes the network's input
 * into a plain texture, and a second pass converts the result back. */
#include "frames_gpu.h"

#include <stdlib.h>
#include <string.h>

#include <graphics/vec4.h>

#include "plugin.h"

/* The texture's OpenGL name, or its Direct3D object. */
static uint64_t name_of(gs_texture_t *t) {
    void *object = t != NULL ? gs_texture_get_obj(t) : NULL;
    if (object == NULL) {
        return 0;
    }
    return gs_get_device_type() == GS_DEVICE_OPENGL ? *(const uint32_t *)object : (uint64_t)(uintptr_t)object;
}

static const char *open_path(gpu_path *g) {
    const char *why = "";
    const int type = gs_get_device_type();
    void *d3d11 = type == GS_DEVICE_DIRECT3D_11 ? gs_get_device_obj() : NULL;
    if (type != GS_DEVICE_OPENGL && d3d11 == NULL) {
        return "OBS draws with neither OpenGL nor Direct3D 11";
    }
    g->cuda = interop_open(d3d11, &why);
    if (g->cuda == NULL) {
        return why;
    }
    char *file = obs_module_file("straight.effect");
    g->effect = file != NULL ? gs_effect_create_from_file(file, NULL) : NULL;
    bfree(file);
    if (g->effect == NULL) {
        interop_close(g->cuda);
        g->cuda = NULL;
        return "the plugin's file straight.effect is missing or broken";
    }
    return NULL;
}

/* Disables the GPU path of this filter after an unexpected error. */
static bool give_up(gpu_path *g, const char *why) {
    g->broken = why;
    plugin_log(LOG_WARNING, "frames go through system memory: %s", why);
    return false;
}

bool gpu_path_serves(gpu_path *g, int32_t device) {
    g->why = NULL;
    if (device < 0 && getenv("DAVY_CUDA_DRIVER") == NULL) { /* the tests' driver lends the CPU as a CUDA device */
        return false;
    }
    if (!g->tried) { /* the first call in the process takes time */
        g->tried = true;
        g->broken = open_path(g);
        plugin_log(LOG_INFO, "frames %s%s", g->broken == NULL ? "stay on the GPU" : "go through system memory: ",
                   g->broken == NULL ? "" : g->broken);
    }
    g->why = g->broken != NULL ? g->broken : interop_device(g->cuda) != device ? "OBS draws on another GPU" : NULL;
    return g->why == NULL;
}

void gpu_path_close(gpu_path *g) {
    if (g->cuda != NULL) {
        interop_unregister(g->cuda, &g->straight_registered);
        interop_close(g->cuda);
    }
    gs_texrender_destroy(g->straight);
    gs_texrender_destroy(g->shown);
    gs_effect_destroy(g->effect);
    memset(g, 0, sizeof *g);
}

/* Draws one texture onto another. The edge pixels fill the space beyond the edges. */
static bool pass(gpu_path *g, gs_texrender_t *to, uint32_t width, uint32_t height, gs_texture_t *from,
                 const char *technique) {
    gs_texrender_reset(to);
    if (!gs_texrender_begin(to, width, height)) {
        return false;
    }
    const bool before = gs_framebuffer_srgb_enabled();
    gs_eparam_t *image = gs_effect_get_param_by_name(g->effect, "image");
    gs_ortho(0.0f, (float)width, 0.0f, (float)height, -100.0f, 100.0f);
    gs_enable_framebuffer_srgb(false);
    gs_blend_state_push();
    gs_blend_function(GS_BLEND_ONE, GS_BLEND_ZERO);
    gs_effect_set_texture(image, from);
    while (gs_effect_loop(g->effect, technique)) {
        gs_draw_sprite_subregion(from, 0, 0, 0, width, height);
    }
    gs_blend_state_pop();
    gs_enable_framebuffer_srgb(before);
    gs_texrender_end(to);
    return true;
}

static const char *const no_memory = "the GPU has no free memory for frames";
static const char *const not_taken = "CUDA cannot use OBS's textures";

static bool fit(gpu_path *g, gpu_slot *s, const gpu_shape *shape) {
    const gpu_shape *is = &s->shape;
    if (s->result != NULL && is->width == shape->width && is->height == shape->height &&
        is->out_width == shape->out_width && is->out_height == shape->out_height && is->in_place == shape->in_place) {
        return true;
    }
    gpu_slot_close(g, s);
    s->shape = *shape;
    s->line = interop_line_open(g->cuda);
    s->in = interop_alloc(g->cuda, (size_t)shape->width * shape->height * 4);
    s->out = shape->in_place ? s->in : interop_alloc(g->cuda, (size_t)shape->out_width * shape->out_height * 4);
    s->result = gs_texture_create(shape->out_width, shape->out_height, GS_RGBA_UNORM, 1, NULL, 0);
    const bool memory = s->line != NULL && s->in != 0 && s->out != 0 && s->result != NULL;
    if (!memory || !interop_register(g->cuda, name_of(s->result), true, &s->result_registered)) {
        gpu_slot_close(g, s);
        return give_up(g, memory ? not_taken : no_memory);
    }
    return true;
}

bool gpu_path_take(gpu_path *g, gpu_slot *s, gs_texture_t *drawn, const gpu_shape *shape) {
    const uint32_t width = shape->width;
    const uint32_t height = shape->height;
    if (g->straight == NULL) {
        g->straight = gs_texrender_create(GS_RGBA_UNORM, GS_ZS_NONE);
    }
    if (!fit(g, s, shape)) {
        return false;
    }
    gs_texture_t *before = gs_texrender_get_texture(g->straight);
    if (before != NULL && (gs_texture_get_width(before) != width || gs_texture_get_height(before) != height)) {
        interop_unregister(g->cuda, &g->straight_registered); /* the pass creates a texture of the new size */
    }
    if (!pass(g, g->straight, width, height, drawn, "ToStraight")) {
        return give_up(g, no_memory);
    }
    const uint64_t straight = name_of(gs_texrender_get_texture(g->straight));
    if (g->straight_registered.resource == NULL || g->straight_registered.name != straight) {
        interop_unregister(g->cuda, &g->straight_registered);
        if (!interop_register(g->cuda, straight, false, &g->straight_registered)) {
            return give_up(g, not_taken);
        }
    }
    return (interop_read(g->cuda, &g->straight_registered,
                         &(interop_picture){.memory = s->in, .pitch = width, .width = width, .height = height}) &&
            interop_follow(g->cuda, s->line)) ||
           give_up(g, not_taken);
}

bool gpu_path_show(gpu_path *g, gpu_slot *s) {
    if (g->shown == NULL) {
        g->shown = gs_texrender_create(GS_RGBA, GS_ZS_NONE);
    }
    const gpu_shape *is = &s->shape;
    const uint32_t pitch = is->in_place ? is->width : is->out_width;
    return (interop_write(g->cuda, &s->result_registered,
                          &(interop_picture){
                              .memory = s->out, .pitch = pitch, .width = is->out_width, .height = is->out_height}) &&
            pass(g, g->shown, is->out_width, is->out_height, s->result, "FromStraight")) ||
           give_up(g, not_taken);
}

void gpu_slot_close(gpu_path *g, gpu_slot *s) {
    if (g->cuda != NULL) {
        interop_unregister(g->cuda, &s->result_registered);
        interop_free(g->cuda, s->in);
        interop_free(g->cuda, s->shape.in_place ? 0 : s->out);
        interop_line_close(g->cuda, s->line);
    }
    gs_texture_destroy(s->result);
    memset(s, 0, sizeof *s);
}
