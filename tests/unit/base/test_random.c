/* test_random.c - the documented generator: Philox's published answer for zeros, independence of order, the moments of
 * a normal distribution. */
#include <math.h>
#include <stdbool.h>

#include "kernels/normal.h"
#include "tests/lib/check.h"

static void test_published(void) {
    /* Philox 4x32-10, counter 0, key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8 (known-answer test of its authors). */
    const double u0 = (0x6627e8d5u + 0.5) / 4294967296.0;
    const double u1 = (0xe169c58du + 0.5) / 4294967296.0;
    const double radius = sqrt(-2.0 * log(u0));
    const double angle = 2.0 * 3.14159265358979323846 * u1;
    CHECK(fabs((double)dvk_normal(0, 0, 0) - radius * cos(angle)) < 1e-6);
    CHECK(fabs((double)dvk_normal(0, 0, 1) - radius * sin(angle)) < 1e-6);
}

static void test_every_part_counts(void) {
    const float a = dvk_normal(1, 0, 8);
    CHECK(a == dvk_normal(1, 0, 8));
    CHECK(a != dvk_normal(2, 0, 8) && a != dvk_normal(1, 1, 8) && a != dvk_normal(1, 0, 10));
    CHECK(a != dvk_normal(1 + ((uint64_t)1 << 32), 0, 8) && a != dvk_normal(1, (uint64_t)1 << 32, 8));
    CHECK(a != dvk_normal(1, 0, 8 + ((uint64_t)1 << 34)));
}

static void test_moments(void) {
    enum { N = 200000 };
    double sum[4] = {0};
    bool finite = true;
    for (uint64_t i = 0; i < N; i++) {
        const double v = (double)dvk_normal(12345, 3, i);
        finite = finite && v - v == 0.0;
        for (double p = v, *s = sum; s < sum + 4; s++, p *= v) {
            *s += p / N;
        }
    }
    CHECK(finite);
    CHECKF(fabs(sum[0]) < 0.01 && fabs(sum[1] - 1.0) < 0.015, "mean %g, variance %g", sum[0], sum[1]);
    CHECKF(fabs(sum[2]) < 0.03 && fabs(sum[3] - 3.0) < 0.1, "third moment %g, fourth %g", sum[2], sum[3]);
}

int main(void) {
    test_published();
    test_every_part_counts();
    test_moments();
    return check_done();
}
