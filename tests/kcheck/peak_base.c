/* peak_base.c - multiply-add rate of portable C, as the compiler vectorises it. */
#include "tests/kcheck/kcheck.h"

enum { LANES = 32 };

static void steps(int64_t count, float *sink) {
    float sums[LANES] = {0};
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < LANES; j++) {
            sums[j] = sums[j] * 0.999f + 0.5f;
        }
    }
    for (int j = 0; j < LANES; j++) {
        sink[j] += sums[j];
    }
}

const kc_peak kc_peak_base = {.cpu = 0, .compute = DVK_F32, .flops = 2 * LANES, .steps = steps};
