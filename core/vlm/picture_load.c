/* picture_load.c - the caller's pixels as 8-bit RGB, in the way Pillow's conversions give it. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/picture.h"

davy_result dv_picture_allocate(int64_t width, int64_t height, dv_rgb8 *out) {
    *out = (dv_rgb8){.data = dv_calloc((uint64_t)height, (uint64_t)(3 * width)),
                     .width = width,
                     .height = height,
                     .stride = 3 * width};
    return out->data != NULL ? DAVY_OK
                             : dv_fail(DAVY_E_NOMEM_HOST, "a picture of %lldx%lld: out of memory", (long long)width,
                                       (long long)height);
}

void dv_picture_free(dv_rgb8 *p) {
    dv_free(p->data);
    *p = (dv_rgb8){0};
}

static uint8_t byte_of(const dv_pixels *p, const dv_mapping *unit, const char *at) {
    if (p->range == DAVY_RANGE_FULL && p->dtype == DAVY_DTYPE_U8) {
        return *(const uint8_t *)at;
    }
    const float v = dv_element_load(at, p->dtype);
    if (p->range == DAVY_RANGE_FULL && p->dtype == DAVY_DTYPE_U16) {
        return (uint8_t)((uint32_t)v >> 8);
    }
    const float x = rintf((v * unit->mul + unit->add) * 255.0f);
    return (uint8_t)(x >= 0.0f ? x < 255.0f ? x : 255.0f : 0.0f); /* NaN: 0 */
}

/* Pillow's alpha_composite over opaque white: 7 bits of fraction, division by 255 rounded to nearest. */
static uint8_t over_white(uint8_t v, uint8_t alpha) {
    if (alpha == 0) {
        return 255;
    }
    const uint32_t sum = 128u * ((uint32_t)v * alpha + 255u * (255u - alpha)) + (0x80u << 7);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> 7);
}

static void load_row(const dv_pixels *p, const dv_colours *colours, int64_t index, int64_t y, uint8_t *out) {
    const dv_mapping unit = dv_mapping_in(p, DAVY_RANGE_UNIT);
    const char *row = dv_pixels_at(p, index, y, 0, 0);
    int64_t from[3];
    for (int32_t c = 0; c < 3; c++) {
        from[c] = p->sc * (colours->count == 1 ? colours->map[0] : colours->map[c]);
    }
    if (colours->alpha < 0 && p->dtype == DAVY_DTYPE_U8 && p->range == DAVY_RANGE_FULL) { /* what hosts have most */
        for (int64_t x = 0; x < p->w; x++, out += 3, row += p->sw) {
            for (int32_t c = 0; c < 3; c++) {
                out[c] = *(const uint8_t *)(row + from[c]);
            }
        }
        return;
    }
    for (int64_t x = 0; x < p->w; x++, out += 3, row += p->sw) {
        const uint8_t alpha = colours->alpha >= 0 ? byte_of(p, &unit, row + colours->alpha * p->sc) : 255;
        for (int32_t c = 0; c < 3; c++) {
            const uint8_t v = byte_of(p, &unit, row + from[c]);
            out[c] = colours->alpha >= 0 ? over_white(v, alpha) : v;
        }
    }
}

davy_result dv_picture_load(const dv_pixels *p, int64_t index, dv_rgb8 *out) {
    if (p->on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "captioning: pictures must be in host memory");
    }
    if (p->h < 1 || p->w < 1 || p->h > DV_PICTURE_MAX_SIDE || p->w > DV_PICTURE_MAX_SIDE) {
        return dv_fail(DAVY_E_SHAPE, "captioning: a picture of %lldx%lld, sides are 1 to %d", (long long)p->w,
                       (long long)p->h, (int)DV_PICTURE_MAX_SIDE);
    }
    if (p->channels == DAVY_CHANNELS_LATENT || p->range == DAVY_RANGE_RAW) {
        return dv_fail(DAVY_E_INVALID, "captioning: expected a picture, not a latent or raw numbers");
    }
    const dv_colours colours = dv_colours_of(p->channels);
    const davy_result r = dv_picture_allocate(p->w, p->h, out);
    for (int64_t y = 0; r == DAVY_OK && y < p->h; y++) {
        load_row(p, &colours, index, y, out->data + y * out->stride);
    }
    return r;
}
