/* cunet.c - see cunet.h. */
#include "core/block/cunet.h"

#include <stdio.h>

#include "core/block/derived.h"

static dv_value lrelu(dv_graph *g, dv_value x) {
    return dv_activation(g, x, DVK_ACT_LRELU, DV_CUNET_SLOPE);
}

/* x without `by` pixels at each side. */
static dv_value without(dv_graph *g, dv_value x, int64_t by) {
    const dv_shape s = dv_shape_of(g, x);
    return dv_crop(g, x, (dv_rect){.top = by, .left = by, .h = s.h - 2 * by, .w = s.w - 2 * by});
}

/* A convolution whose weights give the number of output channels. */
static dv_value conv(dv_graph *g, dv_value x, const char *net, const char *name, int32_t k, const dv_conv_opts *opts) {
    char full[DV_NAMES_BYTES];
    char weight[DV_NAMES_BYTES];
    dv_names_join(full, net, name);
    const int64_t channels = dv_dim(g->weights, dv_names_join(weight, full, ".weight"), 0);
    return dv_conv(g, x, full, channels, k, opts);
}

/* x * sigmoid(conv2(relu(conv1(mean(x))))) if the weights exist, else x. */
static dv_value excite(dv_graph *g, dv_value x, const char *net, const char *name) {
    char part[64];
    snprintf(part, sizeof part, "%s.seblock.conv1", name);
    char full[DV_NAMES_BYTES];
    char weight[DV_NAMES_BYTES];
    if (!dv_has(g->weights, dv_names_join(weight, dv_names_join(full, net, part), ".weight"))) {
        return x;
    }
    dv_value m = conv(g, dv_mean(g, x), net, part, 1, NULL);
    m = dv_activation(g, m, DVK_ACT_RELU, 0.0f);
    snprintf(part, sizeof part, "%s.seblock.conv2", name);
    return dv_multiply(g, x, conv(g, m, net, part, 1, NULL), DVK_ACT_SIGMOID);
}

static dv_value pair(dv_graph *g, dv_value x, const char *net, const char *name) {
    static const dv_conv_opts valid = {.valid = true};
    char part[64];
    snprintf(part, sizeof part, "%s.conv.0", name);
    x = lrelu(g, conv(g, x, net, part, 3, &valid));
    snprintf(part, sizeof part, "%s.conv.2", name);
    x = lrelu(g, conv(g, x, net, part, 3, &valid));
    return excite(g, x, net, name);
}

static dv_value down(dv_graph *g, dv_value x, const char *net, const char *name) {
    static const dv_conv_opts halves = {.valid = true, .stride = 2};
    return lrelu(g, conv(g, x, net, name, 2, &halves));
}

static dv_value up(dv_graph *g, dv_value x, const char *net, const char *name) {
    char full[DV_NAMES_BYTES];
    char weight[DV_NAMES_BYTES];
    dv_names_join(full, net, name);
    const int64_t channels = dv_dim(g->weights, dv_names_join(weight, full, ".weight"), 1);
    const dv_transposed opts = {
        .c_out = channels, .k = 2, .stride = 2, .act = {DVK_ACT_LRELU, DV_CUNET_SLOPE, DV_NO_PARAM}};
    return dv_conv_transposed(g, x, full, &opts);
}

dv_value dv_cunet_first(dv_graph *g, dv_value x, const dv_cunet_bottom *bottom) {
    static const dv_conv_opts valid = {.valid = true};
    const dv_transposed transposed = {
        .c_out = bottom->channels, .k = bottom->k, .stride = bottom->stride, .pad = bottom->pad};
    static const char net[] = "unet1.";
    const dv_value a = pair(g, x, net, "conv1");
    dv_value b = pair(g, down(g, a, net, "conv1_down"), net, "conv2");
    b = dv_add(g, 1.0f, up(g, b, net, "conv2_up"), 1.0f, without(g, a, 4));
    b = lrelu(g, conv(g, b, net, "conv3", 3, &valid));
    return bottom->stride > 1 ? dv_conv_transposed(g, b, "unet1.conv_bottom", &transposed)
                              : dv_conv(g, b, "unet1.conv_bottom", bottom->channels, bottom->k, &valid);
}

dv_value dv_cunet_second(dv_graph *g, dv_value x, int64_t channels) {
    static const dv_conv_opts valid = {.valid = true};
    static const char net[] = "unet2.";
    const dv_value a = pair(g, x, net, "conv1");
    const dv_value b = pair(g, down(g, a, net, "conv1_down"), net, "conv2");
    dv_value c = pair(g, down(g, b, net, "conv2_down"), net, "conv3");
    c = dv_add(g, 1.0f, up(g, c, net, "conv3_up"), 1.0f, without(g, b, 4));
    c = pair(g, c, net, "conv4");
    c = dv_add(g, 1.0f, up(g, c, net, "conv4_up"), 1.0f, without(g, a, 16));
    c = lrelu(g, conv(g, c, net, "conv5", 3, &valid));
    return dv_conv(g, c, "unet2.conv_bottom", channels, 3, &valid);
}

bool dv_cunet_matches(const dv_tensors *t) {
    return dv_dim(t, "unet1.conv1.conv.0.weight", 3) == 3 && dv_has(t, "unet1.conv1_down.weight") &&
           dv_has(t, "unet1.conv2_up.weight") && dv_has(t, "unet1.conv_bottom.weight") &&
           dv_has(t, "unet2.conv3_up.weight") && dv_has(t, "unet2.conv4_up.weight") &&
           dv_has(t, "unet2.conv_bottom.weight");
}
