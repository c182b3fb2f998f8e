/* test_vlm_positions.c - positions of tokens and patches, against vectors computed by hand from the models' descriptions. */
#include <math.h>

#include "core/vlm/positions.h"
#include "tests/lib/file_check.h"

static dv_vlm_config qwen(dv_vlm_family family) {
    dv_vlm_config c = {.family = family};
    c.text.head_dim = 128;
    c.text.rope = (dv_vlm_rope){.theta = 1e6, .axes = DV_VLM_ROPE_SECTIONS, .sections = {16, 24, 24}};
    if (family == DV_VLM_QWEN3) {
        c.text.rope = (dv_vlm_rope){.theta = 5e6, .axes = DV_VLM_ROPE_INTERLEAVED, .sections = {24, 20, 20}};
    }
    c.vision = (dv_vlm_vision){.patch = 14, .merge = 2, .temporal = 2, .window = 112, .tokens_per_second = 2};
    return c;
}

static void check_axis(const int32_t *pos, int axis, const int32_t *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        CHECKF(pos[3 * i + axis] == want[i], "token %d, axis %d: %d, wanted %d", (int)i, axis, (int)pos[3 * i + axis],
               (int)want[i]);
    }
}

/* 4 text tokens, an image of 2x3, 3 text tokens. */
static void test_image(void) {
    static const int32_t t[13] = {0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8, 9};
    static const int32_t h[13] = {0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8, 9};
    static const int32_t w[13] = {0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9};
    const dv_vlm_config c = qwen(DV_VLM_QWEN2_5);
    const dv_vlm_span span = {.at = 4, .t = 1, .h = 2, .w = 3};
    int32_t pos[3 * 13];
    int64_t next = 0;
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){13, &span, 1}, &next, pos));
    check_axis(pos, 0, t, 13);
    check_axis(pos, 1, h, 13);
    check_axis(pos, 2, w, 13);
    CHECK(next == 10); /* 13 tokens: the positions run 3 behind */
    int32_t more[3 * 2];
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){2, NULL, 0}, &next, more));
    check_axis(more, 2, (const int32_t[]){10, 11}, 2);
}

static void test_video(void) {
    int32_t pos[3 * 14];
    int64_t next = 0;
    dv_vlm_span span = {.at = 1, .t = 3, .h = 2, .w = 2, .seconds = 1.0};
    dv_vlm_config c = qwen(DV_VLM_QWEN2_5); /* 2 ticks a second */
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){14, &span, 1}, &next, pos));
    check_axis(pos, 0, (const int32_t[]){0, 1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 5, 5, 3}, 14);
    check_axis(pos, 1, (const int32_t[]){0, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 3}, 14);
    CHECK(next == 6);
    span.seconds = 0.7; /* 1.4 ticks: 0, 1, 2 */
    next = 0;
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){14, &span, 1}, &next, pos));
    check_axis(pos, 0, (const int32_t[]){0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3}, 14);
    c = qwen(DV_VLM_QWEN2); /* one tick per patch, independent of time */
    next = 0;
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){14, &span, 1}, &next, pos));
    check_axis(pos, 0, (const int32_t[]){0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3}, 14);
    span.at = 3;
    CHECK_FAILS(dv_vlm_positions(&c, &(dv_vlm_sequence){14, &span, 1}, &next, pos), DAVY_E_INVALID, "overlap");
}

static void test_plain(void) {
    dv_vlm_config c = {.family = DV_VLM_IDEFICS3};
    c.text.head_dim = 64;
    c.text.rope.theta = 1e5;
    int32_t pos[4];
    int64_t next = 7;
    CHECK(dv_vlm_position_axes(&c) == 1);
    CHECK_OK(dv_vlm_positions(&c, &(dv_vlm_sequence){4, NULL, 0}, &next, pos));
    CHECK(pos[0] == 7 && pos[3] == 10 && next == 11);
}

static void test_axes(void) {
    float freq[64];
    uint8_t axis[64];
    dv_vlm_config c = qwen(DV_VLM_QWEN2);
    dv_vlm_rope_tables(&c.text, freq, axis);
    CHECK(axis[0] == 0 && axis[15] == 0 && axis[16] == 1 && axis[39] == 1 && axis[40] == 2 && axis[63] == 2);
    CHECK(freq[0] == 1.0f && fabs((double)freq[32] - 1e-3) < 1e-9);
    c = qwen(DV_VLM_QWEN3);
    dv_vlm_rope_tables(&c.text, freq, axis);
    int count[3] = {0};
    for (int j = 0; j < 64; j++) {
        count[axis[j]]++;
        const int want = j < 60 ? j % 3 : 0;
        CHECKF(axis[j] == want, "pair %d turns by %d", j, axis[j]);
    }
    CHECK(count[0] == 24 && count[1] == 20 && count[2] == 20);
}

/* Llama 3.1's scaling: high frequencies stay, low ones are divided by 8, those between are blended. */
static void test_llama3(void) {
    dv_vlm_text t = {.head_dim = 128};
    t.rope = (dv_vlm_rope){
        .theta = 500000, .scaling = DV_VLM_SCALE_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 8192};
    float got[64];
    uint8_t axis[64];
    dv_vlm_rope_tables(&t, got, axis);
    int blended = 0;
    for (int j = 0; j < 64; j++) {
        const double f = pow(500000, -2.0 * j / 128);
        const double wave = 2 * 3.14159265358979323846 / f;
        const double s = (8192 / wave - 1) / 3;
        const double want = wave > 8192 ? f / 8 : wave < 2048 ? f : (1 - s) * f / 8 + s * f;
        blended += wave <= 8192 && wave >= 2048;
        CHECKF(fabs((double)got[j] - want) <= 1e-6 * want, "pair %d: %g, wanted %g", j, (double)got[j], want);
    }
    CHECK(blended == 6);
    t.rope.scaling = DV_VLM_SCALE_LINEAR;
    dv_vlm_rope_tables(&t, got, axis);
    CHECK(got[0] == 0.125f);
}

static void check_windows(int64_t t, int64_t h, int64_t w, const int32_t *order, const int32_t *bounds, int64_t n) {
    const dv_vlm_config c = qwen(DV_VLM_QWEN2_5);
    const dv_vlm_grid g = {.t = t, .h = h, .w = w, .merge = 2};
    dv_vlm_windows got;
    CHECK_OK(dv_vlm_windows_make(&c.vision, &g, &got));
    CHECK(got.units == t * h * w / 4 && got.n_bounds == n);
    for (int64_t i = 0; order != NULL && i < got.units; i++) {
        CHECKF(got.order[i] == order[i], "unit %d: %d, wanted %d", (int)i, (int)got.order[i], (int)order[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        CHECKF(got.bounds[i] == bounds[i], "bound %d: %d, wanted %d", (int)i, (int)got.bounds[i], (int)bounds[i]);
    }
    dv_vlm_windows_free(&got);
}

static void test_windows(void) {
    static const int32_t order[30] = {0,  1, 2, 3,  5,  6,  7,  8,  10, 11, 12, 13, 15, 16, 17,
                                      18, 4, 9, 14, 19, 20, 21, 22, 23, 25, 26, 27, 28, 24, 29};
    check_windows(1, 12, 10, order, (const int32_t[]){0, 64, 80, 112, 120}, 5);
    check_windows(1, 16, 16, NULL, (const int32_t[]){0, 64, 128, 192, 256}, 5);
    check_windows(2, 12, 10, NULL, (const int32_t[]){0, 64, 80, 112, 120, 184, 200, 232, 240}, 9);
}

static void test_patches(void) {
    static const int32_t want[] = {0, 0, 0, 1, 1, 0, 1, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 0};
    const dv_vlm_grid g = {.t = 2, .h = 4, .w = 4, .merge = 2};
    int32_t pos[2 * 32];
    dv_vlm_patch_positions(&g, pos);
    CHECK(memcmp(pos, want, sizeof want) == 0 && memcmp(pos, pos + 32, 32 * sizeof *pos) == 0);
    int32_t bounds[3];
    dv_vlm_frame_bounds(&g, bounds);
    CHECK(bounds[0] == 0 && bounds[1] == 16 && bounds[2] == 32);
    float freq[40];
    uint8_t axis[40];
    dv_vlm_patch_rope_tables(80, freq, axis);
    CHECK(axis[19] == 0 && axis[20] == 1 && freq[0] == 1.0f && freq[20] == 1.0f && freq[39] == freq[19]);
    CHECK(fabs((double)freq[10] - 0.01) < 1e-8); /* 10000^(-20/40) */
}

/* A table of 48 rows over 3 patches: 0, 23.5, 47. */
static void test_table(void) {
    const dv_vlm_grid g = {.t = 1, .h = 1, .w = 3, .merge = 1};
    int32_t row[12];
    float weight[12];
    dv_vlm_table_taps(48, &g, row, weight);
    static const int32_t rows[12] = {0, 1, 48, 49, 23, 24, 71, 72, 47, 47, 95, 95};
    static const float weights[12] = {1, 0, 0, 0, 0.5f, 0.5f, 0, 0, 1, 0, 0, 0};
    for (int i = 0; i < 12; i++) {
        CHECKF(row[i] == rows[i] && weight[i] == weights[i], "tap %d: row %d, weight %g", i, (int)row[i],
               (double)weight[i]);
    }
    const dv_vlm_grid whole = {.t = 1, .h = 24, .w = 24, .merge = 2};
    int32_t all[4 * 576];
    float sums[4 * 576];
    dv_vlm_table_taps(24, &whole, all, sums); /* the table's own size: each patch has its own row */
    int32_t pos[2 * 576];
    dv_vlm_patch_positions(&whole, pos);
    int wrong = 0;
    for (int i = 0; i < 576; i++) {
        wrong += all[4 * i] != 24 * pos[2 * i] + pos[2 * i + 1] || sums[4 * i] != 1.0f;
    }
    CHECKF(wrong == 0, "%d patches", wrong);
}

int main(void) {
    test_image();
    test_video();
    test_plain();
    test_axes();
    test_llama3();
    test_windows();
    test_patches();
    test_table();
    return check_done();
}
