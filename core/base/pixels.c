/* pixels.c - kernels' arguments from checked pixels: pictures of a batch, the order of the colours, the range of the
 * numbers, single elements. */
#include <math.h>

#include "core/base/pixels.h"
#include "kernels/dtype.h"

char *dv_pixels_at(const dv_pixels *p, int64_t index, int64_t y, int64_t x, int64_t c) {
    return p->data + index / p->t * p->sn + index % p->t * p->st + y * p->sh + x * p->sw + c * p->sc;
}

dvk_image dv_pixels_image(const dv_pixels *p, int64_t index, int32_t count, const int32_t *map) {
    dvk_image image = {.data = dv_pixels_at(p, index, 0, 0, 0),
                       .dtype = (dvk_dtype)p->dtype,
                       .channels = count,
                       .n = 1,
                       .h = p->h,
                       .w = p->w,
                       .sn = p->sn,
                       .sh = p->sh,
                       .sw = p->sw,
                       .sc = p->sc,
                       .identity_map = map == NULL};
    for (int32_t i = 0; i < 4 && i < count; i++) {
        image.map[i] = map != NULL ? map[i] : i;
    }
    return image;
}

float dv_element_load(const char *at, davy_dtype dtype) {
    const void *p = at;
    if (dtype == DAVY_DTYPE_U8) {
        return (float)*(const uint8_t *)p;
    }
    return dtype == DAVY_DTYPE_U16 ? (float)*(const uint16_t *)p : dvk_load(p, (dvk_dtype)dtype, 0);
}

void dv_element_store(char *at, davy_dtype dtype, float v) {
    void *p = at;
    if (dtype == DAVY_DTYPE_U8) {
        *(uint8_t *)p = (uint8_t)lrintf(v);
    } else if (dtype == DAVY_DTYPE_U16) {
        *(uint16_t *)p = (uint16_t)lrintf(v);
    } else {
        dvk_store(p, (dvk_dtype)dtype, 0, v);
    }
}

static float full_scale(davy_dtype t) {
    return t == DAVY_DTYPE_U8 ? 255.0f : 65535.0f;
}

dv_mapping dv_mapping_in(const dv_pixels *p, davy_range net) {
    const bool is_signed = net == DAVY_RANGE_SIGNED_UNIT;
    switch (p->range) {
    case DAVY_RANGE_FULL:
        return (dv_mapping){.mul = (is_signed ? 2.0f : 1.0f) / full_scale(p->dtype), .add = is_signed ? -1.0f : 0.0f};
    case DAVY_RANGE_UNIT:
        return (dv_mapping){.mul = is_signed ? 2.0f : 1.0f, .add = is_signed ? -1.0f : 0.0f};
    case DAVY_RANGE_SIGNED_UNIT:
        return (dv_mapping){.mul = is_signed ? 1.0f : 0.5f, .add = is_signed ? 0.0f : 0.5f};
    default:
        return (dv_mapping){.mul = 1.0f};
    }
}

dv_mapping dv_mapping_out(const dv_pixels *p, davy_range net) {
    const bool is_signed = net == DAVY_RANGE_SIGNED_UNIT;
    const float full = full_scale(p->dtype);
    switch (p->range) {
    case DAVY_RANGE_FULL:
        return (dv_mapping){is_signed ? full / 2.0f : full, is_signed ? full / 2.0f : 0.0f, 0.0f, full, true};
    case DAVY_RANGE_UNIT:
        return (dv_mapping){is_signed ? 0.5f : 1.0f, is_signed ? 0.5f : 0.0f, 0.0f, 1.0f, true};
    case DAVY_RANGE_SIGNED_UNIT:
        return (dv_mapping){is_signed ? 1.0f : 2.0f, is_signed ? 0.0f : -1.0f, -1.0f, 1.0f, true};
    default:
        return (dv_mapping){.mul = 1.0f};
    }
}

dv_colours dv_colours_of(davy_channels channels) {
    switch (channels) {
    case DAVY_CHANNELS_BGR:
        return (dv_colours){{2, 1, 0, 0}, 3, -1};
    case DAVY_CHANNELS_RGBA:
        return (dv_colours){{0, 1, 2, 3}, 3, 3};
    case DAVY_CHANNELS_BGRA:
        return (dv_colours){{2, 1, 0, 3}, 3, 3};
    case DAVY_CHANNELS_GRAY:
        return (dv_colours){{0, 0, 0, 0}, 1, -1};
    case DAVY_CHANNELS_GRAYA:
        return (dv_colours){{0, 0, 0, 1}, 1, 1};
    default:
        return (dv_colours){{0, 1, 2, 0}, 3, -1};
    }
}
