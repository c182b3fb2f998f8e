/* test_arch_numbers.c - the graph of a network has the published parameters, costs and reach. SPAN's folded weights
 * compute the same as its trained ones. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/interpret.h"

/* ---- published numbers ---- */

typedef struct published {
    const char *name;
    dv_tensors *t;
    dv_stage stage;
    int64_t side;
    double gflop, million; /* 0: not published */
    int64_t halo;          /* -1: not published, or global */
} published;

/* The published numbers are rounded to at least three digits. */
static void check_near(const char *name, const char *what, double got, double expected) {
    const double tolerance = fmax(expected * 1.5e-3, 0.006);
    CHECKF(expected <= 0.0 || fabs(got - expected) <= tolerance, "%s: %s is %.4f, published %.4f", name, what, got,
           expected);
}

static void check_published(const published *p) {
    dv_graph *g = fake_build(p->t, NULL, p->stage, p->side, p->side);
    dv_reach reach;
    if (CHECKF(g != NULL, "%s: %s", p->name, last_error()) && CHECK(dv_graph_reach(g, &reach) == DAVY_OK)) {
        check_near(p->name, "GFLOP", (double)dv_graph_flops(g) / 1e9, p->gflop);
        check_near(p->name, "M parameters", (double)dv_graph_parameters(g) / 1e6, p->million);
        CHECKF(p->halo < 0 || reach.halo == p->halo, "%s: halo %d, published %d", p->name, (int)reach.halo,
               (int)p->halo);
        CHECKF((reach.global || reach.n_norms > 0) == (p->halo == -2), "%s: global", p->name);
        const uint64_t flops = dv_graph_flops(g);
        CHECKF(dv_fuse(g) == DAVY_OK && dv_graph_flops(g) == flops, "%s: costs after fusing", p->name);
        dv_reach fused;
        CHECKF(dv_graph_reach(g, &fused) == DAVY_OK && fused.halo == reach.halo && fused.align == reach.align,
               "%s: reach after fusing", p->name);
    }
    dv_graph_release(g);
    dv_tensors_release(p->t);
}

/* Halos: the table gives "~93" and "~348"; an output pixel at the edge of its source pixel needs one more. */
static void test_upscalers(void) {
    const published all[] = {
        {"RRDB 23 x4", fake_usual_rrdb(1, 64, 23, 2, 3), DV_STAGE_UPSCALE, 64, 146.9, 16.698, 349},
        {"RRDB 6 x4", fake_usual_rrdb(2, 64, 6, 2, 3), DV_STAGE_UPSCALE, 64, 46.7, 4.468, 94},
        {"RRDB 23 x2 unshuffle 2", fake_usual_rrdb(1, 64, 23, 2, 12), DV_STAGE_UPSCALE, 64, 36.7, 16.703, -1},
        {"RRDB 23 x1 unshuffle 4", fake_usual_rrdb(1, 64, 23, 2, 48), DV_STAGE_UPSCALE, 64, 9.19, 16.724, -1},
        {"RRDB 23 old x2", fake_usual_rrdb(0, 64, 23, 1, 3), DV_STAGE_UPSCALE, 64, 138.2, 16.66, -1},
        {"RRDB 23 old x1", fake_usual_rrdb(0, 64, 23, 0, 3), DV_STAGE_UPSCALE, 64, 136.1, 16.62, -1},
        {"RRDB Lite x2", fake_usual_rrdb(0, 32, 12, 1, 3), DV_STAGE_UPSCALE, 64, 41.5, 5.01, -1},
        {"RRDB Lite x4", fake_usual_rrdb(0, 32, 12, 2, 3), DV_STAGE_UPSCALE, 64, 43.7, 5.02, -1},
        {"Compact 64/16 x4", fake_compact(64, 16, 4), DV_STAGE_UPSCALE, 64, 5.07, 0.621, 18},
        {"Compact 64/32 x4", fake_compact(64, 32, 4), DV_STAGE_UPSCALE, 64, 9.90, 1.213, 34},
        {"Compact 64/16 x2", fake_compact(64, 16, 2), DV_STAGE_UPSCALE, 64, 4.90, 0.601, 18},
        {"Compact 64/16 x1", fake_compact(64, 16, 1), DV_STAGE_UPSCALE, 64, 4.86, 0.595, 18},
        {"Compact 64/8 x2", fake_compact(64, 8, 2), DV_STAGE_UPSCALE, 64, 2.49, 0.305, 10},
        {"Compact 24/8 x2", fake_compact(24, 8, 2), DV_STAGE_UPSCALE, 64, 0.366, 0.045, 10},
        /* SPAN's published GFLOP include the folding of its weights. Here they are two per weight and pixel. */
        {"SPAN 48 x4", fake_span(48, 4, 1, 0), DV_STAGE_UPSCALE, 64, 2e-9 * 425232 * 4096, 0.426, 21},
        {"SPAN 48 x2", fake_span(48, 2, 0, 0), DV_STAGE_UPSCALE, 64, 2e-9 * 409680 * 4096, 0.411, 21},
        {"SPAN 64 x2", fake_span(64, 2, 0, 1), DV_STAGE_UPSCALE, 64, 2e-9 * 725440 * 4096, 0.727, 21},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_published(&all[i]);
    }
}

static void test_autoencoders(void) {
    const published all[] = {
        {"SD decode 512", fake_usual_kl(0, 4, 1, 128), DV_STAGE_DECODE, 64, 2514.5, 49.49, -2},
        {"SDXL decode 1024", fake_usual_kl(1, 4, 1, 128), DV_STAGE_DECODE, 128, 10470.4, 49.49, -2},
        {"SD encode 512", fake_usual_kl(2, 4, 1, 128), DV_STAGE_ENCODE, 512, 1116.7, 34.16, -2},
        {"SDXL encode 1024", fake_usual_kl(1, 4, 1, 128), DV_STAGE_ENCODE, 1024, 4879.0, 34.16, -2},
        {"FLUX.1 decode 1024", fake_usual_kl(0, 16, 0, 128), DV_STAGE_DECODE, 128, 10472.2, 49.55, -2},
        {"SD 3 encode 1024", fake_usual_kl(1, 16, 0, 128), DV_STAGE_ENCODE, 1024, 4882.6, 34.27, -2},
        {"FLUX.2 decode 1024", fake_usual_kl(1, 32, 1, 128), DV_STAGE_DECODE, 128, 10474.7, 49.62, -2},
        {"FLUX.2 encode 1024", fake_usual_kl(1, 32, 1, 128), DV_STAGE_ENCODE, 1024, 4887.5, 34.43, -2},
        {"FLUX.2 small decode 1024", fake_usual_kl(1, 32, 1, 96), DV_STAGE_DECODE, 128, 5997.4, 27.95, -2},
        {"taesd decode 512", fake_tae(4, 0, 0), DV_STAGE_DECODE, 64, 141.4, 1.22, -1},
        {"taesd decode 1024", fake_tae(4, 0, 0), DV_STAGE_DECODE, 128, 565.4, 1.22, -1},
        {"taesd encode 1024", fake_tae(4, 0, 0), DV_STAGE_ENCODE, 1024, 489.3, 1.22, -1},
        {"taef1 decode 1024", fake_tae(16, 0, 0), DV_STAGE_DECODE, 128, 565.6, 1.23, -1},
        {"taef1 encode 1024", fake_tae(16, 0, 0), DV_STAGE_ENCODE, 1024, 489.5, 1.23, -1},
        {"taef2 decode 1024", fake_tae(32, 0, 1), DV_STAGE_DECODE, 128, 569.2, 1.34, -2},
        {"taef2 encode 1024", fake_tae(32, 0, 1), DV_STAGE_ENCODE, 1024, 493.0, 1.34, -2},
        {"taesana decode 1024", fake_tae(32, 1, 0), DV_STAGE_DECODE, 32, 592.1, 8.30, -1},
        {"taesana encode 1024", fake_tae(32, 1, 0), DV_STAGE_ENCODE, 1024, 33.3, 1.26, -1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_published(&all[i]);
    }
}

/* ---- SPAN's folded weights ---- */

/* Zero padding, then 1x1, 3x3 without padding, 1x1, plus the 1x1 skip: the network as trained. */
static float as_trained(dv_tensors *t, const float *x, int h, int w, int y0, int x0, int o, int in, int out) {
    float *p[8];
    static const char *const names[8] = {"sk.weight",     "sk.bias",     "conv.0.weight", "conv.0.bias",
                                         "conv.1.weight", "conv.1.bias", "conv.2.weight", "conv.2.bias"};
    for (int i = 0; i < 8; i++) {
        const dv_tensor_ref *ref = dv_tensors_find(t, fake_name("conv_1.%s", names[i]));
        p[i] = calloc((size_t)dv_tensor_elements(ref), sizeof(float));
        dv_tensor_read_f32(ref, p[i]);
    }
    double sum = (double)p[7][o] + (double)p[1][o];
    for (int i = 0; i < in; i++) {
        sum += (double)p[0][o * in + i] * (double)x[(y0 * w + x0) * in + i];
    }
    for (int m = 0; m < 2 * out; m++) {
        double wide = (double)p[5][m];
        for (int tap = 0; tap < 9; tap++) {
            const int iy = y0 + tap / 3 - 1;
            const int ix = x0 + tap % 3 - 1;
            const int inside = iy >= 0 && ix >= 0 && iy < h && ix < w;
            for (int n = 0; n < 2 * in; n++) {
                double first = (double)p[3][n]; /* the bias reaches the padded ring */
                for (int i = 0; i < in && inside; i++) {
                    first += (double)p[2][n * in + i] * (double)x[(iy * w + ix) * in + i];
                }
                wide += first * (double)p[4][(m * 2 * in + n) * 9 + tap];
            }
        }
        sum += (double)p[6][o * 2 * out + m] * wide;
    }
    for (int i = 0; i < 8; i++) {
        free(p[i]);
    }
    return (float)sum;
}

static void test_fold(void) {
    enum { H = 3, W = 4, IN = 3, OUT = 8 };
    dv_tensors *t = fake_span(OUT, 2, 1, 1);
    float *data = NULL;
    float x[H * W * IN];
    float *out = calloc(4 * H * W * 3, sizeof *out);
    for (int i = 0; i < H * W * IN; i++) {
        x[i] = (float)(i * 37 % 11) / 11.0f;
    }
    CHECK(fake_fill(t, &data));
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, H, W);
    if (CHECKF(g != NULL, "%s", last_error())) {
        dv_node *conv = &g->nodes[1]; /* conv_1: no norm in front */
        CHECK(conv->op == DV_OP_CONV2D && g->params[conv->weight].from != NULL);
        float first[H * W * OUT];
        g->values[g->output].uses--;
        g->output = conv->out;
        CHECK(interpret(g, x, first));
        for (int i = 0; i < H * W * OUT; i++) {
            const float expected = as_trained(t, x, H, W, i / OUT / W, i / OUT % W, i % OUT, IN, OUT);
            CHECKF(fabsf(first[i] - expected) < 1e-5f, "element %d is %g, trained form gives %g", i, (double)first[i],
                   (double)expected);
        }
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
    free(out);
}

int main(void) {
    test_upscalers();
    test_autoencoders();
    test_fold();
    return check_done();
}
