/* pil_rows.c - the reference loops of the resampler. Every variant computes sums modulo 2^32. */
#include "core/vlm/pil_rows.h"

static uint8_t finish(uint32_t sum) {
    const int32_t v = (int32_t)sum >> DV_PIL_BITS; /* an arithmetic shift on all supported machines */
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void across(const dv_pil_across *a) {
    for (int64_t r = 0; r < a->rows; r++) {
        const uint8_t *row = a->src + r * a->src_stride;
        uint8_t *out = a->dst + r * a->dst_stride;
        for (int64_t x = a->x0; x < a->x1; x++, out += 3) {
            const int32_t *w = a->axis->weight + x * a->axis->taps;
            const uint8_t *in = row + 3 * (int64_t)a->axis->first[x];
            uint32_t sum[3] = {1u << (DV_PIL_BITS - 1), 1u << (DV_PIL_BITS - 1), 1u << (DV_PIL_BITS - 1)};
            for (int64_t t = 0; t < a->axis->count[x]; t++) {
                for (int64_t c = 0; c < 3; c++) {
                    sum[c] += (uint32_t)in[3 * t + c] * (uint32_t)w[t];
                }
            }
            for (int64_t c = 0; c < 3; c++) {
                out[c] = finish(sum[c]);
            }
        }
    }
}

static void down(const dv_pil_down *d) {
    const int32_t *w = d->axis->weight + d->y * d->axis->taps;
    for (int64_t i = 0; i < d->bytes; i++) {
        uint32_t sum = 1u << (DV_PIL_BITS - 1);
        for (int64_t t = 0; t < d->axis->count[d->y]; t++) {
            sum += (uint32_t)d->src[t * d->src_stride + i] * (uint32_t)w[t];
        }
        d->dst[i] = finish(sum);
    }
}

const dv_pil_rows dv_pil_rows_plain = {.across = across, .down = down};
