/* bleed.c - see bleed.h. kernels/cuda/pixels/bleed.cu does the same sums in the same order. */
#include "core/calls/bleed.h"

#include "kernels/cuda/pixels/bleed.h"

enum { NEVER = 255 };

static bool visible(const dv_bleed *b, int64_t y, int64_t x) {
    const char *at = dv_pixels_at(b->p, b->index, y, x, b->colours.alpha);
    return dv_element_load(at, b->p->dtype) * b->opacity.mul + b->opacity.add > 0.0f;
}

bool dv_bleed_needed(const dv_bleed *b) {
    bool found[2] = {false, false};
    for (int64_t y = 0; y < b->p->h; y++) {
        for (int64_t x = 0; x < b->p->w; x++) {
            found[visible(b, y, x)] = true;
        }
        if (found[0] && found[1]) {
            return true;
        }
    }
    return false;
}

/* The mean of the neighbours that had a colour before this pass; false: there are none. */
static bool grow(const dv_bleed *b, float *out, const uint8_t *age, int pass, int64_t y, int64_t x) {
    const int64_t w = b->p->w;
    const int32_t colours = b->colours.count;
    float sum[3] = {0.0f, 0.0f, 0.0f};
    int n = 0;
    for (int64_t j = dv_max(y - 1, 0); j <= dv_min(y + 1, b->p->h - 1); j++) {
        for (int64_t i = dv_max(x - 1, 0); i <= dv_min(x + 1, w - 1); i++) {
            if (age[j * w + i] < pass) {
                n++;
                for (int32_t c = 0; c < colours; c++) {
                    sum[c] += out[(j * w + i) * colours + c];
                }
            }
        }
    }
    for (int32_t c = 0; n > 0 && c < colours; c++) {
        out[(y * w + x) * colours + c] = sum[c] / (float)n;
    }
    return n > 0;
}

static void read_row(const dv_bleed *b, int64_t y, float *out, uint8_t *age) {
    const dv_pixels *p = b->p;
    for (int64_t x = 0; x < p->w; x++) {
        for (int32_t c = 0; c < b->colours.count; c++) {
            const char *at = dv_pixels_at(p, b->index, y, x, b->colours.map[c]);
            out[(y * p->w + x) * b->colours.count + c] = dv_element_load(at, p->dtype);
        }
        age[y * p->w + x] = visible(b, y, x) ? 0 : NEVER; /* the pass in which it gets a colour */
    }
}

void dv_bleed_run(const dv_bleed *b, float *out, uint8_t *age) {
    const int64_t w = b->p->w;
    for (int64_t y = 0; y < b->p->h; y++) {
        read_row(b, y, out, age);
    }
    for (int pass = 1; pass <= DVK_BLEED_REACH; pass++) {
        for (int64_t y = 0; y < b->p->h; y++) {
            for (int64_t x = 0; x < w; x++) {
                if (age[y * w + x] > pass && grow(b, out, age, pass, y, x)) {
                    age[y * w + x] = (uint8_t)pass;
                }
            }
        }
    }
}
