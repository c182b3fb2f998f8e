/* peak_amx.c - rate of the bf16 tile product: four independent sums of 16 x 16, 32 products deep. */
#include <immintrin.h>

#include "tests/kcheck/kcheck.h"

typedef struct tile_config { /* operand of ldtilecfg */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void steps(int64_t count, float *sink) {
    /* static: the intrinsic does not declare that it reads all of it */
    static const tile_config config = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t i = 0; i < count; i++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    (void)sink; /* tile instructions are never dropped */
}

const kc_peak kc_peak_amx = {.cpu = DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_AVX512BF16 | DVK_CPU_AMX,
                             .compute = DVK_BF16,
                             .flops = 4 * 16 * 16 * 32 * 2,
                             .steps = steps};
