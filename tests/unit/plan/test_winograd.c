/* test_winograd.c - Winograd's F(4, 3). Compares the references of op.h with the plain convolution. Reads the
 * packed weights of cuda/wgmma in the order of conv_winograd_sm90.cu. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv/conv_winograd.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "tests/lib/check.h"

enum { H = 6, C = 128, OUT = 136 }; /* two chunks, two blocks */
enum { TAPS = C / 64 * DVK_WINOGRAD_LINES * 3 };

typedef struct network {
    int64_t w, quads;
    float *x, *v, *weights, *plain, *y;
    dvk_conv2d_args direct, transformed;
} network;

/* Multiples of 1 / steps in [-1, 1). */
static float *random_floats(int64_t count, int32_t steps, uint32_t *seed) {
    float *f = malloc((size_t)count * sizeof *f);
    for (int64_t i = 0; f != NULL && i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        f[i] = (float)((int32_t)(*seed >> 16) % (2 * steps) - steps) / (float)steps;
    }
    return f;
}

static dvk_view view_of(float *data, int64_t h, int64_t w, int64_t c) {
    return (dvk_view){
        .data = data, .dtype = DVK_F32, .n = 1, .h = h, .w = w, .c = c, .sn = h * w * c, .sh = w * c, .sw = c};
}

static void run(const char *op, const void *args) {
    const dvk_kernel *k = dvk_find(op, "ref");
    void *scratch = malloc(k->scratch_bytes != NULL ? k->scratch_bytes(args) : 1);
    k->run(args, 0, k->units(args), scratch);
    free(scratch);
}

static void make(network *n, int64_t w) {
    uint32_t seed = (uint32_t)w;
    *n = (network){.w = w, .quads = (w + DVK_WINOGRAD_PIXELS - 1) / DVK_WINOGRAD_PIXELS};
    n->x = random_floats(H * w * C, 4, &seed); /* its transform is exact in f16 */
    n->v = random_floats(DVK_WINOGRAD_LINES * H * n->quads * C, 512, &seed);
    n->weights = random_floats(OUT * C * 9, 512, &seed);
    n->plain = random_floats(H * w * OUT, 512, &seed);
    n->y = random_floats(H * w * OUT, 512, &seed);
    n->direct = (dvk_conv2d_args){.x = view_of(n->x, H, w, C),
                                  .y = view_of(n->plain, H, w, OUT),
                                  .w = n->weights,
                                  .epi = {.alpha = 1.0f},
                                  .kh = 3,
                                  .kw = 3,
                                  .stride = 1,
                                  .pad_top = 1,
                                  .pad_left = 1,
                                  .upsample = 1};
    n->transformed = n->direct;
    n->transformed.x = view_of(n->v, DVK_WINOGRAD_LINES * H, n->quads, C);
    n->transformed.y.data = n->y;
    const dvk_winograd_input_args input = {.x = n->direct.x, .y = n->transformed.x};
    run("winograd_input", &input);
    run("conv2d", &n->direct);
    run("conv2d_winograd", &n->transformed);
}

static void drop(network *n) {
    free(n->x);
    free(n->v);
    free(n->weights);
    free(n->plain);
    free(n->y);
}

/* The sum that tap `tap` of the packed weights of channel `o` contributes at row oy and quad q of the transformed
 * picture. */
static double product_of(const network *n, const unsigned char *packed, int64_t tap, int64_t o, int64_t oy, int64_t q) {
    static const int lines[DVK_WINOGRAD_LINES] = {1, 2, 3, 4, 0, 5};
    const int64_t row = tap % 3, chunk = tap / 3 % (C / 64), line = lines[tap / 3 / (C / 64)], iy = oy + row - 1;
    const unsigned char *tile = packed + (o / 128 * TAPS + tap) * DVK_WINOGRAD_TAP;
    double sum = 0.0;
    for (int64_t k = 0; k < 64 && iy >= 0 && iy < H; k++) {
        const float u = dvk_load(tile, DVK_F16, o % 128 * 64 + ((k / 8) ^ (o & 7)) * 8 + k % 8);
        sum += (double)u * (double)n->v[((DVK_WINOGRAD_LINES * iy + line) * n->quads + q) * C + chunk * 64 + k];
    }
    return sum;
}

/* Converts the sums at the points +-3/4 and +-3/2 to their contributions to the four pixels of a quad. */
static void mix(double *set) {
    static const double points[4] = {0.75, -0.75, 1.5, -1.5};
    double mixed[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < 4; i++) {
        for (int f = 0; f < 4; f++) {
            mixed[i] += pow(points[f], i) * set[f];
        }
    }
    memcpy(set, mixed, sizeof mixed);
}

static double packed_error(const network *n, const unsigned char *packed) {
    static const int sets[DVK_WINOGRAD_LINES] = {0, 1, 2, 3, 0, 3};
    double worst = 0.0;
    for (int64_t oy = 0; oy < H; oy++) {
        for (int64_t o = 0; o < OUT; o += 27) {
            for (int64_t q = 0; q < n->quads; q++) {
                double set[4] = {0.0, 0.0, 0.0, 0.0};
                for (int64_t tap = 0; tap < TAPS; tap++) {
                    if (tap == TAPS / DVK_WINOGRAD_LINES * 4) {
                        mix(set);
                    }
                    set[sets[tap / (TAPS / DVK_WINOGRAD_LINES)]] += product_of(n, packed, tap, o, oy, q);
                }
                for (int64_t i = 0; i < 4 && 4 * q + i < n->w; i++) {
                    worst = fmax(worst, fabs(set[i] - (double)n->plain[(oy * n->w + 4 * q + i) * OUT + o]));
                }
            }
        }
    }
    return worst;
}

static void test_width(int64_t w) {
    network n;
    make(&n, w);
    double worst = 0.0;
    for (int64_t i = 0; i < H * w * OUT; i++) {
        worst = fmax(worst, fabs((double)n.y[i] - (double)n.plain[i]));
    }
    CHECKF(worst < 1e-4, "%lld columns: references differ by %g", (long long)w, worst);
    const dvk_cuda_kernel *k = dvk_cuda_find("conv2d_winograd", "cuda/wgmma");
    dvk_conv2d_args args = n.transformed;
    args.compute = args.x.dtype = args.y.dtype = DVK_F16;
    unsigned char *packed = calloc(1, k->packed_bytes(&args));
    k->pack(&args, n.weights, packed, 0, k->pack_units(&args));
    worst = packed_error(&n, packed);
    CHECKF(worst < 2e-2, "%lld columns: packed weights are off by %g", (long long)w, worst);
    free(packed);
    drop(&n);
}

int main(void) {
    test_width(2);
    test_width(7);
    test_width(16);
    return check_done();
}
