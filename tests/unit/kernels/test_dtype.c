/* test_dtype.c - E4M3: all 256 codes there and back, every midpoint between neighbours, what lies beyond. */
#include <math.h>
#include <stdbool.h>

#include "kernels/dtype.h"
#include "tests/lib/check.h"

/* From the format's definition. */
static double value_of(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double v = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 0x80 ? -v : v;
}

static bool is_nan_code(int code) {
    return (code & 0x7f) == 0x7f;
}

static void test_codes(void) {
    for (int code = 0; code < 256; code++) {
        const float f = dvk_e4m3_to_f32((uint8_t)code);
        if (is_nan_code(code)) {
            CHECKF(f != f, "code %02x is %g, not NaN", (unsigned)code, (double)f);
        } else {
            CHECKF((double)f == value_of(code), "code %02x is %g, not %g", (unsigned)code, (double)f, value_of(code));
        }
        CHECKF(dvk_f32_to_e4m3(f) == code, "code %02x came back as %02x", (unsigned)code, (unsigned)dvk_f32_to_e4m3(f));
    }
}

/* Between two codes: below the middle the lower one, above it the upper one, in the middle the even one. */
static void test_rounding(void) {
    for (int sign = 0; sign <= 0x80; sign += 0x80) {
        for (int code = 0; code < 0x7e; code++) {
            const float middle = (float)((value_of(sign | code) + value_of(sign | (code + 1))) / 2);
            const int below = dvk_f32_to_e4m3(nextafterf(middle, 0.0f));
            const int above = dvk_f32_to_e4m3(nextafterf(middle, sign ? -INFINITY : INFINITY));
            const int tie = dvk_f32_to_e4m3(middle);
            CHECKF(below == (sign | code) && above == (sign | (code + 1)) && tie == (sign | (code + (code & 1))),
                   "around the middle behind %02x: %02x %02x %02x", (unsigned)(sign | code), (unsigned)below,
                   (unsigned)tie, (unsigned)above);
        }
    }
}

static void test_ends(void) {
    CHECK(dvk_f32_to_e4m3(448.0f) == 0x7e && dvk_f32_to_e4m3(449.0f) == 0x7e && dvk_f32_to_e4m3(464.0f) == 0x7e);
    CHECK(dvk_f32_to_e4m3(1e9f) == 0x7e && dvk_f32_to_e4m3(-1e38f) == 0xfe);
    CHECK(dvk_f32_to_e4m3(INFINITY) == 0x7e && dvk_f32_to_e4m3(-INFINITY) == 0xfe);
    CHECK((dvk_f32_to_e4m3(NAN) & 0x7f) == 0x7f);
    CHECK(dvk_f32_to_e4m3(0.0f) == 0 && dvk_f32_to_e4m3(-0.0f) == 0x80 && dvk_f32_to_e4m3(1e-30f) == 0);
    CHECK(dvk_f32_to_e4m3(1e-42f) == 0 && dvk_f32_to_e4m3(-9e-4f) == 0x80);
}

int main(void) {
    test_codes();
    test_rounding();
    test_ends();
    return check_done();
}
