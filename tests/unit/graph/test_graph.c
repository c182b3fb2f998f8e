/* test_graph.c - building graphs: shapes, parameters, the sticky first error, reach, costs. */
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/base/mem.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_weights.h"
#include "tests/lib/hooks.h"

static dv_graph *new_graph(const dv_tensors *t) {
    dv_graph *g = NULL;
    return dv_graph_create(t, &g) == DAVY_OK ? g : NULL;
}

static int shape_is(const dv_graph *g, dv_value v, int64_t h, int64_t w, int64_t c) {
    const dv_shape s = dv_shape_of(g, v);
    return s.n == 1 && s.h == h && s.w == w && s.c == c;
}

static dv_tensors *some_weights(void) {
    dv_tensors *t = fake_new();
    fake_conv(t, "first", 8, 3, 3, 1);
    fake_conv(t, "even", 8, 8, 2, 1);
    fake_conv(t, "old.query", 8, 8, 1, 0);
    fake_conv(t, "sub", 27, 8, 3, 0);
    const int64_t matrix[2] = {8, 8};
    fake_add(t, 2, matrix, "new.to_q.weight");
    fake_vector(t, "new.to_q.bias", 8);
    fake_norm(t, "norm", 8);
    fake_vector(t, "each.weight", 8);
    fake_vector(t, "one.weight", 1);
    fake_done(t);
    return t;
}

static void test_shapes(const dv_tensors *t) {
    const dv_shape in = {1, 10, 7, 3};
    dv_graph *g = new_graph(t);
    const dv_value x = dv_input(g, in);
    const dv_value y = dv_conv(g, x, "first", 8, 3, NULL);
    const dv_conv_opts half = {.stride = 2};
    const dv_conv_opts down = {.stride = 2, .pad_bottom_right = true};
    CHECK(shape_is(g, y, 10, 7, 8));
    CHECK(shape_is(g, dv_conv(g, x, "first", 8, 3, &half), 5, 4, 8));
    CHECK(shape_is(g, dv_conv(g, x, "first", 8, 3, &down), 5, 3, 8));
    CHECK(shape_is(g, dv_conv(g, y, "even", 8, 2, NULL), 9, 6, 8));
    CHECK(shape_is(g, dv_upsample(g, y, 2), 20, 14, 8));
    CHECK(shape_is(g, dv_pixel_shuffle(g, y, 2, DV_NO_VALUE), 20, 14, 2));
    CHECK(shape_is(g, dv_pixel_unshuffle(g, dv_pad_to(g, x, 12, 9, DVK_PAD_REFLECT), 3), 4, 3, 27));
    CHECK(shape_is(g, dv_crop_to(g, x, 4, 5), 4, 5, 3));
    CHECK(dv_crop_to(g, x, 10, 7) == x && dv_pad_to(g, x, 10, 7, DVK_PAD_ZERO) == x);
    const dv_value both[2] = {x, y};
    CHECK(shape_is(g, dv_concat(g, both, 2), 10, 7, 11));
    CHECK(shape_is(g, dv_attention(g, y, y, y, 2, 1.0f), 10, 7, 8));
    dv_output(g, dv_add(g, 1.0f, y, 1.0f, dv_group_norm(g, y, "norm", 4, 1e-6f)));
    CHECKF(dv_graph_check(g) == DAVY_OK, "%s", last_error());
    CHECK(dv_shape_of(g, DV_NO_VALUE).h == 0);
    dv_graph_release(g);
}

static void test_params(const dv_tensors *t) {
    const dv_shape in = {1, 4, 4, 8};
    dv_graph *g = new_graph(t);
    const dv_value x = dv_input(g, in);
    const dv_conv_opts no_bias = {.no_bias = true};
    dv_conv(g, x, "new.query|old.query", 8, 1, &no_bias); /* the second alternative */
    dv_conv(g, x, "new.to_q|new.q", 8, 1, NULL);          /* 1x1 stored as a matrix */
    CHECKF(g->result == DAVY_OK, "%s", last_error());
    CHECK(g->n_params == 3 && strcmp(g->params[0].label, "old.query.weight") == 0);
    CHECK(strcmp(g->nodes[1].label, "old.query") == 0 && strcmp(g->nodes[2].label, "new.to_q") == 0);
    dv_conv(g, x, "new.to_q", 8, 1, NULL);
    CHECKF(g->n_params == 3, "the same tensor must be one parameter, not %d", (int)g->n_params);
    CHECK(dv_graph_parameters(g) == 64 + 64 + 8);
    const float values[2] = {1.0f, 2.0f};
    const int64_t two = 2;
    const dv_param constant = dv_param_constant(g, "constant", 1, &two, values);
    CHECK(constant >= 0 && g->params[constant].constant[1] > 1.5f && g->params[constant].ref == NULL);
    CHECK(dv_param_constant(g, "constant", 1, &two, values) == constant);
    CHECKF(dv_graph_parameters(g) == 64 + 64 + 8, "constants are not parameters of the file");
    dv_graph_release(g);
}

static void test_prelu(void) {
    dv_tensors *t = some_weights();
    float *data = NULL;
    const dv_shape in = {1, 4, 4, 8};
    CHECK(fake_fill(t, &data));
    dv_graph *g = new_graph(t);
    const dv_value x = dv_prelu(g, dv_input(g, in), "each");
    dv_output(g, dv_prelu(g, x, "one"));
    if (CHECKF(dv_graph_check(g) == DAVY_OK, "%s", last_error())) {
        const dv_param_info *p = &g->params[g->nodes[2].act.slopes];
        float slopes[8] = {0};
        float one = 0.0f;
        CHECK(g->params[g->nodes[1].act.slopes].ref != NULL);
        CHECK(p->from != NULL && p->from->derive(t, p->from, slopes) == DAVY_OK);
        CHECK(dv_tensor_read_f32(dv_tensors_find(t, "one.weight"), &one) == DAVY_OK);
        CHECKF(memcmp(&slopes[0], &one, sizeof one) == 0 && memcmp(&slopes[7], &one, sizeof one) == 0,
               "one slope must serve all channels");
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
}

typedef struct refusal {
    davy_result code;
    const char *says;
    void (*make)(dv_graph *g, dv_value x);
} refusal;

static void make_missing(dv_graph *g, dv_value x) {
    dv_conv(g, x, "nowhere|elsewhere", 8, 3, NULL);
}
static void make_wrong_shape(dv_graph *g, dv_value x) {
    dv_conv(g, x, "first", 16, 3, NULL);
}
static void make_shuffle(dv_graph *g, dv_value x) {
    dv_pixel_shuffle(g, x, 2, DV_NO_VALUE);
}
static void make_groups(dv_graph *g, dv_value x) {
    dv_group_norm(g, dv_conv(g, x, "first", 8, 3, NULL), "norm", 3, 1e-6f);
}
static void make_sum(dv_graph *g, dv_value x) {
    dv_add(g, 1.0f, x, 1.0f, dv_conv(g, x, "first", 8, 3, NULL));
}
static void make_huge(dv_graph *g, dv_value x) {
    for (int i = 0; i < 8; i++) {
        x = dv_upsample(g, x, 64);
    }
}
static void make_crop(dv_graph *g, dv_value x) {
    dv_crop_to(g, x, 100, 1);
}
static void make_unshuffle(dv_graph *g, dv_value x) {
    dv_pixel_unshuffle(g, x, 3);
}
static void make_second_input(dv_graph *g, dv_value x) {
    dv_input(g, dv_shape_of(g, x));
}

static void test_refusals(const dv_tensors *t) {
    static const refusal refusals[] = {
        {DAVY_E_TENSOR, "'nowhere.weight'", make_missing},
        {DAVY_E_SHAPE, "'first.weight' has shape [8,3,3,3], expected [16,3,3,3]", make_wrong_shape},
        {DAVY_E_SHAPE, "pixel_shuffle: 3 channels", make_shuffle},
        {DAVY_E_SHAPE, "8 channels do not divide into 3 groups", make_groups},
        {DAVY_E_SHAPE, "[1,8,8,3] and [1,8,8,8]", make_sum},
        {DAVY_E_SHAPE, "is not possible", make_huge},
        {DAVY_E_SHAPE, "crop", make_crop},
        {DAVY_E_SHAPE, "do not divide by 3", make_unshuffle},
        {DAVY_E_INTERNAL, "one input", make_second_input},
    };
    const dv_shape in = {1, 8, 8, 3};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        dv_graph *g = new_graph(t);
        const dv_value x = dv_input(g, in);
        refusals[i].make(g, x);
        const int64_t nodes = g->n_nodes;
        CHECKF(dv_conv(g, x, "first", 8, 3, NULL) == DV_NO_VALUE && g->n_nodes == nodes, "case %d goes on building",
               (int)i);
        dv_output(g, x);
        dv_fail(DAVY_E_IO, "something else");
        CHECKF(dv_graph_check(g) == refusals[i].code, "case %d gives %d", (int)i, (int)g->result);
        CHECKF(strstr(last_error(), refusals[i].says) != NULL, "case %d says '%s'", (int)i, last_error());
        dv_graph_release(g);
    }
    dv_graph *g = new_graph(t);
    CHECK(dv_graph_check(g) == DAVY_E_INTERNAL && strstr(last_error(), "input") != NULL);
    dv_graph_release(g);
}

/* A tensor whose pickle would have to run code is reported as unsafe, also under its name before unwrapping. */
static void test_unsafe(void) {
    static const struct {
        const char *key;
        davy_result expected;
    } cases[] = {
        {"unsafe.nowhere.weight", DAVY_E_UNSAFE},
        {"unsafe.params_ema.nowhere.weight", DAVY_E_UNSAFE},
        {"unsafe.nowhere", DAVY_E_UNSAFE},
        {"unsafe.elsewhere.weight", DAVY_E_TENSOR},
        {"unsafe.now", DAVY_E_TENSOR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dv_tensors *t = some_weights();
        CHECK(dv_tensors_add_meta(t, cases[i].key, "posix.system") == DAVY_OK);
        dv_graph *g = NULL;
        CHECK(dv_graph_create(t, &g) == DAVY_OK);
        make_missing(g, dv_input(g, (dv_shape){1, 8, 8, 3}));
        CHECKF(dv_graph_check(g) == cases[i].expected, "%s: %d", cases[i].key, g->result);
        CHECK((strstr(g->error.message, "posix.system") != NULL) == (cases[i].expected == DAVY_E_UNSAFE));
        dv_graph_release(g);
        dv_tensors_release(t);
    }
}

static void test_dump(const dv_tensors *t) {
    static const char expected[] = "%0 = input [1,6,6,3]\n"
                                   "%1 = conv2d %0 first 3x3 3->8 stride 2 [1,3,3,8]\n"
                                   "%2 = group_norm %1 norm 4 groups eps 1e-06 [1,3,3,8]\n"
                                   "%3 = act %2 lrelu 0.2 [1,3,3,8]\n"
                                   "%4 = add %3 %1 * 0.5, * 1 [1,3,3,8]\n"
                                   "%5 = pixel_shuffle %4 by 2 [1,6,6,2] output\n";
    const dv_shape in = {1, 6, 6, 3};
    const dv_conv_opts half = {.stride = 2};
    dv_graph *g = new_graph(t);
    const dv_value y = dv_conv(g, dv_input(g, in), "first", 8, 3, &half);
    const dv_value z = dv_activation(g, dv_group_norm(g, y, "norm", 4, 1e-6f), DVK_ACT_LRELU, 0.2f);
    dv_output(g, dv_pixel_shuffle(g, dv_add(g, 0.5f, z, 1.0f, y), 2, DV_NO_VALUE));
    char *dump = dv_graph_dump(g);
    CHECKF(dump != NULL && strcmp(dump, expected) == 0, "dump is:\n%s", dump);
    dv_free(dump);
    dv_graph_release(g);
}

static dv_reach reach_of(dv_graph *g, dv_value out) {
    dv_reach reach = {.halo = -1, .align = -1, .num = -1, .den = -1};
    dv_output(g, out);
    CHECKF(dv_graph_check(g) == DAVY_OK && dv_graph_reach(g, &reach) == DAVY_OK, "%s", last_error());
    return reach;
}

/* Pixel by pixel: 3x3 after unshuffle by 2 reaches one block of 2 pixels. Two 3x3 after an enlargement reach one
 * source pixel. */
static void test_reach(const dv_tensors *t) {
    const dv_shape in = {1, 12, 12, 3};
    const dv_shape wide = {1, 12, 12, 8};
    const dv_conv_opts half = {.stride = 2};
    const dv_conv_opts down = {.stride = 2, .pad_bottom_right = true};

    dv_graph *g = new_graph(t);
    dv_reach r = reach_of(g, dv_conv(g, dv_input(g, in), "first", 8, 3, NULL));
    CHECK(r.halo == 1 && r.align == 1 && r.num == 1 && r.den == 1 && !r.global);
    dv_graph_release(g);

    g = new_graph(t);
    r = reach_of(g, dv_conv(g, dv_input(g, in), "first", 8, 3, &half));
    CHECK(r.halo == 1 && r.align == 2 && r.num == 1 && r.den == 2);
    dv_graph_release(g);

    g = new_graph(t);
    r = reach_of(g, dv_conv(g, dv_input(g, in), "first", 8, 3, &down));
    CHECK(r.halo == 1 && r.align == 2);
    dv_graph_release(g);

    g = new_graph(t);
    dv_value x = dv_upsample(g, dv_conv(g, dv_input(g, in), "first", 8, 3, NULL), 2);
    const dv_conv_opts no_bias = {.no_bias = true};
    x = dv_conv(g, dv_pixel_unshuffle(g, dv_pixel_shuffle(g, x, 2, DV_NO_VALUE), 2), "old.query", 8, 1, &no_bias);
    r = reach_of(g, dv_conv(g, x, "sub", 27, 3, &no_bias));
    CHECKF(r.halo == 2 && r.align == 1 && r.num == 2 && r.den == 1, "halo %d", (int)r.halo);
    dv_graph_release(g);

    g = new_graph(t);
    r = reach_of(g, dv_group_norm(g, dv_input(g, wide), "norm", 2, 1e-6f));
    CHECK(!r.global && r.n_norms == 1 && r.norms[0].num == 1 && r.norms[0].den == 1 && r.n_means == 0);
    dv_graph_release(g);

    g = new_graph(t); /* means are reported separately */
    const dv_value normed = dv_group_norm(g, dv_input(g, wide), "norm", 2, 1e-6f);
    r = reach_of(g, dv_multiply(g, normed, dv_mean(g, normed), DVK_ACT_SIGMOID));
    CHECK(r.global && r.n_norms == 0 && r.n_means == 0);
    dv_graph_release(g);
}

static dv_value squeeze(dv_graph *g, dv_value x) {
    return dv_multiply(g, x, dv_mean(g, x), DVK_ACT_SIGMOID);
}

/* For a few means, tiles get the means' operands and the part of them that is exact. Many means count as an op that
 * needs the whole picture. */
static void test_reach_of_means(const dv_tensors *t) {
    const dv_shape in = {1, 12, 12, 3};
    const dv_conv_opts half = {.stride = 2};
    for (int count = 1; count <= DV_MEANS + 1; count++) {
        dv_graph *g = new_graph(t);
        dv_value x = dv_upsample(g, squeeze(g, dv_conv(g, dv_input(g, in), "first", 8, 3, &half)), 6);
        for (int i = 1; i < count; i++) {
            x = squeeze(g, x);
        }
        const dv_reach r = reach_of(g, x);
        CHECK(r.global == (count > DV_MEANS) && r.n_means == (r.global ? 0 : count) && r.align == 2);
        CHECK(r.global || (r.means[0].num == 1 && r.means[0].den == 2));
        CHECK(r.global || count == 1 || (r.means[count - 1].num == 3 && r.means[count - 1].den == 1));
        dv_graph_release(g);
    }
    dv_graph *g = new_graph(t); /* a value that only the mean reads also needs a pixel around it */
    const dv_value x = dv_input(g, in);
    const dv_reach r =
        reach_of(g, dv_multiply(g, x, dv_slice(g, dv_mean(g, dv_conv(g, x, "first", 8, 3, NULL)), 0, 3), DVK_ACT_NONE));
    CHECK(r.n_means == 1 && r.halo == 1);
    dv_graph_release(g);
}

static void test_flops(const dv_tensors *t) {
    const dv_shape in = {1, 5, 6, 3};
    dv_graph *g = new_graph(t);
    const dv_value y = dv_conv(g, dv_input(g, in), "first", 8, 3, NULL);
    dv_output(g, dv_attention(g, y, y, y, 1, 1.0f));
    CHECK(dv_graph_flops(g) == 2u * 30 * 8 * 27 + 4u * 30 * 30 * 8);
    dv_graph_release(g);
}

/* Lets every allocation of a build fail in turn. The result is an error or a graph, without a crash or a leak. */
static void test_no_memory(const dv_tensors *t) {
    const dv_shape in = {1, 8, 8, 3};
    davy_result last = DAVY_E_NOMEM_HOST;
    int turns = 0;
    for (; turns < 200 && last != DAVY_OK; turns++) {
        dv_graph *g = NULL;
        char *dump = NULL;
        dv_reach reach;
        dv_alloc_fail_after(turns);
        last = dv_graph_create(t, &g);
        if (last == DAVY_OK) {
            dv_value x = dv_conv(g, dv_input(g, in), "first", 8, 3, NULL);
            x = dv_prelu(g, dv_prelu(g, x, "each"), "one");
            dv_output(g, dv_group_norm(g, x, "norm", 4, 1e-6f));
            last = dv_graph_check(g);
        }
        last = last == DAVY_OK ? dv_fuse(g) : last;
        last = last == DAVY_OK ? dv_graph_reach(g, &reach) : last;
        if (last == DAVY_OK) {
            dump = dv_graph_dump(g);
            last = dump != NULL ? DAVY_OK : DAVY_E_NOMEM_HOST;
        }
        dv_alloc_fail_after(-1);
        CHECKF(last == DAVY_OK || last == DAVY_E_NOMEM_HOST, "allocation %d: %d, %s", turns, (int)last, last_error());
        dv_free(dump);
        dv_graph_release(g);
    }
    CHECKF(turns > 10 && last == DAVY_OK, "%d turns", turns);
}

int main(void) {
    dv_tensors *t = some_weights();
    test_shapes(t);
    test_params(t);
    test_prelu();
    test_refusals(t);
    test_unsafe();
    test_dump(t);
    test_reach(t);
    test_reach_of_means(t);
    test_flops(t);
    test_no_memory(t);
    dv_tensors_release(t);
    return check_done();
}
