/* test_vlm_resize.c - the resampler: vectors from Pillow, equal bits of both variants, threads, strides, errors. tests/vlm
 * compares many sizes with Pillow itself. */
#include "core/base/pool.h"
#include "core/vlm/pil_resize.h"
#include "core/vlm/pil_rows.h"
#include "kernels/kernel.h"
#include "tests/lib/file_check.h"
#include "tests/lib/hooks.h"

/* Rows have gaps, and memory ends with the last pixel, so a memory checker finds an access past it. */
static size_t bytes_of(const dv_rgb8 *p) {
    return (size_t)(p->stride * (p->height - 1) + 3 * p->width);
}

static dv_rgb8 picture(int64_t w, int64_t h) {
    dv_rgb8 p = {.width = w, .height = h, .stride = 3 * w + 5};
    p.data = calloc(1, bytes_of(&p));
    if (p.data == NULL) {
        abort();
    }
    return p;
}

static uint32_t random_bits(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Row 0, 36, ... 252 in all three colours, to `n` pixels. */
static void check_row(dv_pil_filter filter, int64_t n, const uint8_t *want) {
    dv_rgb8 from = picture(8, 1);
    dv_rgb8 to = picture(n, 1);
    for (int i = 0; i < 24; i++) {
        from.data[i] = (uint8_t)(36 * (i / 3));
    }
    for (uint32_t cpu = 0; cpu < 2; cpu++) {
        const dv_pil_options o = {.filter = filter, .cpu = cpu != 0 ? dvk_cpu_detect() : 0};
        CHECK_OK(dv_pil_resize(&o, &from, &to));
        for (int64_t i = 0; i < 3 * n; i++) {
            CHECKF(to.data[i] == want[i / 3], "filter %d, pixel %d is %d, wanted %d", (int)filter, (int)(i / 3),
                   to.data[i], want[i / 3]);
        }
    }
    free(from.data);
    free(to.data);
}

static void test_vectors(void) {
    check_row(DV_PIL_BILINEAR, 3, (const uint8_t[]){40, 126, 212});
    check_row(DV_PIL_BICUBIC, 3, (const uint8_t[]){32, 126, 220});
    check_row(DV_PIL_LANCZOS, 3, (const uint8_t[]){29, 126, 223});
    check_row(DV_PIL_BILINEAR, 13, (const uint8_t[]){0, 15, 37, 60, 82, 104, 126, 148, 170, 192, 215, 237, 252});
    check_row(DV_PIL_BICUBIC, 13, (const uint8_t[]){0, 12, 37, 60, 82, 104, 126, 148, 170, 192, 215, 240, 255});
    check_row(DV_PIL_LANCZOS, 13, (const uint8_t[]){0, 11, 38, 61, 81, 104, 126, 148, 171, 191, 214, 241, 255});
}

/* Compares the plain loops on one thread with the fast ones on several. */
static void test_variants(void) {
    uint32_t seed = 12345;
    dv_pool *pool = NULL;
    CHECK_OK(dv_pool_create(3, &pool));
    for (int k = 0; k < 200; k++) {
        const int64_t most = k % 3 == 0 ? 9 : k % 3 == 1 ? 90 : 700;
        dv_rgb8 from = picture(1 + random_bits(&seed) % most, 1 + random_bits(&seed) % most);
        dv_rgb8 a = picture(1 + random_bits(&seed) % most, 1 + random_bits(&seed) % most);
        dv_rgb8 b = picture(a.width, a.height);
        for (size_t i = 0; i < bytes_of(&from); i++) {
            from.data[i] = (uint8_t)random_bits(&seed);
        }
        const dv_pil_filter filter = (dv_pil_filter)(1 + k % 5);
        const float box[4] = {0.25f, 0.5f, (float)from.width - 0.25f, (float)from.height};
        const dv_pil_options plain = {.filter = filter, .box = k % 4 == 0 ? box : NULL};
        const dv_pil_options fast = {.filter = filter, .box = plain.box, .pool = pool, .cpu = dvk_cpu_detect()};
        CHECK_OK(dv_pil_resize(&plain, &from, &a));
        CHECK_OK(dv_pil_resize(&fast, &from, &b));
        CHECKF(memcmp(a.data, b.data, bytes_of(&a)) == 0, "filter %d, %dx%d to %dx%d differ", (int)filter,
               (int)from.width, (int)from.height, (int)a.width, (int)a.height);
        free(from.data);
        free(a.data);
        free(b.data);
    }
    dv_pool_release(pool);
}

static void test_same_size(void) {
    dv_rgb8 from = picture(7, 5);
    dv_rgb8 to = picture(7, 5);
    for (size_t i = 0; i < bytes_of(&from); i++) {
        from.data[i] = i % 26 < 21 ? (uint8_t)(i * 7) : 0;
    }
    const dv_pil_options o = {.filter = DV_PIL_LANCZOS};
    CHECK_OK(dv_pil_resize(&o, &from, &to));
    CHECK(memcmp(from.data, to.data, bytes_of(&from)) == 0);
    free(from.data);
    free(to.data);
}

static void test_refusals(void) {
    dv_rgb8 from = picture(4, 4);
    dv_rgb8 to = picture(2, 2);
    dv_rgb8 none = to;
    none.width = 0;
    dv_pil_options o = {.filter = (dv_pil_filter)0};
    CHECK_FAILS(dv_pil_resize(&o, &from, &to), DAVY_E_INVALID, "filter is 0");
    o.filter = DV_PIL_BICUBIC;
    CHECK_FAILS(dv_pil_resize(&o, &from, &none), DAVY_E_SHAPE, "4x4 to 0x2");
    const float outside[4] = {0, 0, 5, 4};
    o.box = outside;
    CHECK_FAILS(dv_pil_resize(&o, &from, &to), DAVY_E_INVALID, "outside");
    o.box = NULL;
    for (int64_t n = 0; n < 9; n++) { /* every allocation fails once */
        dv_alloc_fail_after(n);
        const davy_result r = dv_pil_resize(&o, &from, &to);
        dv_alloc_fail_after(-1);
        CHECK(r == DAVY_E_NOMEM_HOST || r == DAVY_OK);
        CHECK(n > 0 || r == DAVY_E_NOMEM_HOST);
    }
    free(from.data);
    free(to.data);
}

int main(void) {
    test_vectors();
    test_variants();
    test_same_size();
    test_refusals();
    return check_done();
}
