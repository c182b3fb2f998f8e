/* conv_form.h - convolutions that run as other convolutions: matrix products over a line of pixels, and nearest x 2
 * before 3 x 3 as four of 2 x 2. If blocks are cut from the result (int8.h), this form is part of the op's definition. */
#ifndef DVK_CONV_FORM_H
#define DVK_CONV_FORM_H

#include "kernels/op.h"

/* Nearest x 2 and a 3x3 convolution equal four 2x2 convolutions of the small picture, one per parity of the output
 * pixel. `phased` arguments hold the weights of these four convolutions. */
static inline int conv_by_phases(const dvk_conv2d_args *a) {
    return a->upsample == 2 && a->kh == (a->phased ? 2 : 3) && a->kw == a->kh && a->stride == 1 && a->pad_top == 1 &&
           a->pad_left == 1 && a->epi.shuffle <= 1 && a->y.h == 2 * a->x.h && a->y.w == 2 * a->x.w;
}

static inline int conv_rows_dense(const dvk_view *v) {
    return v->sh == v->w * v->sw;
}

static inline int conv_pictures_dense(const dvk_view *v) {
    return v->n == 1 || v->sn == v->h * v->sh;
}

/* 1: a matrix product over the pixels of one picture; 2: over those of all pictures. */
static inline int32_t conv_flat(const dvk_conv2d_args *a) {
    const int64_t enough = INT32_MAX / 2;
    if (a->kh != 1 || a->kw != 1 || a->stride != 1 || a->pad_top != 0 || a->pad_left != 0 || a->upsample != 1 ||
        a->epi.shuffle > 1 || a->y.h != a->x.h || a->y.w != a->x.w || !conv_rows_dense(&a->x) ||
        !conv_rows_dense(&a->y) || a->x.h * a->x.w > enough) {
        return 0;
    }
    int pictures = conv_pictures_dense(&a->x) && conv_pictures_dense(&a->y) && !a->pro.scale && !a->epi.stats &&
                   a->x.n * a->x.h * a->x.w <= enough;
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        if (!conv_rows_dense(&a->epi.res[i])) {
            return 0;
        }
        pictures = pictures && conv_pictures_dense(&a->epi.res[i]);
    }
    return pictures ? 2 : 1;
}

/* Weight of tap `tap` in the 2x2 kernel of a phase: a sum of taps of the 3x3 kernel k. */
static inline float conv_phase_weight(const float *k, int32_t phase, int32_t tap) {
    const int32_t py = phase >> 1, px = phase & 1, ty = tap >> 1, tx = tap & 1;
    float sum = 0.0f;
    for (int32_t ky = 0; ky < 3; ky++) {
        for (int32_t kx = 0; kx < 3; kx++) {
            if ((ky + 1 + py) / 2 - py == ty && (kx + 1 + px) / 2 - px == tx) {
                sum += k[ky * 3 + kx];
            }
        }
    }
    return sum;
}

#endif
