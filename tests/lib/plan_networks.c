/* plan_networks.c - see plan_networks.h. */
#include "tests/lib/plan_networks.h"

static dv_tensors *weights_compact(void) {
    return fake_compact(20, 3, 2);
}

static dv_graph *build_compact(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 19, 23);
}

static dv_tensors *weights_span(void) {
    return fake_span(12, 2, 1, 0);
}

static dv_graph *build_span(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 17, 15);
}

static dv_tensors *weights_rrdb(void) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 1, .nf = 16, .gc = 8, .blocks = 2, .doublings = 2, .in = 12});
}

static dv_graph *build_rrdb(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 21, 18);
}

static dv_tensors *weights_tae(void) {
    return fake_tae(4, 0, 1);
}

static dv_graph *build_tae(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_DECODE, 4, 5);
}

static dv_tensors *weights_kl(void) {
    return fake_kl(
        (fake_kl_spec){.names = 0, .z = 4, .quant = 1, .levels = 4, .enc = {32, 32, 64, 64}, .dec = {32, 32, 64, 64}});
}

static dv_graph *build_kl_encoder(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_ENCODE, 32, 40);
}

static dv_graph *build_kl_decoder(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_DECODE, 5, 4);
}

/* Difficult operands of concats: prefixes of each other, an input twice, one value at different places of two
 * concats. Also a crop, the graph's own input, and a concat in a concat. */
static dv_tensors *weights_odd(void) {
    dv_tensors *t = fake_new();
    fake_conv(t, "a", 6, 5, 3, 1);
    fake_conv(t, "b", 6, 11, 3, 1);
    fake_conv(t, "c", 6, 17, 3, 1);
    fake_conv(t, "d", 5, 29, 1, 1);
    fake_conv(t, "e", 5, 28, 3, 1);
    fake_done(t);
    return t;
}

static dv_graph *build_odd(const dv_tensors *t) {
    dv_graph *g = NULL;
    if (dv_graph_create(t, &g) != DAVY_OK) {
        return NULL;
    }
    const dv_value x = dv_input(g, (dv_shape){1, 9, 10, 5});
    const dv_value a = dv_conv(g, x, "a", 6, 3, NULL);
    const dv_value xa[] = {x, a};
    const dv_value b = dv_activation(g, dv_conv(g, dv_concat(g, xa, 2), "b", 6, 3, NULL), DVK_ACT_SILU, 0.0f);
    const dv_value xab[] = {x, a, b};
    const dv_value prefix = dv_concat(g, xab, 3);
    const dv_value c = dv_conv(g, prefix, "c", 6, 3, NULL);
    const dv_value again[] = {c, prefix, c}; /* 6 + 17 + 6 */
    const dv_value d = dv_conv(g, dv_concat(g, again, 3), "d", 5, 1, NULL);
    const dv_value larger = dv_pad_to(g, d, 12, 11, DVK_PAD_REFLECT);
    const dv_value back = dv_crop_to(g, larger, 9, 10);
    const dv_value moved[] = {b, back, xab[1], c, x}; /* 6 + 5 + 6 + 6 + 5 */
    const dv_value e = dv_conv(g, dv_concat(g, moved, 5), "e", 5, 3, NULL);
    const dv_value sum = dv_add(g, 0.5f, dv_add(g, 1.0f, e, 0.25f, back), -1.0f, x);
    dv_output(g, dv_crop_to(g, sum, 8, 7));
    return g;
}

static dv_tensors *weights_swinir(void) {
    return fake_swinir(12, 2, 8, 0);
}

static dv_tensors *weights_drct(void) {
    return fake_drct(20, 6, 4);
}

static dv_tensors *weights_hat(void) {
    return fake_hat(24, 2, 8, 12);
}

static dv_tensors *weights_dat(void) {
    return fake_dat(40, 4);
}

static dv_tensors *weights_srformer(void) {
    return fake_srformer(20, 2, 6);
}

static dv_tensors *weights_atd(void) {
    static const int64_t of[3] = {8, 5, 3};
    return fake_atd(20, 2, of);
}

static dv_tensors *weights_rgt(void) {
    return fake_rgt(40, 4);
}

static dv_graph *build_transformer(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 18, 21);
}

/* Views of views: a slice of a slice and a crop within it, read by convolutions, products and concats. Also
 * products in place of either operand, a gate of one pixel and one of one channel. */
static dv_tensors *weights_views(void) {
    dv_tensors *t = fake_new();
    fake_conv(t, "a", 12, 6, 3, 1);
    fake_conv(t, "b", 5, 5, 3, 1);
    fake_conv(t, "c", 5, 5, 1, 1);
    fake_conv(t, "d", 5, 1, 5, 1);
    fake_conv(t, "e", 6, 15, 1, 1);
    fake_conv(t, "f", 1, 6, 3, 1);
    fake_done(t);
    return t;
}

static dv_graph *build_views(const dv_tensors *t) {
    static const dv_conv_opts valid = {.valid = true};
    dv_graph *g = NULL;
    if (dv_graph_create(t, &g) != DAVY_OK) {
        return NULL;
    }
    const dv_value x = dv_input(g, (dv_shape){1, 11, 13, 6});
    const dv_value a = dv_activation(g, dv_conv(g, x, "a", 12, 3, NULL), DVK_ACT_MISH, 0.0f);
    const dv_value slice = dv_slice(g, dv_slice(g, a, 2, 8), 1, 5);
    const dv_value crop = dv_crop(g, slice, (dv_rect){.top = 1, .left = 2, .h = 8, .w = 9});
    const dv_value small = dv_conv(g, crop, "b", 5, 3, &valid);
    const dv_value around = dv_pad(g, small, (dv_rect){.top = 1, .left = 1, .h = 8, .w = 9}, DVK_PAD_EDGE);
    const dv_value product = dv_multiply(g, around, dv_conv(g, crop, "c", 5, 1, NULL), DVK_ACT_SIGMOID);
    const dv_value deep =
        dv_add(g, 0.5f, dv_activation(g, dv_depthwise(g, crop, "d", 5, NULL), DVK_ACT_GELU, 0.0f), 1.0f, product);
    const dv_value parts[3] = {product, crop, deep};
    dv_value y = dv_conv(g, dv_concat(g, parts, 3), "e", 6, 1, NULL);
    y = dv_multiply(g, y, dv_mean(g, y), DVK_ACT_TANH);
    y = dv_multiply(g, y, dv_conv(g, y, "f", 1, 3, NULL), DVK_ACT_SIGMOID);
    const dv_value low = dv_resize(g, dv_max_pool(g, y, 3, 2), 8, 9);
    dv_output(g, dv_crop(g, dv_add(g, 1.0f, y, -1.0f, low), (dv_rect){.top = 1, .left = 1, .h = 6, .w = 7}));
    return g;
}

static dv_tensors *weights_plksr(void) {
    return fake_plksr(
        (fake_plksr_spec){.real = 1, .nf = 20, .blocks = 2, .scale = 2, .k = 7, .gates = 1, .samples = 1});
}

static dv_tensors *weights_spanf3(void) {
    return fake_spanf3(12, 2, 2, 4, 1);
}

static dv_tensors *weights_cugan(void) {
    return fake_cugan((fake_cugan_spec){3, 3, 5, 3, 0, 1});
}

static dv_tensors *weights_omnisr(void) {
    return fake_omnisr(32, 1, 4, 2);
}

static dv_graph *build_convnet(const dv_tensors *t) {
    return fake_build(t, NULL, DV_STAGE_UPSCALE, 18, 21);
}

const network plan_networks[] = {
    {"compact", weights_compact, build_compact},  {"span", weights_span, build_span},
    {"rrdb", weights_rrdb, build_rrdb},           {"tae", weights_tae, build_tae},
    {"kl encoder", weights_kl, build_kl_encoder}, {"kl decoder", weights_kl, build_kl_decoder},
    {"odd concats", weights_odd, build_odd},      {"swinir", weights_swinir, build_transformer},
    {"drct", weights_drct, build_transformer},    {"hat", weights_hat, build_transformer},
    {"dat", weights_dat, build_transformer},      {"srformer", weights_srformer, build_transformer},
    {"rgt", weights_rgt, build_transformer},      {"atd", weights_atd, build_transformer},
    {"views", weights_views, build_views},        {"plksr", weights_plksr, build_convnet},
    {"spanf3", weights_spanf3, build_convnet},    {"cugan", weights_cugan, build_convnet},
    {"omnisr", weights_omnisr, build_convnet},
};
