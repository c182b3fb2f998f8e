/* interpret_gate.c - see interpret_gate.h. */
#include "tests/lib/interpret_gate.h"

float ig_depthwise(const dv_node *node, const float *x, dv_shape in, const float *w, int64_t oy, int64_t ox,
                   int64_t c) {
    float sum = 0.0f;
    for (int64_t ky = 0; ky < node->kh; ky++) {
        for (int64_t kx = 0; kx < node->kw; kx++) {
            const int64_t y = oy * node->stride + ky - node->pad_top;
            const int64_t i = ox * node->stride + kx - node->pad_left;
            if (y >= 0 && i >= 0 && y < in.h && i < in.w) {
                sum += w[(ky * node->kw + kx) * in.c + c] * x[(y * in.w + i) * in.c + c];
            }
        }
    }
    return sum;
}

float ig_mean(const float *x, dv_shape in, int64_t c) {
    double sum = 0.0;
    for (int64_t i = 0; i < in.h * in.w; i++) {
        sum += (double)x[i * in.c + c];
    }
    return (float)(sum / (double)(in.h * in.w));
}

float ig_max(const dv_node *node, const float *x, dv_shape in, int64_t oy, int64_t ox, int64_t c) {
    float most = -INFINITY;
    for (int64_t i = 0; i < (int64_t)node->kh * node->kw; i++) {
        const int64_t y = oy * node->stride + i / node->kw;
        most = fmaxf(most, x[(y * in.w + ox * node->stride + i % node->kw) * in.c + c]);
    }
    return most;
}

/* Bilinear at (y, x), edges repeated. */
static float ig_sample(const float *v, dv_shape in, double y, double x, int64_t c) {
    y = fmin(fmax(y, 0.0), (double)(in.h - 1));
    x = fmin(fmax(x, 0.0), (double)(in.w - 1));
    double sum = 0.0;
    for (int k = 0; k < 4; k++) {
        const double at_y = floor(y) + k / 2;
        const double at_x = floor(x) + k % 2;
        const double weight = (1.0 - fabs(y - at_y)) * (1.0 - fabs(x - at_x));
        if (weight > 0.0) {
            sum += weight * (double)v[((int64_t)at_y * in.w + (int64_t)at_x) * in.c + c];
        }
    }
    return (float)sum;
}

float ig_resize(const float *v, dv_shape in, dv_shape out, int64_t oy, int64_t ox, int64_t c) {
    return ig_sample(v, in, ((double)oy + 0.5) * (double)in.h / (double)out.h - 0.5,
                     ((double)ox + 0.5) * (double)in.w / (double)out.w - 0.5, c);
}

float ig_dysample(const dv_node *node, const float *v, dv_shape in, const float *offset, int64_t oy, int64_t ox,
                  int64_t c, int64_t channels) {
    const int64_t r = node->r, offsets = 2 * node->groups * r * r;
    const float *d = offset + (oy / r * in.w + ox / r) * offsets;
    float sum = 0.0f;
    for (int64_t k = c; k < in.c; k += channels) { /* once, or once for each group */
        const int64_t which = (k / (in.c / node->groups) * r + oy % r) * r + ox % r;
        const double y = ((double)oy + 0.5) / (double)r - 0.5 + (double)d[which + offsets / 2];
        const double x = ((double)ox + 0.5) / (double)r - 0.5 + (double)d[which];
        sum += ig_sample(v, in, y, x, k);
    }
    return sum;
}
