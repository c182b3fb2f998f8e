/* interpret_move.c - see interpret_move.h. */
#include "tests/lib/interpret_move.h"

float im_fold(const dv_node *node, const float *src, dv_shape x, dv_shape y, int64_t oy, int64_t ox, int64_t c) {
    const int64_t r = node->r;
    const int64_t pitch = y.c / node->heads;
    const int64_t dim = r * r * x.c / node->heads;
    const int64_t i = c / pitch * dim + c % pitch;
    const int64_t iy = (oy * r + i / x.c / r - node->pad_top + x.h) % x.h;
    const int64_t ix = (ox * r + i / x.c % r - node->pad_left + x.w) % x.w;
    return c % pitch < dim ? src[(iy * x.w + ix) * x.c + i % x.c] : 0.0f;
}

float im_unfold(const dv_node *node, const float *src, dv_shape x, dv_shape y, int64_t oy, int64_t ox, int64_t c) {
    const int64_t r = node->r;
    const int64_t iy = (oy + node->pad_top) % y.h;
    const int64_t ix = (ox + node->pad_left) % y.w;
    return src[(iy / r * x.w + ix / r) * x.c + (iy % r * r + ix % r) * y.c + c];
}

float im_pad(const dv_node *node, const float *src, dv_shape x, int64_t oy, int64_t ox, int64_t c) {
    int64_t iy = oy - node->pad_top;
    int64_t ix = ox - node->pad_left;
    if (node->pad_mode == DVK_PAD_REFLECT) {
        iy = iy < 0 ? (-iy < x.h ? -iy : x.h - 1) : iy;
        ix = ix < 0 ? (-ix < x.w ? -ix : x.w - 1) : ix;
        iy = iy < x.h ? iy : 2 * (x.h - 1) - iy >= 0 ? 2 * (x.h - 1) - iy : 0;
        ix = ix < x.w ? ix : 2 * (x.w - 1) - ix >= 0 ? 2 * (x.w - 1) - ix : 0;
    }
    if (node->pad_mode == DVK_PAD_EDGE) {
        iy = iy < 0 ? 0 : iy < x.h ? iy : x.h - 1;
        ix = ix < 0 ? 0 : ix < x.w ? ix : x.w - 1;
    }
    return iy >= 0 && ix >= 0 && iy < x.h && ix < x.w ? src[(iy * x.w + ix) * x.c + c] : 0.0f;
}
