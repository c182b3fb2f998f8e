/* yuv.c - references of "load_yuv" and "store_yuv". One unit is one row of luma, with its row of chroma if even. Each
 * product and each sum is rounded once, so that codes are identical in every variant. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"
#include "kernels/yuv.h"

static int64_t clipped(int64_t i, int64_t size) {
    return i < 0 ? 0 : i < size ? i : size - 1;
}

static float code_at(const dvk_yuv_args *a, const void *plane, int64_t stride, int64_t y, int64_t i) {
    const unsigned char *row = (const unsigned char *)plane + y * stride;
    if (a->bits == 8) {
        return (float)row[i];
    }
    uint16_t word = 0;
    memcpy(&word, row + 2 * i, sizeof word);
    return (float)(word >> (16 - a->bits));
}

static void put_code(const dvk_yuv_args *a, void *plane, int64_t stride, int64_t y, int64_t i, float code) {
    unsigned char *row = (unsigned char *)plane + y * stride;
    const float top = dvk_yuv_of(a).top;
    const int value = (int)rint((double)(code > 0.0f ? code < top ? code : top : 0.0f));
    if (a->bits == 8) {
        row[i] = (unsigned char)value;
    } else {
        const uint16_t word = (uint16_t)(value << (16 - a->bits));
        memcpy(row + 2 * i, &word, sizeof word);
    }
}

/* Chroma (which: 0 Cb, 1 Cr) at luma sample (y, x), a quarter of a chroma row from the nearest one. */
static float chroma_at(const dvk_yuv_args *a, int64_t y, int64_t x, int which) {
    const int64_t h = (a->view.h + 1) / 2;
    const int64_t w = (a->view.w + 1) / 2;
    const int64_t near = y / 2;
    const int64_t far = clipped(y % 2 ? near + 1 : near - 1, h);
    float columns[2];
    for (int64_t i = 0; i < 2; i++) {
        const int64_t column = clipped(x / 2 + i, w) * 2 + which;
        columns[i] = 0.75f * code_at(a, a->chroma, a->chroma_stride, near, column) +
                     0.25f * code_at(a, a->chroma, a->chroma_stride, far, column);
    }
    return x % 2 ? 0.5f * columns[0] + 0.5f * columns[1] : columns[0];
}

static float unit_range(float v) { /* NaN becomes 0 */
    return v > 0.0f ? v < 1.0f ? v : 1.0f : 0.0f;
}

static int64_t units(const void *args) {
    return ((const dvk_yuv_args *)args)->view.h;
}

static void load_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_yuv_args *a = args;
    const dvk_yuv_numbers m = dvk_yuv_of(a);
    (void)scratch;
    for (int64_t y = first; y < last; y++) {
        for (int64_t x = 0; x < a->view.w; x++) {
            const float luma = (code_at(a, a->luma, a->luma_stride, y, x) - m.y_offset) * m.y_unit;
            const float cb = (chroma_at(a, y, x, 0) - m.c_offset) * m.c_unit;
            const float cr = (chroma_at(a, y, x, 1) - m.c_offset) * m.c_unit;
            const float rgb[3] = {luma + m.r_cr * cr, (luma + m.g_cb * cb) + m.g_cr * cr, luma + m.b_cb * cb};
            for (int64_t c = 0; c < 3; c++) {
                dvk_store(a->view.data, a->view.dtype, dvk_at(&a->view, 0, y, x) + c,
                          unit_range(rgb[c]) * a->mul + a->add);
            }
        }
    }
}

static float colour_at(const dvk_yuv_args *a, int64_t y, int64_t x, int64_t c) {
    const int64_t at = dvk_at(&a->view, 0, clipped(y, a->view.h), clipped(x, a->view.w)) + c;
    return unit_range(dvk_load(a->view.data, a->view.dtype, at) * a->mul + a->add);
}

static float luma_of(const dvk_yuv_numbers *m, const float *rgb) {
    return (m->kr * rgb[0] + m->kg * rgb[1]) + m->kb * rgb[2];
}

static void store_chroma(const dvk_yuv_args *a, const dvk_yuv_numbers *m, int64_t y, int64_t x) {
    float rgb[3];
    for (int64_t c = 0; c < 3; c++) {
        float rows[2];
        for (int64_t j = 0; j < 2; j++) {
            rows[j] =
                (colour_at(a, y + j, x - 1, c) + colour_at(a, y + j, x + 1, c)) + 2.0f * colour_at(a, y + j, x, c);
        }
        rgb[c] = (rows[0] + rows[1]) * 0.125f;
    }
    const float luma = luma_of(m, rgb);
    const float cb = ((rgb[2] - luma) * m->cb_b) * m->c_scale + m->c_offset;
    const float cr = ((rgb[0] - luma) * m->cr_r) * m->c_scale + m->c_offset;
    put_code(a, a->chroma, a->chroma_stride, y / 2, x, cb);
    put_code(a, a->chroma, a->chroma_stride, y / 2, x + 1, cr);
}

static void store_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_yuv_args *a = args;
    const dvk_yuv_numbers m = dvk_yuv_of(a);
    (void)scratch;
    for (int64_t y = first; y < last; y++) {
        for (int64_t x = 0; x < a->view.w; x++) {
            const float rgb[3] = {colour_at(a, y, x, 0), colour_at(a, y, x, 1), colour_at(a, y, x, 2)};
            put_code(a, a->luma, a->luma_stride, y, x, luma_of(&m, rgb) * m.y_scale + m.y_offset);
            if (y % 2 == 0 && x % 2 == 0) {
                store_chroma(a, &m, y, x);
            }
        }
    }
}

const dvk_kernel dvk_load_yuv_ref = {
    .op = "load_yuv", .variant = "ref", .compute = DVK_F32, .units = units, .run = load_run};

const dvk_kernel dvk_store_yuv_ref = {
    .op = "store_yuv", .variant = "ref", .compute = DVK_F32, .units = units, .run = store_run};
