/* frames_gpu.c - see frames_gpu.h. CUDA takes no sRGB textures: a pass with straight.effect turns numbers into those that the
 * network wants, in a plain one, and another turns the result back. */
#include "frames_gpu.h"

#include <stdlib.h>
#include <string.h>

#include <graphics/vec4.h>

#include "plugin.h"

static uint32_t gl_name(gs_texture_t *t) {
    const uint32_t *name = gs_texture_get_obj(t);
    return name != NULL ? *name : 0;
}

bool gpu_path_serves(gpu_path *g, int32_t device) {
    if (!g->tried && device < 0 && getenv("DAVY_CUDA_DRIVER") == NULL) { /* a driver of the tests' has the CPU */
        return false; /* the first look takes time where nobody has looked before */
    }
    if (!g->tried) {
        const char *why = "";
        char *file = obs_module_file("straight.effect");
        g->tried = true;
        g->cuda = gs_get_device_type() == GS_DEVICE_OPENGL ? interop_open(&why) : NULL;
        g->effect = g->cuda != NULL && file != NULL ? gs_effect_create_from_file(file, NULL) : NULL;
        bfree(file);
        if (g->cuda != NULL && g->effect == NULL) {
            interop_close(g->cuda);
            g->cuda = NULL;
        }
        plugin_log(LOG_INFO, "pictures %s%s", g->cuda != NULL ? "stay on the GPU" : "go through host memory: ", why);
    }
    return g->cuda != NULL && interop_device(g->cuda) == device;
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

/* One texture onto another of its size. */
static bool pass(gpu_path *g, gs_texrender_t *to, gs_texture_t *from, const char *technique, bool srgb) {
    const uint32_t width = gs_texture_get_width(from);
    const uint32_t height = gs_texture_get_height(from);
    gs_texrender_reset(to);
    if (!gs_texrender_begin(to, width, height)) {
        return false;
    }
    const bool before = gs_framebuffer_srgb_enabled();
    gs_eparam_t *image = gs_effect_get_param_by_name(g->effect, "image");
    gs_ortho(0.0f, (float)width, 0.0f, (float)height, -100.0f, 100.0f);
    gs_enable_framebuffer_srgb(srgb);
    gs_blend_state_push();
    gs_blend_function(GS_BLEND_ONE, GS_BLEND_ZERO);
    if (srgb) { /* the result: plain numbers in, light out */
        gs_effect_set_texture(image, from);
    } else {
        gs_effect_set_texture_srgb(image, from);
    }
    while (gs_effect_loop(g->effect, technique)) {
        gs_draw_sprite(from, 0, width, height);
    }
    gs_blend_state_pop();
    gs_enable_framebuffer_srgb(before);
    gs_texrender_end(to);
    return true;
}

static bool fit(gpu_path *g, gpu_slot *s, uint32_t width, uint32_t height, uint32_t out_width, uint32_t out_height) {
    if (s->result != NULL && s->width == width && s->height == height && s->out_width == out_width &&
        s->out_height == out_height) {
        return true;
    }
    gpu_slot_close(g, s);
    s->in = interop_alloc(g->cuda, (size_t)width * height * 4);
    s->out = interop_alloc(g->cuda, (size_t)out_width * out_height * 4);
    s->result = gs_texture_create(out_width, out_height, GS_RGBA_UNORM, 1, NULL, 0);
    s->width = width;
    s->height = height;
    s->out_width = out_width;
    s->out_height = out_height;
    if (s->in == 0 || s->out == 0 || s->result == NULL ||
        !interop_register(g->cuda, gl_name(s->result), true, &s->result_registered)) {
        gpu_slot_close(g, s);
        return false;
    }
    return true;
}

bool gpu_path_take(gpu_path *g, gpu_slot *s, gs_texture_t *drawn, uint32_t out_width, uint32_t out_height) {
    const uint32_t width = gs_texture_get_width(drawn);
    const uint32_t height = gs_texture_get_height(drawn);
    if (g->straight == NULL) {
        g->straight = gs_texrender_create(GS_RGBA_UNORM, GS_ZS_NONE);
    }
    if (!fit(g, s, width, height, out_width, out_height)) {
        return false;
    }
    gs_texture_t *before = gs_texrender_get_texture(g->straight);
    if (before != NULL && (gs_texture_get_width(before) != width || gs_texture_get_height(before) != height)) {
        interop_unregister(g->cuda, &g->straight_registered); /* the pass makes a texture of the new size */
    }
    if (!pass(g, g->straight, drawn, "ToStraight", false)) {
        return false;
    }
    gs_texture_t *straight = gs_texrender_get_texture(g->straight);
    if (g->straight_registered.resource == NULL || g->straight_registered.name != gl_name(straight)) {
        interop_unregister(g->cuda, &g->straight_registered);
        if (!interop_register(g->cuda, gl_name(straight), false, &g->straight_registered)) {
            return false;
        }
    }
    return interop_read(g->cuda, &g->straight_registered, s->in, width, height);
}

bool gpu_path_show(gpu_path *g, gpu_slot *s) {
    if (g->shown == NULL) {
        g->shown = gs_texrender_create(GS_RGBA, GS_ZS_NONE);
    }
    return interop_write(g->cuda, &s->result_registered, s->out, s->out_width, s->out_height) &&
           pass(g, g->shown, s->result, "FromStraight", true);
}

void gpu_slot_close(gpu_path *g, gpu_slot *s) {
    if (g->cuda != NULL) {
        interop_unregister(g->cuda, &s->result_registered);
        interop_free(g->cuda, s->in);
        interop_free(g->cuda, s->out);
    }
    gs_texture_destroy(s->result);
    memset(s, 0, sizeof *s);
}
