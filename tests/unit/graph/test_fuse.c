/* test_fuse.c - compares the fusion of known networks with dumps in tests/golden/plans, and checks cases that must
 * not be fused. DAVY_UPDATE_GOLDEN=1 rewrites the dumps; review the difference. */
#include "tests/lib/fake_convnets.h"
#include "tests/lib/fake_transformers.h"
#include "tests/lib/fuse_check.h"
#include "tests/lib/interpret.h"

/* ---- known networks ---- */

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (f != NULL && text != NULL) {
        const size_t n = fread(text, 1, (1 << 16) - 1, f);
        text[n] = '\0';
    }
    if (f != NULL) {
        fclose(f);
    }
    return text;
}

static void compare_dump(const char *name, const char *dump) {
    char path[512];
    const char *root = getenv("DAVY_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/plans/%s.txt", root != NULL ? root : ".", name);
    if (getenv("DAVY_UPDATE_GOLDEN") != NULL) {
        FILE *f = fopen(path, "wb");
        CHECKF(f != NULL && fputs(dump, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
    }
    char *expected = read_text(path);
    CHECKF(expected != NULL && strcmp(expected, dump) == 0, "%s differs from %s:\n%s", name, path, dump);
    free(expected);
}

/* Checks the fused graph against its dump, and that it computes the same values. */
static void test_network(const char *name, dv_tensors *t, dv_stage stage, int64_t h, int64_t w) {
    float *data = NULL;
    CHECK(fake_fill(t, &data));
    dv_graph *g = fake_build(t, NULL, stage, h, w);
    if (CHECKF(g != NULL, "%s: %s", name, last_error())) {
        const size_t n_in = in_count(dv_shape_of(g, g->input));
        const size_t n_out = in_count(dv_shape_of(g, g->output));
        float *x = malloc(n_in * sizeof *x);
        float *plain = malloc(n_out * sizeof *plain);
        float *fused = malloc(n_out * sizeof *fused);
        for (size_t i = 0; i < n_in; i++) {
            x[i] = (float)pick(1001) / 1000.0f;
        }
        CHECK(interpret(g, x, plain));
        CHECK(dv_fuse(g) == DAVY_OK);
        check_consistent(g, name);
        CHECK(interpret(g, x, fused));
        const double d = relative_distance(fused, plain, (int64_t)n_out);
        CHECKF(d < 2e-5, "%s differs by %g after fusing", name, d);
        char *dump = dv_graph_dump(g);
        compare_dump(name, dump != NULL ? dump : "");
        dv_free(dump);
        free(x);
        free(plain);
        free(fused);
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
}

static void test_networks(void) {
    const fake_kl_spec kl = {.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {32, 64}, .dec = {32, 64}};
    const fake_rrdb_spec rrdb = {.dialect = 1, .nf = 8, .gc = 4, .blocks = 1, .doublings = 2, .in = 3};
    const fake_rrdb_spec folded = {.dialect = 0, .nf = 8, .gc = 4, .blocks = 1, .doublings = 1, .in = 12};
    const fake_rrdb_spec plus = {.dialect = 0, .nf = 8, .gc = 4, .blocks = 1, .doublings = 0, .in = 3, .plus = 1};
    test_network("compact_x2", fake_compact(8, 2, 2), DV_STAGE_UPSCALE, 6, 5);
    test_network("span_x2", fake_span(8, 2, 1, 0), DV_STAGE_UPSCALE, 6, 5);
    test_network("rrdb_x4", fake_rrdb(rrdb), DV_STAGE_UPSCALE, 5, 4);
    test_network("rrdb_unshuffle", fake_rrdb(folded), DV_STAGE_UPSCALE, 5, 6);
    test_network("rrdb_plus", fake_rrdb(plus), DV_STAGE_UPSCALE, 5, 4);
    test_network("kl_encode", fake_kl(kl), DV_STAGE_ENCODE, 6, 8);
    test_network("kl_decode", fake_kl(kl), DV_STAGE_DECODE, 3, 4);
    test_network("tae_encode", fake_tae(4, 0, 0), DV_STAGE_ENCODE, 16, 8);
    test_network("tae_decode", fake_tae(4, 0, 0), DV_STAGE_DECODE, 2, 1);
    test_network("tae_pooled_decode", fake_tae(32, 0, 1), DV_STAGE_DECODE, 2, 2);
    test_network("swinir_x2", fake_swinir(12, 2, 4, 0), DV_STAGE_UPSCALE, 17, 19);
    test_network("swinir_direct_x2", fake_swinir(16, 2, 8, 1), DV_STAGE_UPSCALE, 5, 18);
    test_network("drct_x2", fake_drct(12, 4, 8), DV_STAGE_UPSCALE, 16, 18);
    test_network("hat_x2", fake_hat(12, 2, 8, 12), DV_STAGE_UPSCALE, 17, 16);
    const fake_plksr_spec real = {.real = 1, .nf = 8, .blocks = 1, .scale = 2, .k = 5, .gates = 1, .samples = 1};
    const fake_plksr_spec parts = {.nf = 8, .blocks = 1, .scale = 3, .k = 9, .large = 2, .mixer = {1, 3}, .gates = 1};
    test_network("plksr_dysample_x2", fake_plksr(real), DV_STAGE_UPSCALE, 7, 9);
    test_network("plksr_x3", fake_plksr(parts), DV_STAGE_UPSCALE, 7, 9);
    test_network("spanf3_x2", fake_spanf3(8, 1, 2, 4, 1), DV_STAGE_UPSCALE, 7, 9);
    test_network("cugan_x3", fake_cugan((fake_cugan_spec){3, 3, 5, 3, 0, 1}), DV_STAGE_UPSCALE, 5, 6);
    test_network("upconv7", fake_upconv7(), DV_STAGE_UPSCALE, 5, 4);
    test_network("omnisr_x2", fake_omnisr(32, 1, 4, 2), DV_STAGE_UPSCALE, 17, 9);
    test_network("dat_x2", fake_dat(16, 2), DV_STAGE_UPSCALE, 17, 20);
    test_network("srformer_x2", fake_srformer(12, 2, 6), DV_STAGE_UPSCALE, 17, 19);
    static const int64_t tokens[3] = {8, 5, 3};
    test_network("atd_x2", fake_atd(12, 2, tokens), DV_STAGE_UPSCALE, 17, 20);
    test_network("rgt_x2", fake_rgt(16, 2), DV_STAGE_UPSCALE, 33, 20);
}

/* ---- what must not be fused ---- */

static dv_graph *start(const dv_tensors *t, dv_value *x) {
    const dv_shape in = {1, 4, 4, CHANNELS};
    dv_graph *g = NULL;
    if (dv_graph_create(t, &g) == DAVY_OK) {
        *x = dv_input(g, in);
    }
    return g;
}

static void expect_dump(dv_graph *g, const char *expected) {
    CHECKF(dv_fuse(g) == DAVY_OK, "%s", last_error());
    char *dump = dv_graph_dump(g);
    CHECKF(dump != NULL && strcmp(dump, expected) == 0, "got:\n%s", dump);
    check_consistent(g, "limits");
    dv_free(dump);
    dv_graph_release(g);
}

static void test_limits(void) {
    dv_tensors *t = random_weights();
    dv_value x = DV_NO_VALUE;

    /* A value with another reader stays; the activation is a separate pass. */
    dv_graph *g = start(t, &x);
    dv_value y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    dv_output(g, dv_add(g, 1.0f, dv_activation(g, y, DVK_ACT_RELU, 0.0f), 2.0f, y));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = conv2d %0 three1 3x3 8->8 [1,4,4,8]\n"
                   "%3 = act %1 out{relu, + 2 * %1} [1,4,4,8] output\n");

    /* The later of two convolutions absorbs the sum. An earlier one moves down only if it is the only candidate. */
    g = start(t, &x);
    y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    dv_output(g, dv_add(g, 0.5f, y, 1.0f, dv_upsample(g, x, 1)));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = upsample %0 by 1 [1,4,4,8]\n"
                   "%3 = conv2d %0 three1 3x3 8->8 out{* 0.5, + 1 * %2} [1,4,4,8] output\n");

    /* A norm is applied once, in a pass of its own, if something other than a convolution reads it. */
    g = start(t, &x);
    y = dv_activation(g, dv_group_norm(g, x, "norm0", 2, 1e-5f), DVK_ACT_SILU, 0.0f);
    dv_output(g, dv_add(g, 1.0f, dv_conv(g, y, "three1", CHANNELS, 3, NULL), 1.0f, y));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = group_norm %0 norm0 2 groups eps 1e-05 in{norm norm0} out{silu} [1,4,4,8]\n"
                   "%4 = conv2d %2 three1 3x3 8->8 out{+ 1 * %2} [1,4,4,8] output\n");

    /* A norm with an activation that no prologue supports. */
    g = start(t, &x);
    y = dv_activation(g, dv_group_norm(g, x, "norm0", 2, 1e-5f), DVK_ACT_LRELU, 0.1f);
    dv_output(g, dv_conv(g, y, "three1", CHANNELS, 3, NULL));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = group_norm %0 norm0 2 groups eps 1e-05 in{norm norm0} out{lrelu 0.1} [1,4,4,8]\n"
                   "%3 = conv2d %2 three1 3x3 8->8 [1,4,4,8] output\n");

    dv_tensors_release(t);
}

static void test_counts(void) {
    dv_tensors *t = random_weights();
    dv_value x = DV_NO_VALUE;

    /* At most two residuals, at most one activation. */
    dv_graph *g = start(t, &x);
    dv_value y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    for (int i = 0; i < 3; i++) {
        y = dv_add(g, 1.0f, y, 1.0f, x);
    }
    y = dv_activation(g, dv_activation(g, y, DVK_ACT_RELU, 0.0f), DVK_ACT_SILU, 0.0f);
    dv_output(g, y);
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%3 = conv2d %0 three1 3x3 8->8 out{+ 1 * %0, + 1 * %0} [1,4,4,8]\n"
                   "%5 = add %3 out{+ 1 * %0, relu} [1,4,4,8]\n"
                   "%6 = act %5 out{silu} [1,4,4,8] output\n");

    /* If there are several readers, only a norm moves into them. Other ops are computed once. */
    g = start(t, &x);
    y = dv_activation(g, x, DVK_ACT_SILU, 0.0f);
    dv_value z = dv_conv(g, y, "one1", CHANNELS, 1, NULL);
    dv_output(g, dv_add(g, 1.0f, z, 1.0f, dv_conv(g, y, "three1", CHANNELS, 3, NULL)));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = act %0 out{silu} [1,4,4,8]\n"
                   "%2 = conv2d %1 one1 1x1 8->8 [1,4,4,8]\n"
                   "%4 = conv2d %1 three1 3x3 8->8 out{+ 1 * %2} [1,4,4,8] output\n");

    /* Only an enlargement by the shuffle's own factor is fused as its skip. */
    g = start(t, &x);
    const dv_conv_opts half = {.stride = 2};
    y = dv_upsample(g, dv_conv(g, x, "three1", CHANNELS, 3, &half), 4);
    z = dv_pixel_shuffle(g, dv_conv(g, x, "wide", 4 * CHANNELS, 3, NULL), 2, DV_NO_VALUE);
    dv_output(g, dv_add(g, 1.0f, z, 1.0f, y));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = conv2d %0 three1 3x3 8->8 stride 2 [1,2,2,8]\n"
                   "%2 = upsample %1 by 4 [1,8,8,8]\n"
                   "%3 = conv2d %0 wide 3x3 8->32 [1,4,4,32]\n"
                   "%4 = pixel_shuffle %3 by 2 [1,8,8,8]\n"
                   "%5 = add %4 out{+ 1 * %2} [1,8,8,8] output\n");

    /* The caller reads the graph's output. */
    g = start(t, &x);
    y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    dv_activation(g, y, DVK_ACT_RELU, 0.0f);
    dv_output(g, y);
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = conv2d %0 three1 3x3 8->8 [1,4,4,8] output\n"
                   "%2 = act %1 out{relu} [1,4,4,8]\n");
    dv_tensors_release(t);
}

int main(void) {
    test_networks();
    test_limits();
    test_counts();
    return check_done();
}
