/* cases_cuda.c - problems for CUDA kernels only, and the shapes that a GPU is timed on. They cover the wide layers of
 * the KL VAE with statistics, shuffles in the epilogue of a convolution, and mixes of 16-bit types and f32. They also
 * cover chunks of statistics of any size and attention with large heads. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const dvk_dtype pairs[][2] = {/* of x and y */
                                     {DVK_BF16, DVK_BF16}, {DVK_F16, DVK_F16},  {DVK_F32, DVK_F32}, {DVK_BF16, DVK_F32},
                                     {DVK_F16, DVK_F32},   {DVK_F32, DVK_BF16}, {DVK_F32, DVK_F16}};

enum { N_PAIRS = (int)(sizeof pairs / sizeof pairs[0]) };

static const kc_conv_spec convs[] = {
    {.cin = 64, .cout = 64, .h = 33, .w = 70, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 64, .cout = 64, .h = 8, .w = 16, .k = 3, .epilogue = EPI_PLAIN, .fill = KC_NORMAL, .n = 3},
    {.cin = 128, .cout = 128, .h = 20, .w = 33, .k = 3, .epilogue = EPI_RES, .prologue = PRO_NORM_SILU},
    {.cin = 128, .cout = 128, .h = 16, .w = 32, .k = 3, .epilogue = EPI_RES, .n = 2},
    {.cin = 256, .cout = 256, .h = 17, .w = 16, .k = 3, .epilogue = EPI_RES_IN_PLACE, .prologue = PRO_NORM_SILU},
    {.cin = 256, .cout = 128, .h = 12, .w = 40, .k = 3, .epilogue = EPI_BIAS},
    {.cin = 512, .cout = 512, .h = 9, .w = 16, .k = 3, .epilogue = EPI_RES},
    {.cin = 512, .cout = 512, .h = 8, .w = 8, .k = 3, .epilogue = EPI_BIAS, .n = 2, .prologue = PRO_NORM_SILU},
    {.cin = 512, .cout = 512, .h = 16, .w = 17, .k = 1, .epilogue = EPI_BIAS},
    {.cin = 512, .cout = 1536, .h = 7, .w = 11, .k = 1, .epilogue = EPI_BIAS},
    {.cin = 512, .cout = 8, .h = 12, .w = 13, .k = 3, .epilogue = EPI_BIAS, .prologue = PRO_NORM_SILU},
    {.cin = 128, .cout = 3, .h = 30, .w = 37, .k = 3, .epilogue = EPI_BIAS, .prologue = PRO_NORM_SILU},
    {.cin = 4, .cout = 512, .h = 16, .w = 19, .k = 3, .epilogue = EPI_BIAS},
    {.cin = 3, .cout = 128, .h = 31, .w = 33, .k = 3, .epilogue = EPI_BIAS},
    {.cin = 256, .cout = 512, .h = 10, .w = 9, .k = 1, .epilogue = EPI_RES},
    {.cin = 128, .cout = 128, .h = 33, .w = 31, .k = 3, .stride = 2, .asymmetric = 1, .epilogue = EPI_BIAS},
    {.cin = 256, .cout = 256, .h = 16, .w = 24, .k = 3, .stride = 2, .asymmetric = 1, .epilogue = EPI_BIAS},
    {.cin = 512, .cout = 512, .h = 5, .w = 9, .k = 3, .upsample = 2, .epilogue = EPI_BIAS},
    {.cin = 256, .cout = 256, .h = 9, .w = 17, .k = 3, .upsample = 2, .epilogue = EPI_BIAS},
    {.cin = 64, .cout = 64, .h = 16, .w = 16, .k = 3, .upsample = 2, .epilogue = EPI_RELU, .n = 2},
    {.cin = 96, .cout = 32, .h = 19, .w = 34, .k = 3, .epilogue = EPI_LRELU, .slab = 1},
    {.cin = 160, .cout = 32, .h = 18, .w = 35, .k = 3, .epilogue = EPI_LRELU, .slab = 1},
    {.cin = 192, .cout = 64, .h = 17, .w = 36, .k = 3, .epilogue = EPI_TWO_RES, .slab = 1},
    /* a residual that is the input */
    {.cin = 192, .cout = 64, .h = 70, .w = 85, .k = 3, .epilogue = EPI_RES, .own = 1, .slab = 1},
    {.cin = 192, .cout = 64, .h = 130, .w = 270, .k = 3, .epilogue = EPI_TWO_RES, .own = 1},
    {.cin = 128, .cout = 64, .h = 35, .w = 20, .k = 3, .epilogue = EPI_TWO_RES, .own = 1, .n = 2},
    {.cin = 128, .cout = 40, .h = 90, .w = 77, .k = 1, .epilogue = EPI_RES, .own = 1, .n = 2},
    {.cin = 192, .cout = 64, .h = 9, .w = 17, .k = 3, .epilogue = EPI_ACT_LAST, .own = 1},
    {.cin = 128, .cout = 64, .h = 140, .w = 275, .k = 2, .epilogue = EPI_RES},
    /* strips of more than one row */
    {.cin = 64, .cout = 32, .h = 14, .w = 1930, .k = 3, .epilogue = EPI_LRELU},
    {.cin = 96, .cout = 32, .h = 29, .w = 1930, .k = 3, .epilogue = EPI_LRELU},
    {.cin = 32, .cout = 32, .h = 31, .w = 1930, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 48, .cout = 48, .h = 29, .w = 31, .k = 3, .epilogue = EPI_GATE},
    {.cin = 128, .cout = 48, .h = 21, .w = 18, .k = 1, .epilogue = EPI_SILU, .prologue = PRO_NORM},
    /* transcendental activations, factors behind an activation, large windows */
    {.cin = 64, .cout = 128, .h = 37, .w = 21, .k = 3, .epilogue = EPI_MISH, .slab = 1},
    {.cin = 64, .cout = 64, .h = 35, .w = 70, .k = 3, .epilogue = EPI_TIMES, .slab = 1, .n = 2},
    {.cin = 64, .cout = 64, .h = 66, .w = 50, .k = 2, .stride = 2, .epilogue = EPI_LRELU, .valid = 1},
    {.cin = 48, .cout = 48, .h = 35, .w = 70, .k = 3, .epilogue = EPI_TIMES_TWO},
    {.cin = 64, .cout = 128, .h = 35, .w = 20, .k = 3, .epilogue = EPI_TIMES_TWO, .n = 2},
    {.cin = 48, .cout = 48, .h = 40, .w = 33, .k = 1, .epilogue = EPI_TIMES_TWO},
    {.cin = 64, .cout = 64, .h = 40, .w = 33, .k = 1, .epilogue = EPI_GELU},
    {.cin = 64, .cout = 32, .h = 21, .w = 70, .k = 3, .epilogue = EPI_SIGMOID},
    {.cin = 64, .cout = 64, .h = 21, .w = 66, .k = 3, .epilogue = EPI_TANH},
    {.cin = 16, .cout = 16, .h = 70, .w = 150, .k = 17, .epilogue = EPI_BIAS, .slab = 1, .n = 2},
    {.cin = 16, .cout = 16, .h = 33, .w = 64, .k = 17, .epilogue = EPI_RES},
    {.cin = 16, .cout = 16, .h = 70, .w = 270, .k = 13, .epilogue = EPI_LRELU, .slab = 1},
    {.cin = 12, .cout = 12, .h = 9, .w = 65, .k = 13, .epilogue = EPI_BIAS},
    /* FP8: increasing ranges, halves of chunks, tiles beyond the picture */
    {.cin = 192, .cout = 64, .h = 35, .w = 21, .k = 3, .epilogue = EPI_LRELU, .fill = KC_STEEP},
    {.cin = 512, .cout = 512, .h = 9, .w = 17, .k = 3, .epilogue = EPI_RES, .fill = KC_STEEP},
    {.cin = 96, .cout = 128, .h = 33, .w = 9, .k = 3, .epilogue = EPI_RELU, .prologue = PRO_RELU, .n = 2},
    {.cin = 160, .cout = 192, .h = 40, .w = 19, .k = 3, .epilogue = EPI_TWO_RES, .prologue = PRO_NORM_SILU},
    {.cin = 32, .cout = 64, .h = 70, .w = 75, .k = 3, .epilogue = EPI_BIAS, .fill = KC_DENORMAL},
    {.cin = 128, .cout = 64, .h = 64, .w = 80, .k = 1, .epilogue = EPI_PRELU, .fill = KC_LARGE},
    {.cin = 512, .cout = 256, .h = 64, .w = 81, .k = 3, .epilogue = EPI_RES, .stats_groups = 32, .n = 2},
    /* weights for each parity */
    {.cin = 64, .cout = 64, .h = 16, .w = 16, .k = 2, .upsample = 2, .epilogue = EPI_BIAS, .n = 2},
    {.cin = 72, .cout = 128, .h = 9, .w = 17, .k = 2, .upsample = 2, .epilogue = EPI_BIAS, .slab = 1, .n = 2},
    {.cin = 24, .cout = 40, .h = 1, .w = 5, .k = 2, .upsample = 2, .epilogue = EPI_RELU},
    {.cin = 264, .cout = 256, .h = 33, .w = 9, .k = 2, .upsample = 2, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 792, .cout = 256, .h = 8, .w = 7, .k = 2, .upsample = 2, .epilogue = EPI_BIAS, .slab = 1},
    {.cin = 1040, .cout = 1024, .h = 5, .w = 9, .k = 2, .upsample = 2, .epilogue = EPI_BIAS, .slab = 1},
    {.cin = 128, .cout = 96, .h = 21, .w = 19, .k = 2, .upsample = 2, .epilogue = EPI_RES, .prologue = PRO_NORM_SILU},
    /* statistics of the result */
    {.cin = 128, .cout = 128, .h = 20, .w = 33, .k = 3, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 128, .cout = 128, .h = 16, .w = 64, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32, .n = 2},
    {.cin = 256, .cout = 256, .h = 9, .w = 31, .k = 3, .epilogue = EPI_RES_IN_PLACE, .stats_groups = 32},
    {.cin = 512, .cout = 512, .h = 8, .w = 16, .k = 3, .epilogue = EPI_RES, .stats_groups = 32, .n = 2},
    {.cin = 512, .cout = 256, .h = 3, .w = 5, .k = 1, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 256, .cout = 256, .h = 8, .w = 9, .k = 3, .upsample = 2, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 128, .cout = 128, .h = 18, .w = 34, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32},
    {.cin = 64, .cout = 96, .h = 14, .w = 15, .k = 3, .epilogue = EPI_PRELU, .stats_groups = 32},
    {.cin = 256, .cout = 256, .h = 17, .w = 35, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32, .slab = 1},
    {.cin = 512, .cout = 512, .h = 13, .w = 12, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32, .n = 2},
    {.cin = 128, .cout = 192, .h = 66, .w = 21, .k = 3, .stride = 2, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 3, .cout = 128, .h = 35, .w = 41, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 4, .cout = 512, .h = 9, .w = 19, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32, .n = 2},
    /* stride 2, few input channels */
    {.cin = 64, .cout = 128, .h = 67, .w = 18, .k = 3, .stride = 2, .epilogue = EPI_RELU},
    {.cin = 128, .cout = 136, .h = 2, .w = 3, .k = 3, .stride = 2, .epilogue = EPI_TWO_RES, .n = 3},
    {.cin = 128, .cout = 96, .h = 19, .w = 20, .k = 1, .stride = 2, .epilogue = EPI_PRELU},
    {.cin = 128, .cout = 128, .h = 15, .w = 33, .k = 3, .stride = 2, .epilogue = EPI_BIAS, .prologue = PRO_NORM_SILU},
    {.cin = 3, .cout = 64, .h = 70, .w = 37, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 3, .cout = 48, .h = 33, .w = 17, .k = 3, .epilogue = EPI_BIAS, .slab = 1, .n = 2},
    {.cin = 1, .cout = 72, .h = 5, .w = 50, .k = 3, .epilogue = EPI_RES},
    {.cin = 4, .cout = 64, .h = 12, .w = 21, .k = 3, .epilogue = EPI_RELU, .prologue = PRO_CLAMP3},
    {.cin = 2, .cout = 64, .h = 34, .w = 9, .k = 3, .epilogue = EPI_SILU, .prologue = PRO_NORM, .n = 2},
    /* shuffled results */
    {.cin = 64, .cout = 48, .h = 21, .w = 34, .k = 3, .shuffle = 4, .epilogue = EPI_RES},
    {.cin = 64, .cout = 12, .h = 22, .w = 33, .k = 3, .shuffle = 2, .epilogue = EPI_BIAS},
    {.cin = 64, .cout = 27, .h = 13, .w = 17, .k = 3, .shuffle = 3, .epilogue = EPI_PLAIN},
    {.cin = 64, .cout = 256, .h = 15, .w = 16, .k = 3, .shuffle = 2, .epilogue = EPI_LRELU},
    {.cin = 48, .cout = 48, .h = 11, .w = 40, .k = 3, .shuffle = 4, .epilogue = EPI_BIAS, .n = 2},
    {.cin = 64, .cout = 48, .h = 37, .w = 129, .k = 3, .shuffle = 4, .epilogue = EPI_RES, .n = 2},
    {.cin = 48, .cout = 12, .h = 40, .w = 141, .k = 3, .shuffle = 2, .epilogue = EPI_BIAS},
    {.cin = 32, .cout = 12, .h = 19, .w = 66, .k = 3, .shuffle = 2, .epilogue = EPI_RES, .n = 2},
    {.cin = 52, .cout = 48, .h = 9, .w = 65, .k = 3, .shuffle = 4, .epilogue = EPI_BIAS},
    {.cin = 24, .cout = 27, .h = 14, .w = 132, .k = 3, .shuffle = 3, .epilogue = EPI_RES},
    {.cin = 128, .cout = 48, .h = 7, .w = 20, .k = 3, .shuffle = 4, .epilogue = EPI_RES},
    {.cin = 64, .cout = 256, .h = 9, .w = 65, .k = 1, .shuffle = 2, .epilogue = EPI_LRELU},
    {.cin = 64, .cout = 128, .h = 40, .w = 100, .k = 1, .shuffle = 2, .epilogue = EPI_RES, .behind = 1, .slab = 1},
    {.cin = 128, .cout = 512, .h = 6, .w = 33, .k = 1, .shuffle = 2, .epilogue = EPI_RES, .behind = 1, .n = 2},
    {.cin = 128, .cout = 256, .h = 3, .w = 32, .k = 1, .shuffle = 2, .epilogue = EPI_PRELU},
    /* few outputs with a residual */
    {.cin = 64, .cout = 3, .h = 33, .w = 130, .k = 3, .epilogue = EPI_RES},
    {.cin = 64, .cout = 3, .h = 21, .w = 67, .k = 3, .epilogue = EPI_RES, .valid = 1, .slab = 1},
    /* colours, more tiles than blocks */
    {.cin = 3, .cout = 64, .h = 19, .w = 200, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 3, .cout = 16, .h = 400, .w = 520, .k = 3, .epilogue = EPI_SILU},
    {.cin = 4, .cout = 16, .h = 17, .w = 129, .k = 3, .epilogue = EPI_LRELU, .slab = 1, .n = 2},
    {.cin = 3, .cout = 32, .h = 35, .w = 131, .k = 3, .epilogue = EPI_LRELU, .valid = 1},
    {.cin = 2, .cout = 48, .h = 9, .w = 65, .k = 3, .epilogue = EPI_BIAS, .prologue = PRO_NORM, .n = 2},
    {.cin = 1, .cout = 32, .h = 8, .w = 64, .k = 3, .epilogue = EPI_RELU},
    /* gated by a 1x1 convolution of the result */
    {.cin = 64, .cout = 64, .h = 5, .w = 9, .k = 3, .epilogue = EPI_OWN_GATE},
    {.cin = 64, .cout = 64, .h = 70, .w = 200, .k = 3, .epilogue = EPI_OWN_GATE, .slab = 1},
    {.cin = 64, .cout = 64, .h = 133, .w = 67, .k = 3, .epilogue = EPI_OWN_GATE, .n = 2},
    {.cin = 64, .cout = 64, .h = 40, .w = 65, .k = 3, .epilogue = EPI_OWN_GATE, .valid = 1, .fill = KC_NORMAL},
    /* sums of the result's channels; a residual behind a shuffle with separate factors */
    {.cin = 64, .cout = 64, .h = 70, .w = 45, .k = 3, .epilogue = EPI_LRELU, .sums = 1, .n = 1},
    {.cin = 128, .cout = 64, .h = 35, .w = 11, .k = 3, .epilogue = EPI_PRELU, .sums = 1, .valid = 1, .n = 1},
    {.cin = 64, .cout = 128, .h = 100, .w = 150, .k = 3, .epilogue = EPI_RELU, .sums = 1, .valid = 1, .n = 1},
    {.cin = 256, .cout = 128, .h = 34, .w = 18, .k = 3, .epilogue = EPI_LRELU, .sums = 1, .slab = 1, .n = 1},
    {.cin = 32, .cout = 40, .h = 1, .w = 3, .k = 1, .epilogue = EPI_LRELU, .sums = 1, .n = 1},
    {.cin = 64, .cout = 128, .h = 9, .w = 37, .k = 1, .shuffle = 2, .epilogue = EPI_RES, .behind = 2, .slab = 1},
    {.cin = 128, .cout = 512, .h = 5, .w = 40, .k = 1, .shuffle = 2, .epilogue = EPI_RES, .behind = 2},
    /* weights in registers: more tiles than blocks, halves outside the picture, residuals, sums */
    {.cin = 64, .cout = 64, .h = 300, .w = 283, .k = 3, .epilogue = EPI_PRELU, .n = 1},
    {.cin = 64, .cout = 64, .h = 113, .w = 331, .k = 3, .epilogue = EPI_RES, .slab = 1, .n = 2},
    {.cin = 64, .cout = 40, .h = 170, .w = 261, .k = 3, .epilogue = EPI_ACT_LAST, .n = 1},
    {.cin = 64, .cout = 64, .h = 290, .w = 250, .k = 3, .epilogue = EPI_LRELU, .valid = 1, .n = 1},
    {.cin = 64, .cout = 56, .h = 45, .w = 17, .k = 3, .epilogue = EPI_BIAS, .n = 3},
    {.cin = 64, .cout = 64, .h = 270, .w = 301, .k = 3, .epilogue = EPI_LRELU, .sums = 1, .valid = 1, .n = 1},
    {.cin = 64, .cout = 64, .h = 301, .w = 290, .k = 3, .epilogue = EPI_PRELU, .n = 1, .backwards = 1},
    {.cin = 64, .cout = 48, .h = 70, .w = 45, .k = 3, .epilogue = EPI_RES, .slab = 1, .n = 2, .backwards = 1},
};

enum { N_CONVS = (int)(sizeof convs / sizeof convs[0]) };

static int conv_count(void) {
    return N_CONVS * N_PAIRS;
}

static void conv_build(kc_problem *p, int i) {
    kc_conv_spec s = convs[i % N_CONVS];
    s.xt = pairs[i / N_CONVS][0];
    s.yt = pairs[i / N_CONVS][1];
    kc_build_conv(p, &s);
}

/* --quick takes few of the cases above; these cover the kernels that it would miss. */
static const kc_conv_spec small_convs[] = {
    /* 1x1: one slice of output channels and two, residuals; slices of one row, of pixels that end between 16 bytes */
    {.cin = 64, .cout = 64, .h = 9, .w = 31, .k = 1, .epilogue = EPI_BIAS},
    {.cin = 180, .cout = 360, .h = 7, .w = 40, .k = 1, .epilogue = EPI_GELU},
    {.cin = 104, .cout = 60, .h = 1, .w = 143, .k = 1, .epilogue = EPI_RES},
    {.cin = 60, .cout = 180, .h = 1, .w = 136, .k = 1, .epilogue = EPI_LRELU, .slab = 1},
    {.cin = 320, .cout = 308, .h = 1, .w = 145, .k = 1, .epilogue = EPI_RES, .slab = 1},
    {.cin = 64, .cout = 128, .h = 10, .w = 14, .k = 1, .epilogue = EPI_SILU, .n = 2},
    /* large windows */
    {.cin = 16, .cout = 16, .h = 9, .w = 33, .k = 17, .epilogue = EPI_BIAS},
    {.cin = 12, .cout = 12, .h = 5, .w = 70, .k = 13, .epilogue = EPI_LRELU, .slab = 1},
    {.cin = 8, .cout = 16, .h = 20, .w = 9, .k = 5, .epilogue = EPI_RES},
    {.cin = 16, .cout = 16, .h = 35, .w = 20, .k = 7, .epilogue = EPI_BIAS, .n = 2},
    /* weights in registers: with a half outside the picture, more tiles than blocks */
    {.cin = 64, .cout = 64, .h = 41, .w = 21, .k = 3, .epilogue = EPI_PRELU, .n = 1},
    {.cin = 64, .cout = 64, .h = 41, .w = 21, .k = 3, .epilogue = EPI_RES, .n = 1},
    {.cin = 64, .cout = 56, .h = 70, .w = 400, .k = 3, .epilogue = EPI_BIAS, .n = 1},
    {.cin = 64, .cout = 64, .h = 35, .w = 30, .k = 3, .epilogue = EPI_LRELU, .sums = 1, .n = 1},
};

enum { N_SMALL_CONVS = (int)(sizeof small_convs / sizeof small_convs[0]) };

static int small_conv_count(void) {
    return N_SMALL_CONVS * 2;
}

static void small_conv_build(kc_problem *p, int i) {
    kc_conv_spec s = small_convs[i % N_SMALL_CONVS];
    s.xt = s.yt = pairs[i / N_SMALL_CONVS][0];
    kc_build_conv(p, &s);
}

static const kc_conv_spec conv_benches[] = {
    /* KL VAE, decoding 1024 x 1024 */
    {.cin = 512, .cout = 512, .h = 128, .w = 128, .k = 3, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 512, .cout = 512, .h = 128, .w = 128, .k = 3, .upsample = 2, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 512, .cout = 512, .h = 256, .w = 256, .k = 3, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 512, .cout = 512, .h = 256, .w = 256, .k = 3, .epilogue = EPI_RES, .prologue = PRO_NORM_SILU},
    {.cin = 512, .cout = 256, .h = 512, .w = 512, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 256, .cout = 256, .h = 512, .w = 512, .k = 3, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 256, .cout = 128, .h = 1024, .w = 1024, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 128, .cout = 128, .h = 1024, .w = 1024, .k = 3, .epilogue = EPI_RES, .stats_groups = 32},
    {.cin = 256, .cout = 128, .h = 1024, .w = 1024, .k = 1, .epilogue = EPI_BIAS},
    {.cin = 128, .cout = 3, .h = 1024, .w = 1024, .k = 3, .epilogue = EPI_BIAS, .prologue = PRO_NORM_SILU},
    /* encoding */
    {.cin = 3, .cout = 128, .h = 1024, .w = 1024, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32},
    {.cin = 128, .cout = 128, .h = 1024, .w = 1024, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32},
    {.cin = 256, .cout = 256, .h = 512, .w = 512, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32},
    {.cin = 512, .cout = 512, .h = 256, .w = 256, .k = 3, .stride = 2, .asymmetric = 1, .stats_groups = 32},
    /* upscalers, 720p */
    {.cin = 64, .cout = 64, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 64, .cout = 48, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_RES, .shuffle = 4},
    {.cin = 64, .cout = 48, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_RES, .shuffle = 4, .yt = DVK_F32},
    {.cin = 48, .cout = 12, .h = 1080, .w = 1920, .k = 3, .epilogue = EPI_BIAS, .shuffle = 2, .yt = DVK_F32},
    {.cin = 32, .cout = 12, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_RES, .shuffle = 2, .yt = DVK_F32},
    {.cin = 64, .cout = 27, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_RES, .shuffle = 3, .yt = DVK_F32},
    {.cin = 48, .cout = 48, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_GATE},
    {.cin = 3, .cout = 64, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_PRELU},
    {.cin = 3, .cout = 32, .h = 1080, .w = 1920, .k = 3, .epilogue = EPI_LRELU},
    {.cin = 64, .cout = 64, .h = 360, .w = 640, .k = 3, .upsample = 2, .epilogue = EPI_LRELU},
    {.cin = 64, .cout = 32, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_LRELU},
    {.cin = 160, .cout = 32, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_LRELU},
    {.cin = 192, .cout = 64, .h = 720, .w = 1280, .k = 3, .epilogue = EPI_RES},
    /* RealPLKSR, OmniSR, SPAN-F3 */
    {.cin = 64, .cout = 128, .h = 512, .w = 512, .k = 3, .epilogue = EPI_MISH},
    {.cin = 128, .cout = 64, .h = 512, .w = 512, .k = 3, .epilogue = EPI_BIAS},
    {.cin = 16, .cout = 16, .h = 512, .w = 512, .k = 17, .epilogue = EPI_BIAS},
    {.cin = 64, .cout = 64, .h = 512, .w = 512, .k = 3, .epilogue = EPI_TIMES},
    {.cin = 64, .cout = 64, .h = 512, .w = 512, .k = 1, .epilogue = EPI_BIAS, .stats_groups = 4},
    {.cin = 64, .cout = 128, .h = 512, .w = 512, .k = 1, .epilogue = EPI_PLAIN},
    {.cin = 64, .cout = 64, .h = 512, .w = 512, .k = 1, .epilogue = EPI_GELU},
    {.cin = 48, .cout = 48, .h = 720, .w = 1280, .k = 1, .epilogue = EPI_TIMES_TWO},
    {.cin = 64, .cout = 64, .h = 360, .w = 640, .k = 3, .epilogue = EPI_RELU},
    {.cin = 64, .cout = 64, .h = 360, .w = 640, .k = 3, .epilogue = EPI_OWN_GATE},
    /* TAESD */
    {.cin = 64, .cout = 64, .h = 512, .w = 512, .k = 3, .epilogue = EPI_RELU},
    /* decoding video: three frames side by side in the channels */
    {.cin = 384, .cout = 128, .h = 1088, .w = 1920, .k = 3, .epilogue = EPI_RES, .stats_groups = 32, .n = 1},
    {.cin = 768, .cout = 128, .h = 1088, .w = 1920, .k = 3, .epilogue = EPI_BIAS, .stats_groups = 32, .n = 1},
    {.cin = 768, .cout = 256, .h = 544, .w = 960, .k = 3, .epilogue = EPI_RES, .stats_groups = 32, .n = 1},
    {.cin = 1536, .cout = 256, .h = 544, .w = 960, .k = 3, .epilogue = EPI_BIAS, .n = 1},
    {.cin = 1536, .cout = 512, .h = 272, .w = 480, .k = 3, .epilogue = EPI_RES, .n = 1},
    {.cin = 1536, .cout = 512, .h = 136, .w = 240, .k = 3, .epilogue = EPI_RES, .n = 1},
};

enum { N_CONV_BENCHES = (int)(sizeof conv_benches / sizeof conv_benches[0]) };

static int conv_bench_count(void) {
    return 3 * N_CONV_BENCHES;
}

static void conv_bench_build(kc_problem *p, int i) {
    static const dvk_dtype types[] = {DVK_BF16, DVK_F16, DVK_F32};
    kc_conv_spec s = conv_benches[i / 3];
    s.xt = types[i % 3];
    s.yt = s.yt == DVK_NONE ? s.xt : s.yt;
    s.n = 1;
    kc_build_conv(p, &s);
}

/* --- group norm --- */

static const kc_norm_spec norms[] = {
    {{1, 1, 1, 1}, 1, 1},       {{1, 9, 5, 32}, 32, 9},      {{2, 8, 30, 64}, 32, 3},     {{1, 17, 70, 96}, 32, 5},
    {{1, 64, 40, 128}, 32, 64}, {{2, 30, 41, 160}, 32, 7},   {{1, 100, 64, 256}, 32, 13}, {{1, 5, 90, 320}, 32, 8},
    {{1, 33, 64, 512}, 32, 40}, {{1, 7, 11, 12}, 4, 2},      {{1, 33, 21, 10}, 2, 33},    {{3, 11, 50, 72}, 8, 4},
    {{1, 64, 300, 48}, 16, 1},  {{1, 16, 20, 1280}, 32, 16}, {{1, 40, 33, 2048}, 32, 4},  {{1, 2, 600, 768}, 32, 300},
};

enum { N_NORMS = (int)(sizeof norms / sizeof norms[0]) };

static int stats_count(void) {
    return N_NORMS * 3 * KC_FILLS;
}

static void stats_build(kc_problem *p, int i) {
    kc_build_stats(p, &norms[i % N_NORMS], pairs[i / N_NORMS % 3][0], (kc_fill)(i / N_NORMS / 3), i % 2);
}

static const kc_norm_spec norm_benches[] = {
    {{1, 128, 128, 512}, 32, 128},   {{1, 256, 256, 512}, 32, 256},    {{1, 512, 512, 256}, 32, 512},
    {{1, 1024, 1024, 128}, 32, 512}, {{1, 2048, 2048, 128}, 32, 1024},
};

enum { N_NORM_BENCHES = (int)(sizeof norm_benches / sizeof norm_benches[0]) };

static int stats_bench_count(void) {
    return 2 * N_NORM_BENCHES;
}

static void stats_bench_build(kc_problem *p, int i) {
    kc_build_stats(p, &norm_benches[i / 2], i % 2 ? DVK_F32 : DVK_BF16, KC_UNIFORM, 0);
}

static int finish_count(void) {
    return N_NORMS;
}

static void finish_build(kc_problem *p, int i) {
    kc_build_finish(p, &norms[i]);
}

static int finish_bench_count(void) {
    return 2;
}

static void finish_bench_build(kc_problem *p, int i) {
    static const kc_norm_spec of[] = {{{1, 512, 512, 256}, 32, 512}, {{1, 1024, 1024, 128}, 32, 8192}};
    kc_build_finish(p, &of[i]);
}

/* --- attention --- */

static const kc_attention_spec attentions[] = {
    {{1, 16, 24, 64}, 16, 24, 1, 64},   {{2, 16, 16, 128}, 16, 16, 1, 128}, {{1, 13, 21, 256}, 13, 21, 1, 256},
    {{1, 32, 32, 512}, 32, 32, 1, 512}, {{1, 17, 19, 384}, 17, 19, 1, 384}, {{1, 24, 25, 512}, 24, 25, 8, 512},
    {{1, 40, 40, 192}, 40, 40, 2, 192}, {{1, 7, 9, 512}, 33, 40, 1, 512},   {{2, 30, 31, 320}, 11, 7, 4, 320},
    {{1, 64, 64, 128}, 8, 8, 2, 128},   {{1, 9, 1, 1024}, 50, 50, 8, 1024},
};

enum { N_ATTENTIONS = (int)(sizeof attentions / sizeof attentions[0]) };

static int attention_count(void) {
    return N_ATTENTIONS * 3 * 3;
}

static void attention_build(kc_problem *p, int i) {
    static const kc_fill fills[] = {KC_UNIFORM, KC_NORMAL, KC_NAN};
    const dvk_dtype t = pairs[i / N_ATTENTIONS % 3][0];
    kc_build_attention(p, &attentions[i % N_ATTENTIONS], (dvk_dtype[4]){t, t, t, t}, fills[i / N_ATTENTIONS / 3],
                       i % 4);
}

static const kc_attention_spec attention_benches[] = {
    {{1, 64, 64, 512}, 64, 64, 1, 512},
    {{1, 128, 128, 512}, 128, 128, 1, 512},
    {{1, 64, 64, 1024}, 64, 64, 16, 1024},
};

enum { N_ATTENTION_BENCHES = (int)(sizeof attention_benches / sizeof attention_benches[0]) };

static int attention_bench_count(void) {
    return 2 * N_ATTENTION_BENCHES;
}

static void attention_bench_build(kc_problem *p, int i) {
    const dvk_dtype t = i % 2 ? DVK_F32 : DVK_BF16;
    kc_build_attention(p, &attention_benches[i / 2], (dvk_dtype[4]){t, t, t, t}, KC_NORMAL, 0);
}

/* --- pointwise: times only --- */

static const kc_pointwise_spec pointwise_benches[] = {
    {.shape = {1, 1024, 1024, 128}, .front = DVK_ACT_SILU, .norm = 1},
    {.shape = {1, 256, 256, 512}, .front = DVK_ACT_SILU, .norm = 1},
    {.shape = {1, 1024, 1024, 128}, .act = DVK_ACT_RELU, .ends = ENDS_RES},
    {.shape = {1, 1024, 1024, 128}},
    {.shape = {1, 2160, 3840, 48}, .ends = ENDS_GATE},
};

static int none(void) {
    return 0;
}

static int pointwise_bench_count(void) {
    return 2 * (int)(sizeof pointwise_benches / sizeof pointwise_benches[0]);
}

static void pointwise_bench_build(kc_problem *p, int i) {
    kc_build_pointwise(p, &pointwise_benches[i / 2], i % 2 ? DVK_F32 : DVK_BF16);
}

const kc_suite kc_suite_cuda_conv2d = {"conv2d", conv_count, conv_build, conv_bench_count, conv_bench_build, 1, 38};
const kc_suite kc_suite_cuda_small_conv2d = {"conv2d", small_conv_count, small_conv_build, none, NULL, 1, 56};
const kc_suite kc_suite_cuda_group_norm_stats = {"group_norm_stats", stats_count, stats_build, stats_bench_count,
                                                 stats_bench_build,  1,           41};
const kc_suite kc_suite_cuda_group_norm_finish = {
    "group_norm_finish", finish_count, finish_build, finish_bench_count, finish_bench_build, 1, 42};
const kc_suite kc_suite_cuda_attention = {
    "attention", attention_count, attention_build, attention_bench_count, attention_bench_build, 1, 43};
const kc_suite kc_suite_cuda_pointwise = {"pointwise", none, NULL, pointwise_bench_count, pointwise_bench_build, 1, 44};
