/* test_fuse_random.c - fusion must not change the values of a network. Random graphs are computed before and after
 * it. */
#include "tests/lib/fuse_check.h"
#include "tests/lib/interpret.h"

enum { MAX_VALUES = 64 };

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

/* Returns one of the last values, or any value. Additions need two picks of the same shape. */
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
    case 13: { /* its channels in another order: joined views */
        const dv_value parts[2] = {dv_slice(g, x, 3, CHANNELS - 3), dv_slice(g, x, 0, 3)};
        return dv_concat(g, parts, 2);
    }
    case 14:
        return s.h > 3 ? dv_pad(g, dv_crop(g, x, (dv_rect){.top = 1, .left = 0, .h = s.h - 2, .w = s.w}),
                                (dv_rect){.top = 1, .left = 0, .h = s.h, .w = s.w}, DVK_PAD_REFLECT)
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
        if (!CHECKF(g != NULL && dv_graph_check(g) == DAVY_OK, "%s: %s", what, last_error())) {
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
        const double d = relative_distance(fused, plain, (int64_t)n_out);
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

int main(void) {
    test_random();
    return check_done();
}
