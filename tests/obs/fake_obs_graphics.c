/* fake_obs_graphics.c - the graphics of the mock obs.dll. Its effects only copy, which is right for opaque pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_obs.h"

picture *pictures, *target;
static const picture *shown;

API const uint8_t *fake_shown(uint32_t *width, uint32_t *height) {
    *width = shown != NULL ? shown->width : 0;
    *height = shown != NULL ? shown->height : 0;
    return shown != NULL ? shown->pixels : NULL;
}

API int gs_get_device_type(void) {
    return 2; /* Direct3D */
}

static bool on_d3d11(void) {
    static bool looked;
    if (!looked) {
        looked = true;
        if (getenv("FAKE_OBS_D3D11") != NULL && !d3d11_open()) {
            printf("skipped: no Direct3D 11\n");
        }
    }
    return d3d11_device() != NULL;
}

API void *gs_get_device_obj(void) {
    return on_d3d11() ? d3d11_device() : NULL;
}

static void size_to(picture *p, uint32_t width, uint32_t height) {
    d3d11_discard(p);
    free(p->pixels);
    p->width = width;
    p->height = height;
    p->pixels = calloc((size_t)width * height + 1, 4);
    d3d11_make(p);
}

static picture *make(uint32_t width, uint32_t height, int format) {
    picture *p = calloc(1, sizeof *p);
    p->format = format;
    p->next = pictures;
    pictures = p;
    size_to(p, width, height);
    return p;
}

static void discard(picture *p) {
    picture **at = &pictures;
    while (p != NULL && *at != p) {
        at = &(*at)->next;
    }
    if (p != NULL) {
        *at = p->next;
        d3d11_discard(p);
        free(p->pixels);
        free(p);
    }
}

API void *gs_texrender_create(int format, int depth) {
    (void)depth;
    return make(0, 0, format);
}

API void gs_texrender_destroy(picture *p) {
    discard(p);
}

API char gs_texrender_begin(picture *p, uint32_t width, uint32_t height) {
    if (p->width != width || p->height != height) {
        size_to(p, width, height);
    }
    target = p;
    return 1;
}

API char gs_texrender_begin_with_color_space(picture *p, uint32_t width, uint32_t height, int space) {
    (void)space;
    return gs_texrender_begin(p, width, height);
}

API void gs_texrender_end(picture *p) {
    d3d11_store(p);
    target = NULL;
}

API void *gs_texrender_get_texture(picture *p) {
    return p->width > 0 ? p : NULL;
}

API void *gs_stagesurface_create(uint32_t width, uint32_t height, int format) {
    (void)format;
    return make(width, height, 0);
}

API void gs_stagesurface_destroy(picture *p) {
    discard(p);
}

API void gs_stage_texture(picture *to, picture *from) {
    d3d11_load(from);
    memcpy(to->pixels, from->pixels, (size_t)to->width * to->height * 4);
}

API char gs_stagesurface_map(picture *p, uint8_t **pixels, uint32_t *stride) {
    *pixels = p->pixels;
    *stride = p->width * 4;
    return 1;
}

API void *gs_texture_create(uint32_t width, uint32_t height, int format, uint32_t levels, const void *data,
                            uint32_t flags) {
    (void)levels;
    (void)data;
    (void)flags;
    return make(width, height, format);
}

API void gs_texture_destroy(picture *p) {
    shown = shown == p ? NULL : shown;
    discard(p);
}

API char gs_texture_map(picture *p, uint8_t **pixels, uint32_t *stride) {
    return gs_stagesurface_map(p, pixels, stride);
}

API void gs_texture_unmap(picture *p) {
    d3d11_store(p);
}

API void *gs_texture_get_obj(const picture *p) {
    return p->texture;
}

API uint32_t gs_texture_get_width(const picture *p) {
    return p->width;
}

API uint32_t gs_texture_get_height(const picture *p) {
    return p->height;
}

/* ---- effects: drawing copies the source texture ---- */

static picture *drawn_from;
static bool begun;

API void *gs_effect_create_from_file(const char *file, char **error) {
    (void)error;
    return file != NULL ? &begun : NULL;
}

API void gs_effect_set_texture(void *parameter, picture *p) {
    (void)parameter;
    drawn_from = p;
}

API void gs_effect_set_texture_srgb(void *parameter, picture *p) {
    gs_effect_set_texture(parameter, p);
}

API char gs_effect_loop(void *effect, const char *technique) {
    (void)effect;
    (void)technique;
    begun = !begun;
    return begun;
}

API void gs_draw_sprite(picture *p, uint32_t flip, uint32_t width, uint32_t height) {
    (void)flip;
    d3d11_load(drawn_from);
    if (target == NULL) {
        shown = p;
    } else if (width == target->width && height == target->height && p->width == width && p->height == height) {
        memcpy(target->pixels, drawn_from->pixels, (size_t)width * height * 4);
    }
}

API void gs_draw_sprite_subregion(picture *p, uint32_t flip, uint32_t x, uint32_t y, uint32_t width, uint32_t height) {
    if (x + y == 0) {
        gs_draw_sprite(p, flip, width, height);
    }
}

/* ---- loss of the device ---- */

static struct loss {
    void (*release)(void *data);
    void (*rebuild)(void *device, void *data);
    void *data;
} losses[8];

API void gs_register_loss_callbacks(const struct loss *calls) {
    for (int i = 0; i < 8; i++) {
        if (losses[i].data == NULL) {
            losses[i] = *calls;
            return;
        }
    }
}

API void gs_unregister_loss_callbacks(void *data) {
    for (int i = 0; i < 8; i++) {
        if (losses[i].data == data) {
            memset(&losses[i], 0, sizeof losses[i]);
        }
    }
}

/* false: an object of the old device was not released. */
API char fake_change_device(void) {
    for (int i = 0; i < 8; i++) {
        if (losses[i].data != NULL) {
            losses[i].release(losses[i].data);
        }
    }
    const bool clean = d3d11_change();
    for (int i = 0; i < 8; i++) {
        if (losses[i].data != NULL) {
            losses[i].rebuild(d3d11_device(), losses[i].data);
        }
    }
    return clean;
}
