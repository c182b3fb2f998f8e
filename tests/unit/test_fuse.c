/* test_fuse.c - fusing changes how a network is computed, never what. Random graphs are run before and after; the
 * networks we ship are compared with dumps in tests/golden/plans (DAVY_UPDATE_GOLDEN=1 writes them anew: look at the
 * difference). */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "tests/check.h"
#include "tests/unit/fake_convnets.h"
#include "tests/unit/fake_networks.h"
#include "tests/unit/fake_transformers.h"
#include "tests/unit/interpret.h"

static const char *message(void) {
    static davy_error_info info;
    info.struct_size = sizeof info;
    dv_error_get(&info);
    return info.message;
}

/* ---- what must hold in every fused graph ---- */

static void check_consistent(const dv_graph *g, const char *what) {
    int32_t *uses = calloc((size_t)g->n_values, sizeof *uses);
    int32_t *made = calloc((size_t)g->n_values, sizeof *made);
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        for (int32_t k = 0; k < node->n_in; k++) {
            uses[node->in[k]]++;
            CHECKF(made[node->in[k]] == 1, "%s: %s reads %%%d before it is made", what, node->label, (int)node->in[k]);
        }
        for (int32_t k = 0; k < node->fused.n_res; k++) {
            uses[node->fused.res[k]]++;
            CHECKF(made[node->fused.res[k]] == 1, "%s: %s adds %%%d before it is made", what, node->label,
                   (int)node->fused.res[k]);
        }
        made[node->out]++;
        CHECKF(g->values[node->out].producer == i, "%s: producer of %%%d", what, (int)node->out);
        const int32_t norm = node->fused.norm;
        CHECKF(norm < 0 || (norm <= i && !g->nodes[norm].dead && g->nodes[norm].op == DV_OP_GROUP_NORM &&
                            g->nodes[norm].in[0] == node->in[0] && node->fused.norm_of == node->in[0]),
               "%s: norm of %s", what, node->label);
    }
    uses[g->output]++;
    for (int64_t v = 0; v < g->n_values; v++) {
        CHECKF(g->values[v].uses == uses[v] && made[v] <= 1, "%s: %%%d has %d uses, counted %d", what, (int)v,
               (int)g->values[v].uses, (int)uses[v]);
    }
    free(uses);
    free(made);
}

/* ---- random graphs ---- */

enum { CHANNELS = 8, MAX_VALUES = 64 };

static uint32_t random_state;

static uint32_t pick(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static dv_tensors *random_weights(void) {
    dv_tensors *t = fake_new();
    for (int i = 0; i < 4; i++) {
        fake_conv(t, fake_name("three%d", i), CHANNELS, CHANNELS, 3, i % 2);
        fake_conv(t, fake_name("one%d", i), CHANNELS, CHANNELS, 1, i % 2);
        fake_norm(t, fake_name("norm%d", i), CHANNELS);
    }
    fake_conv(t, "wide", 4 * CHANNELS, CHANNELS, 3, 1);
    fake_conv(t, "join", CHANNELS, 2 * CHANNELS, 1, 1);
    fake_conv(t, "deep", CHANNELS, 1, 3, 1);
    fake_vector(t, "slopes.weight", CHANNELS);
    fake_done(t);
    return t;
}

static dv_value random_conv(dv_graph *g, dv_value x) {
    const uint32_t i = pick(4);
    const dv_conv_opts opts = {.no_bias = i % 2 == 0};
    const int three = pick(2) == 0;
    return dv_conv(g, x, fake_name(three ? "three%u" : "one%u", (unsigned)i), CHANNELS, three ? 3 : 1, &opts);
}

static dv_value random_act(dv_graph *g, dv_value x) {
    static const dvk_act kinds[] = {DVK_ACT_RELU, DVK_ACT_LRELU,   DVK_ACT_SILU, DVK_ACT_CLAMP3,
                                    DVK_ACT_GELU, DVK_ACT_SIGMOID, DVK_ACT_TANH, DVK_ACT_MISH};
    const uint32_t i = pick(9);
    return i == 8 ? dv_prelu(g, x, "slopes") : dv_activation(g, x, kinds[i], 0.2f);
}

/* One of the last values, or any; two picks of the same shape are what additions need. */
static dv_value operand(const dv_value *values, int32_t count) {
    const uint32_t recent = (uint32_t)(count < 3 ? count : 3);
    return values[count - 1 - (int32_t)pick(pick(4) == 0 ? (uint32_t)count : recent)];
}

static dv_value random_pair(dv_graph *g, dv_value a, dv_value b) {
    const float factors[3] = {1.0f, 0.2f, -0.5f};
    const dv_value both[2] = {a, b};
    switch (pick(7)) {
    case 0:
        return dv_span_gate(g, a, b);
    case 1:
        return dv_conv(g, dv_concat(g, both, 2), "join", CHANNELS, 1, NULL);
    case 2:
        return dv_multiply(g, a, b, pick(2) == 0 ? DVK_ACT_SIGMOID : DVK_ACT_NONE);
    default:
        return dv_add(g, factors[pick(3)], a, factors[pick(3)], b);
    }
}

static dv_value random_op(dv_graph *g, dv_value x, dv_value other) {
    const float scale[CHANNELS] = {1.0f, 2.0f, 0.5f, -1.0f, 1.5f, 1.0f, 0.25f, 1.0f};
    const float shift[CHANNELS] = {0.5f, 0.0f, -0.5f, 0.25f, 0.0f, 1.0f, 0.0f, -1.0f};
    const dv_shape s = dv_shape_of(g, x);
    const dv_value qkv[3] = {x, x, other};
    const dv_window window = {.h = 4, .w = 2 + 2 * (int32_t)pick(2), .shift_y = (int32_t)pick(3), .shift_x = 1};
    switch (pick(18)) {
    case 0:
    case 1:
    case 2:
        return random_conv(g, x);
    case 3:
    case 4:
        return random_act(g, x);
    case 5:
        return dv_group_norm(g, x, fake_name("norm%u", (unsigned)pick(4)), 2, 1e-5f);
    case 6:
        return dv_affine(g, x, scale, shift);
    case 7:
        return s.h < 12 ? dv_upsample(g, x, 2) : random_conv(g, x);
    case 8:
        if (s.h < 12) {
            const dv_value up = dv_upsample(g, x, 2);
            const dv_value shuffled = dv_pixel_shuffle(g, dv_conv(g, x, "wide", 4 * CHANNELS, 3, NULL), 2, DV_NO_VALUE);
            return pick(2) == 0 ? dv_add(g, 1.0f, up, 1.0f, shuffled) : dv_add(g, 1.0f, shuffled, 1.0f, up);
        }
        return random_act(g, x);
    case 9:
        return dv_layer_norm(g, x, fake_name("norm%u", (unsigned)pick(4)), 1e-5f);
    case 10:
        if (s.h == dv_shape_of(g, other).h && s.w == dv_shape_of(g, other).w) {
            return dv_window_attention(g, qkv, 2, 0.5f, &window, DV_NO_PARAM);
        }
        return random_conv(g, x);
    case 11:
        return dv_depthwise(g, x, "deep", 3, NULL);
    case 12:
        return dv_multiply(g, x, dv_mean(g, other), DVK_ACT_TANH);
    case 13: { /* its channels in another order: views, joined */
        const dv_value parts[2] = {dv_slice(g, x, 3, CHANNELS - 3), dv_slice(g, x, 0, 3)};
        return dv_concat(g, parts, 2);
    }
    case 14:
        return s.h > 3 ? dv_pad(g, dv_crop(g, x, 1, 0, s.h - 2, s.w), 1, 0, s.h, s.w, DVK_PAD_REFLECT)
                       : random_conv(g, x);
    default:
        return s.h == dv_shape_of(g, other).h && s.w == dv_shape_of(g, other).w ? random_pair(g, x, other)
                                                                                : random_conv(g, x);
    }
}

static dv_graph *random_graph(const dv_tensors *t, uint32_t seed) {
    const dv_shape in = {1, 4, 5, CHANNELS};
    dv_graph *g = NULL;
    dv_value values[MAX_VALUES];
    int32_t count = 0;
    random_state = seed * 2654435761u + 1;
    if (dv_graph_create(t, &g) != DAVY_OK) {
        return NULL;
    }
    values[count++] = dv_input(g, in);
    for (const int32_t length = 5 + (int32_t)pick(20); count < length; count++) {
        const dv_value x = operand(values, count);
        values[count] = random_op(g, x, operand(values, count));
    }
    dv_output(g, values[count - 1]);
    return g;
}

static int64_t live_nodes(const dv_graph *g) {
    int64_t live = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        live += !g->nodes[i].dead;
    }
    return live;
}

static double distance(const float *a, const float *b, size_t n) {
    double square = 0.0;
    double norm = 1e-30;
    for (size_t i = 0; i < n; i++) {
        square += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(square / norm);
}

static void test_random(void) {
    dv_tensors *t = random_weights();
    float *data = NULL;
    int64_t before = 0;
    int64_t after = 0;
    CHECK(fake_fill(t, &data));
    for (uint32_t seed = 1; seed <= 400; seed++) {
        char what[32];
        snprintf(what, sizeof what, "random graph %u", (unsigned)seed);
        dv_graph *g = random_graph(t, seed);
        if (!CHECKF(g != NULL && dv_graph_check(g) == DAVY_OK, "%s: %s", what, message())) {
            dv_graph_release(g);
            continue;
        }
        const size_t n_in = in_count(dv_shape_of(g, g->input));
        const size_t n_out = in_count(dv_shape_of(g, g->output));
        float *x = malloc(n_in * sizeof *x);
        float *plain = malloc(n_out * sizeof *plain);
        float *fused = malloc(n_out * sizeof *fused);
        for (size_t i = 0; i < n_in; i++) {
            x[i] = (float)pick(2001) / 1000.0f - 1.0f;
        }
        const uint64_t flops = dv_graph_flops(g);
        dv_reach reach[2];
        CHECK(dv_graph_reach(g, &reach[0]) == DAVY_OK && interpret(g, x, plain));
        before += live_nodes(g);
        CHECK(dv_fuse(g) == DAVY_OK && dv_fuse(g) == DAVY_OK);
        after += live_nodes(g);
        check_consistent(g, what);
        CHECK(dv_graph_reach(g, &reach[1]) == DAVY_OK && interpret(g, x, fused));
        const double d = distance(fused, plain, n_out);
        CHECKF(d < 2e-5, "%s differs by %g after fusing", what, d);
        CHECKF(flops == dv_graph_flops(g) && reach[0].halo == reach[1].halo && reach[0].num == reach[1].num &&
                   reach[0].align == reach[1].align,
               "%s: fusing changed costs or reach (%d, %d)", what, (int)reach[0].halo, (int)reach[1].halo);
        free(x);
        free(plain);
        free(fused);
        dv_graph_release(g);
    }
    CHECKF(after * 10 < before * 9, "fusing leaves %d of %d nodes", (int)after, (int)before);
    dv_tensors_release(t);
    free(data);
}

/* ---- the networks we know ---- */

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

/* Fused as expected, and computes the same. */
static void test_network(const char *name, dv_tensors *t, dv_stage stage, int64_t h, int64_t w) {
    float *data = NULL;
    CHECK(fake_fill(t, &data));
    dv_graph *g = fake_build(t, NULL, stage, h, w);
    if (CHECKF(g != NULL, "%s: %s", name, message())) {
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
        const double d = distance(fused, plain, n_out);
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
    CHECKF(dv_fuse(g) == DAVY_OK, "%s", message());
    char *dump = dv_graph_dump(g);
    CHECKF(dump != NULL && strcmp(dump, expected) == 0, "got:\n%s", dump);
    check_consistent(g, "limits");
    dv_free(dump);
    dv_graph_release(g);
}

static void test_limits(void) {
    dv_tensors *t = random_weights();
    dv_value x = DV_NO_VALUE;

    /* A value with another reader stays; the activation is a pass of its own. */
    dv_graph *g = start(t, &x);
    dv_value y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    dv_output(g, dv_add(g, 1.0f, dv_activation(g, y, DVK_ACT_RELU, 0.0f), 2.0f, y));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = conv2d %0 three1 3x3 8->8 [1,4,4,8]\n"
                   "%3 = act %1 out{relu, + 2 * %1} [1,4,4,8] output\n");

    /* The later of two convolutions takes the sum; an earlier one moves down only when it is the only candidate. */
    g = start(t, &x);
    y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    dv_output(g, dv_add(g, 0.5f, y, 1.0f, dv_upsample(g, x, 1)));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = upsample %0 by 1 [1,4,4,8]\n"
                   "%3 = conv2d %0 three1 3x3 8->8 out{* 0.5, + 1 * %2} [1,4,4,8] output\n");

    /* A norm that something besides convolutions reads is applied once, by itself. */
    g = start(t, &x);
    y = dv_activation(g, dv_group_norm(g, x, "norm0", 2, 1e-5f), DVK_ACT_SILU, 0.0f);
    dv_output(g, dv_add(g, 1.0f, dv_conv(g, y, "three1", CHANNELS, 3, NULL), 1.0f, y));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = group_norm %0 norm0 2 groups eps 1e-05 in{norm norm0} out{silu} [1,4,4,8]\n"
                   "%4 = conv2d %2 three1 3x3 8->8 out{+ 1 * %2} [1,4,4,8] output\n");

    /* A norm with an activation that no prologue has. */
    g = start(t, &x);
    y = dv_activation(g, dv_group_norm(g, x, "norm0", 2, 1e-5f), DVK_ACT_LRELU, 0.1f);
    dv_output(g, dv_conv(g, y, "three1", CHANNELS, 3, NULL));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%2 = group_norm %0 norm0 2 groups eps 1e-05 in{norm norm0} out{lrelu 0.1} [1,4,4,8]\n"
                   "%3 = conv2d %2 three1 3x3 8->8 [1,4,4,8] output\n");

    /* At most two residuals, at most one activation. */
    g = start(t, &x);
    y = dv_conv(g, x, "three1", CHANNELS, 3, NULL);
    for (int i = 0; i < 3; i++) {
        y = dv_add(g, 1.0f, y, 1.0f, x);
    }
    y = dv_activation(g, dv_activation(g, y, DVK_ACT_RELU, 0.0f), DVK_ACT_SILU, 0.0f);
    dv_output(g, y);
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%3 = conv2d %0 three1 3x3 8->8 out{+ 1 * %0, + 1 * %0} [1,4,4,8]\n"
                   "%5 = add %3 out{+ 1 * %0, relu} [1,4,4,8]\n"
                   "%6 = act %5 out{silu} [1,4,4,8] output\n");

    /* What is no norm is computed once for several readers, not by each of them. */
    g = start(t, &x);
    y = dv_activation(g, x, DVK_ACT_SILU, 0.0f);
    dv_value z = dv_conv(g, y, "one1", CHANNELS, 1, NULL);
    dv_output(g, dv_add(g, 1.0f, z, 1.0f, dv_conv(g, y, "three1", CHANNELS, 3, NULL)));
    expect_dump(g, "%0 = input [1,4,4,8]\n"
                   "%1 = act %0 out{silu} [1,4,4,8]\n"
                   "%2 = conv2d %1 one1 1x1 8->8 [1,4,4,8]\n"
                   "%4 = conv2d %1 three1 3x3 8->8 out{+ 1 * %2} [1,4,4,8] output\n");

    /* Only an enlargement by the shuffle's own factor is its skip. */
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

    /* The graph's output is read by the caller. */
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
    test_random();
    test_networks();
    test_limits();
    return check_done();
}
