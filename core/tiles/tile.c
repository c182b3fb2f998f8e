/* tile.c - see tile.h. */
#include "core/tiles/tile.h"

#include <math.h>

#include "core/base/error.h"
#include "core/base/mem.h"

#define PI 3.14159265358979323846

static int64_t round_down(int64_t v, int64_t step) {
    return v / step * step;
}

static int64_t round_up(int64_t v, int64_t step) {
    return round_down(v + step - 1, step);
}

int64_t dv_tile_fit(int64_t size, int64_t tile, int64_t align) {
    return tile >= size ? size : tile - (tile - size % align + align) % align;
}

static int64_t step_of(const dv_axis_desc *d) {
    return dv_max(round_down(d->tile - d->overlap, d->align), d->align);
}

int64_t dv_tile_count(const dv_axis_desc *d) {
    return d->tile >= d->size ? 1 : 1 + dv_div_up(d->size - d->tile, step_of(d));
}

/* Places the fade from tile k - 1 to tile k. from: the end of the fade before, in input samples. */
static void place_fade(const dv_axis_desc *d, dv_axis *a, int64_t k, int64_t from) {
    int64_t first = dv_max(a->origin[k], from);
    int64_t end = dv_max(a->origin[k - 1] + a->tile, first);
    if (d->exact) {
        first = end = a->origin[k] + round_up(d->overlap / 2, d->align);
    } else if (end - first > d->overlap) {
        first += (end - first - d->overlap) / 2; /* centred, where both tiles have the most context */
        end = first + d->overlap;
    }
    if (!d->exact && end > first) {
        const int64_t margin = dv_min(d->margin, (end - first - 1) / 2);
        first += margin;
        end -= margin;
    }
    a->cut[k] = round_down(first + (end - first) / 2, d->align);
    first = round_up(first, d->den);
    a->fade_first[k] = first * d->num / d->den;
    a->fade_end[k] = dv_max(round_down(end, d->den), first) * d->num / d->den;
}

davy_result dv_axis_create(const dv_axis_desc *d, dv_axis *out) {
    dv_axis a = {.tile = dv_min(d->tile, d->size), .count = dv_tile_count(d), .num = d->num, .den = d->den};
    a.origin = dv_calloc(4 * (uint64_t)(a.count + 1), sizeof *a.origin);
    if (a.origin == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "tiles: out of memory");
    }
    a.fade_first = a.origin + a.count + 1;
    a.fade_end = a.fade_first + a.count + 1;
    a.cut = a.fade_end + a.count + 1;
    int64_t from = 0; /* end of the previous fade, input */
    for (int64_t k = 1; k < a.count; k++) {
        a.origin[k] = dv_min(k * step_of(d), d->size - a.tile);
        place_fade(d, &a, k, from);
        from = dv_div_up(a.fade_end[k] * d->den, d->num);
    }
    a.fade_first[a.count] = a.fade_end[a.count] = d->size * d->num / d->den;
    a.cut[a.count] = d->size;
    *out = a;
    return DAVY_OK;
}

void dv_axis_free(dv_axis *a) {
    dv_free(a->origin);
    *a = (dv_axis){0};
}

static float rising(int64_t first, int64_t end, int64_t sample) {
    const double s = sin(PI * ((double)(sample - first) + 0.5) / (2.0 * (double)(end - first)));
    return (float)(s * s);
}

float dv_axis_weight(const dv_axis *a, int64_t k, int64_t sample) {
    if (sample < a->fade_end[k]) {
        return rising(a->fade_first[k], a->fade_end[k], sample);
    }
    if (sample >= a->fade_first[k + 1]) {
        return 1.0f - rising(a->fade_first[k + 1], a->fade_end[k + 1], sample);
    }
    return 1.0f;
}

bool dv_axis_fades(const dv_axis *a) {
    for (int64_t k = 1; k < a->count; k++) {
        if (a->fade_end[k] > a->fade_first[k]) {
            return true;
        }
    }
    return false;
}
