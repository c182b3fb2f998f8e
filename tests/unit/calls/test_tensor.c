/* test_tensor.c - davy_tensor to checked pixels: axes of each layout, strides of any sign, address ranges at the ends of
 * memory, outputs with overlapping elements, channels and ranges. */
#include <string.h>

#include "core/base/error.h"
#include "core/calls/tensor.h"
#include "tests/lib/check.h"

static float memory[4096];

static davy_tensor tensor(davy_layout layout, int32_t ndim, const int64_t *shape) {
    davy_tensor t = {.struct_size = sizeof t,
                     .dtype = DAVY_DTYPE_F32,
                     .layout = layout,
                     .ndim = ndim,
                     .data = (uint64_t)(uintptr_t)&memory[2048]};
    memcpy(t.shape, shape, (size_t)ndim * sizeof shape[0]);
    return t;
}

static void test_layouts(void) {
    static const struct {
        davy_layout layout;
        int32_t ndim;
        int64_t shape[6];
        int64_t n, t, h, w, c, sn, st, sh, sw, sc; /* strides in elements */
    } cases[] = {
        {DAVY_LAYOUT_HWC, 3, {5, 7, 3}, 1, 1, 5, 7, 3, 0, 0, 21, 3, 1},
        {DAVY_LAYOUT_CHW, 3, {3, 5, 7}, 1, 1, 5, 7, 3, 0, 0, 7, 1, 35},
        {DAVY_LAYOUT_HW, 2, {5, 7}, 1, 1, 5, 7, 1, 0, 0, 7, 1, 0},
        {DAVY_LAYOUT_NHWC, 4, {2, 5, 7, 3}, 2, 1, 5, 7, 3, 105, 0, 21, 3, 1},
        {DAVY_LAYOUT_NCHW, 4, {2, 3, 5, 7}, 2, 1, 5, 7, 3, 105, 0, 7, 1, 35},
        {DAVY_LAYOUT_NTHWC, 5, {2, 4, 5, 7, 3}, 2, 4, 5, 7, 3, 420, 105, 21, 3, 1},
        {DAVY_LAYOUT_NCTHW, 5, {2, 3, 4, 5, 7}, 2, 4, 5, 7, 3, 420, 35, 7, 1, 140},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        const davy_tensor t = tensor(cases[i].layout, cases[i].ndim, cases[i].shape);
        dv_pixels p;
        if (!CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK)) {
            continue;
        }
        CHECK(p.n == cases[i].n && p.t == cases[i].t && p.h == cases[i].h && p.w == cases[i].w && p.c == cases[i].c);
        CHECKF((p.n == 1 || p.sn == 4 * cases[i].sn) && (p.t == 1 || p.st == 4 * cases[i].st) &&
                   p.sh == 4 * cases[i].sh && p.sw == 4 * cases[i].sw && (p.c == 1 || p.sc == 4 * cases[i].sc),
               "layout %d: strides", (int)cases[i].layout);
        davy_layout layout = cases[i].layout;
        int32_t ndim = 0;
        int64_t shape[6];
        dv_pixels_shape(&p, &layout, &ndim, shape);
        CHECK(layout == cases[i].layout && ndim == cases[i].ndim && memcmp(shape, cases[i].shape, sizeof shape) == 0);
        CHECK(p.last - p.first == 4u * (uint64_t)(p.n * p.t * p.h * p.w * p.c));
        const char *end = dv_pixels_at(&p, p.n * p.t - 1, p.h - 1, p.w - 1, p.c - 1);
        CHECK((uint64_t)(uintptr_t)end + 4 == p.last);
    }
}

static void test_strides(void) {
    const int64_t shape[] = {5, 7, 3};
    davy_tensor t = tensor(DAVY_LAYOUT_HWC, 3, shape);
    dv_pixels p;
    const int64_t down[] = {-100, 12, 4};
    memcpy(t.stride_bytes, down, sizeof down);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK);
    CHECK(p.first == t.data - 400 && p.last == t.data + 84);
    t.data = 200; /* four rows up would be before address 0 */
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_INVALID);
    t.data = UINT64_MAX - 79; /* and a row needs 84 bytes */
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_INVALID);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_SHAPE_ONLY, "x", &p) == DAVY_OK && p.data == NULL);
    t.data = (uint64_t)(uintptr_t)&memory[2048];
    const int64_t repeated[] = {0, 12, 4}; /* one row five times: allowed for an input, not for an output */
    memcpy(t.stride_bytes, repeated, sizeof repeated);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_OK && p.sh == 0);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_E_INVALID);
    const int64_t huge[] = {INT64_MIN, 12, 4};
    memcpy(t.stride_bytes, huge, sizeof huge);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_INVALID);
    const int64_t interleaved[] = {84, 4, 28}; /* planes inside each row: no elements overlap */
    memcpy(t.stride_bytes, interleaved, sizeof interleaved);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK);
    t.shape[0] = 1;
    const int64_t odd[] = {13, 12, 4}; /* of one row: never used */
    memcpy(t.stride_bytes, odd, sizeof odd);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK);
}

/* Checks that need only the tensor. A later check compares the device with the context's. */
static void test_device_memory(void) {
    const int64_t shape[] = {5, 7, 3};
    davy_tensor t = tensor(DAVY_LAYOUT_HWC, 3, shape);
    dv_pixels p;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_OK && !p.on_device);
    t.memory = DAVY_MEMORY_HOST_PINNED;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK && !p.on_device);
    t.memory = DAVY_MEMORY_CUDA;
    t.device = 3;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_WRITES, "x", &p) == DAVY_OK && p.on_device && p.device == 3);
    CHECK(p.first == t.data && p.last == t.data + 5 * 7 * 3 * 4);
    t.memory = DAVY_MEMORY_CUDA_ARRAY;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_UNSUPPORTED);
    t.memory = DAVY_MEMORY_BUFFER; /* and no buffer */
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_INVALID);
}

static void test_meaning(void) {
    const int64_t shape[] = {2, 2, 4};
    dv_pixels p;
    davy_tensor t = tensor(DAVY_LAYOUT_HWC, 3, shape);
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_OK);
    CHECK(p.channels == DAVY_CHANNELS_RGBA && p.range == DAVY_RANGE_UNIT);
    CHECK(dv_pixels_check(&t, DV_LATENT, DV_READS, "x", &p) == DAVY_OK);
    CHECK(p.channels == DAVY_CHANNELS_LATENT && p.range == DAVY_RANGE_RAW);
    t.range = DAVY_RANGE_FULL; /* floats have no full scale */
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_E_INVALID);
    t.dtype = DAVY_DTYPE_U16;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_OK && p.range == DAVY_RANGE_FULL);
    CHECK(dv_pixels_check(&t, DV_LATENT, DV_READS, "x", &p) == DAVY_E_INVALID);
    dv_mapping m = dv_mapping_in(&p, DAVY_RANGE_SIGNED_UNIT);
    CHECK(65535.0f * m.mul + m.add == 1.0f && 0.0f * m.mul + m.add == -1.0f);
    m = dv_mapping_out(&p, DAVY_RANGE_SIGNED_UNIT);
    CHECK(1.0f * m.mul + m.add == 65535.0f && -1.0f * m.mul + m.add == 0.0f && m.clamp && m.hi == 65535.0f);
    t.dtype = DAVY_DTYPE_F32;
    t.range = DAVY_RANGE_RAW;
    CHECK(dv_pixels_check(&t, DV_PICTURE, DV_READS, "x", &p) == DAVY_OK);
    m = dv_mapping_out(&p, DAVY_RANGE_SIGNED_UNIT);
    CHECK(m.mul == 1.0f && m.add == 0.0f && !m.clamp);
    const dv_colours c = dv_colours_of(DAVY_CHANNELS_BGRA);
    CHECK(c.count == 3 && c.alpha == 3 && c.map[0] == 2 && c.map[2] == 0);
}

static void test_elements(void) {
    uint16_t half[1];
    uint8_t byte[1];
    dv_element_store((char *)half, DAVY_DTYPE_U16, 65534.6f);
    dv_element_store((char *)byte, DAVY_DTYPE_U8, 2.5f);
    CHECK(half[0] == 65535 && byte[0] == 2 && dv_element_load((const char *)byte, DAVY_DTYPE_U8) == 2.0f);
    dv_element_store((char *)half, DAVY_DTYPE_F16, -1.5f);
    CHECK(half[0] == 0xbe00 && dv_element_load((const char *)half, DAVY_DTYPE_F16) == -1.5f);
}

static void test_describe(void) {
    const davy_tensor nothing = {.struct_size = sizeof nothing};
    const dv_pixels size = {.n = 1, .t = 1, .h = 4, .w = 6, .c = 16};
    davy_tensor t;
    uint64_t bytes = 0;
    CHECK(dv_pixels_describe(
              &(dv_tensor_request){
                  .output = &nothing, .size = &size, .input_layout = DAVY_LAYOUT_HW, .content = DV_LATENT},
              &t, &bytes) == DAVY_OK);
    CHECK(t.layout == DAVY_LAYOUT_HWC && t.ndim == 3 && t.dtype == DAVY_DTYPE_F32 && bytes == 4 * 6 * 16 * 4);
    CHECK(t.stride_bytes[0] == 6 * 16 * 4 && t.stride_bytes[2] == 4);
    const davy_tensor wish = {.struct_size = sizeof wish, .dtype = DAVY_DTYPE_F16, .layout = DAVY_LAYOUT_NCHW};
    CHECK(
        dv_pixels_describe(
            &(dv_tensor_request){.output = &wish, .size = &size, .input_layout = DAVY_LAYOUT_HWC, .content = DV_LATENT},
            &t, &bytes) == DAVY_OK);
    CHECK(t.ndim == 4 && t.shape[1] == 16 && t.shape[3] == 6 && bytes == 4 * 6 * 16 * 2);
    const dv_pixels batch = {.n = 2, .t = 1, .h = 4, .w = 6, .c = 3};
    const davy_tensor flat = {.struct_size = sizeof flat, .layout = DAVY_LAYOUT_HWC};
    CHECK(dv_pixels_describe(
              &(dv_tensor_request){
                  .output = &flat, .size = &batch, .input_layout = DAVY_LAYOUT_NHWC, .content = DV_PICTURE},
              &t, &bytes) == DAVY_E_SHAPE);
}

int main(void) {
    test_layouts();
    test_strides();
    test_device_memory();
    test_meaning();
    test_elements();
    test_describe();
    return check_done();
}
