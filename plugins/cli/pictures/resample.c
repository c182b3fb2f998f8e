/* resample.c - separable Lanczos-3. Each source row is filtered along x when the window along y first needs it, and kept in a
 * ring of floats. Beside the two pictures this needs memory for a few rows only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/pictures/resample.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

/* For each output position: the first source sample, the number of samples, and their weights (`taps` apart). */
typedef struct axis {
    uint32_t taps;
    uint32_t *first;
    uint32_t *count;
    float *weights;
} axis;

static double lanczos3(double x) {
    const double pi = 3.14159265358979323846;
    if (fabs(x) < 1e-9) {
        return 1.0;
    }
    if (fabs(x) >= 3.0) {
        return 0.0;
    }
    return 3.0 * sin(pi * x) * sin(pi * x / 3.0) / (pi * pi * x * x);
}

static void axis_free(axis *a) {
    free(a->first);
    free(a->count);
    free(a->weights);
}

static int axis_init(axis *a, uint32_t in, uint32_t out) {
    const double step = (double)in / (double)out;
    const double stretch = step > 1.0 ? step : 1.0;
    a->taps = (uint32_t)ceil(6.0 * stretch) + 1;
    a->first = malloc(out * sizeof *a->first);
    a->count = malloc(out * sizeof *a->count);
    a->weights = calloc((size_t)out * a->taps, sizeof *a->weights);
    if (a->first == NULL || a->count == NULL || a->weights == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < out; i++) {
        const double centre = ((double)i + 0.5) * step - 0.5;
        double lo = ceil(centre - 3.0 * stretch);
        double hi = floor(centre + 3.0 * stretch);
        lo = lo < 0.0 ? 0.0 : lo;
        hi = hi > (double)in - 1.0 ? (double)in - 1.0 : hi;
        a->first[i] = (uint32_t)lo;
        a->count[i] = (uint32_t)(hi - lo) + 1;
        float *w = a->weights + (size_t)i * a->taps;
        double sum = 0.0;
        for (uint32_t t = 0; t < a->count[i]; t++) {
            sum += lanczos3((lo + t - centre) / stretch);
        }
        /* Normalised over the samples inside the picture: flat areas stay flat up to the border. */
        for (uint32_t t = 0; t < a->count[i]; t++) {
            w[t] = (float)(lanczos3((lo + t - centre) / stretch) / sum);
        }
    }
    return 0;
}

/* Reads a source row as floats in 0..1, colours multiplied by alpha. */
static void load_row(const cli_picture *p, uint32_t y, float *out) {
    const size_t n = (size_t)p->width * p->channels;
    const size_t base = y * n;
    if (p->bits == 16) {
        const uint16_t *s = (const uint16_t *)p->pixels + base;
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)s[i] * (1.0f / 65535.0f);
        }
    } else {
        const uint8_t *s = (const uint8_t *)p->pixels + base;
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)s[i] * (1.0f / 255.0f);
        }
    }
    for (size_t i = 0; p->channels % 2 == 0 && i < n; i += p->channels) {
        for (size_t c = 0; c + 1 < p->channels; c++) {
            out[i + c] *= out[i + p->channels - 1];
        }
    }
}

static void filter_row(const axis *a, const float *in, uint32_t channels, uint32_t width, float *out) {
    for (uint32_t x = 0; x < width; x++) {
        const float *w = a->weights + (size_t)x * a->taps;
        const float *s = in + (size_t)a->first[x] * channels;
        float sum[4] = {0};
        for (uint32_t t = 0; t < a->count[x]; t++) {
            for (uint32_t c = 0; c < channels; c++) {
                sum[c] += w[t] * s[t * channels + c];
            }
        }
        memcpy(out + (size_t)x * channels, sum, channels * sizeof *out);
    }
}

static void store_row(cli_picture *p, uint32_t y, const float *row) {
    const size_t n = (size_t)p->width * p->channels;
    const float full = p->bits == 16 ? 65535.0f : 255.0f;
    const int alpha = p->channels % 2 == 0;
    for (size_t i = 0; i < n; i++) {
        const size_t c = i % p->channels;
        float v = row[i];
        if (alpha && c + 1 < p->channels) {
            const float a = row[i - c + p->channels - 1];
            v = a > 0.5f / full ? v / a : 0.0f;
        }
        v = v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
        if (p->bits == 16) {
            ((uint16_t *)p->pixels)[y * n + i] = (uint16_t)(v * full + 0.5f);
        } else {
            ((uint8_t *)p->pixels)[y * n + i] = (uint8_t)(v * full + 0.5f);
        }
    }
}

typedef struct work {
    axis x;
    axis y;
    float *source; /* one source row */
    float *ring;   /* y.taps rows, filtered along x; row r of the source is at r % taps */
    float *sum;
} work;

static int filter_picture(work *w, const cli_picture *in, cli_picture *out) {
    const size_t n = (size_t)out->width * out->channels;
    uint32_t ready = 0; /* source rows filtered so far */
    for (uint32_t y = 0; y < out->height; y++) {
        if (cli_interrupted()) {
            return 1;
        }
        for (const uint32_t end = w->y.first[y] + w->y.count[y]; ready < end; ready++) {
            load_row(in, ready, w->source);
            filter_row(&w->x, w->source, in->channels, out->width, w->ring + (ready % w->y.taps) * n);
        }
        memset(w->sum, 0, n * sizeof *w->sum);
        for (uint32_t t = 0; t < w->y.count[y]; t++) {
            const float weight = w->y.weights[(size_t)y * w->y.taps + t];
            const float *row = w->ring + ((w->y.first[y] + t) % w->y.taps) * n;
            for (size_t i = 0; i < n; i++) {
                w->sum[i] += weight * row[i];
            }
        }
        store_row(out, y, w->sum);
        cli_progress_update("resizing", y + 1, out->height);
    }
    return 0;
}

int cli_resample(const cli_picture *in, uint32_t width, uint32_t height, cli_picture *out) {
    work w = {{0}, {0}, NULL, NULL, NULL};
    cli_picture r = {.width = width, .height = height, .channels = in->channels, .bits = in->bits};
    const size_t n = (size_t)width * in->channels;
    int result = -1;
    if (axis_init(&w.x, in->width, width) == 0 && axis_init(&w.y, in->height, height) == 0) {
        w.source = malloc((size_t)in->width * in->channels * sizeof *w.source);
        w.ring = malloc(n * w.y.taps * sizeof *w.ring);
        w.sum = malloc(n * sizeof *w.sum);
    }
    if (w.source != NULL && w.ring != NULL && w.sum != NULL && cli_picture_alloc(&r) == 0) {
        result = filter_picture(&w, in, &r);
    }
    if (result == 0) {
        *out = r;
    } else {
        cli_picture_free(&r);
    }
    free(w.source);
    free(w.ring);
    free(w.sum);
    axis_free(&w.x);
    axis_free(&w.y);
    return result;
}
