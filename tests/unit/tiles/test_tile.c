/* test_tile.c - tiles of an axis: they cover it, have the requested alignment and overlap, and their weights add up to 1. */
#include <math.h>

#include "core/tiles/tile.h"
#include "tests/lib/check.h"

static void check_axis(const dv_axis_desc *d) {
    dv_axis a = {0};
    if (!CHECK(dv_axis_create(d, &a) == DAVY_OK)) {
        return;
    }
    const int64_t out = d->size * d->num / d->den;
    int bad = 0;
    for (int64_t k = 0; k < a.count; k++) {
        bad += a.origin[k] % d->align != 0 || a.origin[k] < 0 || a.origin[k] + a.tile > d->size;
        bad += k > 0 && (a.origin[k] <= a.origin[k - 1] || a.origin[k - 1] + a.tile - a.origin[k] < d->overlap);
        /* The used part of a tile lies inside the tile. */
        bad += dv_axis_local(&a, k, dv_axis_first(&a, k)) < 0;
        bad += dv_axis_local(&a, k, dv_axis_end(&a, k)) > a.tile * d->num / d->den;
        bad += dv_axis_first(&a, k) >= dv_axis_end(&a, k);
        bad += k > 0 && d->exact && a.fade_first[k] != a.fade_end[k];
        /* A cut is half the overlap away from both tiles' edges. */
        bad += k > 0 && d->exact && dv_axis_local(&a, k, a.fade_first[k]) * d->den < d->overlap / 2 * d->num;
        bad += k > 0 && d->exact &&
               (a.origin[k - 1] + a.tile) * d->num / d->den - a.fade_first[k] < d->overlap / 2 * d->num / d->den;
    }
    CHECKF(bad == 0, "axis %lld, tile %lld, overlap %lld, align %lld: %d places are wrong", (long long)d->size,
           (long long)d->tile, (long long)d->overlap, (long long)d->align, bad);
    CHECK(a.origin[0] == 0 && a.origin[a.count - 1] + a.tile == d->size);
    CHECK(dv_axis_first(&a, 0) == 0 && dv_axis_end(&a, a.count - 1) == out);
    int wrong = 0;
    for (int64_t s = 0; s < out; s++) {
        double sum = 0.0;
        int parts = 0;
        for (int64_t k = 0; k < a.count; k++) {
            if (s >= dv_axis_first(&a, k) && s < dv_axis_end(&a, k)) {
                const float w = dv_axis_weight(&a, k, s);
                wrong += !(w > 0.0f) || w > 1.0f;
                sum += (double)w;
                parts++;
            }
        }
        wrong += fabs(sum - 1.0) > 1e-6 || parts < 1 || parts > 2;
    }
    CHECKF(wrong == 0, "axis %lld, tile %lld, overlap %lld: weights of %d samples", (long long)d->size,
           (long long)d->tile, (long long)d->overlap, wrong);
    CHECK(dv_axis_fades(&a) == (!d->exact && a.count > 1 && d->overlap >= d->den && d->overlap > 0));
    CHECK(dv_tile_count(d) == a.count);
    dv_axis_free(&a);
}

static void test_many_axes(void) {
    static const int64_t sizes[] = {1, 7, 64, 65, 100, 127, 333};
    static const int64_t tiles[] = {16, 33, 48, 64, 200};
    static const int64_t overlaps[] = {0, 4, 8, 15};
    for (size_t s = 0; s < DV_ARRAY_LEN(sizes); s++) {
        for (size_t t = 0; t < DV_ARRAY_LEN(tiles); t++) {
            for (size_t o = 0; o < DV_ARRAY_LEN(overlaps); o++) {
                for (int64_t align = 1; align <= 4; align += align) {
                    const int64_t tile = dv_tile_fit(sizes[s], tiles[t], align);
                    CHECK(tile <= tiles[t] && tile > tiles[t] - align - (tile == sizes[s] ? sizes[s] + tiles[t] : 0) &&
                          (sizes[s] - tile) % align == 0);
                    if (tile < sizes[s] && tile < overlaps[o] + align) {
                        continue; /* callers reject this case earlier */
                    }
                    const dv_axis_desc d = {
                        .size = sizes[s], .tile = tile, .overlap = overlaps[o], .align = align, .num = 2, .den = 1};
                    check_axis(&d);
                    dv_axis_desc margin = d;
                    margin.margin = overlaps[o] / 4;
                    check_axis(&margin);
                    if (overlaps[o] % (2 * align) == 0) {
                        dv_axis_desc exact = d;
                        exact.exact = true;
                        check_axis(&exact);
                    }
                }
            }
        }
    }
}

/* An encoder: eight picture samples give one latent. */
static void test_shrinking(void) {
    for (int64_t size = 256; size <= 1024; size += 72) {
        const dv_axis_desc d = {.size = size, .tile = 256, .overlap = 64, .align = 8, .num = 1, .den = 8};
        check_axis(&d);
    }
}

/* The last tile is shifted back and overlaps much more: the fade keeps the requested width and is centred. */
static void test_last_tile(void) {
    const dv_axis_desc d = {.size = 100, .tile = 64, .overlap = 32, .align = 1, .num = 4, .den = 1};
    dv_axis a = {0};
    if (!CHECK(dv_axis_create(&d, &a) == DAVY_OK)) {
        return;
    }
    CHECK(a.count == 3 && a.origin[1] == 32 && a.origin[2] == 36);
    CHECK(a.fade_first[1] == 32 * 4 && a.fade_end[1] == 64 * 4);
    CHECK(a.fade_first[2] == 64 * 4 && a.fade_end[2] == 96 * 4);
    dv_axis kept = {0};
    dv_axis_desc margin = d;
    margin.margin = 8;
    if (CHECK(dv_axis_create(&margin, &kept) == DAVY_OK)) {
        CHECK(kept.fade_first[1] == 40 * 4 && kept.fade_end[1] == 56 * 4 && kept.fade_first[2] == 68 * 4);
        dv_axis_free(&kept);
    }
    const double middle = (double)dv_axis_weight(&a, 1, 48 * 4) + (double)dv_axis_weight(&a, 1, 48 * 4 - 1);
    CHECK(fabs(middle - 1.0) < 1e-6);
    dv_axis_free(&a);
}

int main(void) {
    test_many_axes();
    test_shrinking();
    test_last_tile();
    return check_done();
}
