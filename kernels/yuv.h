/* yuv.h - the numbers of a YCbCr signal. The weights of red and blue in luma are those of ITU-R BT.601-7, BT.709-6 and
 * BT.2020-2 (non-constant luminance):
 *     E'Y = Kr R + (1 - Kr - Kb) G + Kb B, E'Cb = (B - E'Y) / (2 - 2 Kb), E'Cr = (R - E'Y) / (2 - 2 Kr)
 * Quantisation to n bits, limited range: (219 E'Y + 16) 2^(n-8), (224 E'C + 128) 2^(n-8).
 * Full range (ITU-T H.273): (2^n - 1) E'Y, (2^n - 1) E'C + 2^(n-1).
 * The reference and the kernels compute with these same floats. */
#ifndef DVK_YUV_H
#define DVK_YUV_H

#include "kernels/op.h"

typedef struct dvk_yuv_numbers {
    float kr, kg, kb;
    float y_scale, y_offset, c_scale, c_offset; /* code = E' * scale + offset */
    float y_unit, c_unit;                       /* E' = (code - offset) * unit */
    float r_cr, g_cb, g_cr, b_cb;               /* colour = E'Y + ... */
    float cb_b, cr_r;                           /* E'Cb = (B - E'Y) * cb_b */
    float top;                                  /* the largest code */
} dvk_yuv_numbers;

static inline dvk_yuv_numbers dvk_yuv_of(const dvk_yuv_args *a) {
    static const double weights[3][2] = {{0.299, 0.114}, {0.2126, 0.0722}, {0.2627, 0.0593}}; /* Kr, Kb */
    const double kr = weights[a->matrix][0];
    const double kb = weights[a->matrix][1];
    const double kg = 1.0 - kr - kb;
    const double codes = (double)((int64_t)1 << a->bits);
    const double y = a->full_range ? codes - 1.0 : 219.0 / 256.0 * codes;
    const double c = a->full_range ? codes - 1.0 : 224.0 / 256.0 * codes;
    return (dvk_yuv_numbers){.kr = (float)kr,
                             .kg = (float)kg,
                             .kb = (float)kb,
                             .y_scale = (float)y,
                             .y_offset = a->full_range ? 0.0f : (float)(codes / 16.0),
                             .c_scale = (float)c,
                             .c_offset = (float)(codes / 2.0),
                             .y_unit = (float)(1.0 / y),
                             .c_unit = (float)(1.0 / c),
                             .r_cr = (float)(2.0 - 2.0 * kr),
                             .g_cb = (float)(-(2.0 - 2.0 * kb) * kb / kg),
                             .g_cr = (float)(-(2.0 - 2.0 * kr) * kr / kg),
                             .b_cb = (float)(2.0 - 2.0 * kb),
                             .cb_b = (float)(1.0 / (2.0 - 2.0 * kb)),
                             .cr_r = (float)(1.0 / (2.0 - 2.0 * kr)),
                             .top = (float)(codes - 1.0)};
}

#endif
