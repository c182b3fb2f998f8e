/* clip_reference.c - see clip_reference.h. */
#include "tests/lib/clip_reference.h"
#include "tests/lib/distance.h"

clip clip_new(int64_t t, int64_t h, int64_t w, int64_t c) {
    return (clip){t, h, w, c, calloc((size_t)(t * h * w * c), sizeof(float))};
}

int64_t clip_count(const clip *a) {
    return a->t * a->h * a->w * a->c;
}

float *clip_at(const clip *a, int64_t t, int64_t y, int64_t x) {
    return a->data + ((t * a->h + y) * a->w + x) * a->c;
}

static float *clip_weights(const dv_tensors *weights, const char *name) {
    const dv_tensor_ref *ref = dv_tensors_find(weights, name);
    float *w = calloc((size_t)dv_tensor_elements(ref), sizeof *w);
    dv_tensor_read_f32(ref, w);
    return w;
}

clip clip_convolve(const dv_tensors *weights, clip x, const clip_conv *s) {
    const int64_t pad = s->pad_bottom_right ? 0 : (s->k - 1) / 2, all = s->pad_bottom_right ? 1 : 2 * pad;
    clip y =
        clip_new((x.t - 1) / s->step + 1, (x.h + all - s->k) / s->stride + 1, (x.w + all - s->k) / s->stride + 1, s->o);
    float *w = clip_weights(weights, s->weight);
    float *b = clip_weights(weights, s->bias);
    for (int64_t at = 0; at < clip_count(&y); at++) {
        const int64_t o = at % y.c, ox = at / y.c % y.w, oy = at / y.c / y.w % y.h, ot = at / y.c / y.w / y.h;
        double sum = (double)b[o];
        for (int64_t tap = 0; tap < s->frames * s->k * s->k; tap++) {
            const int64_t it = ot * s->step + tap / (s->k * s->k) - (s->frames - 1);
            const int64_t iy = oy * s->stride + tap / s->k % s->k - pad, ix = ox * s->stride + tap % s->k - pad;
            if (iy < 0 || ix < 0 || iy >= x.h || ix >= x.w || (it < 0 && s->zeros)) {
                continue;
            }
            const float *in = clip_at(&x, it < 0 ? 0 : it, iy, ix);
            for (int64_t i = 0; i < x.c; i++) {
                sum += (double)in[i] * (double)w[(o * x.c + i) * s->frames * s->k * s->k + tap];
            }
        }
        y.data[at] = (float)sum;
    }
    free(w);
    free(b);
    free(x.data);
    return y;
}

void clip_silu(const clip *x) {
    for (int64_t i = 0; i < clip_count(x); i++) {
        x->data[i] = x->data[i] / (1.0f + expf(-x->data[i]));
    }
}

void clip_norm(const dv_tensors *weights, const clip *x, const char *gamma, const char *beta, int64_t groups) {
    float *g = clip_weights(weights, gamma);
    float *b = clip_weights(weights, beta);
    const int64_t per = x->c / groups, pixels = x->h * x->w;
    for (int64_t k = 0; k < x->t * groups; k++) {
        float *frame = x->data + k / groups * pixels * x->c;
        const int64_t c0 = k % groups * per;
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < pixels * per; i++) {
            const double v = (double)frame[i / per * x->c + c0 + i % per];
            sum += v;
            squares += v * v;
        }
        const double mean = sum / (double)(pixels * per);
        const double factor = 1.0 / sqrt(squares / (double)(pixels * per) - mean * mean + 1e-6);
        for (int64_t i = 0; i < pixels * per; i++) {
            float *v = &frame[i / per * x->c + c0 + i % per];
            *v = (float)(((double)*v - mean) * factor * (double)g[c0 + i % per] + (double)b[c0 + i % per]);
        }
    }
    free(g);
    free(b);
}

clip clip_copy(const clip *x) {
    clip y = clip_new(x->t, x->h, x->w, x->c);
    memcpy(y.data, x->data, (size_t)clip_count(x) * sizeof(float));
    return y;
}

void clip_add(const clip *to, const clip *x) {
    for (int64_t i = 0; i < clip_count(to); i++) {
        to->data[i] += x->data[i];
    }
}

clip clip_delay(const clip *x, int64_t by) {
    clip y = clip_new(x->t, x->h, x->w, x->c);
    const int64_t frame = x->h * x->w * x->c;
    memcpy(y.data + by * frame, x->data, (size_t)((x->t - by) * frame) * sizeof(float));
    return y;
}

clip clip_beside(clip a, clip b) {
    clip y = clip_new(a.t, a.h, a.w, a.c + b.c);
    for (int64_t p = 0; p < a.t * a.h * a.w; p++) {
        memcpy(y.data + p * y.c, a.data + p * a.c, (size_t)a.c * sizeof(float));
        memcpy(y.data + p * y.c + a.c, b.data + p * b.c, (size_t)b.c * sizeof(float));
    }
    free(a.data);
    free(b.data);
    return y;
}

clip clip_spread(clip x, int64_t s, int shuffle) {
    const int64_t r = shuffle ? 2 : 1;
    clip y = clip_new(x.t * s, x.h * r, x.w * r, x.c / (s * r * r));
    for (int64_t at = 0; at < clip_count(&y); at++) {
        const int64_t c = at % y.c, ox = at / y.c % y.w, oy = at / y.c / y.w % y.h, t = at / y.c / y.w / y.h;
        const int64_t from = ((t % s) * y.c + c) * r * r + oy % r * r + ox % r;
        y.data[at] = clip_at(&x, t / s, oy / r, ox / r)[from];
    }
    free(x.data);
    return y;
}

clip clip_gather(clip x, int64_t s) {
    clip y = clip_new(x.t / s, x.h, x.w, x.c * s);
    for (int64_t at = 0; at < clip_count(&y); at++) {
        const int64_t c = at % y.c, ox = at / y.c % y.w, oy = at / y.c / y.w % y.h, t = at / y.c / y.w / y.h;
        y.data[at] = clip_at(&x, t * s + c / x.c, oy, ox)[c % x.c];
    }
    free(x.data);
    return y;
}

clip clip_drop(clip x, int64_t index) {
    clip y = clip_new(x.t - 1, x.h, x.w, x.c);
    const int64_t frame = x.h * x.w * x.c;
    memcpy(y.data, x.data, (size_t)(index * frame) * sizeof(float));
    memcpy(y.data + index * frame, x.data + (index + 1) * frame, (size_t)((y.t - index) * frame) * sizeof(float));
    free(x.data);
    return y;
}

double clip_distance(const float *a, const clip *b) {
    return relative_distance(a, b->data, clip_count(b));
}
