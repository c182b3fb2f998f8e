/* test_yuv.c - load_yuv and store_yuv against codes that follow from the recommendations by hand: full-strength
 * primaries of BT.601, BT.709 and BT.2020, white and black; that a picture survives the way there and back; the
 * chroma siting. */
#include <math.h>
#include <string.h>

#include "kernels/kernel.h"
#include "tests/lib/check.h"

static void run(const char *op, const dvk_yuv_args *a) {
    const dvk_kernel *k = dvk_find(op, "ref");
    k->run(a, 0, k->units(a), NULL);
}

static dvk_yuv_args picture(float *rgb, int64_t h, int64_t w, void *luma, void *chroma, int32_t bits) {
    const int64_t size = bits == 8 ? 1 : 2;
    return (dvk_yuv_args){
        .luma = luma,
        .chroma = chroma,
        .luma_stride = w * size,
        .chroma_stride = (w + 1) / 2 * 2 * size,
        .view = {.data = rgb, .dtype = DVK_F32, .n = 1, .h = h, .w = w, .c = 3, .sn = h * w * 3, .sh = w * 3, .sw = 3},
        .mul = 1.0f,
        .bits = bits};
}

static void test_primaries(void) {
    static const struct {
        dvk_yuv_matrix matrix;
        int32_t bits, full;
        float rgb[3];
        int y, cb, cr;
    } of[] = {
        {DVK_YUV_BT601, 8, 0, {1, 0, 0}, 81, 90, 240},       {DVK_YUV_BT601, 8, 0, {0, 1, 0}, 145, 54, 34},
        {DVK_YUV_BT601, 8, 0, {0, 0, 1}, 41, 240, 110},      {DVK_YUV_BT709, 8, 0, {1, 0, 0}, 63, 102, 240},
        {DVK_YUV_BT709, 8, 0, {0, 1, 0}, 173, 42, 26},       {DVK_YUV_BT709, 8, 0, {0, 0, 1}, 32, 240, 118},
        {DVK_YUV_BT709, 8, 0, {1, 1, 1}, 235, 128, 128},     {DVK_YUV_BT709, 8, 0, {0, 0, 0}, 16, 128, 128},
        {DVK_YUV_BT709, 8, 1, {1, 1, 1}, 255, 128, 128},     {DVK_YUV_BT601, 8, 1, {1, 0, 0}, 76, 85, 255},
        {DVK_YUV_BT2020, 10, 0, {1, 0, 0}, 294, 387, 960},   {DVK_YUV_BT2020, 10, 0, {1, 1, 1}, 940, 512, 512},
        {DVK_YUV_BT2020, 10, 0, {NAN, 0, -3}, 64, 512, 512},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        float rgb[12];
        uint16_t luma[4] = {0};
        uint16_t chroma[2] = {0};
        for (int j = 0; j < 12; j++) {
            rgb[j] = of[i].rgb[j % 3];
        }
        dvk_yuv_args a = picture(rgb, 2, 2, luma, chroma, of[i].bits);
        a.matrix = of[i].matrix;
        a.full_range = of[i].full;
        run("store_yuv", &a);
        const unsigned char *l = (const unsigned char *)luma;
        const unsigned char *c = (const unsigned char *)chroma;
        const int y = of[i].bits == 8 ? l[3] : luma[3] >> 6;
        const int cb = of[i].bits == 8 ? c[0] : chroma[0] >> 6;
        const int cr = of[i].bits == 8 ? c[1] : chroma[1] >> 6;
        CHECKF(y == of[i].y && cb == of[i].cb && cr == of[i].cr, "case %d: %d %d %d, expected %d %d %d", (int)i, y, cb,
               cr, of[i].y, of[i].cb, of[i].cr);
    }
}

static void test_there_and_back(void) {
    enum { H = 7, W = 9 };
    static float rgb[H * W * 3], back[H * W * 3];
    static uint16_t luma[H * W], chroma[(H + 1) / 2 * (W + 1)];
    for (int i = 0; i < H * W; i++) { /* colours that change slowly, so that half the chroma is enough */
        rgb[3 * i] = 0.3f + 0.02f * (float)(i / W);
        rgb[3 * i + 1] = 0.6f - 0.03f * (float)(i % W);
        rgb[3 * i + 2] = 0.5f;
    }
    for (int m = 0; m < 3; m++) {
        dvk_yuv_args a = picture(rgb, H, W, luma, chroma, 16);
        a.matrix = (dvk_yuv_matrix)m;
        run("store_yuv", &a);
        a.view.data = back;
        run("load_yuv", &a);
        double worst = 0.0;
        for (int i = 0; i < H * W * 3; i++) {
            worst = fmax(worst, fabs((double)rgb[i] - (double)back[i]));
        }
        CHECKF(worst < 0.02, "matrix %d: off by %g", m, worst);
    }
}

/* One chroma sample of four differs: its column gets all of it, the one halfway half, rows three quarters or one. */
static void test_siting(void) {
    unsigned char luma[16];
    unsigned char chroma[8] = {128, 128, 128, 128, 128, 128, 128, 158};
    float rgb[48];
    memset(luma, 128, sizeof luma);
    dvk_yuv_args a = picture(rgb, 4, 4, luma, chroma, 8);
    a.full_range = 1;
    run("load_yuv", &a);
    const double all = (double)rgb[3 * (3 * 4 + 2)] - (double)rgb[0];
    CHECKF(fabs(((double)rgb[3 * (3 * 4 + 1)] - (double)rgb[0]) / all - 0.5) < 1e-5, "halfway across");
    CHECKF(fabs(((double)rgb[3 * (2 * 4 + 2)] - (double)rgb[0]) / all - 0.75) < 1e-5, "a quarter up");
    CHECKF(fabs(((double)rgb[3 * (1 * 4 + 2)] - (double)rgb[0]) / all - 0.25) < 1e-5, "three quarters up");
    CHECK(rgb[3 * 4 + 0] == rgb[0] && rgb[3 * (3 * 4)] == rgb[0]);
}

int main(void) {
    test_primaries();
    test_there_and_back();
    test_siting();
    return check_done();
}
