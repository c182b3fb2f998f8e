/* interpret_window.c - see interpret_window.h. */
#include "tests/lib/interpret_window.h"

void iw_layer_norm(const dv_node *node, const float *x, const float *gamma, const float *beta, dv_shape s, float *out) {
    for (int64_t p = 0; p < s.h * s.w; p++) {
        double mean = 0.0;
        double var = 0.0;
        for (int64_t c = 0; c < s.c; c++) {
            mean += (double)x[p * s.c + c] / (double)s.c;
        }
        for (int64_t c = 0; c < s.c; c++) {
            const double d = (double)x[p * s.c + c] - mean;
            var += d * d / (double)s.c;
        }
        for (int64_t c = 0; c < s.c; c++) {
            const double d = (double)x[p * s.c + c] - mean;
            out[p * s.c + c] = (float)(d / sqrt(var + (double)node->eps) * (double)gamma[c] + (double)beta[c]);
        }
    }
}

void iw_attention(const dv_node *node, const float *q, const float *k, const float *v, dv_shape keys, dv_shape s,
                  float *out) {
    const int64_t tokens = keys.h * keys.w;
    const int64_t d = s.c / node->heads;
    double *a = malloc((size_t)tokens * sizeof *a);
    for (int64_t i = 0; i < s.h * s.w * node->heads; i++) {
        const int64_t c0 = i % node->heads * d;
        const int64_t row = i / node->heads;
        double top = -1e300;
        double sum = 0.0;
        for (int64_t j = 0; j < tokens; j++) {
            a[j] = 0.0;
            for (int64_t c = c0; c < c0 + d; c++) {
                a[j] += (double)q[row * s.c + c] * (double)k[j * s.c + c];
            }
            a[j] *= (double)node->scale;
            top = a[j] > top ? a[j] : top;
        }
        for (int64_t j = 0; j < tokens; j++) {
            a[j] = exp(a[j] - top);
            sum += a[j];
        }
        for (int64_t c = c0; c < c0 + d; c++) {
            double y = 0.0;
            for (int64_t j = 0; j < tokens; j++) {
                y += a[j] * (double)v[j * s.c + c];
            }
            out[row * s.c + c] = (float)(y / sum);
        }
    }
    free(a);
}

typedef struct iw_axis {
    int64_t padded, window, keys, shift, grid, cut;
} iw_axis;

/* The row or column of the shifted frame for this pixel (or for a position beyond the picture). */
static int64_t iw_rolled(const iw_axis *a, int64_t at) {
    return (at - a->shift + a->padded) % a->padded;
}

/* The index of frame coordinate j in the window around pixel i; -1: outside it. */
static int64_t iw_place(const iw_axis *a, int64_t i, int64_t j) {
    if (a->grid) {
        const int64_t step = a->padded / a->window;
        return i % step == j % step ? j / step : -1;
    }
    const int64_t first = i / a->window * a->window - (a->keys - a->window) / 2;
    return j >= first && j < first + a->keys ? j - first : -1;
}

static int iw_region(const iw_axis *a, int64_t cut, int64_t i) {
    return a->shift == 0 ? 0 : i >= a->padded - cut ? 2 : i >= a->padded - a->window ? 1 : 0;
}

typedef struct iw_window {
    const dv_node *node;
    const float *q, *k, *v, *bias;
    dv_shape s;
    iw_axis y, x;
    double *scores;  /* [keys] */
    int64_t *pixels; /* [keys]; -1: zeros */
} iw_window;

/* Adds key place (ky, kx) of the window of frame position (fy, fx); its pixel may not exist. */
static void iw_score(const iw_window *w, int64_t head, int64_t pixel, const int64_t at[4], int64_t n) {
    const int64_t dim = w->s.c / w->node->heads;
    const int64_t qy = w->y.grid ? at[0] / (w->y.padded / w->y.window) : at[0] % w->y.window;
    const int64_t qx = w->x.grid ? at[1] / (w->x.padded / w->x.window) : at[1] % w->x.window;
    const int64_t width = w->x.window + w->x.keys - 1;
    double dot = 0.0;
    for (int64_t c = 0; c < dim && w->pixels[n] >= 0; c++) {
        dot += (double)w->q[pixel * w->s.c + head * dim + c] * (double)w->k[w->pixels[n] * w->s.c + head * dim + c];
    }
    dot *= (double)w->node->scale;
    if (w->bias != NULL) {
        const int64_t row = head * (w->y.window + w->y.keys - 1) + qy - at[2] + w->y.keys - 1;
        dot += (double)w->bias[row * width + qx - at[3] + w->x.keys - 1];
    }
    w->scores[n] = dot;
}

static void iw_attend(const iw_window *w, int64_t head, int64_t pixel, float *out) {
    const int64_t fy = iw_rolled(&w->y, pixel / w->s.w);
    const int64_t fx = iw_rolled(&w->x, pixel % w->s.w);
    const int64_t dim = w->s.c / w->node->heads;
    const int64_t beyond_y = (w->y.keys - w->y.window) / 2;
    const int64_t beyond_x = (w->x.keys - w->x.window) / 2;
    int64_t n = 0;
    double sum = 0.0;
    for (int64_t jy = -beyond_y; jy < w->y.padded + beyond_y; jy++) {
        for (int64_t jx = -beyond_x; jx < w->x.padded + beyond_x; jx++) {
            const int64_t at[4] = {fy, fx, iw_place(&w->y, fy, jy), iw_place(&w->x, fx, jx)};
            if (at[2] < 0 || at[3] < 0) {
                continue;
            }
            const int inside = jy >= 0 && jx >= 0 && jy < w->y.padded && jx < w->x.padded;
            const int64_t py = (jy + w->y.shift) % w->y.padded;
            const int64_t px = (jx + w->x.shift) % w->x.padded;
            w->pixels[n] = inside && py < w->s.h && px < w->s.w ? py * w->s.w + px : -1;
            iw_score(w, head, pixel, at, n);
            if (iw_region(&w->y, w->y.cut, fy) != iw_region(&w->y, w->y.shift, jy) ||
                iw_region(&w->x, w->x.cut, fx) != iw_region(&w->x, w->x.shift, jx)) {
                w->scores[n] -= 100.0;
            }
            n++;
        }
    }
    for (int64_t j = 0; j < n; j++) {
        w->scores[j] = exp(w->scores[j]);
        sum += w->scores[j];
    }
    for (int64_t c = 0; c < dim; c++) {
        double total = 0.0;
        for (int64_t j = 0; j < n; j++) {
            total += w->pixels[j] < 0 ? 0.0 : w->scores[j] / sum * (double)w->v[w->pixels[j] * w->s.c + head * dim + c];
        }
        out[pixel * w->s.c + head * dim + c] = (float)total;
    }
}

void iw_window_attention(const dv_node *node, const float *const qkv[3], const float *bias, dv_shape s, float *out) {
    const dv_window *w = &node->window;
    const size_t keys = (size_t)w->keys_h * (size_t)w->keys_w;
    const iw_window of = {
        .node = node,
        .q = qkv[0],
        .k = qkv[1],
        .v = qkv[2],
        .bias = bias,
        .s = s,
        .y = {w->padded_h, w->h, w->keys_h, w->shift_y, w->grid, w->cut_y > 0 ? w->cut_y : w->shift_y},
        .x = {w->padded_w, w->w, w->keys_w, w->shift_x, w->grid, w->cut_x > 0 ? w->cut_x : w->shift_x},
        .scores = malloc(keys * sizeof(double)),
        .pixels = malloc(keys * sizeof(int64_t))};
    for (int64_t head = 0; head < node->heads; head++) {
        for (int64_t p = 0; p < s.h * s.w; p++) {
            iw_attend(&of, head, p, out);
        }
    }
    free(of.scores);
    free(of.pixels);
}

static int iw_same_group(const dv_window *w, dv_shape s, int64_t a, int64_t b) {
    if (w->h == 0) {
        return 1;
    }
    const int64_t ay = a / s.w, ax = a % s.w, by = b / s.w, bx = b % s.w;
    return w->grid ? ay % w->h == by % w->h && ax % w->w == bx % w->w
                   : ay / w->h == by / w->h && ax / w->w == bx / w->w;
}

/* Lists the pixels in p's group, in order; returns their number. */
static int64_t iw_group_of(const dv_window *w, dv_shape s, int64_t p, int64_t *pixels) {
    int64_t n = 0;
    for (int64_t t = 0; t < s.h * s.w; t++) {
        if (iw_same_group(w, s, p, t)) {
            pixels[n++] = t;
        }
    }
    return n;
}

/* Sum over n pixels of channel c of a times channel d of b. Both pictures have `channels`. */
static double iw_dot(const int64_t *pixels, int64_t n, int64_t channels, const float *a, int64_t c, const float *b,
                     int64_t d) {
    double dot = 0.0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)a[pixels[i] * channels + c] * (double)b[pixels[i] * channels + d];
    }
    return dot;
}

void iw_channel_attention(const dv_node *node, const float *const qkv[3], const float *temperature, dv_shape s,
                          float *out) {
    const int64_t pitch = s.c / node->heads;
    const double eps = (double)node->eps;
    const float *q = qkv[0], *k = qkv[1], *v = qkv[2];
    int64_t *pixels = malloc((size_t)(s.h * s.w) * sizeof *pixels);
    double *norms = malloc((size_t)s.c * sizeof *norms); /* of k's channels */
    for (int64_t p = 0; p < s.h * s.w; p++) {
        const int64_t n = iw_group_of(&node->window, s, p, pixels);
        for (int64_t c = 0; c < s.c; c++) {
            norms[c] = fmax(sqrt(iw_dot(pixels, n, s.c, k, c, k, c)), eps);
        }
        for (int64_t d = 0; d < s.c; d++) {
            const int64_t first = d / pitch * pitch;
            const double norm = fmax(sqrt(iw_dot(pixels, n, s.c, q, d, q, d)), eps);
            double sum = 0.0;
            double total = 0.0;
            for (int64_t e = first; e < first + node->groups && d % pitch < node->groups; e++) {
                const double dot = iw_dot(pixels, n, s.c, q, d, k, e);
                const double a = exp(dot / norm / norms[e] * (double)temperature[d / pitch]);
                sum += a;
                total += a * (double)v[p * s.c + e];
            }
            out[p * s.c + d] = sum > 0.0 ? (float)(total / sum) : 0.0f;
        }
    }
    free(pixels);
    free(norms);
}
